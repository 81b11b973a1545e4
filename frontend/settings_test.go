package frontend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSettingsOfAComment(t *testing.T) {
	for comment, want := range map[string]Settings{
		"@critical":                                 {},
		"accounts of a branch, @critical":           {},
		"@CRITICAL( unlocked = allow , lease=5s )":  {Unlocked: Allow, Lease: 5 * time.Second},
		"@critical(key=partition, unlocked=reject)": {},
		"@critical()":                               {},
		"(@critical)":                               {},
	} {
		got, marked, err := ReadSettings(comment)
		require.NoError(t, err, comment)
		assert.True(t, marked, comment)
		assert.Equal(t, want, got, comment)
		stored, _, err := ReadSettings("@critical(" + got.String() + ")")
		require.NoError(t, err)
		assert.Equal(t, got, stored, "what is stored reads as what was written")
	}
	for _, comment := range []string{"", "critical", "@criticality", "x@critical", "@@critical", "@critically(lease=1s)"} {
		_, marked, err := ReadSettings(comment)
		assert.False(t, marked, comment)
		assert.NoError(t, err, comment)
	}
	for _, comment := range []string{
		"@critical(", "@critical(lease=5s", "@critical(lease=5)", "@critical(lease=10ms)", "@critical(color=red)", "@critical(unlocked=maybe)",
		"@critical(unlocked=auto)", "@critical(key=row)", "@critical(strict=true)", "@critical(scope=local)", "@critical(lease)",
	} {
		got, marked, err := ReadSettings(comment)
		assert.Error(t, err, comment)
		assert.True(t, marked, "it is critical all the same: %s", comment)
		assert.Equal(t, Settings{}, got, comment)
	}
}

// What the text of a CREATE or ALTER shows is refused with it.
func TestTablesThatCannotBeCritical(t *testing.T) {
	for text, why := range map[string]string{
		"CREATE TABLE a.b (k int PRIMARY KEY, n counter) WITH comment = '@critical'":                          "counters",
		`CREATE TABLE a.b (k int PRIMARY KEY, "N" COUNTER) WITH gc_grace_seconds = 1 AND comment='@critical'`: "counters",
		"ALTER TABLE a.b WITH comment = '@critical' AND gc_grace_seconds = 3600":                              "gc_grace_seconds",
		"ALTER TABLE a.b WITH COMMENT = $$@critical(key=row)$$":                                               "key=row is not served yet",
	} {
		f := checkDDL([]byte(text))
		require.NotNil(t, f, text)
		assert.Contains(t, f.Text, why, text)
	}
	for _, text := range []string{
		"CREATE TABLE a.b (counter int PRIMARY KEY, n int) WITH comment = '@critical'",
		"CREATE TABLE a.b (k int PRIMARY KEY, n counter) WITH comment = 'plain'",
		"CREATE TABLE a.b (k int PRIMARY KEY) WITH comment = '@critical' AND gc_grace_seconds = 864000",
		"CREATE TABLE a.b (k text PRIMARY KEY, v text) -- comment = '@critical(key=row)'",
		"ALTER TABLE a.b WITH gc_grace_seconds = 0",
	} {
		assert.Nil(t, checkDDL([]byte(text)), text)
	}
}
