package statement

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
)

// Which values Cassandra is sure to accept, so that a write may be done in one with others.
func TestOverwrites(t *testing.T) {
	long := func(n int) []byte { return bytes.Repeat([]byte{1}, n) }
	for kind, tc := range map[string]struct {
		right []byte
		wrong [][]byte
	}{
		"int":              {long(4), [][]byte{{}, long(3), long(5)}},
		"smallint":         {long(2), [][]byte{{}, long(4)}},
		"double":           {long(8), [][]byte{{}, long(3)}},
		"uuid":             {long(16), [][]byte{{}, long(15)}},
		"inet":             {long(4), [][]byte{{}, long(5)}},
		"text":             {[]byte("é"), [][]byte{{0xff}}},
		"ascii":            {[]byte("e"), [][]byte{{0xc3, 0xa9}}},
		"varint":           {long(9), [][]byte{{}}},
		"timeuuid":         {nil, [][]byte{long(16)}}, // of a version that does not matter here
		"decimal":          {nil, [][]byte{long(9), long(3)}},
		"list<int>":        {nil, [][]byte{long(4)}},
		"frozen<set<int>>": {nil, [][]byte{long(4)}},
	} {
		overwrites := func(value []byte) bool {
			s := rowStatement(t, "UPDATE t SET v = ? WHERE k = 'x' IF v = 1", value)
			s.Critical.Columns = map[string]catalog.Column{"v": {Name: "v", Type: kind}}
			return s.Overwrites()
		}
		if tc.right != nil {
			assert.True(t, overwrites(tc.right), kind)
		}
		for _, value := range tc.wrong {
			assert.False(t, overwrites(value), "%s % x", kind, value)
		}
	}
	for text, want := range map[string]bool{
		"UPDATE t SET v = ?, w = ? WHERE k = 'x' IF v = 1":  true,
		"UPDATE t SET v = ?, w = 1 WHERE k = 'x' IF v = ?":  false,
		"UPDATE t SET v = ?, w += ? WHERE k = 'x' IF v = 1": false,
		"UPDATE t SET v[?] = ? WHERE k = 'x' IF v = 1":      false,
		"DELETE v FROM t WHERE k = ? IF v = ?":              false,
	} {
		s := rowStatement(t, text, long(4), long(4))
		s.Critical.Columns = map[string]catalog.Column{"v": {Name: "v", Type: "int"}, "w": {Name: "w", Type: "int"}}
		assert.Equal(t, want, s.Overwrites(), text)
	}
}

// What a write leaves is found out in a time that grows with its text, not with the square of it.
func TestALongWriteLeavesNothingKnown(t *testing.T) {
	const n = 20_000
	s := rowStatement(t, "UPDATE t SET "+strings.Repeat("v = ?, ", n)+"v = ? WHERE k = 'x' IF EXISTS")
	for range n + 1 {
		s.Values = append(s.Values, []byte{0, 0, 0, 1, 1})
	}
	s.Critical.Columns = map[string]catalog.Column{"v": {Name: "v", Type: "tinyint"}}
	assert.Less(t, allocated(func() { assert.Nil(t, s.leavesRow()) }), uint64(8<<20))
}
