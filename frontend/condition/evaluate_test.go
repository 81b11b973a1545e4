package condition

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/rewrite"
)

// conditionsOf returns the conditions of an UPDATE of the row (k = 1, c = 1) in a table with a
// static column s and a column n.
func conditionsOf(t *testing.T, text string) *Conditions {
	t.Helper()
	statement, err := rewrite.Parse([]byte(text))
	require.NoError(t, err)
	column := func(name string, static bool) catalog.Column {
		return catalog.Column{Name: name, Type: "int", Static: static}
	}
	c := &Conditions{Regulars: true, Table: &catalog.Critical{
		Key: []catalog.Column{column("k", false)}, Primary: []string{"k", "c"}, Static: []string{"s"},
		Columns: map[string]catalog.Column{"k": column("k", false), "c": column("c", false), "s": column("s", true), "n": column("n", false)},
	}}
	source := &Source{Text: []byte(text), Table: "bank.accounts"}
	for i := range statement.Conditions {
		compared := NewColumnCondition(source, &statement.Conditions[i])
		c.Tell(compared.Column)
		row, _ := c.Row("")
		if compared.Column == "s" {
			row = c.StaticRow()
		}
		require.Nil(t, row.Compare(compared))
	}
	return c
}

// What follows from the rows that were read is what Cassandra would do, and the row that a
// condition does not hold on is told.
func TestEvaluation(t *testing.T) {
	null := []byte(nil)
	for _, tc := range []struct {
		condition string
		row       message.Row // of the columns that are compared; nil: no row was read
		want      Step
	}{
		{"n = 5", message.Row{number(5)}, Write},
		{"n = 5", message.Row{number(6)}, Refuse},
		{"n = 5", message.Row{null}, Refuse},
		{"n = null", message.Row{null}, Write},
		{"n != 5", message.Row{null}, Write},
		{"n > 5 AND n <= 7", message.Row{number(7)}, Write},
		{"n IN (1, 2)", message.Row{number(2)}, Write},
		{"n IN (1, 2)", message.Row{number(3)}, Refuse},
		{"n = null", nil, Write},
		{"n = 5", nil, Refuse},
		{"s = 5", message.Row{number(5)}, Write},
		{"s = 5 AND n = 5", nil, ReadPartition},
	} {
		c := conditionsOf(t, "UPDATE accounts USING LOCK 1 SET n = 1 WHERE k = 1 AND c = 1 IF "+tc.condition)
		var columns []*message.ColumnMetadata
		for _, name := range c.Columns() {
			columns = append(columns, &message.ColumnMetadata{Name: name, Type: datatype.Int})
		}
		rows := message.RowSet{}
		if tc.row != nil {
			rows = append(rows, tc.row)
		}
		evaluation := c.Evaluate(columns, rows)
		step, f := evaluation.Next()
		require.Nil(t, f, tc.condition)
		assert.Equal(t, tc.want, step, "IF %s of %v", tc.condition, tc.row)
		if step == Refuse {
			assert.Equal(t, rows, append(message.RowSet{}, evaluation.Refusal().Data...), tc.condition)
		}
		if step == ReadPartition {
			step, _ = c.Evaluate(columns, rows).Next()
			assert.Equal(t, Refuse, step, "the partition is read once")
		}
	}
}
