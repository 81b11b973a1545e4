package statement

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A statement is simple only if nothing about it but its key and its reference has to be found out
// at each EXECUTE. Its key is that of Key.
func TestSimpleStatements(t *testing.T) {
	for text, want := range map[string][]int{
		"UPDATE t USING LOCK ? SET v = ? WHERE k = ? AND c = ? AND d = ?":                     {2, 3, 4},
		"INSERT INTO t (d, v, c, k) VALUES (?, 1, ?, ?) USING LOCK ? AND TTL ?":               {2, 1, 0},
		"DELETE FROM t USING LOCK 17 WHERE k = ? AND c = ? AND d = ?":                         {0, 1, 2},
		"SELECT v FROM t WHERE d = ? AND k = ? AND c = ? LIMIT 1 USING LOCK ?":                {1, 2, 0},
		"UPDATE t SET v = ? WHERE k = ? AND c = ? AND d = ?":                                  {1, 2, 3},
		"SELECT v FROM t WHERE k = ? AND c = ? AND d = ?":                                     nil,
		"SELECT v FROM t WHERE k = ? AND c = ? AND d = ? FOR UPDATE":                          nil,
		"LOCK t WHERE k = ? AND c = ? AND d = ?":                                              nil,
		"UNLOCK t WHERE k = ? AND c = ? AND d = ? USING LOCK ?":                               nil,
		"UPDATE t USING LOCK ? SET v = ? WHERE k = 'x' AND c = ? AND d = ?":                   nil,
		"UPDATE t USING LOCK ? SET v = ? WHERE k = ? AND c = ?":                               nil,
		"UPDATE t USING LOCK ? SET v = ? WHERE k = ? AND c > ? AND d = ?":                     nil,
		"UPDATE t USING LOCK ? SET v = ? WHERE k = ? AND c = ? AND d IN (?, ?)":               nil,
		"UPDATE t USING LOCK ? SET v = ? WHERE k = ? AND c = ? AND d = ? AND d = ?":           nil,
		"UPDATE t USING LOCK ? SET st = ? WHERE k = ? AND c = ? AND d = ?":                    nil,
		"UPDATE t USING LOCK ? SET v = ? WHERE k = ? AND c = ? AND d = ? IF EXISTS":           nil,
		"UPDATE t USING LOCK ? AND TIMESTAMP ? SET v = ? WHERE k = ? AND c = ? AND d = ?":     nil,
		"UPDATE t USING LOCK ? SET v = ? WHERE k = ? AND c = ? AND d = ? AND e = now()":       nil,
		"INSERT INTO t JSON ? USING LOCK ?":                                                   nil,
		"BEGIN BATCH USING LOCK ? DELETE FROM t WHERE k = ? AND c = ? AND d = ?; APPLY BATCH": nil,
	} {
		s := rowStatement(t, text)
		markers := s.KeyMarkers()
		assert.Equal(t, want, markers, text)
		for range s.Parsed.Markers {
			s.Values = append(s.Values, append([]byte{0, 0, 0, 8}, "a value"+string(rune('0'+len(s.Values)))...))
		}
		if markers == nil {
			continue
		}
		key, f := s.Key()
		require.Nil(t, f, text)
		at, f := s.KeyAt(markers)
		require.Nil(t, f, text)
		assert.Equal(t, key, at, text)
		s.Values[markers[1]] = []byte{255, 255, 255, 255}
		_, f = s.KeyAt(markers)
		require.NotNil(t, f, text)
	}
}
