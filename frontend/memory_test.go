package frontend

import (
	"errors"
	"net"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/segment"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/relay"
	"music/frontend/traffic"
	"music/frontend/wire"
)

// fakeSocket is a socket that takes everything, and from which what was fed to it is read.
type fakeSocket struct {
	net.Conn
	got     []byte
	keep    bool
	unread  []byte
	writes  int    // so many calls of Write
	onWrite func() // called by each; nil is nothing
}

// errNothingToRead ends the reading of a sink that has nothing more.
var errNothingToRead = errors.New("nothing to read")

func (s *fakeSocket) Write(b []byte) (int, error) {
	s.writes++
	if s.onWrite != nil {
		s.onWrite()
	}
	if s.keep {
		s.got = append(s.got, b...)
	}
	return len(b), nil
}

func (s *fakeSocket) Read(b []byte) (int, error) {
	if len(s.unread) == 0 {
		return 0, errNothingToRead
	}
	n := copy(b, s.unread)
	s.unread = s.unread[n:]
	return n, nil
}

func (s *fakeSocket) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// memoryConn is a connection with fake sockets, after the handshake.
type memoryConn struct {
	*conn
	client, backend *fakeSocket
}

// newMemoryConn makes one that knows the tables of a schema of some size, none of which is critical but music.named.
func newMemoryConn(t tester, d dialect, keep bool) *memoryConn {
	t.Helper()
	tables := catalog.NewTables()
	for _, name := range []string{"accounts", "transfers", "other"} {
		tables.Of("bank", name)
	}
	tables.Set("music", "named", &catalog.Critical{Key: []catalog.Column{{Name: "name", Type: "text"}}})
	s := NewServer(Options{Schema: Schema{Tables: tables}, Locks: noLocks{}, References: plainReferences{}, Stats: new(traffic.Stats), Log: zerolog.Nop(), Limits: limited(func(l *Limits) { l.Connections = 1 })})
	m := &memoryConn{client: &fakeSocket{keep: keep}, backend: &fakeSocket{keep: keep}}
	m.conn = newConn(s, m.client)
	m.conn.backend = m.backend
	m.up.Out, m.down.In = relay.NewOutbound(m.backend), relay.NewInbound(m.backend, &s.buffers, m.account(s.answers))
	m.version, m.framing.Compression = byte(d.version), d.compression
	m.framing.SetSegmented(d.version == v5)
	m.loggedIn.Store(true)
	ks := "bank"
	m.keyspace.Store(&ks)
	return m
}

// feed has a direction deal with bytes that have arrived on its socket.
func (m *memoryConn) feed(d *relay.Direction, b []byte) error {
	from := m.client
	if d == m.down {
		from = m.backend
	}
	from.unread = b
	if err := d.Run(); !errors.Is(err, errNothingToRead) {
		return err
	}
	return nil
}

// requestBytes puts an envelope into the framing of a dialect.
func requestBytes(t tester, d dialect, envelope []byte) []byte {
	t.Helper()
	switch {
	case d.version < v5:
		return envelope
	case len(envelope) > segment.MaxPayloadLength:
		return d.parts(t, envelope, segment.MaxPayloadLength)
	}
	return d.segment(t, envelope, true)
}

// typical are the requests and the response that the targets are about.
func typical(t tester, d dialect, m *memoryConn) (exec, text, response []byte) {
	t.Helper()
	id := idOf("typical")
	table := m.server.Tables.Of("bank", "accounts")
	m.server.prepared.add(preparedID(id), &preparedStatement{kind: classify.Writes, tables: []*catalog.Table{table}}, nil)
	exec = requestBytes(t, d, d.envelope(t, 1, execute(id, noise(100))))
	text = requestBytes(t, d, d.envelope(t, 1, query("UPDATE bank.accounts SET balance = 90 WHERE branch = 'zurich' AND id = 'x'")))
	response = requestBytes(t, d, d.envelope(t, 1, rows(noise(200))))
	return exec, text, response
}

// What is forwarded costs no memory: not on the way to Cassandra, with the look-up of the statement and of its table, nor back.
func TestForwardingAllocatesNothing(t *testing.T) {
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			m := newMemoryConn(t, d, false)
			exec, text, response := typical(t, d, m)
			for what, request := range map[string][]byte{"EXECUTE": exec, "QUERY": text} {
				var err error
				n := testing.AllocsPerRun(1000, func() {
					if err == nil {
						err = m.feed(m.up, request)
					}
					if err == nil {
						err = m.feed(m.down, response)
					}
				})
				require.NoError(t, err)
				require.Zero(t, n, what)
			}
			require.Zero(t, m.server.Stats.Rejected.Load())
		})
	}
}

// Large segments come and go without new memory.
func TestLargeSegmentsAllocateNothing(t *testing.T) {
	d := dialect{v5, ""}
	m := newMemoryConn(t, d, false)
	id := idOf("typical")
	m.server.prepared.add(preparedID(id), &preparedStatement{}, nil)
	request := requestBytes(t, d, d.envelope(t, 1, execute(id, noise(120_000))))
	round := func() {
		require.NoError(t, m.feed(m.up, request))
		m.streams.End(1)
	}
	round()
	// The garbage collector may empty the pools now and then.
	require.Less(t, testing.AllocsPerRun(200, round), 0.5)
}

// A put under a lock that the core lets through at once leaves behind what its answer is for, and its key; the request itself is kept nowhere.
func TestFencedPutAllocatesLittle(t *testing.T) {
	if raceDetector {
		t.Skip("allocations mean nothing under the race detector")
	}
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			m, put, done := fencedPut(t, d)
			var err error
			n := testing.AllocsPerRun(1000, func() {
				if err == nil {
					err = errors.Join(m.feed(m.up, put), m.feed(m.down, done))
				}
			})
			require.NoError(t, err)
			require.Zero(t, m.server.Stats.Rejected.Load())
			require.LessOrEqual(t, n, 3.0)
		})
	}
}

// What is known of a prepared write is known of one state of its table.
func TestPreparedWriteFollowsItsTable(t *testing.T) {
	m, execute := fencedConn(t, d4(), "UPDATE bank.locked SET v = ? WHERE k = ?", catalog.Auto)
	write := requestBytes(t, d4(), d4().envelope(t, 1, execute))
	done := requestBytes(t, d4(), d4().envelope(t, 1, &message.VoidResult{}))
	auto := m.server.Tables.Of("bank", "locked").Critical()
	reject := *auto
	reject.Unlocked = catalog.Reject
	for i, state := range []*catalog.Critical{auto, auto, &reject, auto} {
		m.server.Tables.Set("bank", "locked", state)
		before := fenced(m)
		require.NoError(t, m.feed(m.up, write))
		served := state == auto
		require.Equal(t, served, fenced(m) == before+1, "execution %d", i)
		if served {
			require.NoError(t, m.feed(m.down, done))
		}
	}
}

// When the connection ends each request is answered once, also one that its operation has just sent to Cassandra and is about to leave.
func TestTheEndIsToldOnce(t *testing.T) {
	m := newMemoryConn(t, d4(), true)
	o := m.begin(1)
	o.free()
	require.True(t, m.streams.Begin(1, false))
	require.True(t, m.streams.Begin(2, false))
	defer m.begin(3).end()
	m.performing = 3
	m.giveUp(errBackendLost)
	o.end()
	var told []int16
	for got := m.client.got; len(got) > 0; {
		e := wire.EnvelopeOf(got)
		told = append(told, e.Stream)
		got = got[e.Size():]
	}
	require.Equal(t, []int16{1, 2, 3}, told)
}
