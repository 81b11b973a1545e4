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
