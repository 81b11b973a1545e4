package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend"
	"music/frontend/catalog"
	"music/rewrite"
)

// hindrance implements frontend.Schema.Hindrance. It also returns "" if the table does not exist,
// for which Cassandra has an error, and if the schema cannot be read in time: then a warning follows with
// the answer.
func (s *schema) hindrance(change frontend.CriticalChange) string {
	ctx, cancel := context.WithTimeout(context.Background(), homeLimit)
	defer cancel()
	release, ok := s.readings.look(ctx)
	if !ok {
		return ""
	}
	defer release()
	r := s.at(s.home())
	t := &dataTable{keyspace: change.Keyspace, name: change.Name, Critical: catalog.Critical{Settings: change.Settings}}
	if err := r.readProposed(ctx, t, change); err != nil {
		s.log.Debug().Err(err).Stringer("table", t).Msg("whether the table can be locked could not be found out")
		return ""
	}
	return t.Refused
}

// readProposed reads what could keep a table from being locked after a change.
func (r *schemaReader) readProposed(ctx context.Context, t *dataTable, change frontend.CriticalChange) error {
	if err := r.learnRelease(ctx); err != nil {
		return err
	}
	var flags []string
	var present int64
	err := r.ask("SELECT flags, gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", t.keyspace, t.name).
		ScanContext(ctx, &flags, &present)
	switch {
	case errors.Is(err, gocql.ErrNotFound): // the change creates it
		t.coverCreated(change.Key)
		return r.readHindrances(ctx, nil, t) // it has no view yet
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
	if err := r.readMode(ctx, t); err != nil {
		return err
	}
	views, err := r.readViews(ctx)
	if err != nil {
		return err
	}
	return r.readHindrances(ctx, views, t)
}

// coverCreated calls cover for the key of a table that is about to be created.
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

// checkProperties sets Refused for a table whose properties keep it from being locked.
func (t *dataTable) checkProperties(flags []string, grace int64) {
	switch {
	case slices.Contains(flags, "counter"):
		t.Refused = "it is a counter table, and counters take no timestamps: use a bigint and raise it under a lock"
	case grace < catalog.MinGrace:
		t.Refused = fmt.Sprintf("its gc_grace_seconds is %d: a late write could come back over a deletion that is forgotten so soon: ALTER TABLE %s WITH gc_grace_seconds = %d, or more", grace, t, catalog.MinGrace)
	}
}

// readMode sets Refused for a table whose writes Cassandra 6 executes as transactions: they get
// timestamps of their own, so that acknowledged writes under a lock are hidden (seen on 6.0-alpha2).
// It sets Checked for one whose columns have constraints. Only DESCRIBE tells the mode.
func (r *schemaReader) readMode(ctx context.Context, t *dataTable) error {
	if !releaseHasTransactions(r.releaseOfNode()) {
		return nil
	}
	described := map[string]any{}
	if err := r.ask("DESCRIBE TABLE "+rewrite.Quote(t.keyspace)+"."+rewrite.Quote(t.name)).MapScanContext(ctx, described); err != nil {
		return fmt.Errorf("read the transactional mode of %s: %w", t, err)
	}
	text, _ := described["create_statement"].(string)
	ddl := catalog.ReadDDL([]byte(text))
	t.Checked = ddl.Checked
	if text == "" || ddl.Transactional {
		t.Refused = fmt.Sprintf("it has a transactional_mode: Cassandra gives such writes timestamps of its own, which no lock knows: ALTER TABLE %s WITH transactional_mode = 'off', and let the migration end", t)
	}
	return nil
}

// readHindrances sets Refused where a table's keyspace, or one of the views, keeps it from being locked.
func (r *schemaReader) readHindrances(ctx context.Context, views []view, tables ...*dataTable) error {
	durable := map[string]bool{}
	iter := r.ask("SELECT keyspace_name, durable_writes FROM system_schema.keyspaces").IterContext(ctx)
	var keyspace string
	for yes := false; iter.Scan(&keyspace, &yes); {
		durable[keyspace] = yes
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read keyspaces: %w", err)
	}
	for _, t := range tables {
		yes, there := durable[t.keyspace]
		switch {
		case !there:
			return fmt.Errorf("%s: its keyspace is gone: %w", t, errChanged)
		case !yes:
			t.Refused = "its keyspace has durable_writes = false: ALTER KEYSPACE " + rewrite.Quote(t.keyspace) + " WITH durable_writes = true"
		}
		if i := slices.IndexFunc(views, func(v view) bool { return v.keyspace == t.keyspace && v.base == t.name }); i >= 0 {
			t.Refused = fmt.Sprintf("materialised view %s is on it: DROP MATERIALIZED VIEW %s.%s", views[i].name, rewrite.Quote(t.keyspace), rewrite.Quote(views[i].name))
		}
	}
	return nil
}

// view is a materialised view.
type view struct{ keyspace, base, name string }

// readViews reads all materialised views.
func (r *schemaReader) readViews(ctx context.Context) (all []view, err error) {
	iter := r.ask("SELECT keyspace_name, base_table_name, view_name FROM system_schema.views").IterContext(ctx)
	var v view
	for iter.Scan(&v.keyspace, &v.base, &v.name) {
		all = append(all, v)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read views: %w", err)
	}
	return all, nil
}
