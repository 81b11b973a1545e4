package condition

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/rewrite"
)

// evaluated evaluates the IF of an UPDATE on a row of nulls, and returns the error; "" if there is none.
func evaluated(t *testing.T, conditions string, columns map[string]datatype.DataType) string {
	t.Helper()
	text := "UPDATE ks.t SET x = 1 WHERE k = 1 IF " + conditions
	parsed, err := rewrite.Parse([]byte(text))
	require.NoError(t, err, text)
	c := Conditions{Table: &catalog.Critical{Columns: map[string]catalog.Column{}}}
	row, _ := c.Row("")
	for i := range parsed.Conditions {
		require.Nil(t, row.Compare(NewColumnCondition(&Source{Text: []byte(text), Table: "ks.t"}, &parsed.Conditions[i])))
	}
	var metadata []*message.ColumnMetadata
	var data message.Row
	for name, kind := range columns {
		metadata, data = append(metadata, &message.ColumnMetadata{Name: name, Type: kind}), append(data, nil)
	}
	_, f := c.Evaluate(metadata, message.RowSet{data}).Next()
	if f != nil {
		return f.Text
	}
	return ""
}

// A literal of a kind that no value of the column's type is written as has Cassandra's own error.
func TestLiteralsOfAnotherType(t *testing.T) {
	kinds := map[string]datatype.DataType{
		"int": datatype.Int, "bigint": datatype.Bigint, "text": datatype.Varchar, "ascii": datatype.Ascii, "date": datatype.Date, "time": datatype.Time, "timestamp": datatype.Timestamp,
		"uuid": datatype.Uuid, "boolean": datatype.Boolean, "blob": datatype.Blob, "double": datatype.Double, "decimal": datatype.Decimal, "duration": datatype.Duration, "inet": datatype.Inet,
	}
	for condition, want := range map[string]string{
		"date = 1h":       `Invalid DURATION constant (1h) for "date" of type date`,
		"time != PT5S":    `Invalid DURATION constant (PT5S) for "time" of type time`,
		"int = 'it''s'":   `Invalid STRING constant (it's) for "int" of type int`,
		"text IN ('a',5)": `Invalid INTEGER constant (5) for "text" of type text`,
		"ascii = TRUE":    `Invalid BOOLEAN constant (TRUE) for "ascii" of type ascii`,
		"bigint > 1.5":    `Invalid FLOAT constant (1.5) for "bigint" of type bigint`,
		"uuid = 0x00":     `Invalid HEX constant (0x00) for "uuid" of type uuid`,
		"blob = 123e4567-e89b-12d3-a456-426614174000": `Invalid UUID constant (123e4567-e89b-12d3-a456-426614174000) for "blob" of type blob`,
		"date = '2024-02-30'":                         "MUSIC_SYNTAX: '2024-02-30' is not a date: write a day ('2024-02-29'), or bind it",
		"int = 5":                                     "", "date = 5": "", "date = '2024-02-29'": "", "duration = 1h": "", "decimal = 5": "", "double = 1.5": "", "inet = '10.0.0.1'": "", "text = null": "",
		"int = 6 AND date = 1h": `Invalid DURATION constant (1h) for "date" of type date`,
	} {
		got := evaluated(t, condition, kinds)
		assert.Equal(t, want, got, condition)
	}
}

// A column that was dropped between the statement and its read is no column any more.
func TestAColumnThatIsGone(t *testing.T) {
	got := evaluated(t, "gone = 5", map[string]datatype.DataType{"int": datatype.Int})
	assert.Equal(t, "Undefined column name gone in table ks.t", got)
}

// A bound value that Cassandra would not take is refused, not compared.
func TestBoundTextsThatAreNone(t *testing.T) {
	for _, kind := range []datatype.DataType{datatype.Varchar, datatype.Ascii, datatype.NewList(datatype.Varchar)} {
		for value, ok := range map[string]bool{"x": true, "": true, "\xff": false} {
			if kind.Code() == primitive.DataTypeCodeList {
				value = string(collected(1, value))
			}
			_, f := normalise(kind, []byte(value))
			assert.Equal(t, ok, f == nil, "%q as %v", value, kind)
		}
	}
}
