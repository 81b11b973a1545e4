package proxy

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/require"
)

// asked is one statement as it came over the wire from the driver's session: what was asked of
// Cassandra, whatever code asked it.
type asked struct {
	text   string
	level  primitive.ConsistencyLevel
	serial primitive.ConsistencyLevel
	stamp  int64 // 0: the driver's own
	set    map[string][]byte
	where  map[string][]byte
	cond   map[string][]byte // of the IF
	batch  []asked           // its statements, of a batch
	rows   int32             // the page size
	state  []byte            // the paging state
}

// verb is the first word.
func (a asked) verb() string { return strings.SplitN(a.text, " ", 2)[0] }

// cqlNode is a node played by the test, for a session of the driver: it knows nothing but how to be
// connected to.
type cqlNode struct {
	session *gocql.Session
	address string

	mu       sync.Mutex
	peers    message.Message // what the driver is told of others; nil = there are none
	release  string          // "" = 5.0.8
	prepared map[string]string
	all      []asked
	version  func() gocql.UUID           // of the schema; nil: always the same
	answer   func(asked) message.Message // nil: the connection ends
}

// startCQLNode starts a node and a session with it, as the proxy's own session is but for the discovery
// of other nodes. answer says what every statement is told that is not the driver's own.
func startCQLNode(t *testing.T, answer func(asked) message.Message) *cqlNode {
	t.Helper()
	n := &cqlNode{prepared: map[string]string{}, answer: answer}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { n.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
	n.address = ln.Addr().String()
	n.session = n.connect(t)
	return n
}

// setRelease has the node be of a release, with that version of its schema; nil: always the same.
func (n *cqlNode) setRelease(release string, version func() gocql.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.release, n.version = release, version
}

// connect opens a session with the node, and with those that it tells of. It is closed before the node ends.
func (n *cqlNode) connect(t *testing.T) *gocql.Session {
	t.Helper()
	cluster := gocql.NewCluster(n.address)
	cluster.ProtoVersion, cluster.DisableSkipMetadata, cluster.NumConns = 4, true, 1
	n.mu.Lock()
	cluster.DisableInitialHostLookup = n.peers == nil
	n.mu.Unlock()
	cluster.Events.DisableNodeStatusEvents, cluster.Events.DisableTopologyEvents, cluster.Events.DisableSchemaEvents = true, true, true
	cluster.Metadata.CacheMode = gocql.Disabled
	cluster.RetryPolicy, cluster.Timeout = nil, 5*time.Second
	cluster.Logger = gocql.NewLogger(gocql.LogLevelNone)
	session, err := cluster.CreateSession()
	require.NoError(t, err)
	t.Cleanup(session.Close)
	return session
}

// take returns what has been asked since the last time.
func (n *cqlNode) take() []asked {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := n.all
	n.all = nil
	return all
}

// says changes the answers.
func (n *cqlNode) says(answer func(asked) message.Message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = answer
}

// saysAlways is one answer for everything.
func (n *cqlNode) saysAlways(m message.Message) { n.says(func(asked) message.Message { return m }) }

func (n *cqlNode) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	codec := frame.NewCodec()
	for {
		f, err := codec.DecodeFrame(conn)
		if err != nil {
			return
		}
		reply := n.reply(f.Body.Message)
		if reply == nil || codec.EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, f.Header.StreamId, reply), conn) != nil {
			return
		}
	}
}

// reply answers one message.
func (n *cqlNode) reply(m message.Message) message.Message {
	switch m := m.(type) {
	case *message.Startup:
		return &message.Ready{}
	case *message.Options:
		return &message.Supported{Options: map[string][]string{"CQL_VERSION": {"3.4.7"}}}
	case *message.Register:
		return &message.Ready{}
	case *message.Prepare:
		n.mu.Lock()
		defer n.mu.Unlock()
		id := fmt.Sprintf("%x", len(n.prepared)+1)
		n.prepared[id] = m.Query
		return &message.PreparedResult{PreparedQueryId: []byte(id), VariablesMetadata: &message.VariablesMetadata{Columns: markers(m.Query)}, ResultMetadata: &message.RowsMetadata{}}
	case *message.Query:
		return n.statement(newAsked(m.Query, m.Options))
	case *message.Execute:
		n.mu.Lock()
		text := n.prepared[string(m.QueryId)]
		n.mu.Unlock()
		return n.statement(newAsked(text, m.Options))
	case *message.Batch:
		return n.statement(n.batch(m))
	}
	return &message.ProtocolError{ErrorMessage: fmt.Sprintf("%T?", m)}
}

