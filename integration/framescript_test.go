package integration

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// handshakeAgain sends the requests of the handshake again, those that are allowed at any time and
// those that are not.
func (k *conversation) handshakeAgain() {
	k.ask("OPTIONS", &message.Options{}, exact, nil)
	k.ask("REGISTER", &message.Register{EventTypes: []primitive.EventType{primitive.EventTypeTopologyChange, primitive.EventTypeStatusChange}}, k.own(), nil)
}

// statements runs the corpus's texts without values.
func (k *conversation) statements() {
	for _, s := range slices.Concat(typeStatements(), plainStatements(), errorStatements()) {
		if len(s.values) > 0 || s.least > int(k.wire.version) {
			continue
		}
		q := plainQuery(s.cql)
		if s.level != "" {
			q.Options.Consistency = map[string]primitive.ConsistencyLevel{
				"SERIAL": primitive.ConsistencyLevelSerial, "ALL": primitive.ConsistencyLevelAll,
			}[s.level]
		}
		if s.stamp != 0 {
			q.Options.DefaultTimestamp = &s.stamp
		}
		k.ask(s.name+": "+s.cql, q, exact, nil)
	}
}

// topology reads what drivers read about nodes and schema. The schema must be the same one, with
// its version and ids.
func (k *conversation) topology() {
	for _, q := range []struct {
		text string
		hide mask
	}{
		{"SELECT * FROM system.local WHERE key='local'", addresses},
		{"select * from system.local where key = 'local'", addresses},
		{"SELECT rpc_address, host_id, tokens FROM system.local", addresses},
		{`SELECT broadcast_address AS "A", cluster_name FROM "system"."local" WHERE key = 'local' ;`, addresses},
		{"SELECT schema_version FROM system.local WHERE key='local'", k.own()},
		{"SELECT count(*) FROM system.local", k.own()},
		{"SELECT release_version, partitioner, native_protocol_version, bootstrapped FROM system.local", k.own()},
		{"SELECT * FROM system.peers", k.own()},
		{"SELECT * FROM system.peers_v2", k.own()},
		{"SELECT peer, peer_port, native_address FROM system.peers_v2 WHERE peer = '127.0.1.1' AND peer_port = 7000", k.own()},
		{"SELECT count(*) FROM system.peers", k.own()},
		{"SELECT nosuch FROM system.local", exact},
		{"SELECT * FROM system_schema.keyspaces WHERE keyspace_name = 'frames'", exact},
		{"SELECT keyspace_name, table_name, comment, flags FROM system_schema.tables WHERE keyspace_name = 'frames'", exact},
		{"SELECT * FROM system_schema.columns WHERE keyspace_name = 'frames'", exact},
		{"SELECT * FROM system_virtual_schema.tables", exact},
		{"DESCRIBE TABLE frames.many_nosuch", exact},
		{"DESCRIBE KEYSPACES", exact},
	} {
		k.ask(q.text, plainQuery(q.text), q.hide, nil)
	}
	x := k.prepare("SELECT rpc_address, cluster_name FROM system.local WHERE key = ?", primitive.NewValue([]byte("local")))
	k.ask("execute on system.local", x, addresses, nil)
	x = k.prepare("SELECT peer FROM system.peers")
	k.ask("execute on system.peers", x, k.own(), nil)
}

// prepared prepares every text of the corpus, and executes those that need no values.
func (k *conversation) prepared() {
	for _, s := range slices.Concat(plainStatements(), errorStatements()) {
		if s.cql == "" {
			continue // the library does not send it
		}
		x := k.prepare(s.cql)
		if len(s.values) == 0 && x.QueryId != nil && s.level == "" {
			k.ask("execute "+s.cql, x, exact, nil)
			x.Options.SkipMetadata = true
			k.ask("execute without metadata "+s.cql, x, exact, nil)
		}
	}
	unknown := &message.Execute{QueryId: bytes.Repeat([]byte{7}, 16), Options: &message.QueryOptions{}}
	if k.wire.version >= primitive.ProtocolVersion5 {
		unknown.ResultMetadataId = unknown.QueryId
	}
	k.ask("execute an unknown id", unknown, k.own(), nil)
	use := k.prepare("USE frames")
	if use.QueryId != nil {
		k.ask("execute USE", use, exact, nil)
	}
	x := k.prepare("SELECT * FROM t WHERE k = ? AND c = ?", primitive.NewValue([]byte{0, 0, 0, 1}))
	k.ask("too few values", x, exact, nil)
	x.Options.PositionalValues = append(x.Options.PositionalValues, primitive.NewValue([]byte{1}))
	k.ask("value of a wrong size", x, exact, nil)
	k.query("ALTER TABLE t ADD later int")
	k.ask("execute after ALTER", k.prepare("SELECT * FROM t WHERE k = 1"), exact, nil)
}

