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

// meaning is what a statement is to the proxy.
type meaning uint8

const (
	meaningPlain    meaning = iota // Cassandra's alone
	meaningWrites                  // an INSERT, UPDATE, DELETE, TRUNCATE or batch of plain CQL, on tables that are not critical now
	meaningLocal                   // a SELECT on system.local
	meaningPeers                   // a SELECT on system.peers or system.peers_v2
	meaningUse                     // USE
	meaningSchema                  // CREATE, ALTER, DROP
	meaningCritical                // LOCK, UNLOCK, LIST LOCKS, or a statement on a critical table: it has to be read whole
	meaningUnclear                 // the proxy cannot read it, and it names no table that is critical now
	meaningRefused                 // with reading.failure
)

// reading is what a look at a statement's text has told.
type reading struct {
	meaning meaning
	verb    rewrite.Verb
	execute bool           // it is to be carried out, and not prepared
	table   *catalog.Table // of meaningWrites and meaningCritical, where one is named
	failure *wire.Failure

	name     tableKey    // of the table that the statement names, of a batch the last one; empty where it names none
	names    [][2]string // of a batch's text that names a critical table: the tables of its statements
	unlisted *[2]string  // keyspace and name of a table that the statement writes or locks, and that is not in the schema as it was read last
}

// read classifies a statement by its head, into r, which must be empty. It returns false when the
// part seen does not tell. It does not allocate for what has nothing to do with locks.
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

// readVerb reads LOCK, UNLOCK and LIST LOCKS. Where there are no locks they are left to Cassandra.
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

// readHead reads a statement on one table, into r.
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

// readBatch reads the text of a batch: its statements can only be told apart in the whole.
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

// tableKey is the name of a table as catalog.Tables finds it: its keyspace, a zero byte, and its
// name.
type tableKey []byte

// tableKey returns the key of a table that a text names: without a keyspace of its own it is in
// that of the request, or of the connection. The key is valid until the connection's next call.
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

// lookup returns the Table of a key, or nil where no statement has concerned the proxy with it.
func (c *conn) lookup(key tableKey) *catalog.Table {
	if c.server.Tables == nil {
		return nil
	}
	return c.server.Tables.Find(key)
}

// unlisted returns keyspace and name of a table that is not in the schema as it was read last, else
// nil. A name without any keyspace is no table's.
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

// String returns the table's name as it is told to people.
func (k tableKey) String() string {
	return strings.TrimSuffix(strings.Replace(string(k), "\x00", ".", 1), ".")
}

// read returns what it means to read the table: some show the cluster's nodes.
func (k tableKey) read() meaning {
	switch string(k) {
	case "system\x00local":
		return meaningLocal
	case "system\x00peers", "system\x00peers_v2":
		return meaningPeers
	}
	return meaningPlain
}

// reserved reports whether only proxies write the table.
func (k tableKey) reserved() bool {
	at := bytes.IndexByte(k, 0)
	if bytes.HasPrefix(k[at+1:], []byte(catalog.CompanionPrefix)) {
		return true
	}
	return string(k[:at]) == "music" && string(k[at+1:]) != "named"
}

// closed reports whether a statement on the table would change what is only the proxies' to change,
// or show what is theirs to read: the cluster's secret. All else may be read by everybody; keyspace
// music may be replicated otherwise, and the companion dropped of a table that is to be critical no
// more.
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

// forProxiesOnly returns the error for a statement on a table that only proxies write.
func forProxiesOnly(table string) *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: %s is for the proxies only: LIST LOCKS shows who holds what", table)
}

// keepsLocks refuses to drop the lock rows of a table that is to stay critical.
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

// readUnclear reads what the proxy does not understand, as a transaction of Cassandra 6. Cassandra
// will hardly read it either; but what names a critical table, or one of the proxies', does not get
// there.
func (c *conn) readUnclear(text []byte, keyspaceOfRequest string) reading {
	if c.server.Tables == nil {
		return reading{meaning: meaningUnclear}
	}
	words, used := wordsOf(text), keyspaceOfRequest
	if set := c.keyspace.Load(); used == "" && set != nil {
		used = *set
	}
	for i, word := range words {
		if strings.HasPrefix(word, catalog.CompanionPrefix) || ofProxies(word) && (used == "music" || i > 0 && words[i-1] == "music") {
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
	return reading{meaning: meaningRefused, failure: wire.Invalid("MUSIC_SYNTAX: the statement cannot be read, and it names %s, which is critical: mend it; nothing was done", named)}
}

// ofProxies reports whether a table of keyspace music with this name is for the proxies only.
func ofProxies(name string) bool {
	switch name {
	case "tables", "proxies", "sessions", "generations", "secrets":
		return true
	}
	return false
}

// wordsOf returns the words of a text in lower case: names of keyspaces and tables have letters,
// digits and underscores of ASCII alone.
func wordsOf(text []byte) []string {
	return strings.FieldsFunc(strings.ToLower(string(text)), func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}

// naming is how a text names a table, the surest way first, and at which word.
type naming struct{ way, at int }

// namedIn reports whether words may name a table, and how: its name is one of them, and its
// keyspace is another or the one that is used. Comments may stand anywhere between the two.
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
