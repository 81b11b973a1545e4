package condition

import (
	"encoding/binary"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/rewrite"
)

// collected is a list, a set or a map on the wire.
func collected(n int, elements ...string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(n))
	for _, e := range elements {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(e))), e...)
	}
	return b
}

// The element that a condition names is that of its key, or of its index from 0 on; where there is none it is null.
func TestElement(t *testing.T) {
	list := operand{kind: datatype.NewList(datatype.Varchar), value: collected(2, "a", "b")}
	dict := operand{kind: datatype.NewMap(datatype.Varchar, datatype.Varchar), value: collected(3, "k", "1", "l", "2", "m", "3")}
	for _, c := range []struct {
		of   operand
		at   []byte
		want any // the value; nil for null
	}{
		{list, []byte{0, 0, 0, 0}, "a"},
		{list, []byte{0, 0, 0, 1}, "b"},
		{list, []byte{0, 0, 0, 2}, nil},
		{dict, []byte("k"), "1"},
		{dict, []byte("l"), "2"},
		{dict, []byte("m"), "3"},
		{dict, []byte("n"), nil},
		{dict, []byte{}, nil},
	} {
		got, f := c.of.element(c.at)
		require.Nil(t, f)
		assert.Equal(t, datatype.Varchar, got.kind)
		if c.want == nil {
			assert.Nil(t, got.value, "%q", c.at)
			continue
		}
		assert.Equal(t, c.want, string(got.value), "%q", c.at)
	}
	for says, c := range map[string]operand{"Invalid null value for list element access": list, "Invalid null value for map element access": dict} {
		_, f := c.element(nil)
		require.NotNil(t, f)
		assert.Equal(t, says, f.Text)
	}
	_, f := list.element([]byte{0xff, 0xff, 0xff, 0xff})
	require.NotNil(t, f)
	assert.Equal(t, "Invalid negative list index -1", f.Text)
}

// What a collection contains are the values of a map, and its keys where they are asked for.
func TestContains(t *testing.T) {
	list := operand{kind: datatype.NewList(datatype.Varchar), value: collected(2, "a", "b")}
	set := operand{kind: datatype.NewSet(datatype.Varchar), value: collected(2, "a", "b")}
	dict := operand{kind: datatype.NewMap(datatype.Varchar, datatype.Varchar), value: collected(2, "a", "b", "c", "d")}
	for _, c := range []struct {
		of       operand
		operator string
		in, out  string
	}{
		{list, "CONTAINS", "ab", "cd"}, {set, "CONTAINS", "ab", "cd"}, {dict, "CONTAINS", "bd", "ac"}, {dict, "CONTAINS KEY", "ac", "bd"},
	} {
		for wanted, all := range map[bool]string{true: c.in, false: c.out} {
			for _, element := range all {
				got, f := c.of.holds(c.operator, []byte(string(element)))
				require.Nil(t, f)
				assert.Equal(t, wanted, got, "%s %s %c", c.of.kind, c.operator, element)
			}
		}
	}
}

// A collection that is kept by its elements is null where it is empty, and an empty one is in no order with it.
func TestEmptyCollections(t *testing.T) {
	for name, kind := range map[string]datatype.DataType{
		"LIST": datatype.NewList(datatype.Varchar), "SET": datatype.NewSet(datatype.Varchar), "MAP": datatype.NewMap(datatype.Varchar, datatype.Varchar),
	} {
		none := operand{kind: kind, cells: true}
		for operator, want := range map[string]bool{"=": true, "!=": false} {
			got, f := none.holds(operator, collected(0))
			require.Nil(t, f)
			assert.Equal(t, want, got, operator)
		}
		for _, operator := range []string{"<", "<=", ">", ">="} {
			_, f := none.holds(operator, collected(0))
			require.NotNil(t, f)
			assert.Equal(t, `Invalid comparison with an empty `+name+` for operator "`+operator+`"`, f.Text)
		}
	}
}

// What names an element has to be one of the type of the keys: an operand is not that of another one.
func TestPartThatCannotBeRead(t *testing.T) {
	dict := operand{kind: datatype.NewMap(datatype.Int, datatype.Varchar), value: collected(1, "\x00\x00\x00\x05", "x")}
	for value, ok := range map[string]bool{"\x00\x00\x00\x05": true, "\x05": false} {
		c := ColumnCondition{Column: "m", Element: rewrite.Term{Kind: rewrite.TermMarker}, Source: &Source{Values: [][]byte{append(binary.BigEndian.AppendUint32(nil, uint32(len(value))), value...)}}}
		got, f := c.part(dict)
		assert.Equal(t, ok, f == nil, "%x", value)
		assert.Equal(t, ok, string(got.value) == "x", "%x", value)
	}
}

// A list that is bound to IN ? is read value by value, each of which may be null, and is refused where one is none of the type.
func TestListOfIn(t *testing.T) {
	five, null := "\x00\x00\x00\x04\x00\x00\x00\x05", "\xff\xff\xff\xff"
	for raw, want := range map[string][][]byte{
		"\x00\x00\x00\x02" + five + five:                   {[]byte{0, 0, 0, 5}, []byte{0, 0, 0, 5}},
		"\x00\x00\x00\x02" + null + five:                   {nil, []byte{0, 0, 0, 5}},
		"\x00\x00\x00\x02" + five + "\x00\x00\x00\x01\x05": nil,
		"\x00\x00\x00\x02" + five:                          nil,
	} {
		s := Source{Values: [][]byte{append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)}}
		got, f := s.list(rewrite.Term{Kind: rewrite.TermMarker}, datatype.Int)
		assert.Equal(t, want == nil, f != nil, "%x", raw)
		assert.Equal(t, want, got, "%x", raw)
	}
}