// values binds values of every sort in QUERY and EXECUTE.
func (k *conversation) values() {
	one, text := primitive.NewValue([]byte{0, 0, 0, 1}), primitive.NewValue([]byte("wörter"))
	insert := "INSERT INTO t (k, c, v) VALUES (?, ?, ?)"
	sorts := map[string]*primitive.Value{"text": text, "null": primitive.NewNullValue(), "empty": primitive.NewValue([]byte{})}
	if k.wire.version >= primitive.ProtocolVersion4 {
		sorts["unset"] = primitive.NewUnsetValue()
	}
	x := k.prepare(insert)
	for _, name := range slices.Sorted(maps.Keys(sorts)) {
		q := plainQuery(insert)
		q.Options.PositionalValues = []*primitive.Value{one, one, sorts[name]}
		k.ask("QUERY with "+name, q, exact, nil)
		x.Options.PositionalValues = q.Options.PositionalValues
		k.ask("EXECUTE with "+name, x, exact, nil)
		k.query("SELECT v FROM t WHERE k = 1 AND c = 1")
	}
	q := plainQuery("SELECT v FROM t WHERE k = :key AND c = :row")
	q.Options.NamedValues = map[string]*primitive.Value{"key": one, "row": one}
	k.ask("named values", q, exact, nil)
	for _, stamp := range []int64{1, 0, -5, math.MaxInt64, math.MinInt64 + 1} {
		q := plainQuery("INSERT INTO t (k, c, v) VALUES (90, 1, 'stamped')")
		q.Options.DefaultTimestamp = &stamp
		k.ask(fmt.Sprintf("timestamp %d", stamp), q, exact, nil)
		k.query("SELECT writetime(v) FROM t WHERE k = 90")
	}
}

// paging reads in pages; the paging states must be equal too.
func (k *conversation) paging() {
	k.query("CREATE TABLE pages (k int, c int, v text, PRIMARY KEY (k, c))")
	for i := range 12 {
		k.query(fmt.Sprintf("INSERT INTO pages (k, c, v) VALUES (%d, %d, '%s')", i%2, i, strings.Repeat("v", i)))
	}
	k.pages("QUERY", func(o *message.QueryOptions) message.Message {
		return &message.Query{Query: "SELECT * FROM pages", Options: o}
	})
	x := k.prepare("SELECT * FROM pages WHERE k = 1")
	k.pages("EXECUTE", func(o *message.QueryOptions) message.Message {
		x.Options = o
		return x
	})
	k.ask("bad paging state", &message.Query{Query: "SELECT * FROM pages", Options: &message.QueryOptions{PageSize: 2, PagingState: []byte("bad")}}, exact, nil)
	for _, size := range []int{100_000, 300_000} { // more than one segment, of v5
		large := &message.Query{
			Query:   "INSERT INTO pages (k, c, v) VALUES (9, 9, ?)",
			Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne, PositionalValues: []*primitive.Value{primitive.NewValue(noise(size))}},
		}
		k.ask(fmt.Sprintf("insert %d bytes", size), large, exact, nil)
		k.query("SELECT v FROM pages WHERE k = 9")
	}
}

// noise returns text that can be compressed, but not by much, since the library cannot read
// segments that were.
func noise(size int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	text := make([]byte, size)
	for i := range text {
		text[i] = 'a' + byte(random.IntN(16))
	}
	return text
}

// pages reads all pages of one statement.
func (k *conversation) pages(name string, m func(*message.QueryOptions) message.Message) {
	var state []byte
	for page := 1; page < 20; page++ {
		o := &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne, PageSize: 5, PagingState: state}
		f := k.ask(fmt.Sprintf("%s page %d", name, page), m(o), exact, nil)
		rows, ok := f.Body.Message.(*message.RowsResult)
		if !ok || rows.Metadata.PagingState == nil {
			return
		}
		state = rows.Metadata.PagingState
	}
	assert.Fail(k.t, "pages have no end", name)
}

