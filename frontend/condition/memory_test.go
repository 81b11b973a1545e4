package condition

import (
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/stretchr/testify/assert"
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