// statement answers one statement: the driver's own questions about the node by itself.
func (n *cqlNode) statement(a asked) message.Message {
	host := gocql.UUID{7}
	switch {
	case strings.HasPrefix(a.text, "SELECT * FROM system.peers"):
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.peers != nil {
			return n.peers
		}
		return noRow("host_id")
	case strings.HasPrefix(a.text, "SELECT * FROM system."):
		return rowOf("host_id", host[:], "rpc_address", []byte{127, 0, 0, 1}, "data_center", []byte("dc1"), "rack", []byte("r1"), "release_version", []byte("5.0.8"))
	case a.text == "SELECT release_version FROM system.local":
		n.mu.Lock()
		defer n.mu.Unlock()
		return rowOf("release_version", []byte(cmp.Or(n.release, "5.0.8")))
	case strings.HasPrefix(a.text, "SELECT schema_version FROM system."):
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.version != nil {
			host = n.version()
		}
		return rowOf("schema_version", host[:])
	case strings.HasPrefix(a.text, "SELECT * FROM system_schema."):
		return noRow("schema_version")
	}
	n.mu.Lock()
	n.all = append(n.all, a)
	answer := n.answer
	n.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(a)
}

// newAsked takes a statement apart.
func newAsked(text string, o *message.QueryOptions) asked {
	a := asked{text: text, level: o.Consistency, rows: o.PageSize, state: o.PagingState}
	if o.SerialConsistency != nil {
		a.serial = *o.SerialConsistency
	}
	if o.DefaultTimestamp != nil {
		a.stamp = *o.DefaultTimestamp
	}
	a.bind(o.PositionalValues)
	return a
}

