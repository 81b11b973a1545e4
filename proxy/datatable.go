package proxy

import (
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"

	"music/frontend/catalog"
	"music/rewrite"
)

// dataTable is a critical table with its companion, the table of its lock rows (docs/design.md 4).
// What clients' connections know of it is embedded; of that, Refused says why the table itself
// cannot be locked. It is never changed once published.
type dataTable struct {
	keyspace, name string
	catalog.Critical
	definition    string         // all columns with their types, to see changes by
	named         bool           // it is critical by a pattern of the configuration alone
	stored        storedTable    // its row in music.tables
	ignored       string         // what of the comment cannot hold while there are lock rows
	centre        string         // of scope=local: the data centre where its locks are decided
	centreSession *gocql.Session // of scope=local: meets the nodes of centre alone
	near          bool           // its lock rows have replicas in all of several data centres

	texts   [ifBase + 1]string         // of the LWTs and the read, by shape
	counted atomic.Pointer[generation] // of its references; nil until it is known
	columns atomic.Pointer[columnsRead]
}

// The statements on a lock row, by what they compare.
const (
	readRow = iota
	ifAbsent
	ifGuard
	ifGuardBase
	ifBase
)

// String returns the table's name as people write it.
func (t *dataTable) String() string { return t.keyspace + "." + t.name }

// companion returns the name of the table that holds the lock rows.
func (t *dataTable) companion() string { return catalog.CompanionPrefix + hex.EncodeToString(t.ID[:]) }

// companionDDL creates the companion behind the last one that a table of this name had, under an id
// that every proxy derives alike: two that make it at once, each before a node that has not heard of
// the other, make the same one. Its key columns
// are called k1, k2, …: the data table's own names might be those of the registers. Read repair,
// grace and speculative reads are what docs/protocol.md 1 asks for.
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

// keyColumn returns the name of the companion's key column that stands for the i-th of the data
// table, from 0.
func keyColumn(i int) string { return fmt.Sprintf("k%d", i+1) }

// prepareTexts writes the statements on a lock row. Their markers stand in the order of bindings in
// the executor: registers that are set, the key, registers that are compared; the key comes first
// in an INSERT.
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
