package client

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// accounts is a table with a key of two columns, things one with a key of one.
func accounts() []column {
	return []column{{"branch", "partition_key", "text"}, {"Year", "partition_key", "int"}, {"id", "clustering", "uuid"}, {"balance", "regular", "bigint"}}
}

func things(cqlType string) []column {
	return []column{{"id", "partition_key", cqlType}, {"value", "regular", "text"}}
}

func TestKeysThatPeopleWrite(t *testing.T) {
	for _, c := range []struct {
		columns []column
		words   []string
		want    string
	}{
		{things("text"), []string{"x"}, "id = 'x'"},
		{things("text"), []string{"'x'"}, "id = 'x'"},
		{things("text"), []string{"it's"}, "id = 'it''s'"},
		{things("text"), []string{"' OR 1 = 1"}, "id = ''' OR 1 = 1'"},
		{things("text"), []string{"a=b"}, "id = 'a=b'"},
		{things("text"), []string{"id=a=b"}, "id = 'a=b'"},
		{things("text"), []string{""}, "id = ''"},
		{things("int"), []string{"-7"}, "id = -7"},
		{things("blob"), []string{"0xCAfe"}, "id = 0xCAfe"},
		{things("boolean"), []string{"True"}, "id = True"},
		{things("uuid"), []string{"123e4567-e89b-12d3-a456-426614174000"}, "id = 123e4567-e89b-12d3-a456-426614174000"},
		{accounts(), []string{"branch=zurich", "Year=2026"}, `branch = 'zurich' AND "Year" = 2026`},
	} {
		k, err := keyOf("bank.t", c.columns, c.words)
		require.NoError(t, err, "%q", c.words)
		assert.Equal(t, Key{Table: "bank.t", Where: c.want}, k)
	}
}

// Nothing but a constant gets into a statement.
func TestKeysThatAreNone(t *testing.T) {
	for _, c := range []struct {
		columns []column
		words   []string
		want    string
	}{
		{things("int"), []string{"7; DROP"}, "not a constant of its type int"},
		{things("uuid"), []string{"now()"}, "not a constant of its type uuid"},
		{things("blob"), []string{"0xabc"}, "not a constant of its type blob"},
		{things("frozen<list<int>>"), []string{"[1]"}, "use cqlsh"},
		{accounts(), []string{"zurich"}, "write column=value for each column of the key (branch, Year)"},
		{things("text"), []string{"a", "b"}, "write column=value"},
	} {
		_, err := keyOf("bank.t", c.columns, c.words)
		assert.ErrorIs(t, err, ErrKey)
		assert.ErrorContains(t, err, c.want)
	}
}

func TestTableNames(t *testing.T) {
	for table, want := range map[string][2]string{"Bank.Accounts": {"bank", "accounts"}, `"B".t`: {"B", "t"}, `b."a""c"`: {"b", `a"c`}} {
		keyspace, name, err := tableName(table)
		require.NoError(t, err)
		assert.Equal(t, want, [2]string{keyspace, name})
	}
	for _, table := range []string{"", "bank", "bank.", "a.b.c", "a b.c", `"a.b`, "a.b;"} {
		_, _, err := tableName(table)
		assert.ErrorIs(t, err, ErrTable, "%q", table)
	}
}
