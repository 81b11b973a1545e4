package proxy

import (
	"context"
	"slices"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend/catalog"
)

// disagreeing is what a change waits for that not all nodes know of.
const disagreeing = "Cassandra's nodes (they do not agree on the schema, or the home node does not tell it)"

// agreed reports whether what was read is the schema of the home node and of every other node that
// is up. A node by itself may be behind: one that has just come back, or that did not hear of a
// change. What it says may close tables to plain writes, and never open them.
func (r *schemaReader) agreed(ctx context.Context, version gocql.UUID) bool {
	if r.node == "" || r.node != r.home() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, homeLimit)
	defer cancel()
	for _, h := range r.session.GetHosts() {
		if h.HostID() == r.node || !h.IsUp() {
			continue
		}
		if v, _, err := r.versionAt(ctx, h.HostID()); err != nil || v != version {
			return false
		}
	}
	return true
}

// keep gives the tables as they are to be taken for: what was read, but for what would open a table
// to plain writes or end its locks on the word of a node that may be behind. late names what is
// waited for then.
func (s *schema) keep(ctx context.Context, before map[[16]byte]*dataTable, found []*dataTable, version gocql.UUID) (kept []*dataTable, late []string) {
	var sure, asked bool
	doubtful := func() bool {
		if !asked {
			sure, asked = s.agreed(ctx, version), true
		}
		return !sure
	}
	for i, t := range found {
		if old := before[t.ID]; t.loses(old) && doubtful() {
			found[i], late = old, []string{disagreeing}
		}
	}
	for id, old := range before {
		same := func(t *dataTable) bool { return t.ID == id || t.keyspace == old.keyspace && t.name == old.name }
		if slices.ContainsFunc(found, same) {
			continue
		}
		if s.stillStored(ctx, old) && doubtful() {
			found, late = append(found, old), []string{disagreeing}
		}
	}
	return found, late
}

// loses reports whether a table that was read has not the lock table any more that was known.
func (t *dataTable) loses(old *dataTable) bool {
	if old == nil || !old.Made {
		return false
	}
	return !t.Made || t.Generation != old.Generation
}

// shown returns the settings under which a table is published until it is settled: those of its
// comment, but that it is not open to plain writes before music.tables says so, too.
func (t *dataTable) shown() catalog.Settings {
	settings := t.Settings
	switch {
	case !t.Made || settings.Unlocked != catalog.Allow:
	case t.stored.err != nil:
		settings.Unlocked = catalog.Reject
	default:
		settings.Unlocked = t.stored.unlocked
	}
	return settings
}

// stillStored reports whether music.tables has a table as critical, by a quorum, or does not
// answer.
func (r *schemaReader) stillStored(ctx context.Context, old *dataTable) bool {
	now := &dataTable{keyspace: old.keyspace, name: old.name, Critical: catalog.Critical{ID: old.ID, Settings: old.Settings, Marked: old.Marked, Made: old.Made}}
	r.readStored(ctx, now)
	return now.stored.err != nil || now.stored.text != plainSettings
}
