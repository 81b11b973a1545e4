package clients

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"net"
	"strings"
	"sync"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// request is a statement that a client has sent and that has no answer yet.
type request struct {
	text   string // with its values, as the stories write it
	skip   bool   // the client knows the columns of the answer
	answer func(message.Message)
	hangUp func() // closes every connection
}

// server serves protocol 4 to one client. It answers the driver's own requests; statements of the
// client are passed to the story.
type server struct {
	requests chan request
	closed   chan struct{}
	isProxy  bool // else it is Cassandra itself, which knows no LOCK

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	prepared map[string]string // text by id
	tokens   []string          // TOKENs in the order in which they came
	wait     sync.WaitGroup
}

// newServer listens at a port of its own.
func newServer(isProxy bool) (*server, error) {
	s := &server{requests: make(chan request, 100), closed: make(chan struct{}), isProxy: isProxy, conns: map[net.Conn]bool{}, prepared: map[string]string{}}
	return s, s.up("127.0.0.1:0")
}

// address returns where it listens, or listened.
func (s *server) address() string { return s.listener.Addr().String() }

// up starts listening.
func (s *server) up(address string) error {
	l, err := net.Listen("tcp", address) //nolint:noctx // it waits for nobody
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.listener = l
	s.mu.Unlock()
	s.wait.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[conn] = true
			s.mu.Unlock()
			s.wait.Go(func() { s.serve(conn) })
		}
	})
	return nil
}

// down stops listening, and closes all connections as the death of a process does.
func (s *server) down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.listener.Close()
	s.hangUp()
}

// hangUp closes all connections. It is called with s.mu held.
func (s *server) hangUp() {
	for conn := range s.conns {
		_ = conn.Close()
	}
	clear(s.conns)
}

// close ends it.
func (s *server) close() {
	close(s.closed)
	s.down()
	s.wait.Wait()
}

// serve reads what one connection sends.
func (s *server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	codec := frame.NewCodec()
	var writing sync.Mutex
	for {
		f, err := codec.DecodeFrame(conn)
		if err != nil {
			return
		}
		answer := func(m message.Message) {
			writing.Lock()
			defer writing.Unlock()
			_ = codec.EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, f.Header.StreamId, m), conn)
		}
		if f.Header.Version != primitive.ProtocolVersion4 {
			answer(&message.ProtocolError{ErrorMessage: "Invalid or unsupported protocol version (" + f.Header.Version.String() + "); supported versions are (4/v4)"})
			continue
		}
		s.take(f, answer)
	}
}

// take answers a message, or passes it to the story.
func (s *server) take(f *frame.Frame, answer func(message.Message)) {
	switch m := f.Body.Message.(type) {
	case *message.Startup, *message.Register:
		answer(&message.Ready{})
	case *message.Options:
		answer(&message.Supported{Options: map[string][]string{"CQL_VERSION": {"3.4.7"}, "COMPRESSION": {}}})
	case *message.Prepare:
		answer(s.prepare(m.Query))
	case *message.Execute:
		s.mu.Lock()
		text := s.prepared[string(m.QueryId)]
		s.mu.Unlock()
		s.statement(text, m.Options, answer)
	case *message.Batch:
		s.hand(s.batch(m), false, answer)
	case *message.Query:
		s.statement(m.Query, m.Options, answer)
	default:
		answer(&message.ServerError{ErrorMessage: fmt.Sprint(f.Body.Message)})
	}
}

// statement answers what a driver reads about the cluster, and passes anything else to the story.
func (s *server) statement(text string, o *message.QueryOptions, answer func(message.Message)) {
	if strings.Contains(text, "system") {
		answer(s.system(text))
		return
	}
	s.hand(s.render(text, o.PositionalValues), o.SkipMetadata, answer)
}

// hand passes a statement to the story.
func (s *server) hand(text string, skip bool, answer func(message.Message)) {
	r := request{text: text, skip: skip, answer: answer, hangUp: func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.hangUp()
	}}
	select {
	case s.requests <- r:
	case <-s.closed:
	}
}

// prepare answers PREPARE. Cassandra itself refuses the first word that it does not know.
func (s *server) prepare(text string) message.Message {
	if word := unknownWord(text); !s.isProxy && word != "" {
		return &message.SyntaxError{ErrorMessage: "line 1:0 no viable alternative at input '" + word + "'"}
	}
	sum := fnv.New128a()
	sum.Write([]byte(text))
	id := sum.Sum(nil)
	s.mu.Lock()
	s.prepared[string(id)] = text
	s.mu.Unlock()
	result := &message.RowsMetadata{}
	if columns := columnsOf(text); columns != nil {
		result = &message.RowsMetadata{ColumnCount: int32(len(columns)), Columns: columns}
	}
	return &message.PreparedResult{PreparedQueryId: id, VariablesMetadata: &message.VariablesMetadata{Columns: markersOf(text)}, ResultMetadata: result}
}

// unknownWord returns the word of a statement that Cassandra itself does not know, or "".
func unknownWord(text string) string {
	for _, word := range strings.Fields(text) {
		if word == "LOCK" || word == "UNLOCK" {
			return word
		}
	}
	return ""
}

// system answers what drivers read about the cluster: one node, which is this one.
func (s *server) system(query string) message.Message {
	if !strings.Contains(query, "system.local") {
		return &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{column("peer", datatype.Inet)}}}
	}
	host, _, _ := net.SplitHostPort(s.address())
	ip, id := []byte(net.ParseIP(host).To4()), hexBytes("c0d1d21ebb01419686dbbc317bc1796a")
	tokens := append(append([]byte{0, 0, 0, 1}, 0, 0, 0, 1), '0')
	columns, row := []*message.ColumnMetadata{}, message.Row{}
	for _, c := range []struct {
		name  string
		kind  datatype.DataType
		value []byte
	}{
		{"key", datatype.Varchar, []byte("local")},
		{"bootstrapped", datatype.Varchar, []byte("COMPLETED")},
		{"broadcast_address", datatype.Inet, ip},
		{"cluster_name", datatype.Varchar, []byte("stories")},
		{"cql_version", datatype.Varchar, []byte("3.4.7")},
		{"data_center", datatype.Varchar, []byte("dc1")},
		{"host_id", datatype.Uuid, id},
		{"listen_address", datatype.Inet, ip},
		{"native_protocol_version", datatype.Varchar, []byte("4")},
		{"partitioner", datatype.Varchar, []byte("org.apache.cassandra.dht.Murmur3Partitioner")},
		{"rack", datatype.Varchar, []byte("rack1")},
		{"release_version", datatype.Varchar, []byte("4.1.6")},
		{"rpc_address", datatype.Inet, ip},
		{"schema_version", datatype.Uuid, id},
		{"tokens", datatype.NewSet(datatype.Varchar), tokens},
	} {
		columns, row = append(columns, column(c.name, c.kind)), append(row, c.value)
	}
	return &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: int32(len(columns)), Columns: columns}, Data: message.RowSet{row}}
}

// hexBytes reads a constant.
func hexBytes(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}
