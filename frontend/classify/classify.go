// Package classify says what the proxy must do with a statement, by its text and by the tables that
// are critical now.
package classify

import (
	"cmp"
	"encoding/hex"
	"errors"
	"hash/maphash"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// Kind is what the proxy must do with a statement.
type Kind uint8

// The kinds of statements.
const (
	Plain    Kind = iota // it is always forwarded
	Writes               // INSERT, UPDATE, DELETE, TRUNCATE or a batch, on tables that are not critical now
	Local                // a SELECT on system.local
	Peers                // a SELECT on system.peers or system.peers_v2
	Use                  // USE
	Schema               // CREATE, ALTER, DROP
	Critical             // LOCK, UNLOCK, LIST LOCKS, or a statement on a critical table: it must be parsed
	Unclear              // the proxy cannot read it, and it names no table that is critical now
	Refused              // it is refused with Result.Failure
)

// Result is the classification of a statement.
type Result struct {
	Kind    Kind
	Verb    rewrite.Verb
	Table   *catalog.Table // for Writes and Critical: the table, or nil
	Failure *wire.Failure  // for Refused

	Name     TableKey    // the table that the statement names, in a batch the last one; empty if none
	Names    [][2]string // for a BATCH text that names a critical table: the tables of its statements
	Unlisted *[2]string  // keyspace and name of a table that it writes or locks and that is not in the schema as last read

	Unqualified bool // it names a table without a keyspace; false if locks are off
}

// Classifier classifies the statements of one connection. It is not safe for concurrent use.
type Classifier struct {
	Tables *catalog.Tables // nil if locks are off
	name   []byte          // memory of the TableKey last returned, unless that was longer than any name

	kept *[keptTexts]keptText // by their hashes; nil before the first
	seed maphash.Seed
}

// Classify classifies a statement by its text, into r, which must be empty. whole means that all of
// the text has arrived; keyspace is that of names without one, or "". Classify returns false if the
// part that has arrived is not enough. It does not allocate for statements that are forwarded.
// r.Name is valid until the next call of Classify or TableKey.
func (c *Classifier) Classify(r *Result, text []byte, whole bool, keyspace string) (ok bool) {
	head := rewrite.ReadHead(text, whole)
	if !head.Complete && !whole {
		return false
	}
	switch head.Verb {
	case rewrite.Use:
		r.Kind, r.Verb = Use, head.Verb
		return true
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks:
		if head.Complete {
			*r = c.readVerb(text, head, keyspace)
			return true
		}
	case rewrite.Select, rewrite.Insert, rewrite.Update, rewrite.Delete, rewrite.Truncate, rewrite.Schema:
		if head.Complete {
			c.readHead(r, text, &head, keyspace)
			return true
		}
	case rewrite.Batch:
		if whole {
			*r = c.readBatch(text, keyspace)
		}
		return whole
	case rewrite.Other:
		r.Verb = head.Verb
		return true
	}
	if whole {
		*r = c.readUnclear(text, keyspace)
	}
	return whole
}

// readVerb classifies LOCK, UNLOCK and LIST LOCKS. If locks are off they are left to Cassandra.
func (c *Classifier) readVerb(text []byte, head rewrite.Head, keyspace string) Result {
	if c.Tables == nil {
		return Result{Verb: head.Verb}
	}
	r := Result{Kind: Critical, Verb: head.Verb}
	if head.Table.Start != head.Table.End {
		r.Name = c.TableKey(text, head.Keyspace, head.Table, keyspace)
		r.Table, r.Unlisted = c.lookup(r.Name), c.unlisted(r.Name)
	}
	if len(r.Name) > 0 && r.Name.reserved() {
		r.Kind, r.Failure = Refused, forProxiesOnly(r.Name.String())
	}
	return r
}

// readHead classifies a statement on one table, into r.
func (c *Classifier) readHead(r *Result, text []byte, head *rewrite.Head, keyspace string) {
	name := c.TableKey(text, head.Keyspace, head.Table, keyspace)
	table := c.lookup(name)
	r.Kind, r.Verb, r.Table, r.Name = Writes, head.Verb, table, name
	switch head.Verb {
	case rewrite.Schema:
		r.Kind = Schema
	case rewrite.Select:
		r.Kind = name.read()
		r.Table = nil
	}
	if c.Tables == nil {
		r.Table = nil
		return
	}
	r.Unqualified = head.Keyspace.Empty() && !head.Table.Empty()
	if name.closed(head) {
		r.Kind, r.Failure = Refused, forProxiesOnly(name.String())
		return
	}
	if f := c.keepsLocks(head, name); f != nil {
		r.Kind, r.Failure = Refused, f
		return
	}
	switch {
	case table != nil && table.Critical() != nil && r.Kind != Schema:
		r.Kind, r.Table = Critical, table
	case r.Kind == Writes:
		r.Unlisted = c.unlisted(name)
	}
}

// readBatch classifies a BATCH text, all of which it must read. It keeps the parts of a batch only
// if one of its tables is critical: else the text may have any size.
func (c *Classifier) readBatch(text []byte, keyspace string) Result {
	if c.Tables == nil {
		return Result{Verb: rewrite.Batch}
	}
	r := Result{Kind: Writes, Verb: rewrite.Batch}
	_, err := rewrite.Outline(text, func(ks, table rewrite.Name) {
		if r.Failure != nil {
			return
		}
		r.Name = c.TableKey(text, ks, table, keyspace)
		r.Unqualified = r.Unqualified || ks.Empty()
		r.Table, _ = catalog.Strictest([]*catalog.Table{r.Table, c.lookup(r.Name)})
		r.Unlisted = cmp.Or(c.unlisted(r.Name), r.Unlisted)
		if r.Name.reserved() {
			r.Kind, r.Failure = Refused, forProxiesOnly(r.Name.String())
		}
	})
	if err != nil {
		return c.readUnclear(text, keyspace)
	}
	if r.Failure != nil || r.Table == nil {
		return r
	}
	batch, err := rewrite.Parse(text)
	if err != nil {
		r.Kind, r.Failure = Refused, NotParsed(err)
		return r
	}
	r.Kind = Critical
	for i := range batch.Children {
		child := &batch.Children[i]
		r.Names = append(r.Names, c.TableKey(text, child.Keyspace, child.Table, keyspace).Names())
	}
	return r
}

// NotParsed returns the error for a statement on a critical table that rewrite.Parse does not take.
func NotParsed(err error) *wire.Failure {
	var syntax *rewrite.SyntaxError
	if errors.As(err, &syntax) && syntax.TooLarge {
		return wire.Invalid("MUSIC_REFUSED: %v: bind its values, or send several statements", err)
	}
	return wire.Invalid("MUSIC_SYNTAX: %v", err)
}

// TableKey returns the key of a table that a text names. If ks is empty, keyspace is the table's
// keyspace. The result is valid until the next call.
func (c *Classifier) TableKey(text []byte, ks, table rewrite.Name, keyspace string) TableKey {
	key := c.name[:0]
	if ks.Start != ks.End {
		key = ks.AppendTo(key, text)
	} else {
		key = append(key, keyspace...)
	}
	key = table.AppendTo(append(key, 0), text)
	if cap(key) <= keptLength {
		c.name = key
	}
	return key
}

// Named returns the Table of a keyspace and name, or nil if catalog.Tables has none.
func (c *Classifier) Named(name [2]string) *catalog.Table {
	return c.lookup(catalog.Key(name[0], name[1]))
}

// lookup returns the Table of a key, or nil if catalog.Tables has none.
func (c *Classifier) lookup(key TableKey) *catalog.Table {
	if c.Tables == nil {
		return nil
	}
	return c.Tables.Find(key)
}

// unlisted returns keyspace and name of a table that is not in the schema as last read, else nil. A
// key without a keyspace names no table: the result is nil.
func (c *Classifier) unlisted(key TableKey) *[2]string {
	if key[0] == 0 || c.Tables.InSchema(key) {
		return nil
	}
	name := key.Names()
	return &name
}

// forProxiesOnly returns the error for a statement on a table that only proxies may use.
func forProxiesOnly(table string) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is for the proxies only: LIST LOCKS shows who holds what", table)
}

// keepsLocks refuses to drop the companion of a table that is critical by its comment or the
// configuration.
func (c *Classifier) keepsLocks(head *rewrite.Head, name TableKey) (f *wire.Failure) {
	if head.Verb != rewrite.Schema || head.Schema.Action != rewrite.Drop || !name.reserved() {
		return nil
	}
	c.Tables.Critical(func(t *catalog.Table, critical *catalog.Critical) {
		if critical.Marked && string(name) == t.Keyspace+"\x00"+catalog.CompanionPrefix+hex.EncodeToString(critical.ID[:]) {
			f = wire.Invalid("MUSIC_REFUSED: %s has the locks of %s, which is critical: take @critical out of its comment first, or its pattern out of the setting critical of every proxy", name, t)
		}
	})
	return f
}
