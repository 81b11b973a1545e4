//go:build compat

package integration

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/integration/cassandra"
)

// The whole script has the same answers at three proxies as at their nodes, in turn.
func TestThreeProxiesFramesAreEqual(t *testing.T) {
	threeProxies(t)
	for _, c := range frameCases() {
		t.Run(c.String(), func(t *testing.T) {
			direct := converse(t, c.version, c.compression, nodeAddresses(t)...)
			proxied := converse(t, c.version, c.compression, proxyAddresses()...)
			for _, difference := range differentMoves(direct, proxied) {
				assert.Fail(t, "a difference", "%v", difference)
			}
		})
	}
}

// The corpus has the same outcomes through drivers that find the other two proxies or nodes by
// themselves.
func TestThreeProxiesOrdinaryCQLIsEqual(t *testing.T) {
	threeProxies(t)
	node := nodeAddresses(t)[0]
	for _, d := range goDrivers() {
		t.Run(d.name, func(t *testing.T) {
			direct, proxied := record(t, d, node, node), record(t, d, node, proxyAddresses()[0])
			for _, difference := range differences(direct, proxied) {
				assert.Fail(t, "a difference", "%v", difference)
			}
			checkCorpusWorked(t, d, direct)
		})
	}
}

// A thousand connections while nodes are killed and restarted, paused and slowed down, proxies are
// stopped and restarted, and clients disconnect at any time.
func TestThousandConnectionsUnderFaults(t *testing.T) {
	all := threeProxies(t, func(c *config.Config) {
		c.Limits.BackendTimeout = 12 * time.Second
		c.Log.Level = "info"
	})
	nodes := threeNodes(t).Nodes()
	for _, n := range nodes {
		restartAfterTest(t, n)
		t.Cleanup(func() { _ = n.Resume() })
	}
	c := newLoadTest(t, 15*time.Second) // some thousand requests a second in all, from one machine that also runs the nodes
	c.during(1000, func() {
		eventually(t, answerLimit, "all ask", func() error {
			if n := c.right.Load(); n < 10000 {
				return errorf("%d answers", n)
			}
			return nil
		})
		for _, k := range rand.Perm(len(faults())) {
			f, i := faults()[k], rand.IntN(len(nodes))
			t.Logf("%d right answers, errors %v; node %d %s", c.right.Load(), c.failures(), i+1, f.name)
			f.strike(t, nodes[i], all[i])
			meanwhile(4 * time.Second)
		}
		ctx, cancel := context.WithTimeout(context.Background(), startLimit)
		defer cancel()
		require.NoError(t, threeNodes(t).Wait(ctx))
		for _, m := range all {
			m.listens()
		}
	})
	assert.Greater(t, c.ended.Load(), int64(500), "connections have felt it")
}

// meanwhile lets the load run for a time.
func meanwhile(d time.Duration) { <-time.After(d) }

// fault is something done to a node, or to the proxy in front of it. It is over when strike
// returns.
type fault struct {
	name   string
	strike func(testing.TB, *cassandra.Node, *clusterProxy)
}

// faults returns all faults that are done while the load runs.
func faults() []fault {
	still := func(d time.Duration) func(testing.TB, *cassandra.Node, *clusterProxy) {
		return func(t testing.TB, n *cassandra.Node, _ *clusterProxy) {
			assert.NoError(t, n.Pause())
			meanwhile(d)
			assert.NoError(t, n.Resume())
		}
	}
	return []fault{
		{"is killed and started again", func(t testing.TB, n *cassandra.Node, _ *clusterProxy) {
			ctx, cancel := context.WithTimeout(context.Background(), startLimit)
			defer cancel()
			assert.NoError(t, n.Kill())
			assert.NoError(t, n.Start(ctx))
		}},
		{"stands still for 2 s", still(2 * time.Second)},
		{"stands still for 20 s, which is too long", still(20 * time.Second)},
		{"is slow", func(t testing.TB, n *cassandra.Node, m *clusterProxy) {
			for range 40 {
				still(150*time.Millisecond)(t, n, m)
				meanwhile(30 * time.Millisecond)
			}
		}},
		{"has a proxy that ends and comes back", func(t testing.TB, _ *cassandra.Node, m *clusterProxy) {
			assert.NoError(t, m.stop())
			m.start()
		}},
	}
}
