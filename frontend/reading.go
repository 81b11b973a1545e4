package frontend

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"slices"
	"strings"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// meaning classifies a statement by what the proxy must do with it.
type meaning uint8

const (
	meaningPlain    meaning = iota // it is always forwarded
	meaningWrites                  // INSERT, UPDATE, DELETE, TRUNCATE or a batch, on tables that are not critical now
	meaningLocal                   // a SELECT on system.local
	meaningPeers                   // a SELECT on system.peers or system.peers_v2
	meaningUse                     // USE
	meaningSchema                  // CREATE, ALTER, DROP
	meaningCritical                // LOCK, UNLOCK, LIST LOCKS, or a statement on a critical table: it must be parsed
	meaningUnclear                 // the proxy cannot read it, and it names no table that is critical now
	meaningRefused                 // it is refused with reading.failure
)

// reading is the classification of a statement by its text.
type reading struct {
	meaning meaning
	verb    rewrite.Verb
	execute bool           // it is to be carried out, not prepared
	table   *catalog.Table // for meaningWrites and meaningCritical: the table, or nil
	failure *wire.Failure  // for meaningRefused

	name     tableKey    // the table that the statement names, in a batch the last one; empty if none
	names    [][2]string // for a BATCH text that names a critical table: the tables of its statements
	unlisted *[2]string  // keyspace and name of a table that it writes or locks and that is not in the schema as last read
}

// read classifies a statement by its text, into r, which must be empty. It returns false if the
// part of the text that has arrived is not enough. It does not allocate for statements that are
// forwarded.
func (c *conn) read(r *reading, text []byte, whole bool, keyspaceOfRequest string) (ok bool) {
	head := rewrite.ReadHead(text, whole)
	if !head.Complete && !whole {
		return false
	}
	switch head.Verb {
	case rewrite.Use:
		r.meaning, r.verb = meaningUse, head.Verb
		return true
	case rewrite.Lock, rewrite.Unlock, rewrite.ListLocks:
		if head.Complete {
			*r = c.readVerb(text, head, keyspaceOfRequest)
			return true
		}
	case rewrite.Select, rewrite.Insert, rewrite.Update, rewrite.Delete, rewrite.Truncate, rewrite.Schema:
		if head.Complete {
			c.readHead(r, text, &head, keyspaceOfRequest)
			return true
		}
	case rewrite.Batch:
		*r = c.readBatch(text, keyspaceOfRequest)
		return whole
	case rewrite.Other:
		r.verb = head.Verb
		return true
	}
	*r = c.readUnclear(text, keyspaceOfRequest)
	return whole
}

// readVerb classifies LOCK, UNLOCK and LIST LOCKS. If locks are off they are left to Cassandra.
func (c *conn) readVerb(text []byte, head rewrite.Head, keyspaceOfRequest string) reading {
	if c.server.Tables == nil {
		return reading{verb: head.Verb}
	}
	r := reading{meaning: meaningCritical, verb: head.Verb}
	if head.Table.Start != head.Table.End {
		r.name = c.tableKey(text, head.Keyspace, head.Table, keyspaceOfRequest)
		r.table, r.unlisted = c.lookup(r.name), c.unlisted(r.name)
	}
	return r
}

// readHead classifies a statement on one table, into r.
func (c *conn) readHead(r *reading, text []byte, head *rewrite.Head, keyspaceOfRequest string) {
	name := c.tableKey(text, head.Keyspace, head.Table, keyspaceOfRequest)
	table := c.lookup(name)
	r.meaning, r.verb, r.table, r.name = meaningWrites, head.Verb, table, name
	switch head.Verb {
	case rewrite.Schema:
		r.meaning = meaningSchema
	case rewrite.Select:
		r.meaning = name.read()
		r.table = nil
	}
	if c.server.Tables == nil {
		r.table = nil
		return
	}
	if name.closed(head) {
		r.meaning, r.failure = meaningRefused, forProxiesOnly(name.String())
		return
	}
	if f := c.keepsLocks(head, name); f != nil {
		r.meaning, r.failure = meaningRefused, f
		return
	}
	switch {
	case table != nil && table.Critical() != nil && r.meaning != meaningSchema:
		r.meaning, r.table = meaningCritical, table
	case r.meaning == meaningWrites:
		r.unlisted = c.unlisted(name)
	}
}

