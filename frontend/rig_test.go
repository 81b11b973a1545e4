package frontend

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"music/frontend/catalog"
	"music/frontend/traffic"
)

// rig is a Server between clients and a Cassandra, both played by the test.
type rig struct {
	t         testing.TB
	server    *Server
	address   string
	pipes     *pipeListener // where the server accepts in place of address, if it is a piped rig
	cassandra net.Listener
	logged    *logLines
	stop      context.CancelFunc // ends Serve's context
	served    chan error         // what Serve returns
}

// advertised is the address that clients are told.
const advertised = "192.0.2.7:9999"

// limited returns the default limits with a change. Callers may change them again.
func limited(change func(*Limits)) func() *Limits {
	l := DefaultLimits()
	change(&l)
	return func() *Limits { return &l }
}

// newRig starts a server whose connections are TCP's. It is stopped, and must have left nothing behind, when the test ends.
func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	return rigBetween(t, listen(t), listen(t), change)
}

// newPipedRig is newRig with connections that are pipes, for a test in a bubble of synctest.
func newPipedRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	clients := newPipeListener()
	r := rigBetween(t, clients, newPipeListener(), change)
	r.pipes = clients
	return r
}

// rigBetween starts a server that accepts at clients and dials cassandra.
func rigBetween(t testing.TB, clients, cassandra net.Listener, change []func(*Options)) *rig {
	t.Helper()
	r := &rig{t: t, cassandra: cassandra, logged: &logLines{lines: make(chan map[string]any, 4096)}, served: make(chan error, 1)}
	o := Options{
		Cluster: Cluster{
			Dial: func(ctx context.Context) (net.Conn, error) {
				if pipes, ok := cassandra.(*pipeListener); ok {
					return pipes.dial()
				}
				return new(net.Dialer).DialContext(ctx, "tcp", cassandra.Addr().String())
			},
			Advertise: netip.MustParseAddrPort(advertised),
		},
		Schema:     Schema{Tables: catalog.NewTables()},
		Timeouts:   Timeouts{HandshakeTimeout: patience, DrainTimeout: patience},
		References: plainReferences{},
		Limits:     limited(func(l *Limits) { l.Connections = 2000 }),
		Stats:      new(traffic.Stats), Log: zerolog.New(r.logged).Level(zerolog.DebugLevel),
	}
	for _, c := range change {
		c(&o)
	}
	r.server = NewServer(o)
	r.address = clients.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	ignored := goleak.IgnoreCurrent()
	go func() { r.served <- r.server.Serve(ctx, clients) }()
	t.Cleanup(func() {
		stop()
		r.waitServed()
		for t.Failed() && len(r.logged.lines) > 0 {
			t.Log(<-r.logged.lines)
		}
		_ = r.cassandra.Close()
		goleak.VerifyNone(t, ignored)
	})
	return r
}

