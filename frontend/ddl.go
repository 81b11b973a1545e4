package frontend

import (
	"bytes"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/rewrite"
)

// checkSchema refuses a schema change that would make a table critical that cannot be, that has
// settings that do not exist, or that would remove what a critical table needs. It sees only what
// the text shows; other hindrances are reported by a warning in the answer.
func (c *conn) checkSchema(text []byte, r classify.Result) *wire.Failure {
	if c.server.Tables == nil || r.Kind != classify.Schema {
		return nil
	}
	d := catalog.ReadDDL(text)
	settings, marked, err := catalog.ReadSettings(d.Comment)
	if err != nil {
		return wire.Invalid("MUSIC_REFUSED: the comment's @critical cannot be served: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	critical := r.Table != nil && r.Table.Critical() != nil
	if marked && critical {
		if now := r.Table.Critical(); !now.CanChangeTo(settings) {
			return wire.Invalid("MUSIC_REFUSED: the table is critical with %s: key and scope cannot change until it is ordinary again (take @critical out of the comment, then drop its %s… table)",
				now.Settings, catalog.CompanionPrefix)
		}
	}
	switch head := rewrite.ReadHead(text, true).Schema; head.Kind {
	case rewrite.SchemaTable:
		return checkCritical(d, marked || c.criticalByName(r.Name.Names()), critical)
	case rewrite.SchemaView:
		if head.Action == rewrite.Create && bytes.HasPrefix(head.Object.AppendTo(nil, text), []byte(catalog.CompanionPrefix)) {
			return wire.Invalid("MUSIC_REFUSED: a name that begins with %s is that of a table of locks: give the view another one", catalog.CompanionPrefix)
		}
		if critical && head.Action == rewrite.Create {
			return wire.Invalid("MUSIC_REFUSED: %s is critical: a materialised view on it would not be fenced: write a second table under the same lock instead", r.Table)
		}
	case rewrite.SchemaKeyspace:
		return c.checkKeyspace(d, r.Name.Names()[0])
	}
	return nil
}

// criticalByName reports whether a table is critical by the configuration.
func (c *conn) criticalByName(name [2]string) bool {
	by := c.server.CriticalByName
	return by != nil && by(name[0], name[1])
}

// changeOf returns the table that a schema change names. Cassandra's answer does not name it if
// nothing changed, as with IF NOT EXISTS. The result is zero if the change is not of a table.
func changeOf(text []byte, r classify.Result) SchemaChange {
	if rewrite.ReadHead(text, true).Schema.Kind != rewrite.SchemaTable {
		return SchemaChange{}
	}
	name := r.Name.Names()
	return SchemaChange{Target: string(primitive.SchemaChangeTargetTable), Keyspace: name[0], Name: name[1]}
}

// checkCritical refuses properties that a critical table cannot have. marked means that the
// statement makes the table critical, critical that it is already.
func checkCritical(d catalog.DDL, marked, critical bool) *wire.Failure {
	switch {
	case marked && d.Counters:
		return wire.Invalid("MUSIC_REFUSED: a table of counters cannot be critical, since counters take no timestamps: use a bigint and raise it under a lock")
	case (marked || critical) && d.Transactional:
		return wire.Invalid("MUSIC_REFUSED: a critical table cannot have a transactional_mode: Cassandra gives writes in it timestamps of its own, which no lock knows: leave it off")
	case (marked || critical) && d.Grace >= 0 && d.Grace < catalog.MinGrace:
		return wire.Invalid("MUSIC_REFUSED: a critical table needs a gc_grace_seconds of a day or more, since a late write could come back over a deletion that is forgotten sooner: set gc_grace_seconds = %d, or more", catalog.MinGrace)
	}
	return nil
}

// CriticalChange is a schema change that would make a table critical. The table may not exist yet.
type CriticalChange struct {
	Keyspace, Name string
	Settings       catalog.Settings
	Grace          int64            // the new gc_grace_seconds; -1 = not changed
	Key            []catalog.Column // for CREATE TABLE: the primary key, nil if it cannot be read from the text
}

// makesCritical returns the change if a text that has passed checkSchema would make an ordinary
// table critical.
func (c *conn) makesCritical(text []byte, r classify.Result) (change CriticalChange, ok bool) {
	head := rewrite.ReadHead(text, true).Schema
	if c.server.Hindrance == nil || head.Kind != rewrite.SchemaTable || head.Action == rewrite.Drop || r.Table != nil && r.Table.Critical() != nil {
		return change, false
	}
	d, name := catalog.ReadDDL(text), r.Name.Names()
	settings, marked, err := catalog.ReadSettings(d.Comment)
	marked = marked || c.criticalByName(name)
	change = CriticalChange{Keyspace: name[0], Name: name[1], Settings: settings, Grace: d.Grace}
	if head.Action == rewrite.Create {
		change.Key = catalog.CreatedKey(text)
	}
	return change, marked && err == nil
}

// makeCritical is the action for a schema change that makes a table critical: it is forwarded if
// the table can be locked.
type makeCritical struct {
	change CriticalChange
	watch  *watch
}

// String implements action.
func (a *makeCritical) String() string {
	return "make critical if it can be locked: " + a.change.Name
}

// perform implements action.
func (a *makeCritical) perform(c *conn, e wire.Envelope) error {
	e.Raw, e.Payload = bytes.Clone(e.Raw), nil // which is sent as it is
	o := c.begin(e.Stream)
	o.keeps(len(e.Raw))
	o.finishLater(func() {
		why := c.server.Hindrance(a.change)
		o.free()
		switch {
		case o.cancelled():
		case why != "":
			c.reject(e.Header, wire.Invalid("MUSIC_REFUSED: %s.%s cannot be critical: %s", a.change.Keyspace, a.change.Name, why))
		case !c.streams.Begin(e.Stream, true):
			c.reject(e.Header, inUse(e.Stream))
		default:
			c.watch(e.Stream, a.watch)
			c.server.Stats.Count(c.id, e.OpCode, traffic.Forwarded)
			c.send(e.Raw)
		}
	})
	return nil
}

// checkKeyspace refuses to turn off the commit log of a keyspace that has a critical table.
func (c *conn) checkKeyspace(d catalog.DDL, keyspace string) (f *wire.Failure) {
	if !d.Volatile {
		return nil
	}
	c.server.Tables.Critical(func(t *catalog.Table, _ *catalog.Critical) {
		if t.Keyspace == keyspace {
			f = wire.Invalid("MUSIC_REFUSED: %s is critical: durable_writes = false would lose acknowledged writes: leave it true", t)
		}
	})
	return f
}