// readBatch classifies a BATCH text, which it must parse.
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
		r.name = c.tableKey(text, child.Keyspace, child.Table, keyspaceOfRequest)
		tables = append(tables, c.lookup(r.name))
		r.unlisted = cmp.Or(c.unlisted(r.name), r.unlisted)
		if r.name.reserved() {
			r.meaning, r.failure = meaningRefused, forProxiesOnly(r.name.String())
			return r
		}
	}
	if r.table, _ = catalog.Strictest(tables); r.table == nil {
		return r
	}
	r.meaning = meaningCritical
	for i := range batch.Children {
		child := &batch.Children[i]
		r.names = append(r.names, c.tableKey(text, child.Keyspace, child.Table, keyspaceOfRequest).names())
	}
	return r
}

// tableKey is the key of a table in catalog.Tables: its keyspace, a zero byte, and its name.
type tableKey []byte

// tableKey returns the key of a table that a text names. If ks is empty the keyspace is that of the
// request, or else of the connection. The result is valid until the next call.
func (c *conn) tableKey(text []byte, ks, table rewrite.Name, keyspaceOfRequest string) tableKey {
	key := c.nameBuffer[:0]
	switch {
	case ks.Start != ks.End:
		key = ks.AppendTo(key, text)
	case keyspaceOfRequest != "":
		key = append(key, keyspaceOfRequest...)
	default:
		if used := c.keyspace.Load(); used != nil {
			key = append(key, *used...)
		}
	}
	c.nameBuffer = table.AppendTo(append(key, 0), text)
	return c.nameBuffer
}

// lookup returns the Table of a key, or nil if catalog.Tables has none.
func (c *conn) lookup(key tableKey) *catalog.Table {
	if c.server.Tables == nil {
		return nil
	}
	return c.server.Tables.Find(key)
}

// unlisted returns keyspace and name of a table that is not in the schema as last read, else nil. A
// key without a keyspace names no table: the result is nil.
func (c *conn) unlisted(key tableKey) *[2]string {
	if key[0] == 0 || c.server.Tables.InSchema(key) {
		return nil
	}
	name := key.names()
	return &name
}

// names returns keyspace and name.
func (k tableKey) names() [2]string {
	ks, table, _ := bytes.Cut(k, []byte{0})
	return [2]string{string(ks), string(table)}
}

// String returns the table's name for people to read.
func (k tableKey) String() string {
	return strings.TrimSuffix(strings.Replace(string(k), "\x00", ".", 1), ".")
}

// read returns the meaning of a SELECT on the table: some tables show the cluster's nodes.
func (k tableKey) read() meaning {
	switch string(k) {
	case "system\x00local":
		return meaningLocal
	case "system\x00peers", "system\x00peers_v2":
		return meaningPeers
	}
	return meaningPlain
}

// reserved reports whether only proxies may write the table.
func (k tableKey) reserved() bool {
	at := bytes.IndexByte(k, 0)
	if bytes.HasPrefix(k[at+1:], []byte(catalog.CompanionPrefix)) {
		return true
	}
	return string(k[:at]) == "music" && string(k[at+1:]) != "named"
}

// closed reports whether clients must not execute a statement on the table: it would change what
// only proxies may change, or read the cluster's secret. Allowed are reading all other tables,
// changing the replication of keyspace music, and dropping the companion of a table that is no
// longer critical.
func (k tableKey) closed(head *rewrite.Head) bool {
	if head.Verb != rewrite.Schema {
		return k.reserved() && (head.Verb != rewrite.Select || string(k) == "music\x00secrets")
	}
	what := head.Schema
	if bytes.HasPrefix(k, []byte("music\x00")) {
		return what.Kind != rewrite.SchemaKeyspace || what.Action != rewrite.Alter
	}
	return k.reserved() && (what.Kind != rewrite.SchemaTable || what.Action != rewrite.Drop)
}

