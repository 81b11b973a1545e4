package condition

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/frontend/wire"
)

// To read a large collection takes a bounded multiple of its bytes, however small its elements are, and none where nothing is sorted.
func TestMemoryOfLargeCollections(t *testing.T) {
	const elements = 1 << 18
	value := binary.BigEndian.AppendUint32(nil, elements)
	for i := range uint32(elements) {
		value = binary.BigEndian.AppendUint32(append(value, 0, 0, 0, 4), i)
	}
	for kind, most := range map[datatype.DataType]int{datatype.NewList(datatype.Int): 0, datatype.NewSet(datatype.Int): 8} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, f := normalise(kind, value)
		runtime.ReadMemStats(&after)
		assert.Nil(t, f)
		assert.LessOrEqual(t, int(after.TotalAlloc-before.TotalAlloc)/len(value), most, kind.AsCql())
	}
}

// What conditions look through has a bound: each of many on an element of one large map looks through all of it. Few are evaluated
// whatever its size, as are many on a small one.
func TestManyConditionsOnALargeValue(t *testing.T) {
	kind := datatype.NewMap(datatype.Int, datatype.Int)
	mapOf := func(n uint32) []byte {
		value := binary.BigEndian.AppendUint32(nil, n)
		for i := range n {
			value = binary.BigEndian.AppendUint32(append(value, 0, 0, 0, 4), i)
			value = binary.BigEndian.AppendUint32(append(value, 0, 0, 0, 4), i)
		}
		return value
	}
	const mostMemory = 2 << 30
	for _, c := range []struct {
		elements uint32
		times    int
		want     Step
	}{{1 << 18, 5, Write}, {10, 10_000, Write}, {1 << 16, 2000, Refuse}} {
		x := conditionsOf(t, "UPDATE bank.accounts SET n = null WHERE k = 1 IF "+strings.Repeat("n[9] = 9 AND ", c.times-1)+"n[9] = 9")
		y := x.Evaluate([]*message.ColumnMetadata{{Name: "n", Type: kind}}, message.RowSet{{mapOf(c.elements)}})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		step, f := y.Next()
		runtime.ReadMemStats(&after)
		assert.Equal(t, c.want, step)
		assert.Equal(t, c.want == Refuse, f != nil)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(mostMemory))
	}
}

// To compare decimals of other scales takes a time that grows faster than they do. How many are compared has a bound by that.
func TestManyConditionsOnALargeDecimal(t *testing.T) {
	const digits = 40_000
	large := append([]byte{0, 0, 0, 0}, new(big.Int).Exp(big.NewInt(10), big.NewInt(digits), nil).Bytes()...)
	same := append(binary.BigEndian.AppendUint32(nil, 1<<32-digits), 1)
	for n, want := range map[int]Step{1: Write, 5000: Refuse} {
		x := conditionsOf(t, "UPDATE bank.accounts SET n = null WHERE k = 1 IF "+strings.Repeat("n = ? AND ", n-1)+"n = ?")
		x.Rows[0].Columns[0].Source.Values = slices.Repeat([][]byte{wire.Value(same)}, n)
		y := x.Evaluate([]*message.ColumnMetadata{{Name: "n", Type: datatype.Decimal}}, message.RowSet{{large}})
		step, f := y.Next()
		assert.Equal(t, want, step)
		assert.Equal(t, want == Refuse, f != nil)
	}
}

// To tell the rows of a large batch takes a time that grows with their values, not with the columns for each of them.
func TestRefusalOfManyRowsAndColumns(t *testing.T) {
	const rows, width = 2000, 1000
	x := conditionsOf(t, "UPDATE bank.accounts SET n = null WHERE k = 1 IF n = 5")
	var columns []*message.ColumnMetadata
	for i := range width {
		name := fmt.Sprintf("column_%04d", i)
		x.Table.Columns[name] = catalog.Column{Name: name, Type: "int"}
		x.Tell(name)
		columns = append(columns, &message.ColumnMetadata{Name: name, Type: datatype.Int})
	}
	x.All, x.Regulars = true, false
	y := x.Evaluate(columns, slices.Repeat(message.RowSet{make(message.Row, width)}, rows))
	began := time.Now()
	assert.Len(t, y.Refusal().Data, rows)
	assert.Less(t, time.Since(began), time.Second, "it took a hundred times as long as it takes")
}
