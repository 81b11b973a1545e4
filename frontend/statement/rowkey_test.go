package statement

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
	"music/rewrite"
)

// rowStatement is a statement on a table that is locked by rows, with its bound values.
func rowStatement(t *testing.T, text string, values ...[]byte) *Statement {
	t.Helper()
	parsed, err := rewrite.Parse([]byte(text))
	require.NoError(t, err)
	s := &Statement{Parsed: &parsed, Text: []byte(text), Table: &catalog.Table{Keyspace: "ks", Name: "t"}, Critical: &catalog.Critical{
		Key:     []catalog.Column{{Name: "k", Type: "text"}, {Name: "c", Type: "varint", Clustering: true}, {Name: "d", Type: "double", Clustering: true}},
		Primary: []string{"k", "c", "d"}, Static: []string{"st"}, Settings: catalog.Settings{Row: true},
	}}
	for _, v := range values {
		s.Values = append(s.Values, append(binary.BigEndian.AppendUint32(nil, uint32(len(v))), v...))
	}
	return s
}

// One row is one key, however its clustering is spelt, and another row another.
func TestSpellingsOfARow(t *testing.T) {
	nan := binary.BigEndian.AppendUint64(nil, math.Float64bits(math.NaN()))
	other := append([]byte{0xff}, nan[1:]...)
	key := func(text string, values ...[]byte) musiccore.Key {
		k, f := rowStatement(t, text, values...).Key()
		require.Nil(t, f)
		return k
	}
	const lock = "LOCK t WHERE k = 'x' AND c = ? AND d = ?"
	one := key(lock, []byte{5}, nan)
	assert.Equal(t, one, key(lock, []byte{0, 0, 5}, other))
	assert.Equal(t, one, key("DELETE FROM t USING LOCK 1 WHERE d = ? AND c = 5 AND k = 'x'", nan))
	assert.Equal(t, one, key("INSERT INTO t (d, c, v, k) VALUES (?, ?, 1, 'x') USING LOCK 1", other, []byte{5}))
	assert.NotEqual(t, one, key(lock, []byte{6}, nan))
	assert.NotEqual(t, one, key(lock, []byte{}, nan), "a clustering column may be empty")
	several, f := rowStatement(t, "LOCK t WHERE k = 'x' AND c IN ? AND d = ?", append([]byte{0, 0, 0, 2, 0, 0, 0, 2, 0, 5, 0, 0, 0, 1}, 5), other).Keys()
	require.Nil(t, f)
	require.Len(t, several, 1)
	assert.Equal(t, one, several[0].Key)
}

// A lock on a row covers no static column, whichever statement writes it.
func TestStaticColumnsUnderALockOnARow(t *testing.T) {
	for text, refused := range map[string]bool{
		"UPDATE t USING LOCK 1 SET st = 1 WHERE k = 'x' AND c = 5 AND d = ?":             true,
		"UPDATE t USING LOCK 1 SET v = 1, st['a'] = 1 WHERE k = 'x' AND c = 5 AND d = ?": true,
		`INSERT INTO t (k, c, d, "st") VALUES ('x', 5, ?, 1) USING LOCK 1`:               true,
		"DELETE st FROM t USING LOCK 1 WHERE k = 'x' AND c = 5 AND d = ?":                true,
		"DELETE v FROM t USING LOCK 1 WHERE k = 'x' AND c = 5 AND d = ?":                 false,
		"UPDATE t USING LOCK 1 SET v = 1 WHERE k = 'x' AND c = 5 AND d = ?":              false,
		`INSERT INTO t (k, c, d, "St") VALUES ('x', 5, ?, 1) USING LOCK 1`:               false,
	} {
		s := rowStatement(t, text, make([]byte, 8))
		_, f := s.Key()
		assert.Equal(t, refused, f != nil, text)
		if refused {
			assert.Equal(t, "MUSIC_REFUSED: st is static, and one lock covers one row of ks.t: move it to a table of its own, or lock partitions (without key=row)", f.Text)
		}
		s = rowStatement(t, text, make([]byte, 8))
		s.Critical.Row, s.Critical.Key = false, s.Critical.Key[:1]
		_, f = s.Key()
		assert.Nil(t, f, "a lock on the partition covers it")
	}
}
