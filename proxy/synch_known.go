package proxy

import (
	"context"
	"fmt"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// knownFor bounds how long a description is remembered: the settings of nodes in it have no version.
const knownFor = time.Minute

// descriptions remembers what an attempt has to know of a table beside the schema's version, as long as that stays: five questions that
// the attempts on other keys need not ask again. nil remembers nothing. Every method may be called concurrently.
type descriptions struct {
	mu sync.Mutex
	of map[tableName]description
}

// tableName is that of a data table.
type tableName struct{ keyspace, table string }

// description is a table as it was at a version of the schema. Nobody changes it.
type description struct {
	version gocql.UUID
	read    time.Time
	table   describedTable
	largest int // bytes of a batch
}

// find is what is known of a table at a version.
func (all *descriptions) find(t tableName, version gocql.UUID, now time.Time) (description, bool) {
	if all == nil {
		return description{}, false
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	d, found := all.of[t]
	return d, found && d.version == version && now.Sub(d.read) < knownFor
}

// remember keeps a description in the place of the one before.
func (all *descriptions) remember(t tableName, d description) {
	if all == nil {
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.of == nil {
		all.of = map[tableName]description{}
	}
	all.of[t] = d
}

// description is the table's at the view's version. It is remembered only if the node still has that version when it has answered
// everything: what was read meanwhile may be of the next one.
func (v schemaView) description(ctx context.Context, in scope, k keyOfTable) (description, error) {
	name, began := tableName{k.Keyspace, k.Table}, time.Now()
	if d, ok := in.known.find(name, v.version, began); ok {
		return d, nil
	}
	d := description{version: v.version, read: began}
	var err error
	if d.table, err = v.describe(ctx, in.session, k); err != nil {
		return d, err
	}
	if d.largest, err = v.largestBatch(ctx, in.session); err != nil {
		return d, err
	}
	var after gocql.UUID
	if err := localQuery(in.session, v.host, "SELECT schema_version FROM system.local WHERE key = 'local'").ScanContext(ctx, &after); err != nil {
		return d, fmt.Errorf("ask for the schema again: %w", err)
	}
	if after == v.version {
		in.known.remember(name, d)
	}
	return d, nil
}
