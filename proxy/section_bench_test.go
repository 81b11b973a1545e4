package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"music/frontend"
	"music/frontend/catalog"
	"music/frontend/traffic"
	"music/musiccore"
)

// BenchmarkSection measures sections on own keys from a retained block, and puts under held locks,
// beside a plain write: of the core behind its shards, and as clients have them over loopback from
// a proxy whose node answers at once.
func BenchmarkSection(b *testing.B) {
	for _, audit := range []string{"none", "ends", "all"} {
		b.Run("core/audit="+audit, func(b *testing.B) {
			section := sectionHere(b, audit)
			b.ReportAllocs()
			for b.Loop() {
				section()
			}
		})
	}
	for _, audit := range []string{"none", "ends", "all"} {
		for _, clients := range []int{1, 16} {
			for _, what := range []string{"write", "put", "auto", "if", "lock-unlock", "hot", "hot if"} {
				b.Run(fmt.Sprintf("audit=%s/clients=%d/%s", audit, clients, what), func(b *testing.B) {
					benchSections(b, what, audit, clients)
				})
			}
		}
	}
}

// audits has a station's audit tell what a setting says, to nobody.
func (s *station) audits(setting string) {
	for _, shard := range s.shards {
		shard.audit = newAudit(zerolog.New(io.Discard), setting, "here", newCriticalTables())
	}
}

// sectionHere returns a LOCK and an UNLOCK of a key that is kept: they are answered at once, but
// where a block is used up. They are a write alone to the audit.
func sectionHere(t testing.TB, audit string) func() {
	s := startStation(t, newCluster())
	s.audits(audit)
	k := keyOf("x")
	for range 20 { // the first makes the lock row, the next a block
		s.unlock(k, s.held(k))
	}
	by := anna()
	by.OneWrite = true
	told := make(chan musiccore.Answer, 1)
	tell := func(a musiccore.Answer) { told <- a }
	return func() {
		a, gone := s.Lock(k, musiccore.Request{By: by}, tell)
		if gone != nil {
			a = <-told
		}
		if _, ok := s.Unlock(k, a.Grant.Ref, anna(), tell); !ok {
			<-told
		}
	}
}

// A section of a key that is kept costs little memory.
func TestSectionHereAllocatesLittle(t *testing.T) {
	section := sectionHere(t, "ends")
	assert.LessOrEqual(t, testing.AllocsPerRun(200, section), 3.0)
}

// benchSections has clients do b.N sections together, each on a key of its own; if they are "hot",
// all on the same key.
func benchSections(b *testing.B, what, audit string, clients int) {
	address := sectionProxy(b, audit)
	all := make([]*sectionClient, clients)
	for i := range all {
		key := fmt.Sprintf("key %d", i)
		if strings.HasPrefix(what, "hot") {
			key = what
		}
		all[i] = newSectionClient(b, address, key)
		for range 20 { // the first makes the lock row, the next a block
			all[i].do(what)
		}
	}
	var working sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime(b)
	for _, c := range all {
		working.Go(func() {
			for range (b.N + clients - 1) / clients {
				c.do(what)
			}
		})
	}
	working.Wait()
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op") // of proxy, clients and node
}

