package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"

	"music/config"
	"music/frontend/catalog"
	"music/musiccore"
	"music/proxy/synchronise"
	"music/rewrite"
)

// schemaReader reads the schema of a node, and the rows of music.tables.
type schemaReader struct {
	session  *gocql.Session
	home     func() string  // host id of the home node; "" while it is not known
	release  string         // Cassandra's release
	locality *locality      // the data centre of this proxy
	rules    *criticalRules // the patterns of tables that are critical whatever their comments say
	node     string         // host id of the node to read; schema.mu guards it
}

// at returns a reader of one node, for use beside refresh.
func (r *schemaReader) at(node string) schemaReader {
	return schemaReader{session: r.session, home: r.home, release: r.release, locality: r.locality, rules: r.rules, node: node}
}

// version returns the schema's version at the home node or, if that does not answer, at another
// one; node is its host id.
func (r *schemaReader) version(ctx context.Context) (v gocql.UUID, node string, err error) {
	if node = r.home(); node != "" {
		limited, cancel := context.WithTimeout(ctx, homeLimit)
		defer cancel()
		if v, node, err = r.versionAt(limited, node); err == nil {
			return v, node, nil
		}
	}
	return r.versionAt(ctx, "")
}

// versionAt asks one node, or any.
func (r *schemaReader) versionAt(ctx context.Context, node string) (v gocql.UUID, at string, err error) {
	iter := r.session.Query("SELECT schema_version FROM system.local").Consistency(gocql.One).SetHostID(node).IterContext(ctx)
	if host := iter.Host(); host != nil {
		at = host.HostID()
	}
	iter.Scan(&v)
	return v, at, iter.Close()
}

// ask returns a query to the reader's node: each node has its own copy of the schema, and one may
// be ahead of another.
func (r *schemaReader) ask(cql string, values ...any) *gocql.Query {
	return r.session.Query(cql, values...).Consistency(gocql.One).SetHostID(r.node)
}

// schemaContents is the schema as it was read from a node.
type schemaContents struct {
	critical []*dataTable
	plain    []*dataTable // the tables that are not critical, of which no more is read
	names    [][2]string  // keyspace and name of all tables
	applied  appliedSchema
	secrets  gocql.UUID // id of music.secrets; zero where it is not there
}

// read reads the schema. Critical are the tables whose comment or whose pattern says so, and those
// that have a companion: a migration tool that loses the comment must not open a table to plain
// writes.
func (r *schemaReader) read(ctx context.Context) (c schemaContents, err error) {
	rules := r.rules.now()
	all, companions, digest, err := r.readTables(ctx, rules)
	if err != nil {
		return c, err
	}
	c.applied = appliedSchema{digest: digest, rules: rules.CriticalRules()}
	if c.names, err = r.readVirtual(ctx); err != nil {
		return c, err
	}
	for _, t := range all {
		c.names = append(c.names, [2]string{t.keyspace, t.name})
		if t.keyspace == musicKeyspace && t.name == "secrets" {
			c.secrets = t.ID
		}
		own, made := companions[t.keyspace+"\x00"+t.companion()]
		t.Generation, t.Made = own.id, made
		if !t.Marked && !t.Made {
			c.plain = append(c.plain, t)
			continue
		}
		r.readStored(ctx, t)
		r.localise(ctx, t)
		r.findReplicas(ctx, t, own.grace)
		if err := r.readColumns(ctx, t); err != nil {
			return c, err
		}
		if err := r.readMode(ctx, t); err != nil {
			return c, err
		}
		if err := r.readHindrances(ctx, t); err != nil {
			return c, err
		}
		c.critical = append(c.critical, t)
	}
	return c, nil
}

// readVirtual reads the names of virtual tables, some of which can be written.
func (r *schemaReader) readVirtual(ctx context.Context) (names [][2]string, err error) {
	iter := r.ask("SELECT keyspace_name, table_name FROM system_virtual_schema.tables").IterContext(ctx)
	var name [2]string
	for iter.Scan(&name[0], &name[1]) {
		names = append(names, name)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read virtual tables: %w", err)
	}
	return names, nil
}

// companion is a table that may hold lock rows.
type companion struct {
	id    uuid.UUID
	grace int // its gc_grace_seconds
}