// connect connects to the server.
func (r *rig) connect() (net.Conn, error) {
	if r.pipes != nil {
		return r.pipes.dial()
	}
	return net.Dial("tcp", r.address)
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

// waitServed waits until Serve has returned.
func (r *rig) waitServed() {
	r.t.Helper()
	select {
	case err := <-r.served:
		require.NoError(r.t, err)
		r.served <- nil
	case <-time.After(patience):
		require.FailNow(r.t, "Serve does not return")
	}
}

// dial connects a client that has said nothing yet.
func (r *rig) dial(d dialect) *peer {
	r.t.Helper()
	conn, err := r.connect()
	require.NoError(r.t, err)
	return newPeer(r.t, conn, d)
}

// accept takes the next connection that the proxy has made to Cassandra.
func (r *rig) accept(d dialect) *peer {
	r.t.Helper()
	if ln, ok := r.cassandra.(*net.TCPListener); ok {
		require.NoError(r.t, ln.SetDeadline(time.Now().Add(patience)))
	}
	conn, err := r.cassandra.Accept()
	require.NoError(r.t, err)
	return newPeer(r.t, conn, d)
}

// notDialed tells that no connection to Cassandra waits to be taken.
func (r *rig) notDialed() {
	r.t.Helper()
	require.NoError(r.t, r.cassandra.(*net.TCPListener).SetDeadline(time.Now().Add(moment)))
	_, err := r.cassandra.Accept()
	require.Error(r.t, err)
	require.True(r.t, isTimeout(err), "%v", err)
}

// startup is the STARTUP of a dialect.
func startup(d dialect) *message.Startup {
	s := message.NewStartup()
	if d.compression != "" {
		s.SetCompression(d.compression)
	}
	return s
}

// login connects a client, and brings both ends through the handshake.
func (r *rig) login(d dialect) (client, backend *peer) {
	r.t.Helper()
	client = r.dial(d)
	hello := client.envelope(r.t, 0, startup(d))
	client.write(hello)
	backend = r.accept(d)
	backend.expect(hello)
	ready := dialect{version: d.version}.envelope(r.t, 0, &message.Ready{})
	backend.write(ready)
	client.expect(ready)
	client.segmented, backend.segmented = d.version == v5, d.version == v5
	return client, backend
}

// relayed sends a request through and answers it.
func relayed(client, backend *peer, stream int16, request, response message.Message) message.Message {
	client.t.Helper()
	client.send(stream, request)
	backend.answer(stream)
	backend.send(stream, response)
	return client.answer(stream)
}

// prepare has the client prepare a statement, to which Cassandra gives an id.
func (r *rig) prepare(client, backend *peer, text string) (id []byte) {
	r.t.Helper()
	id = idOf(text)
	got := relayed(client, backend, 1, &message.Prepare{Query: text}, preparedAs(id))
	require.Equal(r.t, id, got.(*message.PreparedResult).PreparedQueryId)
	return id
}

// idOf is an id that Cassandra might give a statement.
func idOf(text string) []byte { id := ownID("test", []byte(text)); return id[:] }

// preparedAs is the answer to a PREPARE.
func preparedAs(id []byte) *message.PreparedResult {
	return &message.PreparedResult{
		PreparedQueryId: id, ResultMetadataId: []byte("result metadata!"),
		VariablesMetadata: &message.VariablesMetadata{},
		ResultMetadata:    &message.RowsMetadata{},
	}
}

// query is a QUERY without parameters.
func query(text string) *message.Query {
	return &message.Query{Query: text, Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne}}
}

// execute is an EXECUTE with one value.
func execute(id, value []byte) *message.Execute {
	return &message.Execute{QueryId: id, ResultMetadataId: []byte("result metadata!"), Options: &message.QueryOptions{
		Consistency: primitive.ConsistencyLevelOne, PositionalValues: []*primitive.Value{primitive.NewValue(value)},
	}}
}

// logLines receives the server's log.
type logLines struct{ lines chan map[string]any }

// Write takes one line.
func (l *logLines) Write(b []byte) (int, error) {
	line := map[string]any{}
	if err := json.Unmarshal(b, &line); err != nil {
		line["unreadable"] = string(b)
	}
	l.lines <- line
	return len(b), nil
}

// end waits for the line that tells of the end of a connection.
func (r *rig) end() map[string]any {
	r.t.Helper()
	select {
	case line := <-r.logged.lines:
		return line
	case <-time.After(patience):
		require.FailNow(r.t, "no line was logged")
		return nil
	}
}

// ends tells that the server logged so many lines in all, once it has been stopped, and returns them.
func (r *rig) ends(n int) []map[string]any {
	r.t.Helper()
	r.stop()
	r.waitServed()
	lines := make([]map[string]any, 0, n)
	for len(r.logged.lines) > 0 {
		lines = append(lines, <-r.logged.lines)
	}
	require.Len(r.t, lines, n)
	return lines
}

func (d dialect) String() string { return fmt.Sprintf("%v %v", d.version, d.compression) }
