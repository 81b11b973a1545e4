package proxy

import (
	"slices"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
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
		tables := newCriticalTables()
		answer := unevenPartition(atOnce)
		n := startCQLNode(t, func(a asked) message.Message {
			if strings.Contains(a.text, `"bank"."t"`) || a.text == "BATCH" {
				assert.True(t, tables.keyed.mark()(), "a change of the key's names waits for it")
			}
			return answer(a)
		})
		table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{1}}}
		tables.set(map[[16]byte]*dataTable{table.ID: table})
		x := &executor{session: n.session, tables: tables}
		r := x.do(t.Context(), musiccore.Command{Key: musiccore.Key{Table: table.ID, PK: string(bigint(9)[4:])}, Action: musiccore.Synch{Fence: 100}})
		require.NoError(t, r.Cause, atOnce)
		assert.Equal(t, musiccore.StatusDone, r.Status)
		x.do(t.Context(), musiccore.Command{Key: musiccore.Key{Table: table.ID, PK: string(bigint(9)[4:])}, Action: musiccore.ReadStamps{Closed: 5, Clk: 6}})
		assert.False(t, tables.keyed.mark()())
		var written []asked
		for _, a := range n.take() {
			written = append(written, a.batch...)
		}
		require.Len(t, written, 4, "a DELETE and an INSERT of each page")
	}
}

// A node that is down keeps its version of the schema, and nobody waits for it: nor does the one data centre
// that decides about a table with scope=local, whose session does not know the nodes of the others.
func TestANodeThatIsDownInAnotherCentreHoldsUpNoKey(t *testing.T) {
	n := startCQLNode(t, unevenPartition(1))
	id, there := gocql.UUID{8}, []byte{127, 0, 0, 2}
	n.mu.Lock()
	n.peers = rowOf("host_id", id[:], "peer", there, "peer_port", bigint(1)[4:], "native_address", there, "native_port", bigint(1)[4:], "data_center", []byte("dc2"), "rack", []byte("r1"),
		"release_version", []byte("5.0.8"), "tokens", []byte("\x00\x00\x00\x01\x00\x00\x00\x010"))
	n.mu.Unlock()
	whole := n.connect(t)
	isDown := func(h *gocql.HostInfo) bool { return h.HostID() == id.String() && !h.IsUp() }
	require.Eventually(t, func() bool { return slices.ContainsFunc(whole.GetHosts(), isDown) }, 20*time.Second, time.Millisecond)
	n.says(func(a asked) message.Message {
		if strings.Contains(a.text, "system.peers_v2") {
			return rowOf("host_id", id[:], "schema_version", []byte("the one of then "))
		}
		return unevenPartition(1)(a)
	})
	table := &dataTable{keyspace: "bank", name: "t", centreSession: n.session, Critical: catalog.Critical{ID: [16]byte{1}, Settings: catalog.Settings{Local: true}}}
	tables := newCriticalTables()
	tables.set(map[[16]byte]*dataTable{table.ID: table})
	x := &executor{session: whole, tables: tables}
	r := x.do(t.Context(), musiccore.Command{Key: musiccore.Key{Table: table.ID, PK: string(bigint(9)[4:])}, Action: musiccore.Synch{Fence: 100}})
	require.NoError(t, r.Cause)
	assert.Equal(t, musiccore.StatusDone, r.Status)
}

// A node may be behind, and not know it: the nodes of which it has not heard seem to agree. What it would not
// read, and delete, is a column that this proxy has followed, under which writes were acknowledged.
func TestNothingIsDeletedThatANodeBehindDoesNotKnow(t *testing.T) {
	n := startCQLNode(t, unevenPartition(100))
	columns := map[string]catalog.Column{"k": {Name: "k"}, "c": {Name: "c"}, "v": {Name: "v"}}
	table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{1}, Columns: columns}}
	tables := newCriticalTables()
	tables.set(map[[16]byte]*dataTable{table.ID: table})
	x := &executor{session: n.session, tables: tables}
	synch := musiccore.Command{Key: musiccore.Key{Table: table.ID, PK: string(bigint(9)[4:])}, Action: musiccore.Synch{Fence: 100}}
	require.Equal(t, musiccore.StatusDone, x.do(t.Context(), synch).Status)
	n.take()
	columns["added"] = catalog.Column{Name: "added"}
	assert.Equal(t, musiccore.StatusUnknown, x.do(t.Context(), synch).Status, "it is tried again")
	for _, a := range n.take() {
		assert.Equal(t, "SELECT", a.verb(), a.text)
	}
	read := musiccore.Command{Key: synch.Key, Action: musiccore.ReadStamps{Closed: 5, Clk: 6}}
	assert.Equal(t, musiccore.StatusUnknown, x.do(t.Context(), read).Status)
}

// What Cassandra does not take back, as a value from before the column had its constraint, is said to whoever waits for the key, in
// Cassandra's words. Where the table has changed meanwhile that is no reason: it is tried again.
func TestWhatCassandraDoesNotTakeBackIsSaid(t *testing.T) {
	const words = "Column value does not satisfy value constraint for column 'v'"
	for _, changes := range []bool{false, true} {
		version := make([]byte, 16)
		n := startCQLNode(t, func(a asked) message.Message {
			switch {
			case a.text == "BATCH" && changes:
				version = []byte("another version.")
				fallthrough
			case a.text == "BATCH":
				return &message.Invalid{ErrorMessage: words}
			case strings.Contains(a.text, " FROM system.local"):
				return rowOf("schema_version", version, "lease", bigint(time.Now().UnixMilli()))
			}
			return unevenPartition(100)(a)
		})
		table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{1}}}
		tables := newCriticalTables()
		tables.set(map[[16]byte]*dataTable{table.ID: table})
		x := &executor{session: n.session, tables: tables}
		r := x.do(t.Context(), musiccore.Command{Key: musiccore.Key{Table: table.ID, PK: string(bigint(9)[4:])}, Action: musiccore.Synch{Fence: 100}})
		assert.Equal(t, map[bool]musiccore.Status{false: musiccore.StatusTooLarge, true: musiccore.StatusUnknown}[changes], r.Status)
		require.ErrorContains(t, r.Cause, words)
	}
}
