package synchronise

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// knownFor bounds how long a description is cached: the settings of nodes in it may change while
// the schema's version stays.
const knownFor = time.Minute

// Descriptions caches the descriptions of tables while the schema's version stays the same. That
// saves the attempts on other keys five queries each. A nil *Descriptions caches nothing. It is
// safe for concurrent use.
type Descriptions struct {
	mu      sync.Mutex
	byTable map[tableName]cachedDescription
	differ  map[string]difference // by the id of the node that sees it
}

// difference is that peers of a node have other versions of the schema.
type difference struct {
	versions string // that of the node, and those of the peers
	since    time.Time
}

// tableName is the name of a data table.
type tableName struct{ keyspace, table string }

// cachedDescription is the description of a table at a version of the schema. It is never changed.
type cachedDescription struct {
	version gocql.UUID
	read    time.Time
	table   tableDescription
	largest int // the most bytes of a batch
}

// differing returns since when a node has been seen with these versions of its own and of its peers.
func (all *Descriptions) differing(node, versions string, now time.Time) time.Time {
	if all == nil {
		return now
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if d := all.differ[node]; d.versions == versions {
		return d.since
	}
	if all.differ == nil {
		all.differ = map[string]difference{}
	}
	all.differ[node] = difference{versions, now}
	return now
}

// find returns the cached description of a table at a version.
func (all *Descriptions) find(t tableName, version gocql.UUID, now time.Time) (cachedDescription, bool) {
	if all == nil {
		return cachedDescription{}, false
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	d, found := all.byTable[t]
	return d, found && d.version == version && now.Sub(d.read) < knownFor
}

// remember replaces the cached description of a table. It drops those that are too old, as that of a table that is
// gone will be: applications may make tables of other names for ever.
func (all *Descriptions) remember(t tableName, d cachedDescription) {
	if all == nil {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.byTable == nil {
		all.byTable = map[tableName]cachedDescription{}
	}
	maps.DeleteFunc(all.byTable, func(_ tableName, other cachedDescription) bool { return d.read.Sub(other.read) >= knownFor })
	all.byTable[t] = d
}

// tableDescription returns the table's description at the view's version. It is cached only if the
// node still has that version after it has answered everything, since else a part may be of the
// next version.
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
