package statement

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/wire"
)

// numbered is a table of int columns a | clustering c | v, w and the static st.
func numbered(t *testing.T, text string, values ...string) *Statement {
	t.Helper()
	s := autoStatement(t, false, text, values...)
	typed := func(name string) catalog.Column {
		return catalog.Column{Name: name, Type: "int", Static: name == "st", Clustering: name == "c"}
	}
	s.Critical.Key, s.Critical.Primary, s.Critical.Columns = []catalog.Column{typed("a")}, []string{"a", "c"}, map[string]catalog.Column{}
	for _, name := range []string{"a", "c", "v", "w", "st"} {
		s.Critical.Columns[name] = typed(name)
	}
	s.Critical.Columns["l"] = catalog.Column{Name: "l", Type: "list<int>"}
	return s
}

// What a write with IF adds to is read beside what is compared, and written as what it is then; what Cassandra adds to without reading is
// left to it.
func TestSums(t *testing.T) {
	const text = "UPDATE t USING TTL ? SET v = v + 2, l = l + [1], st += ?, w = w + 1 WHERE a = 1 AND c = 2 IF v = ?"
	s := numbered(t, text, one(9), one(5), one(7))
	x, f := ReadConditional(s.Parts(), false)
	require.Nil(t, f)
	assert.Equal(t, `SELECT "v", "st", "w" FROM "ks"."t" WHERE "a" = 1 AND "c" = 2`, string(x.Read().Text))
	columns := []*message.ColumnMetadata{{Name: "v", Type: datatype.Int}, {Name: "st", Type: datatype.Int}, {Name: "w", Type: datatype.Int}}
	y := x.Evaluate(columns, message.RowSet{{[]byte(one(7)), []byte(one(10)), nil}})
	for unset, want := range map[bool]Query{
		false: {[]byte(`"w" = null `), [][]byte{bound(one(9)), bound(one(9)), bound(one(15))}},
		true:  {[]byte(`"w" = ? `), [][]byte{bound(one(9)), bound(one(9)), bound(one(15)), wire.Unset()}},
	} {
		own := *s
		sums, f := x.Sums(y, unset)
		require.Nil(t, f)
		for _, sum := range sums {
			own.Put(sum)
		}
		q := own.Write(RequestStamps)
		assert.Equal(t, `UPDATE "ks".t  USING TTL ?  SET "v" = ? , l = l + [1], "st" = ? , `+string(want.Text)+` WHERE a = 1 AND c = 2 `, string(q.Text))
		assert.Equal(t, want.Values, q.Values)
	}
}

// What the proxy does not add as Cassandra does is refused, or left to Cassandra to refuse.
func TestSumsThatAreNotServed(t *testing.T) {
	for text, refused := range map[string]bool{
		"UPDATE t SET v = v + 1, v += 2 WHERE a = 1 AND c = 2 IF EXISTS":                                                          true,
		"UPDATE t SET v = v + abs(1) WHERE a = 1 AND c = 2 IF EXISTS":                                                             true,
		"UPDATE t SET v = v + 1 WHERE a = 1 AND c = 2 IF st = 1":                                                                  true,
		"UPDATE t SET st = st + 1 WHERE a = 1 IF st = 1":                                                                          false,
		"UPDATE t SET v = v + 1 WHERE a = 1 AND c = 2 IF st = 1 AND w = 1":                                                        false,
		"BEGIN BATCH UPDATE t SET v = v + 1 WHERE a = 1 AND c = 2; UPDATE t SET w = 1 WHERE a = 1 AND c = 2 IF v = 1 APPLY BATCH": false,
	} {
		s := numbered(t, text)
		x, f := ReadConditional(s.Parts(), len(s.Parsed.Children) > 0)
		assert.Equal(t, refused, f != nil, text)
		if f != nil {
			assert.Contains(t, f.Text, "MUSIC_REFUSED", text)
		} else if len(s.Parsed.Children) > 0 {
			assert.Empty(t, x.additions, "it has no IF: Cassandra refuses it")
		}
	}
}

// Each statement of a batch that adds to a large text is a text of that size: together they have a bound. One has none.
func TestSumsOfLargeTexts(t *testing.T) {
	const add = "UPDATE t SET v = v + 'x' WHERE a = 1 AND c = 2 IF EXISTS; "
	columns := []*message.ColumnMetadata{{Name: "a", Type: datatype.Int}, {Name: "c", Type: datatype.Int}, {Name: "v", Type: datatype.Varchar}}
	for n, size := range map[int]int{1: maxSums + 1, 1000: maxSums / 8} {
		s := numbered(t, "BEGIN BATCH "+strings.Repeat(add, n)+"APPLY BATCH")
		s.Critical.Columns["v"] = catalog.Column{Name: "v", Type: "text"}
		x, f := ReadConditional(s.Parts(), true)
		require.Nil(t, f)
		y := x.Evaluate(columns, message.RowSet{{[]byte(one(1)), []byte(one(2)), make([]byte, size)}})
		taken := allocated(func() { _, f = x.Sums(y, true) })
		assert.Equal(t, n > 1, f != nil)
		assert.Less(t, taken, uint64(6*maxSums))
	}
}
