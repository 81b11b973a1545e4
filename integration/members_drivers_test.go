package integration

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	gocqlv1 "github.com/gocql/gocql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// spreadKeys is how many keys are read to see where requests go.
const spreadKeys = 300

// proxyAddresses returns the addresses of the proxies of three nodes.
func proxyAddresses() []string { return []string{"127.0.6.1:9042", "127.0.6.2:9042", "127.0.6.3:9042"} }

// owners makes a table of which each partition is on one node, and returns the host id of each
// key's node: a node has the keys from the token before its own, which is excluded, to its own.
func owners(t *testing.T) map[int]string {
	t.Helper()
	node := threeNodes(t).Nodes()[0]
	c := cluster2(node.Addr(), "")
	c.HostFilter = gocql.WhiteListHostFilter(node.Host())
	g := openGocql2(t, c)
	defer g.close()
	require.NoError(t, g.run(statement{cql: "CREATE KEYSPACE IF NOT EXISTS spread WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1}"}).err())
	require.NoError(t, g.run(statement{cql: "CREATE TABLE IF NOT EXISTS spread.t (k int PRIMARY KEY, v int)"}).err())
	tokens := map[int64]string{}
	var ring []int64
	for _, q := range []string{"SELECT host_id, tokens FROM system.local", "SELECT host_id, tokens FROM system.peers_v2"} {
		iter := g.session.Query(q).Iter()
		var host gocql.UUID
		var of []string
		for iter.Scan(&host, &of) {
			token, err := strconv.ParseInt(of[0], 10, 64)
			require.NoError(t, err)
			tokens[token] = host.String()
			ring = append(ring, token)
		}
		require.NoError(t, iter.Close())
	}
	require.Len(t, ring, 3)
	slices.Sort(ring)
	all := map[int]string{}
	for k := range spreadKeys {
		require.NoError(t, g.session.Query("INSERT INTO spread.t (k, v) VALUES (?, ?)", k, k).Exec())
		var token int64
		require.NoError(t, g.session.Query("SELECT token(k) FROM spread.t WHERE k = ?", k).Scan(&token))
		at := sort.Search(len(ring), func(i int) bool { return ring[i] >= token })
		all[k] = tokens[ring[at%len(ring)]]
	}
	return all
}

// atOwners returns how many keys were answered by the node that has them.
func atOwners(owners, answered map[int]string) (n int) {
	for k, host := range owners {
		if answered[k] == host {
			n++
		}
	}
	return n
}

// checkRouting compares where a driver's requests go directly and through the proxies.
func checkRouting(t *testing.T, ask func(address string) map[int]string) {
	t.Helper()
	owners := owners(t)
	direct := atOwners(owners, ask(threeNodes(t).Nodes()[0].Addr()))
	proxied := atOwners(owners, ask(proxyAddresses()[0]))
	t.Logf("at a replica: %d of %d directly, %d through the proxies", direct, spreadKeys, proxied)
	assert.Equal(t, spreadKeys, direct, "the driver is token-aware")
	assert.Equal(t, spreadKeys, proxied, "and stays so")
}

// dialsProxiesAlone checks that a driver has dialled all proxies and nothing else, and has learned
// of no other host.
func dialsProxiesAlone(t *testing.T, r *recorder) {
	t.Helper()
	assert.ElementsMatch(t, proxyAddresses(), r.addresses(), "dialled")
	assert.ElementsMatch(t, []string{"127.0.6.1", "127.0.6.2", "127.0.6.3"}, r.known(), "hosts known to the driver")
}

