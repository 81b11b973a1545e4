package integration

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// tidy returns what cqlsh printed without what differs from run to run: column widths, empty lines,
// times, write timestamps and uuids. A page may break a long line anywhere.
func tidy(said string) string {
	var kept []string
	var columns []string
	lines := strings.Split(said, "\n")
	for i, line := range lines {
		switch {
		case i+1 < len(lines) && isRule(lines[i+1]):
			columns = cells(line)
		case isRule(line):
			line = "--"
		case columns != nil && len(cells(line)) == len(columns) && strings.HasPrefix(line, " "):
			line = tidyRow(columns, cells(line))
		}
		kept = append(kept, strings.Join(strings.Fields(line), " "))
	}
	text := strings.Join(strings.Fields(strings.Join(kept, " ")), " ")
	text = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(text, "<uuid>")
	return regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.\d]*(\+0000)?`).ReplaceAllString(text, "<time>")
}

// isRule reports whether a line is the rule between the column names and the rows.
func isRule(line string) bool {
	return regexp.MustCompile(`^-[-+]+$`).MatchString(strings.TrimSpace(line))
}

// tidyRow returns a row without times, except whether one is 0.
func tidyRow(columns, row []string) string {
	row = slices.Clone(row)
	for i, name := range columns {
		n, err := strconv.Atoi(row[i])
		if err != nil || n == 0 {
			continue
		}
		switch {
		case name == "lease_ms" && !slices.Contains(columns, "age_ms"):
			// Of a lock that was acquired just now, rounded up to a second, this is the lease that
			// was given.
			row[i] = "<" + strconv.Itoa((n+999)/1000) + " s>"
		case name == "lease_ms", name == "age_ms", strings.HasPrefix(name, "writetime("):
			row[i] = "<" + name + ">"
		}
	}
	return strings.Join(row, " | ")
}

// The comparison of a page with what was printed ignores times and widths, and nothing else.
func TestDocsComparisonSeesWhatMatters(t *testing.T) {
	const was = `
 [applied] | lock_ref | state | holder | lease_ms
-----------+----------+-------+--------+----------
      True |        1 |  HELD |   anna |    29987
`
	same := strings.NewReplacer("29987", "30000", "   anna", "anna", "+--------+", "+----+", " \n", "\n\n").Replace(was)
	assert.Equal(t, tidy(was), tidy(same))
	for _, change := range [][2]string{
		{"HELD", "QUEUED"}, {"      True", "False"}, {" 1 |", " 2 |"}, {"anna", "null"}, {"29987", "0"}, {"29987", "5000"}, {"holder", "owner"}, {"\n", "\nWarnings :\n"},
	} {
		changed := strings.Replace(was, change[0], change[1], 1)
		assert.NotEqual(t, was, changed, "%v is not in it", change)
		assert.NotEqual(t, tidy(was), tidy(changed), "%v", change)
	}
	const failed = `InvalidRequest: message="MUSIC_LOST: lock_ref 1 has expired"`
	assert.Equal(t, tidy(failed), tidy(strings.Replace(failed, "lock_ref 1 ", "lock_ref 1\n", 1)))
	assert.NotEqual(t, tidy(failed), tidy(strings.Replace(failed, "LOST", "NOT_HELD", 1)))
	assert.NotEqual(t, tidy(failed), tidy(""))
}
