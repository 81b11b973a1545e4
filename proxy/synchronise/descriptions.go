package synchronise

import (
	"context"
	"fmt"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// knownFor bounds how long a description is remembered: the settings of nodes in it have no
// version.
const knownFor = time.Minute

// Descriptions remembers what an attempt has to know of a table beside the schema's version, as
// long as that stays: five questions that the attempts on other keys need not ask again. nil
// remembers nothing. Every method may be called concurrently.
type Descriptions struct {
	mu      sync.Mutex
	byTable map[tableName]cachedDescription
}

// tableName is that of a data table.
type tableName struct{ keyspace, table string }

// cachedDescription is a table as it was at a version of the schema. Nobody changes it.
type cachedDescription struct {
	version gocql.UUID
	read    time.Time
	table   tableDescription
	largest int // bytes of a batch
}

// find is what is known of a table at a version.
func (all *Descriptions) find(t tableName, version gocql.UUID, now time.Time) (cachedDescription, bool) {
	if all == nil {
		return cachedDescription{}, false
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	d, found := all.byTable[t]
	return d, found && d.version == version && now.Sub(d.read) < knownFor
}

// remember keeps a description in the place of the one before.
func (all *Descriptions) remember(t tableName, d cachedDescription) {
	if all == nil {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byTable == nil {
		all.byTable = map[tableName]cachedDescription{}
	}
	all.byTable[t] = d
}

// tableDescription is the table's at the view's version. It is remembered only if the node still
// has that version when it has answered everything: what was read meanwhile may be of the next one.
func (v schemaView) tableDescription(ctx context.Context, in Cluster, k Target) (cachedDescription, error) {
	name, began := tableName{k.Keyspace, k.Table}, time.Now()
	if d, ok := in.Known.find(name, v.version, began); ok {
		return d, nil
	}
	d := cachedDescription{version: v.version, read: began}
	var err error
	if d.table, err = v.describe(ctx, in.Session, k); err != nil {
		return d, err
	}
	if d.largest, err = v.largestBatch(ctx, in.Session); err != nil {
		return d, err
	}
	var after gocql.UUID
	if err := localQuery(in.Session, v.host, "SELECT schema_version FROM system.local WHERE key = 'local'").ScanContext(ctx, &after); err != nil {
		return d, fmt.Errorf("ask for the schema again: %w", err)
	}
	if after == v.version {
		in.Known.remember(name, d)
	}
	return d, nil
}
