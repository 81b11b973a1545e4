//go:build compat

package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
)

// tellers has clients do sections on bank.accounts through the first two proxies, until end is
// called, which checks that none is lost.
func (o *operator) tellers() (end func()) {
	o.t.Helper()
	first, second := o.proxies[o.proxyAt(1)], o.proxies[o.proxyAt(2)]
	r := &rollingFixture{programs: [3]*process{first, second, first}, patience: operatorPatience}
	r.tableFixture = &tableFixture{t: o.t, driver: withGocql2(4, ""), address: first.address, keyspace: "bank"}
	stop := r.tell(2)
	return func() {
		o.t.Helper()
		stop()
		r.noneLost()
	}
}

// docs/operations.md, Paxos v1 to v2, A new node, and A node that is replaced, one after the other:
// a client that holds a lock keeps it, and no section is lost.
func TestOperationsOfNodes(t *testing.T) {
	t.Parallel()
	o := newOperator(t, 1, 2, cassandra.Durable(map[string]string{"paxos_variant": "v1"}))
	o.joining = cassandra.Joining{DC: 1, Bootstrap: true}
	o.startProxies()
	o.typed(o.nodeAt(1), "cqlsh "+o.nodeAt(1)+` -e "CREATE KEYSPACE bank WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 2}"`, nil)
	held := o.newTable("bank.accounts", "@critical(lease=1h)", 1)
	o.typed(o.proxyAt(1), "music check --proxy "+o.proxyAt(1)+":9042", []string{"warning paxos_variant: v1"})

	o.follow("Paxos v1 to v2", 0, 1)
	held.goesOnAt(1)
	held.goesOnAt(2)

	end := o.tellers()
	o.follow("A new node", 0, 1)
	held.goesOnAt(3)
	o.follow("A new node", 1, 2)
	held.goesOnAt(1)

	require.NoError(t, o.node(o.nodeAt(2)).Kill())
	held.goesOnAt(1)
	o.follow("A node that is replaced", 0, 1)
	held.goesOnAt(2)
	held.goesOnAt(3)
	c := pinned(t, o.node(o.nodeAt(1)).Addr())
	defer c.close()
	eventually(t, operatorPatience, "the row of the old node goes by itself", func() error {
		if all := c.run(statement{cql: "SELECT host_id FROM music.proxies"}); len(all.rows) != 3 {
			return errorf("%v", all)
		}
		return nil
	})
	end()
}

// docs/operations.md, A new data centre, and A data centre that is lost.
func TestOperationsOfDataCentres(t *testing.T) {
	t.Parallel()
	o := newOperator(t, 2, 2, cassandra.Durable(map[string]string{}))
	o.joining = cassandra.Joining{DC: 2}
	o.startProxies()
	o.typed(o.nodeAt(1), "cqlsh "+o.nodeAt(1)+` -e "CREATE KEYSPACE bank WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 2}"`, nil)
	held := o.newTable("bank.accounts", "@critical(lease=1h)", 1)
	near := o.newTable("bank.near", "@critical(scope=local,lease=1h)", 1)

	o.follow("A new data centre", 0, 1)
	held.goesOnAt(1)
	o.killSecond() // fewer than half of the replicas
	held.goesOnAt(1)
	near.goesOnAt(2)
	o.startSecond()
	o.follow("A new data centre", 1, 2)
	held.goesOnAt(3)
	near.goesOnAt(2)
	near.refusedAt(3, "MUSIC_REFUSED")
	far := o.newTable("bank.far", "@critical(scope=local,dc=dc2,lease=1h)", 4)
	far.goesOnAt(3)

	o.killSecond() // half of them
	held.refusedAt(1, "MUSIC_UNAVAILABLE|Cannot achieve consistency")
	near.refusedAt(2, "MUSIC_UNAVAILABLE|Cannot achieve consistency")
	o.startSecond()
	held.goesOnAt(1)
	near.goesOnAt(2)
	far.goesOnAt(4)

	o.killSecond()
	o.follow("A data centre that is lost", 0, 1)
	held.goesOnAt(1)
	held.goesOnAt(2)
	near.goesOnAt(2)
	far.refusedAt(1, "MUSIC_REFUSED")
	o.follow("A data centre that is lost", 1, 2)
	was := *far
	c := pinned(t, o.proxyAt(1)+":9042")
	defer c.close()
	far.lock(c)
	require.Greater(t, far.ref, was.ref)
	was.refusedAt(2, "MUSIC_LOST|MUSIC_NOT_HELD")
	far.goesOnAt(2)
}

// killSecond kills the data centre dc2, with its proxies where there are any.
func (o *operator) killSecond() {
	o.t.Helper()
	for _, k := range []int{3, 4} {
		require.NoError(o.t, o.node(o.nodeAt(k)).Kill())
		if p := o.proxies[o.proxyAt(k)]; p != nil {
			require.NoError(o.t, p.cmd.Process.Kill())
			p.status(o.t)
		}
	}
}

// startSecond starts it again, and waits until it is back.
func (o *operator) startSecond() {
	o.t.Helper()
	begun := time.Now()
	for _, k := range []int{3, 4} {
		o.service(o.nodeAt(k), "start")
	}
	o.typed(o.nodeAt(1), "nodetool status", []string{"UN " + o.nodeAt(3), "UN " + o.nodeAt(4)})
	for _, k := range []int{3, 4} {
		if p := o.proxies[o.proxyAt(k)]; p != nil {
			p.begin(o.t)
			p.listens(o.t)
		}
	}
	o.t.Logf("dc2 is back after %v", time.Since(begun).Round(time.Second))
}
