package rewrite

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Whatever type a key has, who writes no constant of it is told how one is written.
func TestHowConstantsAreWritten(t *testing.T) {
	hints := map[string]bool{}
	for _, cqlType := range []string{
		"text", "varchar", "ascii", "tinyint", "smallint", "int", "bigint", "varint", "decimal", "float", "double", "uuid", "timeuuid", "blob", "boolean", "inet", "date", "time", "timestamp",
	} {
		assert.NotEqual(t, HowToWrite("nothing that there is"), HowToWrite(cqlType), cqlType)
		hints[HowToWrite(cqlType)] = true
	}
	assert.Len(t, hints, 10)
	for _, alike := range [][]string{{"text", "varchar", "ascii"}, {"tinyint", "smallint", "int", "bigint", "varint"}, {"decimal", "float", "double"}, {"uuid", "timeuuid"}} {
		for _, cqlType := range alike {
			assert.Equal(t, HowToWrite(alike[0]), HowToWrite(cqlType))
		}
	}
}
