package frontend

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// checkSchema refuses a schema change that would make a table critical which cannot be, with
// settings that do not exist, or that would take from a critical table what it needs: afterwards it
// would be too late to tell whoever wrote it. What the text does not show is told in a warning of
// the answer.
func (c *conn) checkSchema(text []byte, r reading) *wire.Failure {
	if c.server.Tables == nil || r.meaning != meaningSchema {
		return nil
	}
	d := readDDL(text)
	settings, marked, err := catalog.ReadSettings(d.comment)
	if err != nil {
		return wire.Invalid("MUSIC_REFUSED: the comment's @critical cannot be served: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	critical := r.table != nil && r.table.Critical() != nil
	if marked && critical {
		if now := r.table.Critical(); !now.CanChangeTo(settings) {
			return wire.Invalid("MUSIC_REFUSED: the table is critical with %s: key and scope stay until it is ordinary again (take @critical out of the comment, then drop its %s… table)",
				now.Settings, catalog.CompanionPrefix)
		}
	}
	switch head := rewrite.ReadHead(text, true).Schema; head.Kind {
	case rewrite.SchemaTable:
		name := r.name.names()
		marked = marked || c.server.CriticalByName != nil && c.server.CriticalByName(name[0], name[1])
		return d.check(marked, critical)
	case rewrite.SchemaView:
		if critical && head.Action == rewrite.Create {
			return wire.Invalid("MUSIC_REFUSED: %s is critical: a materialised view on it would not be fenced: write a second table under the same lock in its place", r.table)
		}
	case rewrite.SchemaKeyspace:
		return c.checkKeyspace(d, r.name.names()[0])
	}
	return nil
}

// changeOf returns what a schema change of a table is about where Cassandra does not say, as where
// IF NOT EXISTS finds the table. It is the zero value for anything else than a table.
func changeOf(text []byte, r reading) SchemaChange {
	if rewrite.ReadHead(text, true).Schema.Kind != rewrite.SchemaTable {
		return SchemaChange{}
	}
	name := r.name.names()
	return SchemaChange{Target: string(primitive.SchemaChangeTargetTable), Keyspace: name[0], Name: name[1]}
}

// check refuses what a critical table cannot do with: marked says that the statement makes it
// critical, critical that it is already.
func (d *ddl) check(marked, critical bool) *wire.Failure {
	switch {
	case marked && d.counters:
		return wire.Invalid("MUSIC_REFUSED: a table of counters cannot be critical, since they take no timestamps: keep the number in a bigint and raise it under a lock")
	case (marked || critical) && d.grace >= 0 && d.grace < catalog.MinGrace:
		return wire.Invalid("MUSIC_REFUSED: a critical table needs a gc_grace_seconds of a day or more: a late write could come back over a deletion that is forgotten sooner: say gc_grace_seconds = %d, or more", catalog.MinGrace)
	}
	return nil
}

// CriticalChange is a schema change that would make a table critical, which may not be there yet.
type CriticalChange struct {
	Keyspace, Name string
	Settings       catalog.Settings
	Grace          int64            // gc_grace_seconds as it is about to be; -1: it stays
	Key            []catalog.Column // of CREATE TABLE: the primary key as the text tells it; nil where it does not
}

// makesCritical returns the change where a text that checkSchema lets pass would make a table
// critical which is not.
func (c *conn) makesCritical(text []byte, r reading) (change CriticalChange, ok bool) {
	head := rewrite.ReadHead(text, true).Schema
	if c.server.Hindrance == nil || head.Kind != rewrite.SchemaTable || head.Action == rewrite.Drop || r.table != nil && r.table.Critical() != nil {
		return change, false
	}
	d, name := readDDL(text), r.name.names()
	settings, marked, err := catalog.ReadSettings(d.comment)
	marked = marked || c.server.CriticalByName != nil && c.server.CriticalByName(name[0], name[1])
	change = CriticalChange{Keyspace: name[0], Name: name[1], Settings: settings, Grace: d.grace}
	if head.Action == rewrite.Create {
		change.Key = createdKey(text)
	}
	return change, marked && err == nil
}

// makeCritical is a schema change that makes a table critical: whether that can be locked is looked
// up first.
type makeCritical struct {
	change CriticalChange
	watch  *watch
}

// String implements action.
func (a *makeCritical) String() string {
	return "make critical where it can be locked: " + a.change.Name
}

// perform implements action.
func (a *makeCritical) perform(c *conn, e wire.Envelope) error {
	raw, o := bytes.Clone(e.Raw), c.begin(e.Stream)
	o.finishLater(func() {
		why := c.server.Hindrance(a.change)
		switch {
		case o.cancelled():
		case why != "":
			c.reject(e.Header, wire.Invalid("MUSIC_REFUSED: %s.%s cannot be critical: %s", a.change.Keyspace, a.change.Name, why))
		case !c.streams.Begin(e.Stream, true):
			c.reject(e.Header, inUse(e.Stream))
		default:
			c.watches.add(e.Stream, a.watch)
			c.server.Stats.count(c, e.OpCode, FateForwarded)
			c.send(raw)
		}
	})
	return nil
}

// checkKeyspace refuses to take its commit log from a keyspace that has a critical table.
func (c *conn) checkKeyspace(d ddl, keyspace string) (f *wire.Failure) {
	if !d.volatile {
		return nil
	}
	c.server.Tables.Critical(func(t *catalog.Table, _ *catalog.Critical) {
		if t.Keyspace == keyspace {
			f = wire.Invalid("MUSIC_REFUSED: %s is critical: durable_writes = false would lose what was acknowledged: leave it true", t)
		}
	})
	return f
}

// ddl is what the text of a CREATE or ALTER shows of what matters here.
type ddl struct {
	comment  string
	counters bool  // a column's type is counter
	grace    int64 // gc_grace_seconds, -1 where it is not given
	volatile bool  // durable_writes = false
}

// readDDL reads a text three tokens at a time: name = value, and column type.
func readDDL(text []byte) ddl {
	d := ddl{grace: -1}
	lex := rewrite.NewLexer(text)
	var name, middle rewrite.Token
	for t := lex.Next(); t.Kind != rewrite.TokenEOF && t.Kind != rewrite.TokenInvalid; t = lex.Next() {
		if middle.Kind == '=' {
			d.property(text, name, t)
		}
		d.counters = d.counters || t.Kind == rewrite.TokenIdent && isWord(text, t, "counter") &&
			(middle.Kind == rewrite.TokenIdent || middle.Kind == rewrite.TokenQuoted)
		name, middle = middle, t
	}
	return d
}

// property notes a property. Cassandra reads each as text, however it is spelt
// (PropertyDefinitions): '3600' is a number and 'No' is false.
func (d *ddl) property(text []byte, name, value rewrite.Token) {
	said := string(value.Of(text))
	if value.Kind == rewrite.TokenString {
		said, _ = rewrite.String(text, rewrite.Term{Kind: rewrite.TermString, Span: value.Span, Marker: -1}) // it is one
	}
	switch propertyName(text, name) {
	case "comment":
		d.comment = said
	case "gc_grace_seconds":
		d.grace, _ = strconv.ParseInt(said, 10, 64) // what is no number is none that would do
	case "durable_writes":
		d.volatile = !slices.Contains([]string{"true", "yes", "1"}, strings.ToLower(said))
	}
}

// propertyName returns the name of a property as Cassandra knows it: one in double quotes is taken
// as it is. It is empty for what is no name.
func propertyName(text []byte, t rewrite.Token) string {
	if t.Kind != rewrite.TokenIdent && t.Kind != rewrite.TokenQuoted {
		return ""
	}
	return string(rewrite.Name{Span: t.Span, Quoted: t.Kind == rewrite.TokenQuoted}.AppendTo(nil, text))
}

// isWord reports whether a token is a word, in any case.
func isWord(text []byte, t rewrite.Token, word string) bool {
	return strings.EqualFold(string(t.Of(text)), word)
}
