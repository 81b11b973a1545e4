package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/integration/cassandra"
)

// threeNodes returns a cluster of three nodes, which all tests share that need one. A test may kill
// and pause its nodes, and must leave them usable (see revive).
func threeNodes(t testing.TB) *cassandra.Cluster {
	t.Helper()
	c, err := needEnvironment(t).three()
	require.NoError(t, err)
	return c
}

// startThree starts the three nodes. Their commit logs are synced before a write is acknowledged,
// so a node that is killed forgets nothing. Functions, views, and a keyspace "test" that cannot be
// written are for the drivers' own tests.
func (w *environment) startThree() (*cassandra.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(w.runDir, "integration-three"), RunDir: w.runDir, Release: *release, Nodes: 3, Heap: "256m", FastJIT: true,
		Address: func(k int) string { return fmt.Sprintf("127.0.7.%d", k) },
		Yaml:    cassandra.Durable(map[string]string{"user_defined_functions_enabled": "true", "materialized_views_enabled": "true"}),
		Properties: map[string]string{
			"cassandra.test.fail_writes_ks":        "test",
			"cassandra.custom_query_handler_class": "org.apache.cassandra.cql3.CustomPayloadMirroringQueryHandler",
		},
		Log: os.Stderr,
	})
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, c.Wipe)
	return c, nil
}

// proxyOfNode returns the configuration of the proxy of node k = 1, 2, 3.
func proxyOfNode(t testing.TB, k int) config.Config {
	t.Helper()
	c := config.Default()
	c.Cassandra.ContactPoints = []string{threeNodes(t).Nodes()[k-1].Addr()}
	c.Listen.Address = fmt.Sprintf("127.0.6.%d:9042", k)
	c.Listen.Metrics = ""
	c.Log.Level = "debug"
	c.Music.ExpectProxies = 3
	return c
}

// clusterProxy is a proxy of one of three nodes, which tests stop and start.
type clusterProxy struct {
	*instance
	t      testing.TB
	config config.Config
}

// startWithoutWaiting starts a proxy and does not wait for it.
func startWithoutWaiting(t testing.TB, c config.Config) *clusterProxy {
	t.Helper()
	m := &clusterProxy{instance: begin(c), t: t, config: c}
	t.Cleanup(func() {
		assert.NoError(t, m.stop())
		if t.Failed() {
			t.Logf("log of the proxy at %s:\n%s", m.address, m.log)
		}
	})
	return m
}

// listens waits until the proxy serves drivers.
func (m *clusterProxy) listens() {
	m.t.Helper()
	eventually(m.t, startLimit, "the proxy at "+m.address+" listens", m.answers)
}

// start starts it again after stop.
func (m *clusterProxy) start() {
	m.t.Helper()
	m.instance = begin(m.config)
	m.listens()
}

// threeProxies starts a proxy before each of the three nodes, all at once, and waits until all of them serve.
func threeProxies(t testing.TB, change ...func(*config.Config)) [3]*clusterProxy {
	t.Helper()
	forgetProxies(t)
	var all [3]*clusterProxy
	for k := range all {
		c := proxyOfNode(t, k+1)
		for _, f := range change {
			f(&c)
		}
		all[k] = startWithoutWaiting(t, c)
	}
	for _, m := range all {
		m.listens()
	}
	return all
}

// criticalAtThree makes keyspace.accounts, and waits until each of the three proxies serves its locks.
func criticalAtThree(t testing.TB, keyspace string) {
	t.Helper()
	execOnNodes(t, "CREATE KEYSPACE IF NOT EXISTS "+keyspace+" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}")
	const columns = " (branch text, id text, balance bigint, PRIMARY KEY (branch, id)) WITH comment = '@critical'"
	for i, address := range proxyAddresses() {
		c := pinned(t, address)
		eventually(t, startLimit, "the table can be locked at "+address, func() error {
			if err := c.run(statement{cql: "CREATE TABLE IF NOT EXISTS " + keyspace + ".accounts" + columns}).err(); err != nil {
				return err
			}
			return c.run(statement{cql: fmt.Sprintf("LOCK %s.accounts WHERE branch = 'ready%d' NOWAIT", keyspace, i)}).err()
		})
		c.close()
	}
}

// forgetProxies removes the proxies of earlier tests from the list of proxies.
func forgetProxies(t testing.TB) {
	t.Helper()
	g := openGocql2(t, cluster2(threeNodes(t).Nodes()[0].Addr(), ""))
	defer g.close()
	if o := g.run(statement{cql: "TRUNCATE music.proxies", level: "ALL"}); o.failure != nil {
		require.Contains(t, o.failure.text, "music", "only where it is not there yet")
	}
}