// processorTime returns how long this process has computed: other than a clock it does not say what
// else the machine has to do.
func processorTime(b *testing.B) time.Duration {
	var used unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// sectionProxy serves clients with the locks of a station before a node that answers everything at
// once; it returns its address. The tables are plain.t, auto.t and locked.t.
func sectionProxy(b *testing.B, audit string) string {
	node := loopback(b, answerAtOnce)
	tables := catalog.NewTables()
	key := []catalog.Column{{Name: "k", Type: "text"}}
	for i, policy := range []catalog.Policy{catalog.Auto, catalog.Reject} {
		tables.Set([]string{"auto", "locked"}[i], "t", &catalog.Critical{
			ID: [16]byte{byte(i + 1)}, Key: key, Primary: []string{"k"}, Columns: map[string]catalog.Column{"k": key[0], "v": {Name: "v", Type: "int"}}, MaxLease: musiccore.Defaults().ClientLease, Settings: catalog.Settings{Unlocked: policy},
		})
	}
	tables.Of("plain", "t")
	s := startStation(b, newCluster())
	s.audits(audit)
	limits := frontend.DefaultLimits()
	server := frontend.NewServer(frontend.Options{
		Cluster:  frontend.Cluster{Dial: func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", node) }},
		Schema:   frontend.Schema{Tables: tables, SchemaIsCurrent: func() bool { return true }},
		Timeouts: frontend.Timeouts{HandshakeTimeout: time.Minute, DrainTimeout: time.Minute, MaxWait: time.Second},
		Locks:    s.locks, References: frontend.NewReferences([]byte("secret")), Log: zerolog.Nop(), Stats: new(traffic.Stats),
		Limits: func() *frontend.Limits { return &limits },
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	ctx, stop := context.WithCancel(context.Background())
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(ctx, ln) })
	b.Cleanup(func() {
		stop()
		served.Wait()
	})
	return ln.Addr().String()
}

// loopback serves each connection to an address of its own, until the benchmark ends.
func loopback(b *testing.B, serve func(net.Conn)) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(c) })
		}
	})
	b.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
	return ln.Addr().String()
}

// answerAtOnce plays a node: whatever it is asked, it is done.
func answerAtOnce(c net.Conn) {
	defer func() { _ = c.Close() }()
	w := newBenchWire(c)
	row := envelopeOf(0, &message.RowsResult{
		Metadata: &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{{Keyspace: "auto", Table: "t", Name: "v", Type: datatype.Int}}},
		Data:     message.RowSet{{{0, 0, 0, 1}}},
	})
	for {
		stream, opcode, body, err := w.read()
		if err != nil {
			return
		}
		switch opcode {
		case primitive.OpCodeStartup:
			err = w.send(stream, &message.Ready{})
		case primitive.OpCodePrepare:
			id := bytes.Repeat([]byte{byte(len(body))}, 16)
			if id[0] = 0; bytes.HasPrefix(body[4:], []byte("SELECT")) {
				id[0] = 1
			}
			err = w.send(stream, &message.PreparedResult{
				PreparedQueryId: id, ResultMetadata: &message.RowsMetadata{},
				VariablesMetadata: &message.VariablesMetadata{Columns: []*message.ColumnMetadata{{Keyspace: "plain", Table: "t", Name: "k", Type: datatype.Varchar}}},
			})
		default:
			answer := w.void
			if opcode == primitive.OpCodeExecute && body[2] == 1 {
				answer = row
			}
			answer[3] = byte(stream)
			_, err = c.Write(answer)
		}
		if err != nil {
			return
		}
	}
}

// benchWire reads envelopes of protocol 4 without allocating, and sends what a benchmark sends
// once.
type benchWire struct {
	net.Conn
	in   *bufio.Reader
	void []byte // an answer
	buf  [1 << 12]byte
}

func newBenchWire(c net.Conn) *benchWire {
	return &benchWire{Conn: c, in: bufio.NewReader(c), void: envelopeOf(0, &message.VoidResult{})}
}

// envelopeOf returns a message as protocol 4 sends it.
func envelopeOf(stream int16, m message.Message) []byte {
	var b bytes.Buffer
	if err := frame.NewCodec().EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, stream, m), &b); err != nil {
		panic(err) // all of them are constants of this file
	}
	return b.Bytes()
}

func (w *benchWire) send(stream int16, m message.Message) error {
	_, err := w.Write(envelopeOf(stream, m))
	return err
}

// read returns the next envelope; its body is valid until the one after it.
func (w *benchWire) read() (stream int16, opcode primitive.OpCode, body []byte, err error) {
	if _, err = io.ReadFull(w.in, w.buf[:9]); err != nil {
		return 0, 0, nil, err
	}
	stream, opcode = int16(binary.BigEndian.Uint16(w.buf[2:])), primitive.OpCode(w.buf[4])
	n := 9 + int(binary.BigEndian.Uint32(w.buf[5:]))
	_, err = io.ReadFull(w.in, w.buf[9:n])
	return stream, opcode, w.buf[9:n], err
}