// forProxiesOnly returns the error for a statement on a table that only proxies may use.
func forProxiesOnly(table string) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is for the proxies only: LIST LOCKS shows who holds what", table)
}

// keepsLocks refuses to drop the companion of a table that is critical by its comment or the
// configuration.
func (c *conn) keepsLocks(head *rewrite.Head, name tableKey) (f *wire.Failure) {
	if head.Verb != rewrite.Schema || head.Schema.Action != rewrite.Drop || !name.reserved() {
		return nil
	}
	c.server.Tables.Critical(func(t *catalog.Table, critical *catalog.Critical) {
		if critical.Marked && string(name) == t.Keyspace+"\x00"+catalog.CompanionPrefix+hex.EncodeToString(critical.ID[:]) {
			f = wire.Invalid("MUSIC_REFUSED: %s has the locks of %s, which is critical: take @critical out of its comment first", name, t)
		}
	})
	return f
}

// readUnclear classifies a text that the proxy cannot parse, such as a transaction of Cassandra 6.
// It is refused if a word in it may name a critical table or a table of the proxies.
func (c *conn) readUnclear(text []byte, keyspaceOfRequest string) reading {
	if c.server.Tables == nil {
		return reading{meaning: meaningUnclear}
	}
	words, used := wordsOf(text), keyspaceOfRequest
	if set := c.keyspace.Load(); used == "" && set != nil {
		used = *set
	}
	for _, word := range words {
		if strings.HasPrefix(word, catalog.CompanionPrefix) || ofProxies(word) && (used == "music" || slices.Contains(words, "music")) {
			return reading{meaning: meaningRefused, failure: forProxiesOnly(word)}
		}
	}
	named, first := (*catalog.Table)(nil), naming{}
	c.server.Tables.Critical(func(t *catalog.Table, _ *catalog.Critical) {
		n, ok := namedIn(words, t, used)
		if ok && (named == nil || cmp.Or(cmp.Compare(n.way, first.way), cmp.Compare(n.at, first.at), strings.Compare(t.String(), named.String())) < 0) {
			named, first = t, n
		}
	})
	if named == nil {
		return reading{meaning: meaningUnclear}
	}
	return reading{meaning: meaningRefused, failure: wire.Invalid("MUSIC_SYNTAX: the proxy cannot parse this statement, which names %s, a critical table: correct it; nothing was done", named)}
}

// ofProxies reports whether a table of keyspace music with this name is for the proxies only.
func ofProxies(name string) bool {
	switch name {
	case "tables", "proxies", "sessions", "generations", "secrets":
		return true
	}
	return false
}

// wordsOf returns the words of a text in lower case. Words consist of ASCII letters, digits and
// underscores, as do the names of keyspaces and tables.
func wordsOf(text []byte) []string {
	return strings.FieldsFunc(strings.ToLower(string(text)), func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}

// naming tells how a text names a table: way is 0 for keyspace and name in a row, 1 for any other,
// and at is the index of the word.
type naming struct{ way, at int }

// namedIn reports whether words may name a table, and how. Its name must be one of them, and its
// keyspace another or the one in use: comments may stand between the two.
func namedIn(words []string, t *catalog.Table, used string) (n naming, ok bool) {
	keyspace, name := strings.ToLower(t.Keyspace), strings.ToLower(t.Name)
	for i := 1; i < len(words); i++ {
		if words[i-1] == keyspace && words[i] == name {
			return naming{0, i}, true
		}
	}
	n = naming{1, slices.Index(words, name)}
	return n, n.at >= 0 && (used == t.Keyspace || slices.Contains(words, keyspace))
}
