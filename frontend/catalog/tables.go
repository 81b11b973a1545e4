// Package catalog knows which tables are critical, and with what settings. The proxy fills it from
// Cassandra's schema; clients' connections look every statement's table up in it.
package catalog

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"music/musiccore"
	"music/rewrite"
)

// Column is a column of a critical table: its name as Cassandra knows it and its CQL type as the
// schema prints it.
type Column struct {
	Name, Type string
	Static     bool
	Clustering bool // a clustering column: it may be empty, and Cassandra compares it by value and not by bytes
}

// Canonical returns a value of the column in the form in which it stands in a key: Cassandra takes
// some values of clustering columns for equal whose bytes differ, and one row has one lock. It may
// return value itself.
func (c Column) Canonical(value []byte) []byte {
	if !c.Clustering {
		return value
	}
	canonical, _ := rewrite.Canonical(c.Type, value)
	return canonical
}

// Critical is what the proxy knows of a table while it is critical. It is never changed once
// published.
type Critical struct {
	ID       [16]byte // of the data table: names the keys of this table in the core
	Key      []Column // what one lock covers, in order: the partition key, with key=row the whole primary key
	Primary  []string // all columns of the primary key, in its order
	Columns  map[string]Column
	Static   []string // columns that a lock on a row does not cover
	Closed   musiccore.Stamp
	MaxLease time.Duration // default and most of a client lease
	Mortal   bool          // rows have a time to live by default
	Settings               // of the table's comment
	Marked   bool          // its comment, or the configuration, says that it is critical; else only its lock rows do
	Made     bool          // there are lock rows: key and scope cannot change
	Refused  string        // why no lock can be had; empty when locks work
	Passing  bool          // Refused holds for a moment: the table is about to be served

	Generation [16]byte // id of the table of its lock rows: references of another one mean nothing
}

// Unit returns what one lock covers, in a word for people.
func (c *Critical) Unit() string {
	if c.Row {
		return "row"
	}
	return "partition"
}

// PartitionKey returns the columns of the partition key, in order. The returned slice must not be
// modified.
func (c *Critical) PartitionKey() []Column {
	for i, column := range c.Key {
		if column.Clustering {
			return c.Key[:i]
		}
	}
	return c.Key
}

// ClusteringColumns returns the clustering columns, in order.
func (c *Critical) ClusteringColumns() []Column {
	var all []Column
	for _, name := range c.Primary[min(len(c.PartitionKey()), len(c.Primary)):] {
		all = append(all, Column{Name: name, Type: c.Columns[name].Type, Clustering: true})
	}
	return all
}

// CompanionPrefix begins the name of every table of lock rows (docs/design.md 4).
const CompanionPrefix = "music_lock_"

// MinGrace is the shortest gc_grace_seconds of a critical table: a fence is a tombstone, and must
// outlive hints.
const MinGrace = 24 * 60 * 60

// Policy is what a plain write on a critical table gets (docs/design.md 4, setting unlocked).
type Policy uint8

// The policies.
const (
	Reject Policy = iota // an error
	Allow                // it goes through, outside of every guarantee: for migrations
	Auto                 // a section of its own
)

// Table is one table as clients' statements name it. There is one Table a name for the life of the
// proxy, so that a statement prepared long ago sees at once that its table has become critical.
type Table struct {
	Keyspace, Name string
	critical       atomic.Pointer[Critical]
	missing        atomic.Bool // see Tables.InSchema

	mu      sync.Mutex
	waiting map[*func()]struct{} // see AwaitChange
}

// InSchema reports whether the schema that was read last has the table, as Tables.InSchema does.
func (t *Table) InSchema() bool { return !t.missing.Load() }

// Critical returns the table's present state, or nil while it is an ordinary table. What it returns
// must not be modified.
func (t *Table) Critical() *Critical { return t.critical.Load() }

// AwaitChange has f called once the table's state is no longer was; ok is false where it is not
// already. f must not block. leave says that nobody waits any more: no later change calls f.
func (t *Table) AwaitChange(was *Critical, f func()) (leave func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.critical.Load() != was {
		return nil, false
	}
	if t.waiting == nil {
		t.waiting = map[*func()]struct{}{}
	}
	t.waiting[&f] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.waiting, &f)
	}, true
}

