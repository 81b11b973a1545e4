package catalog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A comment is read for settings only where they are meant as such, and what is stored reads back alike.
func TestSettingsOfAComment(t *testing.T) {
	for comment, want := range map[string]Settings{
		"@critical":                                 {},
		"accounts of a branch, @critical":           {},
		"@CRITICAL( unlocked = allow , lease=5s )":  {Unlocked: Allow, Lease: 5 * time.Second},
		"@critical(key=partition, unlocked=reject)": {},
		"@critical()":                               {},
		"@critical(key=row, scope=local, lease=1m)": {Row: true, Local: true, Lease: time.Minute},
		"@critical(key=row)":                        {Row: true},
		"@critical(scope=global)":                   {},
		"@critical(strict=true)":                    {Strict: true},
		"@critical(timestamp=ignore, key=row)":      {Ignore: true, Row: true},
		"@critical(timestamp:refuse)":               {},
		"@critical(strict=FALSE)":                   {},
		"(@critical)":                               {},
		"@critical, the balances":                   {},
		"@critical. Balances of a branch: see ops":  {},
		"@critical balances":                        {},
		"'@critical'":                               {},
		"@critical (unlocked=auto)":                 {Unlocked: Auto},
		"@critical\n(lease=5s) balances":            {Lease: 5 * time.Second},
		"@critical(unlocked:auto)":                  {Unlocked: Auto},
		"x @critical (Key : row, lease: 5s) of x":   {Row: true, Lease: 5 * time.Second},
		"@critical(unlocked:allow, scope=local)":    {Unlocked: Allow, Local: true},
		"@critical(auto)":                           {Unlocked: Auto},
		"@critical(scope=local, DC = Dc1)":          {Local: true, Centre: "Dc1"},
		"@critical(dc:eu-west:1, local, ROW)":       {Local: true, Row: true, Centre: "eu-west:1"},
		"@critical(row, local, ALLOW, lease:1m)":    {Unlocked: Allow, Row: true, Local: true, Lease: time.Minute},
		"balances @critical auto":                   {Unlocked: Auto},
		"@critical\tROW\n":                          {Row: true},
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
		"@critical(key=column)", "@critical(strict=maybe)", "@critical(scope=dc1)", "@critical(lease)", "@critical(unlocked=auto, unlocked=allow)",
		"@critical(auto:)", "@critical(auto=)", "@critical(unlocked:)", "@critical(auto, unlocked:auto)", "@critical(auto, allow)", "@critical(unlocked:auto=allow)",
		"@critical(unlocked::auto)", "@critical(strict)", "@critical(dc=dc1)", "@critical(scope=local, dc=)", "@critical(scope=local, dc)", "@critical(unlocked auto)", "@critical(auto row)",
	} {
		got, marked, err := ReadSettings(comment)
		assert.Error(t, err, comment)
		assert.True(t, marked, "it is critical all the same: %s", comment)
		assert.Equal(t, Settings{}, got, comment)
		assert.NotErrorIs(t, err, ErrSpelling)
	}
	for comment, says := range map[string]string{
		"@critical(unlocked=alow)": `unlocked is reject, auto or allow, not "alow"`, "@critical(key=rows)": `key is partition or row, not "rows"`,
		"@critical(strict=on)": `strict is false or true, not "on"`, "@critical(scope=dc1)": `scope is global or local, not "dc1"`,
		"@critical(timestamp=no)": `timestamp is refuse or ignore, not "no"`,
	} {
		_, _, err := ReadSettings(comment)
		assert.EqualError(t, err, says)
	}
	for _, comment := range []string{
		"@critical unlocked=auto", "@critical auto, row", "@critical auto.", "@critical auto parts", "@critical strict", "@critical: auto", "@critical: unlocked=auto", "@critical: balances", "@critical[unlocked=auto]", "@critical {key=row}",
		"@critical = auto", "@critical=auto", "@critical-auto", "@critical, unlocked=auto", "@critical. Unlocked: auto", "unlocked=auto @critical", "balances, key=row, @critical",
		"@critical(unlocked=auto) key=row", "@critical(unlocked=auto)(key=row)", "@critical @critical(key=row)", "@critical(key=row) and @critical", "@critical (see the wiki)",
		"@critical <auto>", "@critical/auto", "@critical auto unlocked:allow", "unlocked:allow @critical auto", "@critical auto @critical", "@critical(unlocked=auto)lease=5s", "@critical @critical",
	} {
		got, marked, err := ReadSettings(comment)
		assert.ErrorIs(t, err, ErrSpelling, comment)
		assert.True(t, marked, "it is critical all the same: %s", comment)
		assert.Equal(t, Settings{}, got, comment)
	}
}

// Who holds by the one key does not know of who holds by the other.
func TestKeyAndScopeStayWhileThereAreLockRows(t *testing.T) {
	rows := &Critical{Settings: Settings{Row: true}, Made: true}
	local := &Critical{Settings: Settings{Local: true, Centre: "dc1"}, Made: true}
	for asked, can := range map[Settings]bool{{Local: true}: true, local.Settings: true, {Local: true, Centre: "dc2"}: false} {
		assert.Equal(t, can, local.CanChangeTo(asked), asked)
	}
	for asked, refused := range map[Settings]bool{
		{}: true, {Row: true, Local: true}: true, {Local: true}: true, {Row: true, Lease: 7 * time.Second}: false,
	} {
		assert.Equal(t, !refused, rows.CanChangeTo(asked), asked)
		assert.True(t, (&Critical{Settings: rows.Settings}).CanChangeTo(asked), "no lock rows yet")
	}
}
