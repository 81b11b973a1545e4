package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"

	"music/config"
	"music/frontend/catalog"
)

// schemaReader reads the schema of a node, and the rows of music.tables.
type schemaReader struct {
	session  *gocql.Session
	clock    *clock
	home     func() string               // host id of the home node; "" while it is not known
	release  string                      // Cassandra's release when the proxy started
	present  string                      // that of node, as it was asked last; "" = not yet. Nodes are upgraded one by one, while proxies run
	locality *locality                   // the data centre of this proxy
	rules    *criticalRules              // the patterns of tables that are critical whatever their comments say
	node     string                      // host id of the node to read; schema.mu guards it, and replicas
	replicas map[string]keyspaceReplicas // by keyspace, as they were read last
}

// at returns a reader of one node, for use beside refresh.
func (r *schemaReader) at(node string) schemaReader {
	return schemaReader{session: r.session, clock: r.clock, home: r.home, release: r.release, locality: r.locality, rules: r.rules, node: node}
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

// learnRelease asks the node for its release, on which depends what else it can be asked, and what must be.
func (r *schemaReader) learnRelease(ctx context.Context) error {
	if err := r.ask("SELECT release_version FROM system.local").ScanContext(ctx, &r.present); err != nil {
		return fmt.Errorf("read the release of a node: %w", err)
	}
	return nil
}

// releaseOfNode returns the release of the node, as it was asked last, or that of the start.
func (r *schemaReader) releaseOfNode() string { return cmp.Or(r.present, r.release) }

// ask returns a query to the reader's node: each node has its own copy of the schema, and one may
// be ahead of another.
func (r *schemaReader) ask(cql string, values ...any) *gocql.Query {
	return r.session.Query(cql, values...).Consistency(gocql.One).SetHostID(r.node)
}

// schemaContents is the schema as it was read from a node.
type schemaContents struct {
	critical []*dataTable
	plain    []*dataTable // the tables that are not critical, of which no more is read
	names    [][2]string  // keyspace and name of all tables and views
	applied  appliedSchema
	secrets  gocql.UUID // id of music.secrets; zero where it is not there
}

// read reads the schema. Critical are the tables whose comment or whose pattern says so, and those
// that have a companion: a migration tool that loses the comment must not open a table to plain
// writes.
func (r *schemaReader) read(ctx context.Context) (c schemaContents, err error) {
	if err := r.learnRelease(ctx); err != nil {
		return c, err
	}
	rules := r.rules.now()
	all, companions, digest, err := r.readTables(ctx, rules)
	if err != nil {
		return c, err
	}
	c.applied = appliedSchema{digest: digest, rules: rules.CriticalRules()}
	if c.names, err = r.readVirtual(ctx); err != nil {
		return c, err
	}
	views, err := r.readViews(ctx)
	if err != nil {
		return c, err
	}
	for _, v := range views { // Cassandra says that they cannot be written
		c.names = append(c.names, [2]string{v.keyspace, v.name})
	}
	for _, t := range all {
		c.names = append(c.names, [2]string{t.keyspace, t.name})
		if t.keyspace == musicKeyspace && t.name == "secrets" {
			c.secrets = t.ID
		}
		own, made := companions[t.companionName()]
		t.Generation, t.Made = own.id, made
		if !t.Marked && !t.Made {
			c.plain = append(c.plain, t)
			continue
		}
		c.critical = append(c.critical, t)
	}
	return c, r.readDetails(ctx, c.critical, companions, views)
}

// readDetails reads everything else about critical tables. Every schema change waits for that, so no
// statement is sent for each table, but for DESCRIBE.
func (r *schemaReader) readDetails(ctx context.Context, critical []*dataTable, companions map[[2]string]companion, views []view) error {
	if len(critical) == 0 {
		return nil
	}
	r.readStored(ctx, critical...)
	r.localiseAll(ctx, critical)
	r.findReplicas(ctx, critical, companions)
	if err := r.readColumns(ctx, critical...); err != nil {
		return err
	}
	for _, t := range critical {
		if err := r.readMode(ctx, t); err != nil {
			return err
		}
	}
	return r.readHindrances(ctx, views, critical...)
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
// Where each node has write times of its own, the number of the last change stands for them: what is
// read is of that change or of the next one, whose tables are written before its number is.
func (r *schemaReader) readTables(ctx context.Context, rules config.Music) (all []*dataTable, names map[[2]string]companion, digest gocql.UUID, err error) {
	if !releaseNumbersChanges(r.releaseOfNode()) {
		return r.scanTables(ctx, rules, nil)
	}
	before, _, err := r.versionAt(ctx, r.node)
	if err != nil {
		return nil, nil, digest, fmt.Errorf("read the schema's version: %w", err)
	}
	all, names, digest, err = r.scanTables(ctx, rules, &before)
	if err != nil {
		return nil, nil, digest, err
	}
	after, _, err := r.versionAt(ctx, r.node)
	switch {
	case err != nil:
		return nil, nil, digest, fmt.Errorf("read the schema's version: %w", err)
	case after != before:
		return nil, nil, digest, errChanged
	}
	return all, names, digest, nil
}

// scanTables is readTables; change, if it is not nil, is in the digest instead of write times.
func (r *schemaReader) scanTables(ctx context.Context, rules config.Music, change *gocql.UUID) (all []*dataTable, names map[[2]string]companion, digest gocql.UUID, err error) {
	names = map[[2]string]companion{}
	var rows []string
	if change != nil {
		rows = append(rows, change.String())
	}
	iter := r.ask("SELECT keyspace_name, table_name, id, comment, flags, gc_grace_seconds, default_time_to_live, WRITETIME(comment) FROM system_schema.tables").IterContext(ctx)
	var keyspace, name, comment string
	var id gocql.UUID
	var flags []string
	var grace, ttl int
	var written int64
	for iter.Scan(&keyspace, &name, &id, &comment, &flags, &grace, &ttl, &written) {
		if !ofTheNode(keyspace) {
			stamp := written
			if change != nil {
				stamp = 0
			}
			rows = append(rows, fmt.Sprintf("%q %q %s %q %d", keyspace, name, id, comment, stamp))
		}
		if strings.HasPrefix(name, catalog.CompanionPrefix) {
			names[[2]string{keyspace, name}] = companion{uuid.UUID(id), grace}
			continue
		}
		t := &dataTable{keyspace: keyspace, name: name, written: written, Critical: catalog.Critical{ID: id, Mortal: ttl > 0}}
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
