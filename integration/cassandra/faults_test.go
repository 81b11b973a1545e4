package cassandra

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
)

// rowsOf reads from a node.
func rowsOf(ctx context.Context, t *testing.T, n *Node, cql string) message.RowSet {
	t.Helper()
	c, err := n.dial(ctx)
	must(t, err)
	rows, err := c.query(ctx, cql, primitive.ConsistencyLevelOne)
	must(t, errors.Join(err, c.close()))
	return rows
}

// TestFaultsStrike holds a write between two nodes back, and moves a node's clock.
func TestFaultsStrike(t *testing.T) {
	ctx := slow(t)
	c, err := Start(ctx, Options{
		Dir: t.TempDir(), Nodes: 2, Address: address9, FastJIT: true, Faults: true, Log: t.Output(),
		Yaml: map[string]string{"hinted_handoff_enabled": "false"},
	})
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	first, second := c.Nodes()[0], c.Nodes()[1]
	for _, cql := range []string{
		"CREATE KEYSPACE k WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 2}",
		"CREATE TABLE k.t (k int PRIMARY KEY, v int) WITH read_repair = 'NONE'",
	} {
		must(t, ask(ctx, first, cql, time.Minute))
	}
	must(t, c.Wait(ctx))
	t.Run("hold", func(t *testing.T) { holdWrite(ctx, t, first, second) })
	t.Run("skew", func(t *testing.T) { skewClock(ctx, t, second) })
	_, err = first.Fault(ctx, "drop NO_SUCH_VERB *")
	assert.ErrorContains(t, err, "NO_SUCH_VERB", "a verb that does not exist")
}

// holdWrite: a held mutation is not at the other node, released it is.
func holdWrite(ctx context.Context, t *testing.T, first, second *Node) {
	must(t, tampered(first.Fault(ctx, "hold MUTATION_REQ "+second.Host())))
	must(t, ask(ctx, first, "INSERT INTO k.t (k, v) VALUES (1, 2)", time.Minute))
	const read = "SELECT v FROM k.t WHERE k = 1"
	assert.Empty(t, rowsOf(ctx, t, second, read), "a held write has arrived")
	rules, err := first.Fault(ctx, "list")
	assert.NoError(t, err, "rules: %q", rules)
	assert.Contains(t, rules, "hits=1", "rules: %q %v", rules, err)
	must(t, tampered(first.Fault(ctx, "heal")))
	must(t, poll(ctx, func(ctx context.Context) error {
		if len(rowsOf(ctx, t, second, read)) == 0 {
			return errors.New("a released write has not arrived")
		}
		return nil
	}))
}

func tampered(_ string, err error) error { return err }

// skewClock: what a node takes for now moves by what is asked.
func skewClock(ctx context.Context, t *testing.T, n *Node) {
	const ahead = 300 * time.Second
	must(t, tampered(n.Fault(ctx, fmt.Sprintf("skew %d", ahead.Milliseconds()))))
	rows := rowsOf(ctx, t, n, "SELECT toTimestamp(now()) FROM system.local")
	at := time.UnixMilli(int64(binary.BigEndian.Uint64(rows[0][0])))
	off := time.Until(at)
	assert.GreaterOrEqual(t, off, ahead-10*time.Second, "the node's clock is off")
	assert.LessOrEqual(t, off, ahead+10*time.Second, "the node's clock is off")
}

// Fault on a node that was started without Options.Faults is ErrNoFaults.
func TestFaultNeedsItsLauncher(t *testing.T) {
	n := &Node{layout: layoutOf(Options{Dir: t.TempDir()}, 1)}
	_, err := n.Fault(t.Context(), "list")
	assert.ErrorIs(t, err, ErrNoFaults)
}
