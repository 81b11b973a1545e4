package rewrite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// AssignedValue tells the literal that a column is assigned, and nothing of what is computed, bound
// or put into a part of a column.
func TestAssignedValue(t *testing.T) {
	for assignment, want := range map[string]string{
		"v = 5": "5", "v=-5": "-5", "v = 'x, y'": "'x, y'", "v = null": "null", "v /* = 1 */ = True": "True", "v = 1h": "1h", "v = 0x00": "0x00", "v = NaN": "NaN",
		"v = ?": "", "v = :n": "", "v = v + 1": "", "v = v -1": "", "v += 1": "", "v = 1 + 1": "", "v = now()": "", "v = [5]": "", "v = (int) 5": "", "v[5] = 6": "", "v.f = 5": "", "v = w": "",
	} {
		for _, text := range []string{"UPDATE t SET " + assignment + " WHERE k = 1", "UPDATE t SET " + assignment + ", w = 7 WHERE k = 1", "UPDATE t SET w = 7, " + assignment + " WHERE k = 1"} {
			s, got := parsed(t, text), ""
			for _, column := range s.Sets {
				if literal, ok := AssignedValue([]byte(text), column); ok && string(column.Of([]byte(text))) == "v" {
					got = string(literal.Of([]byte(text)))
				}
			}
			require.Equal(t, want, got, text)
		}
	}
}
