package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

const (
	// answerLimit is how long a request may have neither an answer nor the end of its connection.
	// It is far longer than any time-out, so a request that waits longer would never be answered.
	answerLimit = time.Minute
	loadKeys    = 100 // rows of the load's table
	enough      = 10  // right answers on one connection after the faults, after which the client ends
)

// loadTest is many connections, each with requests on many streams. Every request reads something
// of its own, and must get that, or an error, or the end of its connection. A connection that ends
// is replaced.
type loadTest struct {
	t       testing.TB
	proxies []string
	think   time.Duration // at most, between two bursts of requests of a connection
	calm    atomic.Bool   // the faults are over
	numbers atomic.Int64  // of requests

	opened, right, ended atomic.Int64 // connections, right answers, connections that ended by themselves
	mu                   sync.Mutex
	errors               map[primitive.ErrorCode]int
}

// newLoadTest makes the tables of the load.
func newLoadTest(t testing.TB, think time.Duration) *loadTest {
	t.Helper()
	criticalAtThree(t, "crowd")
	execOnNodes(t, "CREATE TABLE IF NOT EXISTS crowd.t (k int PRIMARY KEY, v bigint)")
	g := openGocql2(t, cluster2(proxyAddresses()[0], ""))
	defer g.close()
	var rows strings.Builder
	for k := range int32(loadKeys) {
		fmt.Fprintf(&rows, "INSERT INTO crowd.t (k, v) VALUES (%d, %d); ", k, rowOf(k))
	}
	eventually(t, answerLimit, "all nodes have the rows", func() error {
		return g.run(statement{cql: "BEGIN UNLOGGED BATCH " + rows.String() + "APPLY BATCH", level: "ALL"}).err()
	})
	return &loadTest{t: t, proxies: proxyAddresses(), think: think, errors: map[primitive.ErrorCode]int{}}
}

// rowOf returns the value in the row of a key.
func rowOf(key int32) int64 { return int64(key)*1_000_003 + 7 }

// during has n connections send requests during the faults, and until each of them is served well
// afterwards.
func (c *loadTest) during(n int, faults func()) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	var all sync.WaitGroup
	for i := range n {
		g := &loadClient{loadTest: c, random: rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))}
		all.Go(func() { g.live(ctx) })
	}
	before := time.Now()
	faults()
	c.calm.Store(true)
	all.Wait()
	assert.NoError(c.t, ctx.Err(), "every client goes on")
	assert.Greater(c.t, c.right.Load(), int64(n*enough))
	c.t.Logf("%d connections made %d times in %v; %d right answers, errors %v, %d connections ended by themselves",
		n, c.opened.Load(), time.Since(before).Round(time.Second), c.right.Load(), c.failures(), c.ended.Load())
}

// failures returns the errors so far.
func (c *loadTest) failures() map[primitive.ErrorCode]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.errors)
}

// loadClient sends requests on one connection after the other.
type loadClient struct {
	*loadTest
	random   *rand.Rand
	wire     *wire
	prepared *message.PreparedResult
	owed     map[int16]loadRequest
	served   int // right answers on this connection since the faults are over
}

// live sends requests until the faults are over and it is served well.
func (g *loadClient) live(ctx context.Context) {
	for ctx.Err() == nil {
		if err := g.arrive(); err != nil {
			g.rest(ctx, time.Second)
			continue
		}
		satisfied := g.stay(ctx)
		_ = g.wire.net.Close()
		if satisfied {
			return
		}
	}
}

// rest waits for a while, at most the limit.
func (g *loadClient) rest(ctx context.Context, limit time.Duration) {
	select {
	case <-time.After(time.Duration(g.random.Int64N(int64(limit)))):
	case <-ctx.Done():
	}
}

// arrive connects to any proxy, in any dialect.
func (g *loadClient) arrive() (err error) {
	dialects := []frameCase{
		{primitive.ProtocolVersion3, primitive.CompressionNone},
		{primitive.ProtocolVersion4, primitive.CompressionLz4},
		{primitive.ProtocolVersion4, primitive.CompressionNone},
		{primitive.ProtocolVersion5, primitive.CompressionNone},
	}
	d := dialects[g.random.IntN(len(dialects))]
	g.wire, err = greetWire(g.proxies[g.random.IntN(len(g.proxies))], d.version, d.compression)
	if err != nil {
		return err
	}
	g.owed, g.served = map[int16]loadRequest{}, 0
	e, err := g.wire.ask(&message.Prepare{Query: "SELECT k, v, (bigint)? AS n FROM crowd.t WHERE k = ?"})
	if err == nil {
		var f *frame.Frame
		if f, err = g.wire.decode(e); err == nil {
			err = g.learn(f.Body.Message)
		}
	}
	if err != nil {
		_ = g.wire.net.Close()
		return err
	}
	g.opened.Add(1)
	return nil
}

