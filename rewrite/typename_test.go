package rewrite

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Types that name a user-defined type, or a class, are not native.
func TestNativeTypes(t *testing.T) {
	for cqlType, native := range map[string]bool{
		"int": true, "frozen<map<text, frozen<list<timeuuid>>>>": true, "vector<float, 3>": true, "tuple<int, text>": true,
		"": false, "pair": false, "frozen<pair>": false, "list<frozen<ks.pair>>": false, `frozen<"int">`: false, "'org.apache.cassandra.db.marshal.X'": false,
	} {
		assert.Equal(t, native, Native(cqlType), cqlType)
	}
}

func TestTypeParameters(t *testing.T) {
	for cqlType, want := range map[string][]string{
		"int": {"int"}, "list<int>": {"list", "int"}, "frozen<map<text, frozen<list<int>>>>": {"map", "text", "frozen<list<int>>"},
		"map<int, tuple<int, text>>": {"map", "int", "tuple<int, text>"}, "vector<float, 3>": {"vector", "float", "3"}, "frozen<pair>": {"pair"},
	} {
		name, parameters := TypeParameters(cqlType)
		assert.Equal(t, want, append([]string{name}, parameters...), cqlType)
	}
}

// A term with the name of a column, or token(), would mean something else in a SELECT of another
// table.
func TestSelectableTerms(t *testing.T) {
	for value, selectable := range map[string]bool{
		"now()": true, "toDate(now())": true, "ks.f(1, ?)": true, "(int) ? + 1": true, "(frozen<list<int>>) [1, f(2)]": true, "{'a': :x}": true, "f(:x, true, null, NaN)": true, "1 - -1d": true, "f(/* key */ 1)": true,
		"f(cluster_name)": false, "cluster_name": false, `f("key")`: false, "token('x')": false, "f(token('x'))": false, "1 + key": false, "{'a':key}": false, "f({'a' : key})": false, "fromJson('1')": false, "f(key.a)": false, "{f: 1 + 1}": false,
	} {
		text := []byte("UPDATE t SET v = 1 WHERE k = 1 IF v = " + value + " AND w = 1")
		statement, err := Parse(text)
		require.NoError(t, err, value)
		assert.Equal(t, selectable, Selectable(text, statement.Conditions[0].Value), value)
	}
}

// The operands of arithmetic that have no type of their own.
func TestOperands(t *testing.T) {
	for value, operands := range map[string]int{
		"1 + 1": 2, "- ?": 1, "- (:x)": 1, "(int) 1 + 1": 1, "f(1, [2]) * (3 - (4))": 2, "'2020-01-01' + 2d": 1, "f(1)": 0, "[1, 2]": 0, "(1 - 1) + (int)(5)": 3,
	} {
		text := []byte("UPDATE t SET v = 1 WHERE k = 1 IF v = " + value + " AND w = 1")
		statement, err := Parse(text)
		require.NoError(t, err, value)
		assert.Len(t, Operands(text, statement.Conditions[0].Value), operands, value)
	}
}

// The bind markers in brackets have their places in the whole statement.
func TestMarkersInBrackets(t *testing.T) {
	text := []byte("UPDATE t SET v = {?: ?} WHERE k = ? IF a = ? AND v = {?: [?, :n]} AND w IN ((?, 1), ?)")
	statement, err := Parse(text)
	require.NoError(t, err)
	_, entries, ok := Entries(text, statement.Conditions[1].Value)
	require.True(t, ok)
	assert.Equal(t, 4, entries[0].Key.Marker)
	_, inner, ok := Entries(text, entries[0].Value)
	require.True(t, ok)
	assert.Equal(t, []int{5, 6}, []int{inner[0].Value.Marker, inner[1].Value.Marker})
	_, last, ok := Entries(text, statement.Conditions[2].Values[0])
	require.True(t, ok)
	assert.Equal(t, 7, last[0].Value.Marker)
	assert.Equal(t, 8, statement.Conditions[2].Values[1].Marker)
}
