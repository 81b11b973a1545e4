// Package catalog holds which tables are critical, and their settings. The proxy fills it from
// Cassandra's schema; clients' connections look up the table of every statement in it.
package catalog

import (
	"maps"
	"slices"
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
	Clustering bool // a clustering column: its value may be empty, and Cassandra compares values, not bytes
}

// Canonical returns a value of the column in the form that it has in a key. Cassandra treats some
// values of clustering columns as equal although their bytes differ, and a row must have one name.
// The result may be value itself. ok is false if it is not known which values are equal.
func (c Column) Canonical(value []byte) (canonical []byte, ok bool) {
	if !c.Clustering {
		return value, true
	}
	return rewrite.Canonical(c.Type, value)
}

// Critical describes a table while it is critical. It is never changed once published.
type Critical struct {
	ID       [16]byte // of the data table: part of the names of its keys in the core
	Key      []Column // the columns that name what one lock covers: the partition key, with key=row the whole primary key
	Primary  []string // all columns of the primary key, in its order
	Columns  map[string]Column
	Static   []string // static columns: a lock on a row does not cover them
	Closed   musiccore.Stamp
	MaxLease time.Duration // default and maximum of a client lease
	Mortal   bool          // the table has a default_time_to_live
	Checked  bool          // Cassandra checks values that are written (CHECK), and may refuse any
	Settings               // from the table's comment
	Marked   bool          // its comment or the configuration says that it is critical; if false it only has lock rows
	Made     bool          // it has lock rows: key and scope cannot change
	Refused  string        // why locks cannot be given; empty when they can
	Passing  bool          // Refused holds only until the table is ready

	Generation [16]byte // id of the companion: references of another one are invalid
}

// Unit returns a word for what one lock covers, for texts that people read.
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

// SameColumns reports whether statements are read by the same columns, with the same constraints, in both states, and
// what they write lives for ever in both or in neither.
func (c *Critical) SameColumns(other *Critical) bool {
	return slices.Equal(c.Key, other.Key) && slices.Equal(c.Primary, other.Primary) && maps.Equal(c.Columns, other.Columns) &&
		c.Checked == other.Checked && c.Mortal == other.Mortal
}

// SameKeys reports whether statements name the same keys and rows of the same table in both states, and the same of its
// columns are static: whether what was read in one state and has waited may be carried out in the other.
func (c *Critical) SameKeys(other *Critical) bool {
	return c.ID == other.ID && slices.Equal(c.Key, other.Key) && slices.Equal(c.Primary, other.Primary) && slices.Equal(c.Static, other.Static)
}

// CompanionPrefix begins the name of every table of lock rows (docs/design.md 4).
const CompanionPrefix = "music_lock_"

// MinGrace is the shortest gc_grace_seconds that a critical table may have. A fence is a tombstone,
// and must outlive Cassandra's hints.
const MinGrace = 24 * 60 * 60

// Policy says what becomes of a plain write on a critical table (docs/design.md 4, setting
// unlocked).
type Policy uint8

// The policies.
const (
	Reject Policy = iota // it is refused with an error
	Allow                // it is forwarded without any guarantee: for migrations
	Auto                 // it is carried out in a section of its own
)

// Table is a name of a table, as clients' statements use it, and the table's present state. Each
// name has one Table as long as the proxy runs, so that a statement prepared long ago sees at once
// that its table has become critical. It is safe for concurrent use.
type Table struct {
	Keyspace, Name string
	critical       atomic.Pointer[Critical]
	missing        atomic.Bool // see Tables.InSchema

	mu      sync.Mutex
	waiting map[*func()]struct{} // see AwaitChange
}

// InSchema reports whether the schema as last read has the table. It is true until a schema has
// been read.
func (t *Table) InSchema() bool { return !t.missing.Load() }

// Critical returns the table's present state, or nil while it is an ordinary table. The result must
// not be modified.
func (t *Table) Critical() *Critical { return t.critical.Load() }

// AwaitChange has f called, once, when the table's state is no longer was. f must not block. If the
// state differs from was already, ok is false and f is never called. After leave no later change
// calls f.
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

// tellChange calls the functions that wait for a change of the table.
func (t *Table) tellChange() {
	t.mu.Lock()
	waiting := t.waiting
	t.waiting = nil
	t.mu.Unlock()
	for f := range waiting {
		(*f)()
	}
}

// String returns the table's name for people to read.
func (t *Table) String() string { return t.Keyspace + "." + t.Name }

// Strictest returns the critical table with the strictest policy for plain writes (Reject before
// Auto before Allow), and that policy. Elements of tables may be nil; which is nil if no table is
// critical.
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

// Tables holds all tables by name. It is safe for concurrent use, and looking a table up takes no
// lock. For a nil *Tables, Version and Names return 0, and InSchema true.
type Tables struct {
	byName atomic.Pointer[map[string]*Table]
	all    atomic.Pointer[map[string]struct{}] // keys of the tables in the schema; nil until Read is called
	mu     sync.Mutex                          // held to add a name
	names  atomic.Uint64                       // changes of byName and all, counted when they are published
	sets   atomic.Uint64                       // calls of Set
}

// NewTables returns Tables without any table.
func NewTables() *Tables {
	t := new(Tables)
	t.byName.Store(&map[string]*Table{})
	return t
}

// Key returns the key under which a table is stored: keyspace and name with a zero byte between them,
// which neither can contain.
func Key(keyspace, table string) []byte {
	key := append(make([]byte, 0, len(keyspace)+1+len(table)), keyspace...)
	return append(append(key, 0), table...)
}

// Find returns the table of a key (a keyspace, a zero byte and a name), or nil if Of was never
// called for it. It does not keep key and does not allocate.
func (t *Tables) Find(key []byte) *Table { return (*t.byName.Load())[string(key)] }

// Of returns the Table of a name, and creates it if there is none yet.
func (t *Tables) Of(keyspace, name string) *Table {
	key := string(Key(keyspace, name))
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
	t.names.Add(1)
	return next[key]
}

// Read publishes the names, keyspace first, of all tables in the schema. A write on any other table
// waits until the schema has been read again, since that table may have been created as a critical
// one meanwhile. The caller must have called Set for all critical tables in names.
func (t *Tables) Read(names [][2]string) {
	all := make(map[string]struct{}, len(names))
	for _, name := range names {
		all[string(Key(name[0], name[1]))] = struct{}{}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all.Store(&all)
	t.names.Add(1)
	for key, table := range *t.byName.Load() {
		table.missing.Store(!t.InSchema([]byte(key)))
	}
}

// InSchema reports whether the schema as last read has a table of this key. It is true for every
// key until a schema has been read. It does not keep key and does not allocate.
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

// Names returns a number that changes when Find or InSchema may return something else.
func (t *Tables) Names() uint64 {
	if t == nil {
		return 0
	}
	return t.names.Load()
}

// Set publishes a table's state; nil makes it an ordinary table. After it returns every statement
// sees the new state, except those that are already on their way to Cassandra: Server.Outstanding
// tells when they have been answered.
func (t *Tables) Set(keyspace, name string, c *Critical) {
	table := t.Of(keyspace, name)
	table.critical.Store(c)
	t.sets.Add(1)
	table.tellChange()
}

// Version returns how often Set has been called.
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
