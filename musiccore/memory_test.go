package musiccore

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What a held lock consists of is scanned quickly by the garbage collector.
func TestPartsOfALockAreScannedTogether(t *testing.T) {
	for name, size := range map[string]uintptr{
		"key": unsafe.Sizeof(key{}), "keyRow": unsafe.Sizeof(keyRow{}), "entry": unsafe.Sizeof(entry{}), "term": unsafe.Sizeof(term{}),
	} {
		assert.LessOrEqual(t, size, uintptr(maxScanned), name)
	}
}

// Two operations in flight take no memory beside their term.
func TestOperationsInFlightAllocateNothing(t *testing.T) {
	var f flight
	require.Zero(t, testing.AllocsPerRun(100, func() {
		f.finish(f.add(1, true))
		a, b := f.add(2, true), f.add(3, false)
		f.finish(b)
		f.finish(a)
	}))
}