// tellChange calls those who wait for a change of the table.
func (t *Table) tellChange() {
	t.mu.Lock()
	waiting := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	for f := range waiting {
		(*f)()
	}
}

// String returns the table's name as it is told to people.
func (t *Table) String() string { return t.Keyspace + "." + t.Name }

// Strictest returns the table that lets the least through without a lock (Reject before Auto before
// Allow), and its policy. Tables may be nil; which is nil where none of them is critical.
func Strictest(tables []*Table) (which *Table, policy Policy) {
	for _, t := range tables {
		if t == nil {
			continue
		}
		now := t.Critical()
		if now == nil || which != nil && (policy == Reject || now.Unlocked == Allow || now.Unlocked == policy) {
			continue
		}
		which, policy = t, now.Unlocked
	}
	return which, policy
}

// Tables is what clients' connections know of the schema: which tables are critical. Looking up
// takes no lock. A nil *Tables has no version but 0, and is complete (see InSchema).
type Tables struct {
	byName atomic.Pointer[map[string]*Table]
	all    atomic.Pointer[map[string]struct{}] // keys of the tables that the schema has; nil until Read is called
	mu     sync.Mutex                          // held to add a name
	sets   atomic.Uint64                       // calls of Set
}

// NewTables returns Tables without any table.
func NewTables() *Tables {
	t := new(Tables)
	t.byName.Store(&map[string]*Table{})
	return t
}

// appendTableKey appends the key under which a table is found: keyspace and name with a zero byte
// between them, which neither can hold.
func appendTableKey(dst []byte, keyspace string, table []byte) []byte {
	dst = append(append(dst, keyspace...), 0)
	return append(dst, table...)
}

// Find returns the table of a key (a keyspace, a zero byte and a name), or nil where Of was never
// called for it. It does not keep key and does not allocate.
func (t *Tables) Find(key []byte) *Table { return (*t.byName.Load())[string(key)] }

// Of returns the one Table of a name; it makes it where there is none yet.
func (t *Tables) Of(keyspace, name string) *Table {
	key := string(appendTableKey(nil, keyspace, []byte(name)))
	if found := (*t.byName.Load())[key]; found != nil {
		return found
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := (*t.byName.Load())[key]; found != nil {
		return found
	}
	next := maps.Clone(*t.byName.Load())
	next[key] = &Table{Keyspace: keyspace, Name: name}
	next[key].missing.Store(!t.InSchema([]byte(key)))
	t.byName.Store(&next)
	return next[key]
}

// Read publishes the names, keyspace first, of all tables that the schema has. A write on any other
// waits until the schema has been read again: the table may have been made meanwhile, and be
// critical. Those that are must have been Set before.
func (t *Tables) Read(names [][2]string) {
	all := make(map[string]struct{}, len(names))
	for _, name := range names {
		all[string(appendTableKey(nil, name[0], []byte(name[1])))] = struct{}{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.Store(&all)
	for key, table := range *t.byName.Load() {
		table.missing.Store(!t.InSchema([]byte(key)))
	}
}

// InSchema reports whether the schema that was read last has a table of this key. It is true of
// every key until a schema has been read. It does not keep key and does not allocate.
func (t *Tables) InSchema(key []byte) bool {
	if t == nil {
		return true
	}
	all := t.all.Load()
	if all == nil {
		return true
	}
	_, known := (*all)[string(key)]
	return known
}

// Set publishes a table's state; nil makes it an ordinary table. From its return on every statement
// meets the new state, but for those that are on their way to Cassandra: Server.Outstanding tells
// when they are not any more.
func (t *Tables) Set(keyspace, name string, c *Critical) {
	table := t.Of(keyspace, name)
	table.critical.Store(c)
	t.sets.Add(1)
	table.tellChange()
}

// Version returns a number that rises with each Set.
func (t *Tables) Version() uint64 {
	if t == nil {
		return 0
	}
	return t.sets.Load()
}

// Critical calls f with every critical table.
func (t *Tables) Critical(f func(*Table, *Critical)) {
	for _, table := range *t.byName.Load() {
		if c := table.Critical(); c != nil {
			f(table, c)
		}
	}
}