func (n *cqlNode) batch(m *message.Batch) asked {
	a := asked{text: "BATCH", level: m.Consistency}
	if m.DefaultTimestamp != nil {
		a.stamp = *m.DefaultTimestamp
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, child := range m.Children {
		c := asked{text: child.Query}
		if child.Id != nil {
			c.text = n.prepared[string(child.Id)]
		}
		c.bind(child.Values)
		a.batch = append(a.batch, c)
	}
	return a
}

// bind puts the values to the columns that their markers stand at.
func (a *asked) bind(values []*primitive.Value) {
	a.set, a.where, a.cond = map[string][]byte{}, map[string][]byte{}, map[string][]byte{}
	for i, at := range places(a.text) {
		if i >= len(values) {
			break
		}
		into := map[byte]map[string][]byte{'s': a.set, 'w': a.where, 'i': a.cond}[at.part]
		into[at.column] = values[i].Contents
	}
}

// markerAt is where a marker stands: s of what is set, w of WHERE, i of IF.
type markerAt struct {
	part   byte
	column string
}

var (
	insertText = regexp.MustCompile(`^INSERT INTO \S+ \(([^)]*)\)`)
	markerText = regexp.MustCompile(`(\w+) (?:=|IN) \?`)
)

// places are the markers of a statement, in their order.
func places(text string) (all []markerAt) {
	if m := insertText.FindStringSubmatch(text); m != nil {
		for column := range strings.SplitSeq(m[1], ", ") {
			all = append(all, markerAt{'s', column})
		}
		return all
	}
	where, cond := strings.Index(text, " WHERE "), strings.Index(text, " IF ")
	for _, m := range markerText.FindAllStringSubmatchIndex(text, -1) {
		part := byte('s')
		switch {
		case cond >= 0 && m[0] > cond:
			part = 'i'
		case where >= 0 && m[0] > where:
			part = 'w'
		}
		all = append(all, markerAt{part, text[m[2]:m[3]]})
	}
	return all
}

// markers describes them to the driver.
func markers(text string) (all []*message.ColumnMetadata) {
	if strings.Contains(text, `"."`) { // on data: whoever reads or writes that takes bytes
		for range strings.Count(text, "?") {
			all = append(all, &message.ColumnMetadata{Keyspace: "k", Table: "t", Name: "any", Type: datatype.Blob})
		}
		return all
	}
	for _, at := range places(text) {
		cqlType := typeOf(at.column)
		if strings.Contains(text, at.column+" IN ?") {
			cqlType = datatype.NewList(cqlType)
		}
		all = append(all, &message.ColumnMetadata{Keyspace: "k", Table: "t", Name: at.column, Type: cqlType})
	}
	return all
}

// typeOf is the type of a column of whatever table the proxy asks for.
func typeOf(column string) datatype.DataType {
	switch column {
	case "guard", "base", "head", "beat", "closed", "first", "last", "lease", "writetime(comment)", "writetime(type)", "writetime(companion)", "writetime(serving)", "writetime(replication)":
		return datatype.Bigint
	case "dirty", "[applied]", "durable_writes", "serving":
		return datatype.Boolean
	case "owner", "session", "schema_version", "id", "host_id", "companion", "chosen":
		return datatype.Uuid
	case "rpc_address", "peer", "native_address", "address":
		return datatype.Inet
	case "tokens":
		return datatype.NewSet(datatype.Varchar)
	case "now", "dropped_time":
		return datatype.Timestamp
	case "position", "gc_grace_seconds", "default_time_to_live", "version", "peer_port", "native_port", "port":
		return datatype.Int
	case "compaction", "replication":
		return datatype.NewMap(datatype.Varchar, datatype.Varchar)
	case "flags":
		return datatype.NewList(datatype.Varchar)
	case "queue":
		return datatype.NewList(datatype.NewTuple(datatype.Bigint, datatype.Int, datatype.Uuid, datatype.Bigint, datatype.Boolean))
	case "addr", "rules", "settings", "keyspace_name", "table_name", "comment", "create_statement", "data_center", "rack", "release_version", "read_repair":
		return datatype.Varchar
	}
	return datatype.Blob
}

// rowOf is a result with one row of named values.
func rowOf(namesAndValues ...any) *message.RowsResult {
	m := &message.RowsMetadata{ColumnCount: int32(len(namesAndValues) / 2)}
	row := message.Row{}
	for i := 0; i < len(namesAndValues); i += 2 {
		name := namesAndValues[i].(string)
		m.Columns = append(m.Columns, &message.ColumnMetadata{Keyspace: "k", Table: "t", Name: name, Type: typeOf(name)})
		value, _ := namesAndValues[i+1].([]byte)
		row = append(row, value)
	}
	return &message.RowsResult{Metadata: m, Data: message.RowSet{row}}
}

// noRow is a result with these columns, and nothing in it.
func noRow(names ...any) *message.RowsResult {
	all := make([]any, 0, 2*len(names))
	for _, n := range names {
		all = append(all, n, nil)
	}
	r := rowOf(all...)
	r.Data = message.RowSet{}
	return r
}

// applied is what an LWT is answered.
func applied(yes bool) *message.RowsResult {
	return rowOf("[applied]", map[bool][]byte{true: {1}, false: {0}}[yes])
}

// bigint is a number on the wire.
func bigint(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// failures are errors of Cassandra after which nobody knows what became of a statement, and those
// that only say so of this attempt.
func failures() map[string]message.Message {
	level := primitive.ConsistencyLevelQuorum
	return map[string]message.Message{
		"WRITE_TIMEOUT CAS":    &message.WriteTimeout{ErrorMessage: "slow", Consistency: primitive.ConsistencyLevelSerial, BlockFor: 2, WriteType: primitive.WriteTypeCas},
		"WRITE_TIMEOUT SIMPLE": &message.WriteTimeout{ErrorMessage: "slow", Consistency: level, BlockFor: 2, WriteType: primitive.WriteTypeSimple},
		"WRITE_FAILURE":        &message.WriteFailure{ErrorMessage: "failed", Consistency: level, BlockFor: 2, NumFailures: 1, WriteType: primitive.WriteTypeCas},
		"READ_TIMEOUT":         &message.ReadTimeout{ErrorMessage: "slow", Consistency: level, BlockFor: 2},
		"READ_FAILURE":         &message.ReadFailure{ErrorMessage: "failed", Consistency: level, BlockFor: 2, NumFailures: 1},
		"UNAVAILABLE":          &message.Unavailable{ErrorMessage: "few", Consistency: level, Required: 2, Alive: 1},
		"SERVER_ERROR":         &message.ServerError{ErrorMessage: "oops"},
		"OVERLOADED":           &message.Overloaded{ErrorMessage: "full"},
		"INVALID":              &message.Invalid{ErrorMessage: "what?"},
		"UNAUTHORIZED":         &message.Unauthorized{ErrorMessage: "no"},
		"the connection ends":  nil,
	}
}