// gocql 2 sends each request to the proxy of a replica, and dials no node.
func TestGocql2RoutesThroughProxies(t *testing.T) {
	threeProxies(t)
	for _, version := range []int{4, 5} {
		checkRouting(t, func(address string) map[int]string {
			r := newRecorder()
			c := cluster2(address, "spread")
			c.ProtoVersion = version
			c.Dialer = r
			c.HostFilter = gocql.HostFilterFunc(func(h *gocql.HostInfo) bool { return r.hear(h.ConnectAddress().String()) })
			c.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
			g := openGocql2(t, c)
			defer g.close()
			answered := map[int]string{}
			for k := range spreadKeys {
				iter := g.session.Query("SELECT v FROM spread.t WHERE k = ?", k).Iter()
				answered[k] = iter.Host().HostID()
				require.NoError(t, iter.Close())
			}
			if address == proxyAddresses()[0] {
				dialsProxiesAlone(t, r)
			}
			return answered
		})
	}
}

// The same of gocql 1.
func TestGocql1RoutesThroughProxies(t *testing.T) {
	threeProxies(t)
	checkRouting(t, func(address string) map[int]string {
		r := newRecorder()
		c := cluster1(address, "spread")
		c.Dialer = r
		c.HostFilter = gocqlv1.HostFilterFunc(func(h *gocqlv1.HostInfo) bool { return r.hear(h.ConnectAddress().String()) })
		c.PoolConfig.HostSelectionPolicy = gocqlv1.TokenAwareHostPolicy(gocqlv1.RoundRobinHostPolicy())
		g := openGocql1(t, c)
		defer g.close()
		answered := map[int]string{}
		for k := range spreadKeys {
			iter := g.session.Query("SELECT v FROM spread.t WHERE k = ?", k).Iter()
			answered[k] = iter.Host().HostID()
			require.NoError(t, iter.Close())
		}
		if address == proxyAddresses()[0] {
			dialsProxiesAlone(t, r)
		}
		return answered
	})
}

// The same of the Python driver.
func TestPythonRoutesThroughProxies(t *testing.T) {
	threeProxies(t)
	checkRouting(t, func(address string) map[int]string {
		cmd, connects := program(t, needPython(t).Python, filepath.Join("testdata", "ring.py"), hostOf(t, address), "3", strconv.Itoa(spreadKeys))
		var told struct {
			Hosts    []string
			Answered map[int]string
		}
		cmd.Stderr = new(logBuffer)
		out, err := cmd.Output()
		require.NoError(t, err, "%s", cmd.Stderr)
		require.NoError(t, json.Unmarshal(out, &told))
		if address == proxyAddresses()[0] {
			assert.ElementsMatch(t, proxyAddresses(), connected(t, connects), "dialled")
			assert.Equal(t, []string{"127.0.6.1", "127.0.6.2", "127.0.6.3"}, told.Hosts, "hosts known to the driver")
		}
		return told.Answered
	})
}

// A driver that is connected while a node and its proxy come and go uses the proxies that serve,
// and never a node.
func TestDriverFollowsProxiesThatComeAndGo(t *testing.T) {
	all := threeProxies(t)
	owners(t)
	r := newRecorder()
	c := cluster2(all[0].address, "")
	c.Dialer = r
	c.ReconnectInterval = time.Second
	c.HostFilter = gocql.HostFilterFunc(func(h *gocql.HostInfo) bool { return r.hear(h.ConnectAddress().String()) })
	g := openGocql2(t, c)
	hosts := func(want ...string) {
		t.Helper()
		eventually(t, 60*time.Second, fmt.Sprint("requests are answered by ", want), func() error {
			seen := map[string]bool{}
			for range 30 {
				iter := g.session.Query("SELECT schema_version FROM system.local").Iter()
				if err := iter.Close(); err != nil {
					return err
				}
				seen[iter.Host().ConnectAddress().String()] = true
			}
			for _, host := range want {
				if !seen[host] || len(seen) != len(want) {
					return errorf("answered by %v", seen)
				}
			}
			return nil
		})
	}
	hosts("127.0.6.1", "127.0.6.2", "127.0.6.3")
	require.NoError(t, all[2].stop())
	hosts("127.0.6.1", "127.0.6.2")
	all[2].start()
	hosts("127.0.6.1", "127.0.6.2", "127.0.6.3")
	dialsProxiesAlone(t, r)
}
