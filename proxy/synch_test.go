package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// unevenPartition plays a node with a partition of which the first rows are short and the others long, so
// that it fails to read many of them at once.
func unevenPartition(atOnce int32) func(asked) message.Message {
	return func(a asked) message.Message {
		_, from, _ := strings.Cut(a.text, " FROM ")
		from, _, _ = strings.Cut(from, " ")
		switch from {
		case "system.local":
			return rowOf("schema_version", make([]byte, 16), "lease", bigint(time.Now().UnixMilli()))
		case "system_schema.tables":
			return rowOf("flags", []byte("\x00\x00\x00\x01\x00\x00\x00\x08compound"), "gc_grace_seconds", bigint(864_000)[4:], "compaction", nil, "read_repair", []byte("BLOCKING"))
		case "system_schema.columns":
			r := noRow("column_name", "kind", "position", "type", "clustering_order")
			for _, c := range [][4]string{{"k", "partition_key", "int", "none"}, {"c", "clustering", "int", "asc"}, {"v", "regular", "blob", "none"}} {
				r.Data = append(r.Data, message.Row{[]byte(c[0]), []byte(c[1]), bigint(0)[4:], []byte(c[2]), []byte(c[3])})
			}
			return r
		case `"bank"."t"`:
			switch short := rowOf("c", bigint(1)[4:], "v", []byte("short"), "ttl(v)", nil, "stamp", bigint(7)); {
			case a.verb() != "SELECT":
				return &message.VoidResult{}
			case a.rows > atOnce:
				return &message.ReadTimeout{ErrorMessage: "slow", BlockFor: 2}
			case a.state == nil:
				short.Metadata.PagingState = []byte("more")
				return short
			}
			return rowOf("c", bigint(2)[4:], "v", make([]byte, 1<<19), "ttl(v)", nil, "stamp", bigint(7))
		}
		if a.text == "BATCH" {
			return &message.VoidResult{}
		}
		return noRow("nothing")
	}
}

// A partition is synchronised however unlike its rows are: what cannot be read at once is read in pages of
// fewer rows.
func TestAPartitionOfUnevenRowsIsSynchronised(t *testing.T) {
	for _, atOnce := range []int32{100, 80, 1} {
		n := startCQLNode(t, unevenPartition(atOnce))
		table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{1}}}
		tables := newCriticalTables()
		tables.set(map[[16]byte]*dataTable{table.ID: table})
		x := &executor{session: n.session, tables: tables}
		r := x.do(t.Context(), musiccore.Command{Key: musiccore.Key{Table: table.ID, PK: string(bigint(9)[4:])}, Action: musiccore.Synch{Fence: 100}})
		require.NoError(t, r.Cause, atOnce)
		assert.Equal(t, musiccore.StatusDone, r.Status)
		var written []asked
		for _, a := range n.take() {
			written = append(written, a.batch...)
		}
		require.Len(t, written, 4, "a DELETE and an INSERT of each page")
	}
}
