package synchronise

import (
	"fmt"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// BenchmarkSynchronise measures how long a key stands still while it is synchronised, by its size.
func BenchmarkSynchronise(b *testing.B) {
	s := newStore(b, 5)
	s.Do("CREATE TABLE KS.sized (k int, c int, st text static, a int, v blob, PRIMARY KEY (k, c))")
	for i, size := range []struct{ rows, bytes int }{{1, 100}, {100, 100}, {1000, 100}, {50_000, 100}, {20_000, 1000}, {20, 1 << 20}} {
		for from := 0; from < size.rows; {
			batch := s.Session.Batch(gocql.UnloggedBatch).WithTimestamp(5)
			for n := 0; from < size.rows && n < max(1, min(1000, 1<<20/size.bytes)); n++ {
				batch.Query("INSERT INTO "+s.Name+".sized (k, c, a, v) VALUES (?, ?, ?, ?)", i, from, from, make([]byte, size.bytes))
				from++
			}
			require.NoError(b, batch.Exec())
		}
		k := s.key("sized", wireInt32(int32(i)))
		fence := musiccore.Stamp(10)
		b.Run(fmt.Sprintf("%d rows of %d bytes", size.rows, size.bytes), func(b *testing.B) {
			for b.Loop() {
				fence += 2
				require.Equal(b, musiccore.Result{Status: musiccore.StatusDone}, Run(b.Context(), s.cluster(), k, musiccore.Synch{Fence: fence}))
			}
		})
	}
}
