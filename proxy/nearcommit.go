package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/rs/zerolog"

	"music/musiccore"
)

const (
	nearEvery = 10 * time.Second // between two checks of the nodes' settings
	nearLimit = 2 * time.Second  // for one node
	// nearVariant is the paxos_variant with which every round, also that of a read at SERIAL or of
	// a refused LWT, first completes earlier decisions at a quorum.
	nearVariant = "v2"
	// nearGrace is the least gc_grace_seconds of the companion. For that long Paxos keeps its
	// decisions.
	nearGrace = 864000
)

// nearCommits determines whether LWTs on lock rows may be committed at LOCAL_QUORUM
// (docs/protocol.md 3.1, lwt): there are several data centres, and every node runs the variant of
// Paxos that allows it. A node whose variant is not known counts as running another.
type nearCommits struct {
	session *gocql.Session
	log     zerolog.Logger
	allowed atomic.Bool
}

// run checks the nodes every nearEvery, until ctx ends.
func (n *nearCommits) run(ctx context.Context) {
	for {
		hindrance := n.hindrance(ctx)
		allowed := hindrance == ""
		if ctx.Err() == nil && n.allowed.Swap(allowed) != allowed {
			n.log.Info().Bool("near", allowed).Str("why", hindrance).Msg("the proxy waits for commits of lock rows in its own data centre (near), or else at a quorum of all replicas")
		}
		if !pause(ctx, nearEvery) {
			return
		}
	}
}

// hindrance returns why commits must reach a quorum of all replicas, or "".
func (n *nearCommits) hindrance(ctx context.Context) string {
	hosts := n.session.GetHosts()
	if len(centresOf(nodesOf(n.session))) < 2 {
		return "there is one data centre"
	}
	for _, h := range hosts {
		variant, err := n.variant(ctx, h.HostID())
		switch {
		case err != nil:
			return fmt.Sprintf("paxos_variant of %s: %v", h.ConnectAddress(), err)
		case variant != nearVariant:
			return fmt.Sprintf("paxos_variant of %s is %s", h.ConnectAddress(), variant)
		}
	}
	return ""
}

// variant asks one node for its variant of Paxos.
func (n *nearCommits) variant(ctx context.Context, host string) (variant string, err error) {
	ctx, cancel := context.WithTimeout(ctx, nearLimit)
	defer cancel()
	err = n.session.Query("SELECT value FROM system_views.settings WHERE name = 'paxos_variant'").Consistency(gocql.One).SetHostID(host).ScanContext(ctx, &variant)
	return variant, err
}

// centresOf returns the data centres of some nodes, each once.
func centresOf(nodes []node) []string {
	var all []string
	for _, n := range nodes {
		all = append(all, n.centre)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// findReplicas sets where the replicas of tables' lock rows are. severalCentres: there are several data
// centres, all have replicas, and Paxos keeps its decisions long enough; then LOCAL_QUORUM is a quorum
// of the coordinator's own data centre, whichever that is. oneCentre follows from the keyspace alone:
// which nodes a proxy sees, and what it finds out about them, is not the same at all proxies. Both are
// false where the keyspaces cannot be read.
func (r *schemaReader) findReplicas(ctx context.Context, tables []*dataTable, companions map[[2]string]companion) {
	centres := centresOf(nodesOf(r.session))
	iter := r.ask("SELECT keyspace_name, replication, WRITETIME(replication) FROM system_schema.keyspaces").IterContext(ctx)
	now, found := boottime(), map[string]keyspaceReplicas{}
	var keyspace string
	var written int64 // in µs since 1970
	for replication := (map[string]string{}); iter.Scan(&keyspace, &replication, &written); replication = nil {
		k := keyspaceReplicas{text: fmt.Sprint(replication), centres: centresWithReplicas(replication), since: now}
		if before := r.replicas[keyspace]; before.text == k.text {
			k.since = before.since
		}
		if at, ok := r.clock.when(written); ok { // a node has stamped it: this machine's own clock may be an hour ahead
			k.since = min(k.since, at+musiccore.ClockGap)
		}
		found[keyspace] = k
	}
	if iter.Close() != nil {
		return
	}
	r.replicas = found
	for _, t := range tables {
		k, known := found[t.keyspace]
		kept := !t.Made || companions[t.companionName()].grace >= nearGrace
		t.replicaPlaces = replicaPlaces{
			severalCentres: !t.Settings.Local && kept && len(centres) > 1 && inAll(centres, k.centres), oneCentre: known && len(k.centres) < 2,
			settledAt: k.since + replicationSettles,
		}
	}
}

// A proxy relies on where replicas are for replicationRelied after it has asked whether the schema is the one
// that it has read. replicationSettles after a change of a keyspace's replication no proxy relies on
// what was before, even if its node has heard of the change ten seconds later, and what was committed
// near before is on a quorum.
const (
	replicationRelied  = 5 * time.Second
	replicationSettles = 20 * time.Second
)

// placesSettled reports whether where a table's replicas are may be relied on now.
func (c *criticalTables) placesSettled(t *dataTable) bool {
	now := boottime()
	return t.settledAt <= now && now < time.Duration(c.checked.Load())+replicationRelied
}

// mayCommitNear reports whether LWTs on a table's lock rows may be committed in one data centre, as far as
// the replicas go.
func (c *criticalTables) mayCommitNear(t *dataTable) bool {
	return t.severalCentres && c.placesSettled(t)
}

// showsAllAtQuorum reports whether a read at QUORUM shows every LWT on a lock row of a table that was
// decided before it: no proxy commits such an LWT near, nor has for a while.
func (c *criticalTables) showsAllAtQuorum(t *dataTable) bool {
	return t.Settings.Local || t.oneCentre && c.placesSettled(t)
}

// keyspaceReplicas is the replication of a keyspace as it was read.
type keyspaceReplicas struct {
	text    string        // as it is written
	centres []string      // the data centres that have replicas; none for a strategy that names none
	since   time.Duration // BOOTTIME since when it has been so at the latest. Cassandra writes it anew with every change of a table, too
}

// centresWithReplicas returns the data centres in which a keyspace has replicas; none for a strategy that
// does not name them.
func centresWithReplicas(replication map[string]string) (all []string) {
	if !strings.HasSuffix(replication["class"], "NetworkTopologyStrategy") {
		return nil
	}
	for centre, n := range perPlace(replication) {
		if n > 0 {
			all = append(all, centre)
		}
	}
	return all
}

// inAll reports whether each of these data centres is among those with replicas.
func inAll(centres, replicas []string) bool {
	return !slices.ContainsFunc(centres, func(c string) bool { return !slices.Contains(replicas, c) })
}
