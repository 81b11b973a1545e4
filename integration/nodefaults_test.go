package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/integration/cassandra"
)

// inFlight is how many requests are open when a node is hurt.
const inFlight = 50

// startRelay starts a proxy without locks in front of a node that the test may kill and pause.
func startRelay(t *testing.T, n *cassandra.Node, change func(*config.Config)) *instance {
	t.Helper()
	return startProxy(t, func(c *config.Config) {
		c.Cassandra.ContactPoints = []string{n.Addr()}
		c.Music.Locks = false
		c.Listen.Metrics = ownAddress(t)
		if change != nil {
			change(c)
		}
	})
}

// openRequests sends requests that a paused node cannot answer, and returns their streams.
func openRequests(t *testing.T, w *wire) map[int16]bool {
	t.Helper()
	streams := map[int16]bool{}
	for range inFlight {
		require.NoError(t, w.send(plainQuery("SELECT key FROM system.local"), nil))
		streams[w.stream] = true
	}
	return streams
}

// answersUntilEnd reads until the connection ends and returns the opcode that answered each stream.
func answersUntilEnd(w *wire) (map[int16]primitive.OpCode, map[int16]message.Message, error) {
	opcodes, messages := map[int16]primitive.OpCode{}, map[int16]message.Message{}
	for {
		e, err := w.receive()
		if err != nil {
			return opcodes, messages, err
		}
		opcodes[e.stream()] = e.opcode()
		if f, err := w.decode(e); err == nil {
			messages[e.stream()] = f.Body.Message
		}
	}
}

// pause pauses a node, which continues at the end of the test at the latest.
func pause(t *testing.T, n *cassandra.Node) {
	t.Helper()
	require.NoError(t, n.Pause())
	t.Cleanup(func() { _ = n.Resume() })
}

// restartAfterTest makes sure that a node answers after the test.
func restartAfterTest(t *testing.T, n *cassandra.Node) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		if err := n.Start(ctx); !errors.Is(err, cassandra.ErrRunning) {
			assert.NoError(t, err)
		}
	})
}

// A node that is killed under open requests: each is answered with an error, connections are closed
// in order, and the proxy serves again when the node is back.
func TestNodeKilledUnderOpenRequests(t *testing.T) {
	node := needDisposableNode(t)
	for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			restartAfterTest(t, node)
			p := startRelay(t, node, nil)
			w := openWire(t, p.address, version, primitive.CompressionNone)
			idle := openWire(t, p.address, version, primitive.CompressionNone)
			// Paused first: none of the requests can have its answer when the node dies.
			require.NoError(t, node.Pause())
			streams := openRequests(t, w)
			eventually(t, wireTimeout, "the requests reach the backend", func() error { return seen(p, len(streams)) })
			require.NoError(t, node.Kill())

			opcodes, messages, err := answersUntilEnd(w)
			assert.ErrorIs(t, err, io.EOF, "the connection is closed in order")
			for stream := range streams {
				assert.Equal(t, primitive.OpCodeError, opcodes[stream], "stream %d", stream)
			}
			for stream, m := range messages {
				assert.IsType(t, &message.ServerError{}, m, "stream %d", stream)
			}
			_, _, err = answersUntilEnd(idle)
			assert.ErrorIs(t, err, io.EOF, "a connection without requests is closed too")
			checkServesAgain(t, node, p)
		})
	}
}

// seen reports whether a proxy has forwarded that many QUERYs.
func seen(p *instance, n int) error {
	counted, err := p.requests("QUERY", "forwarded")
	if err != nil || counted < n {
		return errorf("%d forwarded, %w", counted, err)
	}
	return nil
}

// checkServesAgain starts a killed node and asks through the proxy that has lost it.
func checkServesAgain(t *testing.T, n *cassandra.Node, p *instance) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	require.NoError(t, n.Start(ctx))
	c := withGocql2(4, "").open(t, p.address, "")
	require.NoError(t, c.run(statement{cql: "SELECT key FROM system.local"}).err())
}

