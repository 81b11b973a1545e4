package proxy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// mortalRows is the warning about a table with a default_time_to_live (docs/guarantees.md, What is
// not promised).
const mortalRows = "default_time_to_live is set: a row whose values are deleted one by one may remain without values until the time to live of the last is over: DELETE the row"

// warnings returns warnings about the keyspace of a critical table and about the node. Facts that cannot be read give no warning.
func (r *schemaReader) warnings(ctx context.Context, keyspace string) []string {
	var found []string
	data, err := r.replication(ctx, keyspace)
	own, ownErr := r.replication(ctx, musicKeyspace)
	if err == nil && replicas(data) < maxReplicas {
		found = append(found, "keyspace "+keyspace+" has fewer than three replicas: the loss of one node stops its locks")
	}
	if up, upErr := nodesUp(ctx, r.session); err == nil && upErr == nil && reachable(data, up) < replicas(data) {
		found = append(found, fmt.Sprintf("keyspace %s has %d replicas, and nodes are up for %d of them: with fewer than %d nothing is read or written under a lock",
			keyspace, replicas(data), reachable(data, up), replicas(data)/2+1))
	}
	if err == nil && ownErr == nil && lessReplicated(own, data) {
		found = append(found, "keyspace music has fewer replicas than "+keyspace+": locks end with nodes that the data would survive")
	}
	var sync string
	err = r.session.Query("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'").Consistency(gocql.One).ScanContext(ctx, &sync)
	if err == nil && sync == "periodic" {
		found = append(found, "commitlog_sync is periodic: nodes that die together lose their last acknowledged writes")
	}
	return found
}

// replication returns the replication map of a keyspace.
func (r *schemaReader) replication(ctx context.Context, keyspace string) (map[string]string, error) {
	m := map[string]string{}
	err := r.session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", keyspace).
		Consistency(gocql.One).ScanContext(ctx, &m)
	return m, err
}

// everywhere is the name for all data centres together.
const everywhere = ""

// nodesUp returns how many nodes are up, by data centre and everywhere, as the driver knows.
func nodesUp(ctx context.Context, session *gocql.Session) (map[string]int, error) {
	up, hosts := map[string]int{}, session.GetHosts()
	for _, table := range []string{"system.local", "system.peers_v2"} {
		iter := session.Query("SELECT host_id, data_center FROM " + table).Consistency(gocql.One).IterContext(ctx)
		var id gocql.UUID
		var place string
		for iter.Scan(&id, &place) {
			if !slices.ContainsFunc(hosts, func(h *gocql.HostInfo) bool { return h.HostID() == id.String() && !h.IsUp() }) {
				up[place]++
				up[everywhere]++
			}
		}
		if err := iter.Close(); err != nil {
			return nil, fmt.Errorf("read %s: %w", table, err)
		}
	}
	return up, nil
}

// reachable returns how many replicas there can be on nodes that are up. A strategy without data
// centres places them anywhere.
func reachable(replication map[string]string, up map[string]int) int {
	sum := 0
	for place, n := range perPlace(replication) {
		if place == "replication_factor" {
			place = everywhere
		}
		sum += min(n, up[place])
	}
	return sum
}

// replicas returns the number of replicas in all data centres together.
func replicas(replication map[string]string) int {
	sum := 0
	for n := range maps.Values(perPlace(replication)) {
		sum += n
	}
	return sum
}

// perPlace returns the number of replicas by data centre; for a strategy without data centres under
// the name of its option.
func perPlace(replication map[string]string) map[string]int {
	places := map[string]int{}
	for name, value := range replication {
		full, _, _ := strings.Cut(value, "/") // "3/1": one of three is transient
		if n, err := strconv.Atoi(full); err == nil && name != "class" {
			places[name] = n
		}
	}
	return places
}

// lessReplicated reports whether a keyspace has fewer replicas than another in any data centre or,
// if their strategies differ, in all together.
func lessReplicated(a, b map[string]string) bool {
	if a["class"] != b["class"] {
		return replicas(a) < replicas(b)
	}
	of := perPlace(a)
	for place, n := range perPlace(b) {
		if of[place] < n {
			return true
		}
	}
	return false
}
