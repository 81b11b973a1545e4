package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend"
	"music/frontend/catalog"
)

// hindrance returns why a table cannot be locked that a client is about to make critical, and what
// to type; "" where nothing keeps it from that. It is "", too, where the table is not there, which
// Cassandra says itself, and where the schema cannot be read: then the answer warns of the table.
func (s *schema) hindrance(change frontend.CriticalChange) string {
	ctx, cancel := context.WithTimeout(context.Background(), homeLimit)
	defer cancel()
	r := s.at(s.home())
	t := &dataTable{keyspace: change.Keyspace, name: change.Name, Critical: catalog.Critical{Settings: change.Settings}}
	if err := r.readProposed(ctx, t, change); err != nil {
		s.log.Debug().Err(err).Stringer("table", t).Msg("it could not be looked up whether it can be locked")
		return ""
	}
	return t.Refused
}

// readProposed reads what may keep a table from being locked once a change is made.
func (r *schemaReader) readProposed(ctx context.Context, t *dataTable, change frontend.CriticalChange) error {
	var flags []string
	var present int64
	err := r.ask("SELECT flags, gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", t.keyspace, t.name).
		ScanContext(ctx, &flags, &present)
	switch {
	case errors.Is(err, gocql.ErrNotFound): // it is about to be made
		t.coverCreated(change.Key)
		return r.readHindrances(ctx, t)
	case err != nil:
		return fmt.Errorf("read table %s: %w", t, err)
	}
	grace := change.Grace
	if grace < 0 {
		grace = present
	}
	t.checkProperties(flags, grace)
	if err := r.readColumns(ctx, t); err != nil {
		return err
	}
	return r.readHindrances(ctx, t)
}

// coverCreated covers the key of a table that is about to be made.
func (t *dataTable) coverCreated(key []catalog.Column) {
	partition, clustering := map[int]catalog.Column{}, map[int]catalog.Column{}
	for _, c := range key {
		columns := partition
		if c.Clustering {
			columns = clustering
		}
		columns[len(columns)] = c
	}
	t.cover(partition, clustering)
}

// checkProperties refuses a table whose own properties keep it from being locked.
func (t *dataTable) checkProperties(flags []string, grace int64) {
	switch {
	case slices.Contains(flags, "counter"):
		t.Refused = "it is a counter table: counters take no timestamps"
	case grace < catalog.MinGrace:
		t.Refused = fmt.Sprintf("its gc_grace_seconds is %d: a late write could come back over a deletion that is forgotten so soon: ALTER TABLE %s WITH gc_grace_seconds = %d, or more", grace, t, catalog.MinGrace)
	}
}