// The same with gocql, whose requests fail and whose session goes on.
func TestGocqlLivesThroughAKilledNode(t *testing.T) {
	node := needDisposableNode(t)
	restartAfterTest(t, node)
	p := startRelay(t, node, nil)
	cluster := cluster2(p.address, "")
	cluster.ReconnectInterval = 100 * time.Millisecond
	c := openGocql2(t, cluster)
	require.NoError(t, c.run(statement{cql: "SELECT key FROM system.local"}).err())
	require.NoError(t, node.Pause())
	results := make(chan error, inFlight)
	for range inFlight {
		go func() { results <- c.run(statement{cql: "SELECT key FROM system.local"}).err() }()
	}
	eventually(t, wireTimeout, "the requests reach the backend", func() error { return seenExecutes(p) })
	require.NoError(t, node.Kill())
	for range inFlight {
		select {
		case err := <-results:
			assert.Error(t, err)
		case <-time.After(wireTimeout):
			require.Fail(t, "a request has no answer")
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	require.NoError(t, node.Start(ctx))
	keepsAsking(t, c)
}

// seenExecutes reports whether the requests of the driver are under way: it sends them as EXECUTE.
func seenExecutes(p *instance) error {
	counted, err := p.requests("EXECUTE", "forwarded")
	if err != nil || counted < inFlight {
		return errorf("%d forwarded, %w", counted, err)
	}
	return nil
}

// When a node is paused for a moment, each open request gets its answer afterwards.
func TestNodePausedAndResumed(t *testing.T) {
	node := needDisposableNode(t)
	p := startRelay(t, node, nil)
	w := openWire(t, p.address, primitive.ProtocolVersion5, primitive.CompressionNone)
	pause(t, node)
	streams := openRequests(t, w)
	eventually(t, wireTimeout, "the requests reach the backend", func() error { return seen(p, len(streams)) })
	require.NoError(t, node.Resume())
	for range inFlight {
		e, err := w.receive()
		require.NoError(t, err)
		assert.Equal(t, primitive.OpCodeResult, e.opcode())
		assert.True(t, streams[e.stream()])
		delete(streams, e.stream())
	}
	assert.Empty(t, streams)
}

// A node is paused for longer than the proxy waits: open requests get errors, and connections
// without open requests stay open.
func TestNodePausedForTooLong(t *testing.T) {
	node := needDisposableNode(t)
	p := startRelay(t, node, func(c *config.Config) { c.Limits.BackendTimeout = time.Second })
	w := openWire(t, p.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	idle := openWire(t, p.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	pause(t, node)
	streams := openRequests(t, w)
	opcodes, _, err := answersUntilEnd(w)
	assert.ErrorIs(t, err, io.EOF)
	for stream := range streams {
		assert.Equal(t, primitive.OpCodeError, opcodes[stream], "stream %d", stream)
	}
	require.NoError(t, node.Resume())
	e, err := idle.ask(plainQuery("SELECT key FROM system.local"))
	require.NoError(t, err, "a connection that was owed nothing goes on")
	assert.Equal(t, primitive.OpCodeResult, e.opcode())
}

// Without a node, a connection is closed without an error, since a driver would take an error for a
// refusal of the version.
func TestNoNodeAtStart(t *testing.T) {
	p := startProxy(t, func(c *config.Config) {
		c.Cassandra.ContactPoints = []string{"127.0.5.1"}
		c.Music.Locks = false
	})
	w, err := dialWire(p.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	require.NoError(t, err)
	defer func() { _ = w.net.Close() }()
	_, err = w.ask(message.NewStartup())
	assert.ErrorIs(t, err, io.EOF, "without a word: a driver would take an error for one of the version")
}

// A proxy with locks off makes no keyspace and no lock table, and treats no table as critical.
func TestPureRelayLeavesNoTrace(t *testing.T) {
	node := needDisposableNode(t)
	direct := openGocql2(t, cluster2(node.Addr(), ""))
	require.NoError(t, direct.run(statement{cql: "DROP KEYSPACE IF EXISTS music"}).err(), "of a proxy of another test")
	p := startRelay(t, node, nil)
	c := withGocql2(5, "").open(t, p.address, "")
	require.NoError(t, c.run(statement{cql: "CREATE KEYSPACE IF NOT EXISTS plain WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"}).err())
	require.NoError(t, c.run(statement{cql: "CREATE TABLE IF NOT EXISTS plain.t (k int PRIMARY KEY, v int) WITH comment = '@critical'"}).err())
	require.NoError(t, c.run(statement{cql: "INSERT INTO plain.t (k, v) VALUES (1, 2)"}).err(), "nothing is critical")
	o := c.run(statement{cql: "LOCK plain.t WHERE k = 1"})
	require.NotNil(t, o.failure)
	assert.Equal(t, 0x2000, o.failure.code, "Cassandra's own syntax error: %v", o.failure)
	for _, q := range []string{
		"SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'music'",
		"SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'plain'",
	} {
		o := direct.run(statement{cql: q})
		require.NoError(t, o.err())
		assert.NotContains(t, fmt.Sprint(o.rows), "music")
	}
}