// batches sends BATCH messages of every type, with children by text and by id.
func (k *conversation) batches() {
	x := k.prepare("INSERT INTO t (k, c, v) VALUES (?, ?, ?)")
	values := []*primitive.Value{primitive.NewValue([]byte{0, 0, 0, 50}), primitive.NewValue([]byte{0, 0, 0, 1}), primitive.NewValue([]byte("b"))}
	stamp := int64(1234)
	byID := &message.BatchChild{Id: x.QueryId, Values: values}
	byText := &message.BatchChild{Query: "INSERT INTO t (k, c, v) VALUES (50, 2, 'text')"}
	bad := &message.BatchChild{Query: "INSERT INTO nosuch (k) VALUES (1)"}
	unknown := &message.BatchChild{Id: bytes.Repeat([]byte{9}, 16)}
	counter := &message.BatchChild{Query: "UPDATE n SET n = n + 1 WHERE k = 5"}
	for _, b := range []struct {
		name     string
		kind     primitive.BatchType
		children []*message.BatchChild
	}{
		{"logged", primitive.BatchTypeLogged, []*message.BatchChild{byID, byText}},
		{"unlogged", primitive.BatchTypeUnlogged, []*message.BatchChild{byText, byID}},
		{"counter", primitive.BatchTypeCounter, []*message.BatchChild{counter, counter}},
		{"counter in logged", primitive.BatchTypeLogged, []*message.BatchChild{counter, byText}},
		{"bad child", primitive.BatchTypeLogged, []*message.BatchChild{byText, bad}},
		{"unknown id", primitive.BatchTypeLogged, []*message.BatchChild{byText, unknown}},
	} {
		m := &message.Batch{Type: b.kind, Children: b.children, Consistency: primitive.ConsistencyLevelOne, DefaultTimestamp: &stamp}
		if b.kind == primitive.BatchTypeCounter {
			m.DefaultTimestamp = nil
		}
		hide := exact
		if b.name == "unknown id" {
			hide = k.own()
		}
		k.ask("batch "+b.name, m, hide, nil)
	}
	k.query("SELECT k, c, v, writetime(v) FROM t WHERE k = 50")
	k.query("SELECT n FROM n WHERE k = 5")
}

// extras uses the fields of the frame itself: tracing, warnings, custom payload, and v5's keyspace
// and clock.
func (k *conversation) extras() {
	trace := func(f *frame.Frame) { f.RequestTracingId(true) }
	k.ask("traced", plainQuery("SELECT * FROM t WHERE k = 1"), tracingID, trace)
	k.ask("traced on system.local", plainQuery("SELECT cluster_name FROM system.local"), tracingID, trace)
	k.ask("traced error", plainQuery("SELECT * FROM nosuch"), tracingID, trace)
	large := strings.Repeat("x", 6000)
	warned := "BEGIN UNLOGGED BATCH INSERT INTO t (k, c, v) VALUES (17, 1, '" + large + "'); INSERT INTO t (k, c, v) VALUES (18, 1, 'y'); APPLY BATCH"
	k.query(warned)
	if k.wire.version >= primitive.ProtocolVersion4 {
		payload := func(f *frame.Frame) { f.SetCustomPayload(map[string][]byte{"key": []byte("value")}) }
		k.ask("payload", plainQuery("SELECT * FROM t WHERE k = 1"), exact, payload)
		k.ask("payload and PREPARE", &message.Prepare{Query: "SELECT k FROM t WHERE k = 3"}, exact, payload)
		k.ask("payload on system.local", plainQuery("SELECT cluster_name FROM system.local"), k.own(), payload)
	}
	if k.wire.version < primitive.ProtocolVersion5 {
		return
	}
	for _, ks := range []string{"frames", "system", "nosuch"} {
		q := plainQuery("SELECT k FROM t WHERE k = 1")
		q.Options.Keyspace = ks
		k.ask("QUERY in keyspace "+ks, q, exact, nil)
		k.ask("PREPARE in keyspace "+ks, &message.Prepare{Query: q.Query, Keyspace: ks}, exact, nil)
	}
	q := plainQuery("SELECT rpc_address, cluster_name FROM local")
	q.Options.Keyspace = "system"
	k.ask("system.local by the request's keyspace", q, addresses, nil)
	now := int32(1_000_000_000)
	for _, text := range []string{"INSERT INTO t (k, c, v) VALUES (91, 1, 'short') USING TTL 1000", "SELECT ttl(v) FROM t WHERE k = 91"} {
		q = plainQuery(text)
		q.Options.NowInSeconds = &now
		k.ask("now in seconds: "+text, q, exact, nil)
	}
	k.query("SELECT v FROM t WHERE k = 91")
}

// pipelined sends many requests before it reads an answer, and keeps the answers in the order of
// the requests.
func (k *conversation) pipelined() {
	const n = 100
	byStream := map[int16]envelope{}
	first := k.wire.stream + 1
	for i := range n {
		require.NoError(k.t, k.wire.send(plainQuery(fmt.Sprintf("SELECT k, c, v FROM t WHERE k = %d", i%10)), nil))
	}
	for range n {
		e, err := k.wire.receive()
		require.NoError(k.t, err)
		byStream[e.stream()] = e
	}
	for i := range n {
		e := byStream[first+int16(i)]
		k.moves = append(k.moves, roundTrip{fmt.Sprintf("pipelined %d", i), e, append(bytes.Clone(e.header), e.body...)})
	}
}