// sectionClient is a client with its prepared statements, on a key of its own.
type sectionClient struct {
	*benchWire
	b        *testing.B
	requests map[string][]byte
	refs     map[string]int // where the reference stands in a request
	told     int            // where the reference stands in the answer to LOCK
	holds    bool
}

// newSectionClient connects one and prepares its statements.
func newSectionClient(b *testing.B, address, key string) *sectionClient {
	conn, err := net.Dial("tcp", address)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	c := &sectionClient{benchWire: newBenchWire(conn), b: b, requests: map[string][]byte{}, refs: map[string]int{}}
	require.NoError(b, c.send(0, message.NewStartup()))
	_, opcode, _, err := c.read()
	require.NoError(b, err)
	require.Equal(b, primitive.OpCodeReady, opcode)
	ref := binary.BigEndian.AppendUint64(nil, 0x0102030405060708)
	c.prepare("write", "UPDATE plain.t SET v = 1 WHERE k = ?", []byte(key))
	c.prepare("auto", "UPDATE auto.t SET v = 1 WHERE k = ?", []byte(key))
	one := []byte{0, 0, 0, 1}
	c.prepare("if", "UPDATE auto.t SET v = ? WHERE k = ? IF v = ?", one, []byte(key), one)
	c.prepare("lock", "LOCK locked.t WHERE k = ?", []byte(key))
	c.prepare("unlock", "UNLOCK locked.t WHERE k = ? USING LOCK ?", []byte(key), ref)
	c.prepare("put", "UPDATE locked.t USING LOCK ? SET v = 1 WHERE k = ?", ref, []byte(key))
	for name, request := range c.requests {
		c.refs[name] = bytes.Index(request, ref)
	}
	// The row of LOCK ends with lock_ref, state, position, holder, lease_ms and owner_died.
	c.told = -(4 + 1 + 4 + 8 + 4 + 4 + 4 + 4 + len("HELD") + 8)
	return c
}

// prepare prepares a statement and makes the request that executes it with these values.
func (c *sectionClient) prepare(name, text string, values ...[]byte) {
	require.NoError(c.b, c.send(0, &message.Prepare{Query: text}))
	_, opcode, body, err := c.read()
	require.NoError(c.b, err)
	require.Equal(c.b, primitive.OpCodeResult, opcode, "%q", body)
	id := body[4+2 : 4+2+binary.BigEndian.Uint16(body[4:])]
	options := &message.QueryOptions{Consistency: primitive.ConsistencyLevelQuorum}
	for _, value := range values {
		options.PositionalValues = append(options.PositionalValues, primitive.NewValue(value))
	}
	c.requests[name] = envelopeOf(1, &message.Execute{QueryId: id, Options: options})
}

// do does one piece of work and waits for its answers.
func (c *sectionClient) do(what string) {
	switch {
	case what == "lock-unlock":
		c.lock("unlock")
		c.ask("unlock")
		return
	case what == "hot if":
		what = "if"
	case what == "hot":
		c.lock("put", "unlock")
		c.ask("put")
		c.ask("unlock")
		return
	case what == "put" && !c.holds:
		c.lock("put")
		c.holds = true
	}
	c.ask(what)
}

// lock locks the key and writes the reference into requests.
func (c *sectionClient) lock(requests ...string) {
	answer := c.ask("lock")
	for _, name := range requests {
		copy(c.requests[name][c.refs[name]:], answer[len(answer)+c.told:][:8])
	}
}

// ask executes a statement and returns the body of its answer.
func (c *sectionClient) ask(name string) []byte {
	_, err := c.Write(c.requests[name])
	if err != nil {
		assert.NoError(c.b, err)
		return nil
	}
	_, opcode, body, err := c.read()
	if err != nil || opcode != primitive.OpCodeResult {
		assert.Fail(c.b, "no result", "%s: %v, %q", name, err, body)
	}
	return body
}
