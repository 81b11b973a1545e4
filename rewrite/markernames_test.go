package rewrite

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every marker has its name at its place, wherever in the statement it stands; what only looks like one has none.
func TestMarkerNames(t *testing.T) {
	for text, want := range map[string][]string{
		"UPDATE t USING LOCK :Ref SET v = : v WHERE k = :\"Key\" AND c = :v":                                {"ref", "v", "Key", "v"},
		"UPDATE t SET v = ? WHERE k = :k":                                                                   {"", "k"},
		"UPDATE t SET v = ? WHERE k = ?":                                                                    {},
		"UPDATE t SET v = {1 : 2, :a : :b, 'x' : ?} WHERE k = {(int) :c}":                                   {"a", "b", "", "c"},
		"BEGIN BATCH USING LOCK :r UPDATE t SET v = :a WHERE k = 1; DELETE FROM t WHERE k = :b APPLY BATCH": {"r", "a", "b"},
		"LOCK t WHERE k = :k WAIT :w /* :no */ LEASE ?":                                                     {"k", "w"},
		"INSERT INTO t (k, v) VALUES (:k, ':no') USING LOCK :ref":                                           {"k", "ref"},
	} {
		s, err := Parse([]byte(text))
		require.NoError(t, err, text)
		names := []string{}
		for _, n := range s.MarkerNames {
			names = append(names, string(n.AppendTo(nil, []byte(text))))
		}
		assert.Equal(t, want, names, text)
		assert.LessOrEqual(t, len(names), s.Markers, text)
	}
}