// readTables reads all tables, and the names of those that may be companions. digest identifies
// what was read. Cassandra's own version of the schema would not do, since it changes only after
// the tables have. digest also covers write times, so that it does not return to an old value when
// a comment does: a proxy may have opened the table in between, while its old beat is still there.
func (r *schemaReader) readTables(ctx context.Context, rules config.Music) (all []*dataTable, names map[string]companion, digest gocql.UUID, err error) {
	names = map[string]companion{}
	var rows []string
	iter := r.ask("SELECT keyspace_name, table_name, id, comment, flags, gc_grace_seconds, default_time_to_live, WRITETIME(comment) FROM system_schema.tables").IterContext(ctx)
	var keyspace, name, comment string
	var id gocql.UUID
	var flags []string
	var grace, ttl int
	var written int64
	for iter.Scan(&keyspace, &name, &id, &comment, &flags, &grace, &ttl, &written) {
		if !ofTheNode(keyspace) {
			rows = append(rows, fmt.Sprintf("%q %q %s %q %d", keyspace, name, id, comment, written))
		}
		if strings.HasPrefix(name, catalog.CompanionPrefix) {
			names[keyspace+"\x00"+name] = companion{uuid.UUID(id), grace}
			continue
		}
		t := &dataTable{keyspace: keyspace, name: name, Critical: catalog.Critical{ID: id, Mortal: ttl > 0}}
		t.readComment(comment)
		t.named = !t.Marked && rules.CriticalByName(keyspace, name)
		t.Marked = t.Marked || t.named
		t.checkProperties(flags, int64(grace))
		all = append(all, t)
	}
	if err := iter.Close(); err != nil {
		return nil, nil, digest, fmt.Errorf("read tables: %w", err)
	}
	slices.Sort(rows)
	return all, names, gocql.UUID(uuid.NewSHA1(uuid.Nil, []byte(strings.Join(rows, "\n")))), nil
}

// ofTheNode reports whether each node has its own copy of a keyspace, which depends on the node's
// release.
func ofTheNode(keyspace string) bool {
	return keyspace == "system" || keyspace == "system_schema" || keyspace == "system_cluster_metadata"
}

