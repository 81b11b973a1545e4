package frontend

import (
	"bytes"
	"encoding/hex"
	"strings"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// meaning is what a statement is to the proxy.
type meaning uint8

const (
	meaningPlain    meaning = iota // Cassandra's alone
	meaningWrites                  // an INSERT, UPDATE, DELETE, TRUNCATE or batch of plain CQL, on tables that are not critical now
	meaningLocal                   // a SELECT on system.local
	meaningPeers                   // a SELECT on system.peers or system.peers_v2
	meaningUse                     // USE
	meaningSchema                  // CREATE, ALTER, DROP
	meaningCritical                // a verb of ours, or a statement on a critical table: it has to be read whole
	meaningUnclear                 // the proxy cannot read it, and it names no table that is critical now
	meaningRefused                 // with reading.failure
)

// reading is what a look at a statement's text has told.
type reading struct {
	meaning meaning
	verb    rewrite.Verb
	table   *catalog.Table // of writes and critical, where one is named
	failure *wire.Failure
}

// read classifies a statement by its head. ok is false when the part seen does not tell. It does not allocate for what
// is not ours.
func (c *conn) read(text []byte, whole bool, keyspaceOfRequest string) (r reading, ok bool) {
	head := rewrite.ReadHead(text, whole)
	if !head.Complete && !whole {
		return reading{}, false
	}
	switch head.Verb {
	case rewrite.Use:
		return reading{meaning: meaningUse, verb: head.Verb}, true
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks:
		return c.readVerb(text, head, keyspaceOfRequest), true
	case rewrite.Select, rewrite.Insert, rewrite.Update, rewrite.Delete, rewrite.Truncate, rewrite.Schema:
		if head.Complete {
			return c.readHead(text, head, keyspaceOfRequest), true
		}
	case rewrite.Batch:
		return c.readBatch(text, keyspaceOfRequest), whole
	case rewrite.Other:
		return reading{verb: head.Verb}, true
	}
	return c.readUnclear(text, keyspaceOfRequest), whole
}

// readVerb is for LOCK, UNLOCK and LIST LOCKS: syntax errors to Cassandra, and left to it where there are no locks.
func (c *conn) readVerb(text []byte, head rewrite.Head, keyspaceOfRequest string) reading {
	if c.server.Tables == nil {
		return reading{verb: head.Verb}
	}
	r := reading{meaning: meaningCritical, verb: head.Verb}
	if head.Table.Start != head.Table.End {
		r.table = c.lookupWritten(text, head.Keyspace, head.Table, keyspaceOfRequest)
	}
	return r
}

// readHead is for statements on one table.
func (c *conn) readHead(text []byte, head rewrite.Head, keyspaceOfRequest string) reading {
	table := c.lookup(text, head.Keyspace, head.Table, keyspaceOfRequest)
	r := reading{meaning: meaningWrites, verb: head.Verb, table: table}
	switch head.Verb {
	case rewrite.Schema:
		r.meaning = meaningSchema
	case rewrite.Select:
		r.meaning = c.systemTable()
		r.table = nil
	}
	if c.server.Tables == nil {
		r.table = nil
		return r
	}
	if c.closed(head) {
		r.meaning, r.failure = meaningRefused, wire.Invalid("MUSIC_REFUSED: %s is for the proxies only", c.tableName())
		return r
	}
	if f := c.keepsLocks(head); f != nil {
		r.meaning, r.failure = meaningRefused, f
		return r
	}
	switch {
	case table != nil && table.Critical() != nil && r.meaning != meaningSchema:
		r.meaning, r.table = meaningCritical, table
	case r.meaning == meaningWrites:
		c.noteLookedUp()
	}
	return r
}

// readBatch is for the text of a batch: each of its statements, which can only be told apart in the whole.
func (c *conn) readBatch(text []byte, keyspaceOfRequest string) reading {
	if c.server.Tables == nil {
		return reading{verb: rewrite.Batch}
	}
	batch, err := rewrite.Parse(text)
	if err != nil {
		return c.readUnclear(text, keyspaceOfRequest)
	}
	r := reading{meaning: meaningWrites, verb: rewrite.Batch}
	var tables []*catalog.Table
	for i := range batch.Children {
		child := &batch.Children[i]
		tables = append(tables, c.lookupWritten(text, child.Keyspace, child.Table, keyspaceOfRequest))
		if c.isOurs() {
			return reading{meaning: meaningRefused, verb: rewrite.Batch, failure: wire.Invalid("MUSIC_REFUSED: %s is for the proxies only", c.tableName())}
		}
	}
	if r.table, _ = catalog.Strictest(tables); r.table != nil {
		r.meaning = meaningCritical
	}
	return r
}

// lookup finds the Table of a name, or nil where no statement has concerned the proxy with it. The key that it looked for stays in
// c.name for systemTable, isOurs and tableName.
func (c *conn) lookup(text []byte, ks, table rewrite.Name, keyspaceOfRequest string) *catalog.Table {
	c.name = c.name[:0]
	switch {
	case ks.Start != ks.End:
		c.name = ks.AppendTo(c.name, text)
	case keyspaceOfRequest != "":
		c.name = append(c.name, keyspaceOfRequest...)
	default:
		if used := c.keyspace.Load(); used != nil {
			c.name = append(c.name, *used...)
		}
	}
	c.name = append(c.name, 0)
	c.name = table.AppendTo(c.name, text)
	if c.server.Tables == nil {
		return nil
	}
	return c.server.Tables.Find(c.name)
}

// lookupWritten is lookup of a table that the statement writes or locks.
func (c *conn) lookupWritten(text []byte, ks, table rewrite.Name, keyspaceOfRequest string) *catalog.Table {
	t := c.lookup(text, ks, table, keyspaceOfRequest)
	c.noteLookedUp()
	return t
}

// systemTable tells whether the name last looked up is one of those that show the cluster's nodes.
func (c *conn) systemTable() meaning {
	switch string(c.name) {
	case "system\x00local":
		return meaningLocal
	case "system\x00peers", "system\x00peers_v2":
		return meaningPeers
	}
	return meaningPlain
}

// isOurs tells whether the name last looked up is a table that only proxies write.
func (c *conn) isOurs() bool {
	at := bytes.IndexByte(c.name, 0)
	if bytes.HasPrefix(c.name[at+1:], []byte(catalog.CompanionPrefix)) {
		return true
	}
	return string(c.name[:at]) == "music" && string(c.name[at+1:]) != "named"
}

// closed tells whether a statement would change what is only the proxies' to change, or show what is theirs to read: the cluster's
// secret. To read all else is open to all; so is to replicate keyspace music otherwise, and to drop the companion of a table that is to
// be critical no more.
func (c *conn) closed(head rewrite.Head) bool {
	if head.Verb != rewrite.Schema {
		return c.isOurs() && (head.Verb != rewrite.Select || string(c.name) == "music\x00secrets")
	}
	what := head.Schema
	if bytes.HasPrefix(c.name, []byte("music\x00")) {
		return what.Kind != rewrite.SchemaKeyspace || what.Action != rewrite.Alter
	}
	return c.isOurs() && (what.Kind != rewrite.SchemaTable || what.Action != rewrite.Drop)
}

// keepsLocks refuses to drop the lock rows of a table that is to stay critical.
func (c *conn) keepsLocks(head rewrite.Head) (f *wire.Failure) {
	if head.Verb != rewrite.Schema || head.Schema.Action != rewrite.Drop || !c.isOurs() {
		return nil
	}
	c.server.Tables.Critical(func(t *catalog.Table, critical *catalog.Critical) {
		if critical.Marked && string(c.name) == t.Keyspace+"\x00"+catalog.CompanionPrefix+hex.EncodeToString(critical.ID[:]) {
			f = wire.Invalid("MUSIC_REFUSED: %s has the locks of %s, which is critical: take @critical out of its comment first", c.tableName(), t)
		}
	})
	return f
}

// tableName is the name last looked up, as it is told to people.
func (c *conn) tableName() string {
	return strings.TrimSuffix(strings.Replace(string(c.name), "\x00", ".", 1), ".")
}