// learn processes the answer to PREPARE.
func (g *loadClient) learn(m message.Message) error {
	p, ok := m.(*message.PreparedResult)
	if !ok {
		return errorf("PREPARE is answered %v", m)
	}
	g.prepared = p
	return nil
}

// stay sends requests on one connection until it ends, or the client closes it, or has enough right
// answers.
func (g *loadClient) stay(ctx context.Context) (satisfied bool) {
	for ctx.Err() == nil {
		if err := g.ask(1 + g.random.IntN(16)); err != nil {
			g.ended.Add(1)
			return false
		}
		over := g.calm.Load() && g.served >= enough
		for keep := g.random.IntN(8); len(g.owed) > 0 && (over || len(g.owed) > keep); {
			if err := g.hear(); err != nil {
				g.ended.Add(1)
				return false
			}
		}
		switch {
		case over:
			return g.nothingMore()
		case !g.calm.Load() && g.random.IntN(40) == 0:
			g.drop()
			return false
		}
		g.rest(ctx, g.think)
	}
	return false
}

// drop closes the connection in one of the ways in which clients do: in order, at once, or in the
// middle of a request.
func (g *loadClient) drop() {
	switch g.random.IntN(3) {
	case 0:
		_ = g.wire.net.(*net.TCPConn).SetLinger(0)
	case 1:
		_, _ = g.wire.net.Write([]byte{byte(g.wire.version), 0, 0})
	}
}

// nothingMore reports whether no other answer comes than that to a last request.
func (g *loadClient) nothingMore() bool {
	const last = 30000
	g.owed[last] = loadRequest{kind: ofConnection}
	if err := g.send(last, &message.Options{}); err != nil {
		return false
	}
	return g.hear() == nil
}

// ask sends n requests, each on a free stream.
func (g *loadClient) ask(n int) error {
	for range n {
		stream := int16(g.random.IntN(20000))
		if _, taken := g.owed[stream]; taken {
			continue
		}
		q := loadRequest{kind: [...]loadRequestKind{byText, byText, byID, byID, byID, ofNode, ofNobody}[g.random.IntN(7)], key: g.random.Int32N(loadKeys), number: g.numbers.Add(1)}
		if g.random.IntN(50) == 0 {
			q.kind = underLock
		}
		g.owed[stream] = q
		if err := g.send(stream, g.message(q)); err != nil {
			return err
		}
	}
	return nil
}

// send sends a request on a stream. It fails if the request cannot be written in answerLimit.
func (g *loadClient) send(stream int16, m message.Message) error {
	_ = g.wire.net.SetWriteDeadline(time.Now().Add(answerLimit))
	err := g.wire.send(m, func(f *frame.Frame) { f.Header.StreamId = stream })
	if errors.Is(err, os.ErrDeadlineExceeded) {
		assert.Fail(g.t, "a request could not be sent", "to %s within %v", g.wire.net.RemoteAddr(), answerLimit)
	}
	return err
}

// hear reads one answer and checks it. It fails if the connection has ended, which answers all
// requests.
func (g *loadClient) hear() error {
	e, err := g.wire.receiveWithin(answerLimit)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		assert.Fail(g.t, "requests are not answered, and the connection does not end", "%d at %s: %v", len(g.owed), g.wire.net.RemoteAddr(), g.owed)
	}
	if err != nil {
		return err
	}
	q, asked := g.owed[e.stream()]
	if !asked {
		assert.Fail(g.t, "an answer, and nothing was asked", "stream %d of %s: %v", e.stream(), g.wire.net.RemoteAddr(), e)
		return errAnswered
	}
	delete(g.owed, e.stream())
	f, err := g.wire.decode(e)
	if err != nil {
		assert.NoError(g.t, err, "an answer of %s to %v cannot be read: %v", g.wire.net.RemoteAddr(), q, e)
		return err
	}
	return g.take(q, f.Body.Message)
}

// take checks the answer to a request.
func (g *loadClient) take(q loadRequest, m message.Message) error {
	if q.fits(m) {
		g.right.Add(1)
		if g.calm.Load() {
			g.served++
		}
		return nil
	}
	refused, ok := m.(message.Error)
	if !ok || !q.mayFail(refused) {
		assert.Fail(g.t, "another answer", "%v was answered %v", q, m)
		return errAnswered
	}
	g.mu.Lock()
	g.errors[refused.GetErrorCode()]++
	g.mu.Unlock()
	if refused.GetErrorCode() == primitive.ErrorCodeUnprepared {
		return errAnswered // prepare again, on another connection
	}
	return nil
}

