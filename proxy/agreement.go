package proxy

import (
	"context"
	"fmt"
	"maps"
	"slices"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend/catalog"
	"music/musiccore"
)

// disagreeing names what is waited for while not all nodes know of a change.
const disagreeing = "Cassandra's nodes (they do not agree on the schema, or the home node does not tell it)"

// agreed reports whether the schema that was read is that of the home node and of every other node
// that is up. A single node may be behind: it may have just come back, or missed a change. Tables
// may be closed to plain writes by what it says, but never opened.
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

// keep returns the tables to publish. These are the tables that were read, except for a change that
// would open a table to plain writes, end its locks or undo an earlier change, and that not all nodes agree
// on: then the table stays as it was before, and late names what is waited for.
func (s *schema) keep(ctx context.Context, before map[[16]byte]*dataTable, found []*dataTable, version gocql.UUID) (kept []*dataTable, late []string) {
	var sure, asked bool
	doubtful := func() bool {
		if !asked {
			sure, asked = s.agreed(ctx, version), true
		}
		return !sure
	}
	for i, t := range found {
		if old := before[t.ID]; (t.loses(old) || t.undoes(old)) && doubtful() {
			found[i], late = old, []string{disagreeing}
		}
	}
	for id, old := range before {
		same := func(t *dataTable) bool { return t.ID == id || t.keyspace == old.keyspace && t.name == old.name }
		if i := slices.IndexFunc(found, same); i >= 0 {
			if found[i].precedes(old) && doubtful() {
				found[i], late = old, []string{disagreeing}
			}
			continue
		}
		if s.stillStored(ctx, old) && doubtful() {
			found, late = append(found, old), []string{disagreeing}
		}
	}
	return found, late
}

// criticalBefore returns those of the tables that are critical by music.tables, read at QUORUM. For a
// proxy that starts they stand for the earlier tables: its node may have missed the change that
// made them critical, while other proxies give locks on them.
func (r *schemaReader) criticalBefore(ctx context.Context, plain []*dataTable) (map[[16]byte]*dataTable, error) {
	stored := map[[16]byte]storedTable{}
	iter := r.session.Query("SELECT id, closed, settings FROM music.tables").Consistency(gocql.Quorum).IterContext(ctx)
	var id gocql.UUID
	var closed int64
	var settings string
	for iter.Scan(&id, &closed, &settings) {
		stored[id] = storedTable{closed: musiccore.Stamp(closed), text: settings}
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read music.tables: %w", err)
	}
	all := map[[16]byte]*dataTable{}
	for _, t := range plain {
		was := stored[t.ID]
		if was.text == "" || was.text == plainSettings {
			continue
		}
		t.stored = was
		t.Settings, _ = storedSettings(was.text) // the defaults will do until the table is settled
		all[t.ID] = t
	}
	return all, r.readColumns(ctx, slices.Collect(maps.Values(all))...)
}

// loses reports whether a table as read no longer has the companion that it had as old.
func (t *dataTable) loses(old *dataTable) bool {
	if old == nil || !old.Made {
		return false
	}
	return !t.Made || t.Generation != old.Generation
}

// undoes reports whether a table as read is older than it was known as old: Cassandra writes the comment anew with each
// change of a table. By the columns of then a statement may name another key: two columns may have exchanged their names.
func (t *dataTable) undoes(old *dataTable) bool { return old != nil && t.written < old.written }

// precedes reports whether a table as read was created before another one of its name: then the node that
// was read may have missed that this one was dropped.
func (t *dataTable) precedes(other *dataTable) bool {
	at := t.created()
	return t.ID != other.ID && at != 0 && at < other.created()
}

// shown returns the settings with which a table is published until its own are in effect: those of
// its comment, except that it is not opened to plain writes before music.tables says so, too.
func (t *dataTable) shown() catalog.Settings {
	settings := t.Settings
	ready := t.Made || t.stored.text != "" && t.stored.text != plainSettings // here, or where the node has missed it
	switch {
	case settings.Unlocked != catalog.Allow:
	case t.stored.err != nil:
		settings.Unlocked = catalog.Reject
	case ready:
		settings.Unlocked = t.stored.unlocked
	}
	return settings
}

// stillStored reports whether a table is critical by its row in music.tables, read at QUORUM. It
// returns true if the row cannot be read, and if the row is that of an earlier time as a critical
// table: until closed is raised it says nothing of the present one.
func (r *schemaReader) stillStored(ctx context.Context, old *dataTable) bool {
	now := &dataTable{keyspace: old.keyspace, name: old.name, Critical: catalog.Critical{ID: old.ID, Settings: old.Settings, Marked: old.Marked, Made: old.Made}}
	r.readStored(ctx, now)
	if now.stored.err != nil || now.stored.text != plainSettings {
		return true
	}
	return old.stored.err != nil || old.stored.text == plainSettings && old.stored.closed == now.stored.closed
}
