package proxy

import (
	"context"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/rs/zerolog"

	"music/frontend"
)

const (
	schemaPoll    = time.Second      // between two looks at the schema's version
	schemaReread  = 30 * time.Second // the schema is read again even if its version stands still
	schemaTimeout = 10 * time.Second // for following one change
)

// schema keeps the clients' view of the tables in step with the cluster's schema, and makes the companion of each critical table.
type schema struct {
	session *gocql.Session
	tables  *frontend.Tables
	log     zerolog.Logger
	marker  *regexp.Regexp // @critical as a word

	mu   sync.Mutex // one refresh at a time
	byID atomic.Pointer[map[[16]byte]*dataTable]
}

// newSchema knows no table until the first refresh.
func newSchema(s *gocql.Session, tables *frontend.Tables, log zerolog.Logger) *schema {
	sc := &schema{session: s, tables: tables, log: log, marker: regexp.MustCompile(`(?:^|[^\w@])@critical(?:\W|$)`)}
	sc.byID.Store(&map[[16]byte]*dataTable{})
	return sc
}

// table finds a critical table by its id, or nil.
func (s *schema) table(id [16]byte) *dataTable { return (*s.byID.Load())[id] }

// watch refreshes whenever the schema's version moves, and every schemaReread, until ctx ends.
func (s *schema) watch(ctx context.Context) {
	var seen gocql.UUID
	var read time.Time
	for pause(ctx, schemaPoll) {
		var version gocql.UUID
		err := s.session.Query("SELECT schema_version FROM system.local").Consistency(gocql.One).ScanContext(ctx, &version)
		if err != nil || version == seen && time.Since(read) < schemaReread {
			continue
		}
		if err := s.refresh(ctx); err != nil {
			s.log.Warn().Err(err).Msg("the schema could not be read")
			continue
		}
		seen, read = version, time.Now()
	}
}

// follow is told of a client's schema change before the client is.
func (s *schema) follow(change frontend.SchemaChange) {
	ctx, cancel := context.WithTimeout(context.Background(), schemaTimeout)
	defer cancel()
	if err := s.refresh(ctx); err != nil {
		s.log.Warn().Err(err).Str("keyspace", change.Keyspace).Str("table", change.Name).Msg("a schema change could not be followed")
	}
}

// refresh reads the schema and publishes which tables are critical. A table is refused to plain writes before its companion is
// made, and given locks after.
func (s *schema) refresh(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.read(ctx)
	if err != nil {
		return err
	}
	byID := map[[16]byte]*dataTable{}
	for _, t := range found {
		byID[t.id] = t
	}
	s.forget(byID)
	s.byID.Store(&byID)
	for _, t := range found {
		s.publish(ctx, t)
	}
	return nil
}

// forget publishes that tables are critical no more.
func (s *schema) forget(byID map[[16]byte]*dataTable) {
	s.tables.Critical(func(t *frontend.Table, c *frontend.Critical) {
		if byID[c.ID] == nil {
			s.tables.Set(t.Keyspace, t.Name, nil)
			s.log.Info().Stringer("table", t).Msg("table is not critical any more")
		}
	})
}

// publish makes clients meet a critical table as one.
func (s *schema) publish(ctx context.Context, t *dataTable) {
	before := s.tables.Of(t.keyspace, t.name).Critical()
	if before != nil && before.ID == t.id && before.Refused == t.refused {
		return
	}
	c := frontend.Critical{ID: t.id, Key: t.key, Refused: t.refused}
	if t.refused == "" && !t.made {
		c.Refused = "its lock table is being made; try again"
		making := c
		s.tables.Set(t.keyspace, t.name, &making)
		if err := s.session.Query(t.companionDDL()).ExecContext(ctx); err != nil {
			s.log.Error().Err(err).Str("table", t.String()).Msg("the lock table could not be made")
			return
		}
		c.Refused = ""
	}
	s.tables.Set(t.keyspace, t.name, &c)
	s.log.Info().Str("table", t.String()).Str("refused", c.Refused).Msg("table is critical")
}

// read finds the critical tables: those whose comment says so, and those that have a companion.
func (s *schema) read(ctx context.Context) ([]*dataTable, error) {
	var all []*dataTable
	names := map[string]bool{}
	iter := s.session.Query("SELECT keyspace_name, table_name, id, comment, flags FROM system_schema.tables").Consistency(gocql.One).IterContext(ctx)
	var keyspace, name, comment string
	var id gocql.UUID
	var flags []string
	for iter.Scan(&keyspace, &name, &id, &comment, &flags) {
		t := &dataTable{keyspace: keyspace, name: name, id: id, marked: s.marker.MatchString(comment)}
		if slices.Contains(flags, "counter") {
			t.refused = "it is a counter table"
		}
		all = append(all, t)
		names[keyspace+"\x00"+name] = true
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read tables: %w", err)
	}
	var found []*dataTable
	for _, t := range all {
		t.made = names[t.keyspace+"\x00"+t.companion()]
		if !t.marked && !t.made {
			continue
		}
		if err := s.readKey(ctx, t); err != nil {
			return nil, err
		}
		found = append(found, t)
	}
	return found, nil
}

// readKey reads the columns of a table's partition key, in order.
func (s *schema) readKey(ctx context.Context, t *dataTable) error {
	iter := s.session.Query("SELECT column_name, type, kind, position FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?",
		t.keyspace, t.name).Consistency(gocql.One).IterContext(ctx)
	var name, cqlType, kind string
	var position int
	columns := map[int]frontend.Column{}
	for iter.Scan(&name, &cqlType, &kind, &position) {
		if kind == "partition_key" {
			columns[position] = frontend.Column{Name: name, Type: cqlType}
		}
	}
	if err := iter.Close(); err != nil {
		return fmt.Errorf("read columns of %s: %w", t, err)
	}
	t.key = make([]frontend.Column, len(columns))
	for i := range t.key {
		t.key[i] = columns[i]
	}
	t.prepareTexts()
	return nil
}

// companionName is the name of the table that holds the lock rows of a data table.
func companionName(id [16]byte) string { return "music_lock_" + hex.EncodeToString(id[:]) }
