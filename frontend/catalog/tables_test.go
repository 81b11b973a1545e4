package catalog

import (
	"fmt"
	"testing"
)

// Each statement that writes a table is looked up.
func BenchmarkInSchema(b *testing.B) {
	tables := NewTables()
	var names [][2]string
	for i := range 1000 {
		names = append(names, [2]string{"bank", fmt.Sprint("t", i)})
	}
	tables.Read(names)
	key := []byte("bank\x00t77")
	b.ReportAllocs()
	for b.Loop() {
		if !tables.InSchema(key) {
			b.Fatal("it is there")
		}
	}
}