// readComment reads the settings from the table's comment. Settings that do not exist make the
// table critical and refused. Text that only looks like settings is reported in the log.
func (t *dataTable) readComment(comment string) {
	settings, marked, err := catalog.ReadSettings(comment)
	t.Settings, t.Marked = settings, marked
	switch {
	case errors.Is(err, catalog.ErrSpelling):
		t.ignored = fmt.Sprintf("its comment has no valid settings, so the defaults are used: %v: %q", err, comment)
	case err != nil:
		t.Refused = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
}

// readColumns reads a table's columns, and sets Refused if a column keeps the table from being
// locked.
func (r *schemaReader) readColumns(ctx context.Context, t *dataTable) error {
	iter := r.ask("SELECT column_name, type, kind, position FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?",
		t.keyspace, t.name).IterContext(ctx)
	var name, cqlType, kind string
	var position int
	partition, clustering := map[int]catalog.Column{}, map[int]catalog.Column{}
	t.Columns = map[string]catalog.Column{}
	var columns strings.Builder
	for iter.Scan(&name, &cqlType, &kind, &position) {
		fmt.Fprintf(&columns, "%q %s %s;", name, cqlType, kind)
		column := catalog.Column{Name: name, Type: cqlType, Static: kind == "static", Clustering: kind == "clustering"}
		t.Columns[name] = column
		switch kind {
		case "partition_key":
			partition[position] = column
		case "clustering":
			clustering[position] = column
		case "static":
			t.Static = append(t.Static, name)
		}
		switch {
		case synchronise.Foreign(cqlType):
			t.Refused = fmt.Sprintf("its column %s is of type %s, a class that the proxy does not know and cannot read", name, cqlType)
		case !releaseTellsElements(r.release) && manyCells(cqlType, kind):
			t.Refused = fmt.Sprintf("its column %s is not frozen: Cassandra %s does not show the times to live in it", name, r.release)
		}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read columns of %s: %w", t, err)
	}
	t.cover(partition, clustering)
	dropped, err := r.readDropped(ctx, t)
	t.definition = columns.String() + dropped
	return err
}

// readDropped returns a text of the dropped columns with their times. A column that was dropped and
// added again looks as before, but hides values that were stamped before the drop.
func (r *schemaReader) readDropped(ctx context.Context, t *dataTable) (string, error) {
	iter := r.ask("SELECT column_name, dropped_time FROM system_schema.dropped_columns WHERE keyspace_name = ? AND table_name = ?",
		t.keyspace, t.name).IterContext(ctx)
	var name, dropped string
	var at time.Time
	for iter.Scan(&name, &at) {
		t.checkDropped(name, at)
		dropped += fmt.Sprintf("%q dropped %d;", name, at.UnixMilli())
	}
	if err := iter.Close(); err != nil {
		return "", fmt.Errorf("read dropped columns of %s: %w", t, err)
	}
	return dropped, nil
}

// checkDropped looks at a column that was dropped, at a time that Cassandra shows in milliseconds. If
// it is back, what is stamped before that time Cassandra takes, and shows nobody: locks write above.
// Clocks may differ; a time of the future refuses the table.
func (t *dataTable) checkDropped(column string, at time.Time) {
	_, back := t.Columns[column]
	switch {
	case !back:
	case time.Until(at) <= musiccore.ClockGap:
		t.hidden = max(t.hidden, musiccore.Stamp(at.UnixMicro()+int64(time.Millisecond/time.Microsecond)-1))
	default:
		t.Refused = fmt.Sprintf("its column %s was dropped USING TIMESTAMP of the future, and what is written to it until %s is hidden: DROP it without a timestamp, and ADD it again",
			column, at.UTC().Format(time.DateTime))
	}
}

// cover sets the columns of the primary key and those that one lock covers, by position. Two
// spellings of one key would be two locks, so each key column must have a type for which
// rewrite.Canonical knows when two values are equal: Cassandra sorts sets and maps and fills up
// tuples before it looks for a partition, and compares clustering columns by value. Decimals of
// clustering columns are refused, since 1.00 would be written as 1.
func (t *dataTable) cover(partition, clustering map[int]catalog.Column) {
	for i := range len(partition) {
		c := partition[i]
		t.Key = append(t.Key, c)
		t.Primary = append(t.Primary, c.Name)
		if _, known := rewrite.Canonical(c.Type, nil); !known {
			t.Refused = fmt.Sprintf("its key column %s is of type %s, whose values may be spelt in several ways", c.Name, c.Type)
		}
	}
	for i := range len(clustering) {
		t.Primary = append(t.Primary, clustering[i].Name)
	}
	for i := 0; t.Settings.Row && i < len(clustering); i++ {
		c := clustering[i]
		t.Key = append(t.Key, c)
		if _, known := rewrite.Canonical(c.Type, nil); !known || c.Type == "decimal" {
			t.Refused = fmt.Sprintf("key=row, and its clustering column %s is of type %s, whose values may be spelt in several ways", c.Name, c.Type)
		}
	}
	t.prepareTexts()
}

// manyCells reports whether a column has a cell for each of its elements or fields.
func manyCells(cqlType, kind string) bool {
	if kind != "regular" && kind != "static" {
		return false
	}
	return synchronise.MultiCell(cqlType)
}

// readHindrances sets Refused if the table's keyspace, or a view, keeps it from being locked.
func (r *schemaReader) readHindrances(ctx context.Context, t *dataTable) error {
	var durable bool
	err := r.ask("SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = ?", t.keyspace).ScanContext(ctx, &durable)
	if errors.Is(err, gocql.ErrNotFound) {
		return fmt.Errorf("%s: its keyspace is gone: %w", t, errChanged)
	}
	if err != nil {
		return fmt.Errorf("read keyspace of %s: %w", t, err)
	}
	if !durable {
		t.Refused = "its keyspace has durable_writes = false: ALTER KEYSPACE " + rewrite.Quote(t.keyspace) + " WITH durable_writes = true"
	}
	iter := r.ask("SELECT view_name, base_table_name FROM system_schema.views WHERE keyspace_name = ?", t.keyspace).IterContext(ctx)
	var view, base string
	for iter.Scan(&view, &base) {
		if base == t.name {
			t.Refused = fmt.Sprintf("materialised view %s is on it: DROP MATERIALIZED VIEW %s.%s", view, rewrite.Quote(t.keyspace), rewrite.Quote(view))
		}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read views of %s: %w", t, err)
	}
	return nil
}
