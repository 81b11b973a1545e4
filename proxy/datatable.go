package proxy

import (
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"

	"music/frontend/catalog"
	"music/musiccore"
	"music/rewrite"
)

// dataTable is a critical table with its companion, the table of its lock rows (docs/design.md 4).
// The state that is published for clients' connections is embedded. It is never changed once
// published.
type dataTable struct {
	keyspace, name string
	catalog.Critical
	definition    string          // all columns with their types, to detect changes
	hidden        musiccore.Stamp // the highest stamp that is hidden by a column that was dropped and is back; 0 if there is none
	written       int64           // when its comment was written, by Cassandra
	born          bool            // its comment has marked it since its CREATE
	named         bool            // it is critical only by a pattern of the configuration
	stored        storedTable     // its row in music.tables
	ignored       string          // settings of the comment that are ignored while there are lock rows
	centreSession *gocql.Session  // for scope=local: a session with the nodes of Settings.Centre only
	replicaPlaces

	texts   [ifBase + 1]string         // the texts of the LWTs and the read
	counted atomic.Pointer[generation] // the generation of its references; nil until it is known
	columns atomic.Pointer[columnsRead]
}

// The indices of dataTable.texts: the statements on a lock row, by their condition.
const (
	readRow = iota
	ifAbsent
	ifGuard
	ifGuardBase
	ifBase
)

// replicaPlaces says where the replicas of a table's lock rows are, see schemaReader.findReplicas.
type replicaPlaces struct {
	severalCentres bool          // there are several data centres, and all have replicas
	oneCentre      bool          // at most one data centre has replicas: no proxy commits near
	settledAt      time.Duration // BOOTTIME from when no proxy relies on what was before
}

// String returns the table's name for people to read.
func (t *dataTable) String() string { return t.keyspace + "." + t.name }

// companion returns the name of the companion.
func (t *dataTable) companion() string { return catalog.CompanionPrefix + hex.EncodeToString(t.ID[:]) }

// companionName returns the keyspace and the name of the companion.
func (t *dataTable) companionName() [2]string { return [2]string{t.keyspace, t.companion()} }

// companionDDL returns the CREATE TABLE of the companion. last is the id of the last companion of a
// table of this name, from which the new id is derived. Every proxy derives the same id, so two
// proxies that create it at once, at nodes that have not heard of each other's change, create the
// same table. Its key columns are called k1, k2, …, since the data table's own names could be those
// of the registers. Read repair, grace and speculative reads are as docs/protocol.md 1 demands.
func (t *dataTable) companionDDL(last uuid.UUID) string {
	var columns, names []string
	for i, c := range t.Key {
		names = append(names, keyColumn(i))
		columns = append(columns, keyColumn(i)+" "+c.Type)
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s.%s (%s, guard bigint, queue frozen<list<frozen<tuple<bigint, int, uuid, bigint, boolean>>>>,"+
		" base bigint, head bigint, dirty boolean, owner uuid, PRIMARY KEY ((%s))) WITH id = %s AND comment = 'lock rows of %s: written by the proxies only'"+
		" AND gc_grace_seconds = 864000 AND read_repair = 'BLOCKING' AND default_time_to_live = 0 AND speculative_retry = 'ALWAYS'",
		rewrite.Quote(t.keyspace), t.companion(), strings.Join(columns, ", "), strings.Join(names, ", "),
		tableID("companion", t.keyspace, uuid.UUID(t.ID).String(), last.String()), strings.ReplaceAll(t.String(), "'", "''"))
}

// keyColumn returns the name of the companion's column for the data table's key column i.
func keyColumn(i int) string { return fmt.Sprintf("k%d", i+1) }

// prepareTexts sets texts. The order of their markers is that of bindSwap: registers that are set,
// the key, registers that are compared; in an INSERT the key comes first.
func (t *dataTable) prepareTexts() {
	var names, where, marks []string
	for i := range t.Key {
		names = append(names, keyColumn(i))
		where = append(where, keyColumn(i)+" = ?")
		marks = append(marks, "?")
	}
	table := rewrite.Quote(t.keyspace) + "." + t.companion()
	at := " WHERE " + strings.Join(where, " AND ")
	const q, both = "guard = ?, queue = ?", "guard = ?, queue = ?, base = ?, head = ?, dirty = ?, owner = ?"
	t.texts = [...]string{
		readRow:     "SELECT guard, queue, base, head, dirty, owner FROM " + table + at,
		ifAbsent:    "INSERT INTO " + table + " (" + strings.Join(names, ", ") + ", guard, queue, base, head, dirty, owner) VALUES (" + strings.Join(marks, ", ") + ", ?, ?, ?, ?, ?, ?) IF NOT EXISTS",
		ifGuard:     "UPDATE " + table + " SET " + q + at + " IF guard = ?",
		ifGuardBase: "UPDATE " + table + " SET " + both + at + " IF guard = ? AND base = ?",
		ifBase:      "UPDATE " + table + " SET base = ?, head = ?, dirty = ?, owner = ?" + at + " IF base = ?",
	}
}

// criticalTables holds the critical tables by id. It is safe for concurrent use.
type criticalTables struct {
	byID    atomic.Pointer[map[[16]byte]*dataTable]
	keyed   underWay     // what names a key's data by the columns of its table
	checked atomic.Int64 // BOOTTIME in ns when the schema was asked for last that showed these tables to be the present ones
}

// newCriticalTables returns an empty criticalTables.
func newCriticalTables() *criticalTables {
	c := &criticalTables{}
	c.set(nil)
	return c
}

// table returns the critical table with an id, or nil.
func (c *criticalTables) table(id [16]byte) *dataTable { return c.all()[id] }

// all returns the critical tables by id. The map must not be modified.
func (c *criticalTables) all() map[[16]byte]*dataTable { return *c.byID.Load() }

// set replaces all tables.
func (c *criticalTables) set(all map[[16]byte]*dataTable) { c.byID.Store(&all) }