// loadRequestKind is a kind of request.
type loadRequestKind byte

const (
	byText       loadRequestKind = iota // QUERY: forwarded
	byID                                // EXECUTE: forwarded
	ofNode                              // QUERY of system.local: sent and translated by the proxy
	ofNobody                            // EXECUTE of an unknown id: answered by the proxy at once
	underLock                           // a read under a reference that was never given: answered by the lock protocol
	ofConnection                        // OPTIONS
)

// loadRequest is a request that has been sent.
type loadRequest struct {
	kind   loadRequestKind
	key    int32
	number int64 // different for each request
}

// message returns the request as a message.
func (g *loadClient) message(q loadRequest) message.Message {
	switch q.kind {
	case byText:
		return plainQuery(fmt.Sprintf("SELECT k, v, (bigint)%d AS n FROM crowd.t WHERE k = %d", q.number, q.key))
	case ofNode:
		return plainQuery(fmt.Sprintf("SELECT (bigint)%d AS n FROM system.local", q.number))
	case ofNobody:
		return &message.Execute{QueryId: q.unknown(), ResultMetadataId: q.unknown(), Options: &message.QueryOptions{}}
	case underLock:
		return plainQuery(fmt.Sprintf("SELECT balance FROM crowd.accounts WHERE branch = 'x' AND id = 'y' USING LOCK %d", q.number))
	}
	return &message.Execute{
		QueryId: g.prepared.PreparedQueryId, ResultMetadataId: g.prepared.ResultMetadataId,
		Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelOne, PositionalValues: []*primitive.Value{long(q.number), primitive.NewValue(q.row()[0])}},
	}
}

// unknown returns an id of no prepared statement.
func (q loadRequest) unknown() []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 8), uint64(q.number))
}

// row returns the right answer.
func (q loadRequest) row() message.Row {
	number := long(q.number).Contents
	if q.kind == ofNode {
		return message.Row{number}
	}
	return message.Row{binary.BigEndian.AppendUint32(nil, uint32(q.key)), long(rowOf(q.key)).Contents, number}
}

// fits reports whether an answer is the right one.
func (q loadRequest) fits(m message.Message) bool {
	switch m := m.(type) {
	case *message.RowsResult:
		return q.kind <= ofNode && len(m.Data) == 1 && assert.ObjectsAreEqual(q.row(), m.Data[0])
	case *message.Unprepared:
		return q.kind == ofNobody && string(m.Id) == string(q.unknown())
	case *message.Invalid:
		return q.kind == underLock && strings.Contains(m.ErrorMessage, fmt.Sprintf("lock_ref %d ", q.number))
	case *message.Supported:
		return q.kind == ofConnection
	}
	return false
}

// mayFail reports whether faults of nodes explain an error.
func (q loadRequest) mayFail(m message.Error) bool {
	switch m.GetErrorCode() {
	case primitive.ErrorCodeServerError, primitive.ErrorCodeUnavailable, primitive.ErrorCodeOverloaded, primitive.ErrorCodeIsBootstrapping,
		primitive.ErrorCodeReadTimeout, primitive.ErrorCodeReadFailure:
		return true
	case primitive.ErrorCodeUnprepared:
		return q.kind == byID
	case primitive.ErrorCodeInvalid:
		return q.kind == underLock && strings.Contains(m.GetErrorMessage(), "MUSIC_UNAVAILABLE")
	}
	return false
}

// Two hundred connections while a node is paused for longer than the proxies wait for it, and clients disconnect at any time.
func TestAnswersAreNotCrossedWhileANodeStandsStill(t *testing.T) {
	threeProxies(t, func(c *config.Config) {
		c.Limits.BackendTimeout = time.Second
		c.Log.Level = "info"
	})
	c := newLoadTest(t, time.Second)
	c.during(200, func() {
		eventually(t, answerLimit, "all ask", func() error {
			if n := c.right.Load(); n < 1000 {
				return errorf("%d answers", n)
			}
			return nil
		})
		n := threeNodes(t).Nodes()[1]
		require.NoError(t, n.Pause())
		t.Cleanup(func() { _ = n.Resume() })
		eventually(t, answerLimit, "its connections end", func() error {
			if ended := c.ended.Load(); ended < 30 {
				return errorf("%d", ended)
			}
			return nil
		})
		require.NoError(t, n.Resume())
	})
	assert.NotZero(t, c.errors[primitive.ErrorCodeServerError], "requests at the node were answered that it is lost")
}
