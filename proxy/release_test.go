package proxy

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Locks need a release whose lightweight transactions are known to hold.
func TestReleases(t *testing.T) {
	for release, serves := range map[string]bool{
		"5.0.8": true, "4.1.6": true, "4.1.11": true, "4.1.5": false, "4.0.17": false, "3.11.19": false, "5.1-alpha1": true, "6.0.0": true, "6.0-alpha2": true, "": false, "dse": false,
	} {
		assert.Equal(t, serves, releaseServes(release), release)
		assert.Equal(t, strings.HasPrefix(release, "6"), releaseHasTransactions(release), release)
	}
}

// Replicas, and those for which nodes are up, are counted by what CREATE KEYSPACE says, whatever
// the strategy.
func TestReplicas(t *testing.T) {
	simple := map[string]string{"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "3"}
	topology := map[string]string{"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3", "dc2": "2"}
	for alive, up := range map[int]map[string]int{
		1: {everywhere: 1, "dc1": 1}, 3: {everywhere: 9, "dc1": 3, "dc2": 6}, 0: {},
	} {
		assert.Equal(t, alive, reachable(simple, up))
	}
	assert.Equal(t, 5, reachable(topology, map[string]int{everywhere: 9, "dc1": 3, "dc2": 6}))
	assert.Equal(t, 3, reachable(topology, map[string]int{everywhere: 9, "dc1": 9}), "replicas of one data centre are not in another")
	assert.Equal(t, 1, replicas(map[string]string{"class": "org.apache.cassandra.locator.SimpleStrategy", "replication_factor": "1"}))
	assert.Equal(t, 6, replicas(map[string]string{"class": "org.apache.cassandra.locator.NetworkTopologyStrategy", "dc1": "3", "dc2": "3/1"}))
}
