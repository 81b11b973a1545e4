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

// findReplicas sets near of tables: whether there are several data centres, all have replicas of a
// table's lock rows, and Paxos keeps its decisions on them long enough. Then LOCAL_QUORUM is a quorum
// of the coordinator's own data centre, whichever that is. It is false where that cannot be read.
func (r *schemaReader) findReplicas(ctx context.Context, tables []*dataTable, companions map[[2]string]companion) {
	centres := centresOf(nodesOf(r.session))
	if len(centres) < 2 {
		return
	}
	iter := r.ask("SELECT keyspace_name, replication FROM system_schema.keyspaces").IterContext(ctx)
	everywhere := map[string]bool{} // by keyspace
	var keyspace string
	for replication := (map[string]string{}); iter.Scan(&keyspace, &replication); replication = nil {
		everywhere[keyspace] = inAll(centres, replication)
	}
	if iter.Close() != nil {
		return
	}
	for _, t := range tables {
		kept := !t.Made || companions[t.companionName()].grace >= nearGrace
		t.severalCentres = !t.Settings.Local && kept && everywhere[t.keyspace]
	}
}

// inAll reports whether a keyspace with this replication has replicas in each of these data centres.
func inAll(centres []string, replication map[string]string) bool {
	if !strings.HasSuffix(replication["class"], "NetworkTopologyStrategy") {
		return false
	}
	places := perPlace(replication)
	return !slices.ContainsFunc(centres, func(c string) bool { return places[c] == 0 })
}
