package proxy

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// playedSchema is a schema of keyspaces k00, k01, …, each with critical tables t0, t1 and t2. In k01,
// which has no commit log, a column of t0 is back that was dropped, t1 has a view, and t2 has a row in
// music.tables. In k02 a column of t0 is masked.
type playedSchema struct {
	tables  int
	written int64 // when the comments were written
	broken  string
}

// id is the id of table i.
func (playedSchema) id(i int) gocql.UUID { return gocql.UUID{9, byte(i)} }

// keyspace is the keyspace of table i.
func (playedSchema) keyspace(i int) string { return fmt.Sprintf("k%02d", i/3) }

// name is the name of table i.
func (playedSchema) name(i int) string { return fmt.Sprintf("t%d", i%3) }

// answer plays the node.
func (p playedSchema) answer(a asked) message.Message {
	if table, ok := strings.CutPrefix(a.text, "DESCRIBE TABLE "); ok {
		checked := map[bool]string{true: " CHECK v > 10"}[strings.Contains(table, "t1")]
		return rowOf("keyspace_name", []byte("k"), "create_statement", []byte("CREATE TABLE "+table+" (k int PRIMARY KEY, v int"+checked+")"))
	}
	_, from, _ := strings.Cut(a.text, " FROM ")
	from, _, _ = strings.Cut(from, " ")
	if p.broken == from {
		return &message.Unavailable{ErrorMessage: "few"}
	}
	switch from {
	case "system_schema.tables":
		return p.rows(a, "keyspace_name", "table_name", "id", "comment", "flags", "gc_grace_seconds", "default_time_to_live", "writetime(comment)")
	case "system_schema.columns":
		return p.rows(a, "keyspace_name", "table_name", "column_name", "type", "kind", "position", "writetime(type)")
	case "system_schema.dropped_columns":
		return p.only(3, a, "keyspace_name", "table_name", "column_name", "dropped_time")
	case "system_schema.column_masks":
		return p.only(6, a, "keyspace_name", "table_name", "column_name")
	case "system_schema.views":
		return p.only(4, a, "keyspace_name", "base_table_name", "view_name")
	case "music.tables":
		return p.only(5, a, "id", "closed", "settings")
	case "system_schema.keyspaces":
		if strings.Contains(a.text, "replication") {
			return noRow("keyspace_name", "replication", "writetime(replication)")
		}
		return p.rows(a, "keyspace_name", "durable_writes")
	case "system_virtual_schema.tables":
		return noRow("keyspace_name", "table_name")
	}
	return &message.Invalid{ErrorMessage: "not played: " + a.text}
}

// rows answers with these columns of every table that is asked for.
func (p playedSchema) rows(a asked, columns ...any) message.Message {
	r := noRow(columns...)
	for i := range p.tables {
		r.Data = append(r.Data, p.only(i, a, columns...).Data...)
	}
	return r
}

// only answers with these columns of one table, if that is asked for.
func (p playedSchema) only(i int, a asked, columns ...any) *message.RowsResult {
	r := noRow(columns...)
	id, names, isAsked := p.id(i), a.where["table_name"], i < p.tables
	if names != nil {
		isAsked = isAsked && bytes.Contains(a.where["keyspace_name"], []byte(p.keyspace(i))) && bytes.Contains(names, []byte(p.name(i)))
	}
	if !isAsked {
		return r
	}
	values := map[string][]byte{
		"keyspace_name": []byte(p.keyspace(i)), "table_name": []byte(p.name(i)), "base_table_name": []byte(p.name(i)), "view_name": []byte("v"),
		"id": id[:], "comment": []byte("@critical"), "gc_grace_seconds": bigint(864_000)[4:], "default_time_to_live": bigint(0)[4:], "writetime(comment)": bigint(p.written), "writetime(type)": bigint(p.written),
		"column_name": []byte("key_of_" + p.keyspace(i) + p.name(i)), "type": []byte("int"), "kind": []byte("partition_key"), "position": bigint(0)[4:],
		"dropped_time": bigint(1000), "closed": bigint(77), "settings": []byte("unlocked=reject, key=partition"),
		"durable_writes": {map[bool]byte{true: 0, false: 1}[i/3 == 1]},
	}
	row := message.Row{}
	for _, c := range columns {
		row = append(row, values[c.(string)])
	}
	r.Data = append(r.Data, row)
	return r
}

// reads reads the schema once, and returns what was asked for that.
func (p playedSchema) reads(t *testing.T) (schemaContents, []asked) {
	t.Helper()
	n := startCQLNode(t, p.answer)
	r := schemaReader{session: n.session, release: "5.0.8", rules: new(criticalRules)}
	c, err := r.read(t.Context())
	require.NoError(t, err)
	return c, n.take()
}

// Every schema change waits until the schema has been read: many critical tables cost no more
// statements than a few, and each is told what is its own.
func TestManyTablesAreReadInFewStatements(t *testing.T) {
	_, one := playedSchema{tables: 1}.reads(t)
	c, few := playedSchema{tables: perStatement}.reads(t)
	assert.Len(t, few, len(one))
	_, many := playedSchema{tables: 4 * perStatement}.reads(t)
	assert.Len(t, many, len(few)+1+1+1+3, "columns, those that were dropped, masks, and rows of music.tables")
	require.Len(t, c.critical, perStatement)
	assert.Contains(t, c.names, [2]string{"k01", "v"}, "a write on a view gets Cassandra's answer")
	for i, table := range c.critical {
		name := playedSchema{}.keyspace(i) + playedSchema{}.name(i)
		assert.Equal(t, name, table.keyspace+table.name)
		assert.Equal(t, []string{"key_of_" + name}, table.Primary)
		assert.Equal(t, i == 3, strings.Contains(table.definition, "dropped"), name)
		assert.Equal(t, i == 3, table.hidden != 0, name)
		assert.Equal(t, i == 4, strings.Contains(table.Refused, "materialised view v"), name)
		assert.Equal(t, i == 3 || i == 5, strings.Contains(table.Refused, "durable_writes"), name)
		assert.Equal(t, i == 6, strings.Contains(table.Refused, "is masked"), name)
		assert.Equal(t, map[bool]musiccore.Stamp{true: 77}[i == 5], table.stored.closed, name)
		assert.NoError(t, table.stored.err)
	}
}

// Proxies at several nodes find out whether they have read the same: up to Cassandra 5 by the write times,
// and from 6 on, where each node has its own, by the number of the last change. A reading that a
// change comes into is none.
func TestWhatWasReadIsTheSameAtEveryNode(t *testing.T) {
	read := func(release string, written int64, version func() gocql.UUID) (gocql.UUID, error) {
		n := startCQLNode(t, playedSchema{tables: 1, written: written}.answer)
		n.setRelease(release, version)
		c, err := (&schemaReader{session: n.session, release: release, rules: new(criticalRules)}).read(t.Context())
		return c.applied.digest, err
	}
	digest := func(release string, written int64, change byte) gocql.UUID {
		d, err := read(release, written, func() gocql.UUID { return gocql.UUID{15: change} })
		require.NoError(t, err)
		return d
	}
	const v5, v6 = "5.0.8", "6.0.0"
	assert.Equal(t, digest(v5, 1, 7), digest(v5, 1, 8))
	assert.NotEqual(t, digest(v5, 1, 7), digest(v5, 2, 7))
	assert.Equal(t, digest(v6, 1, 7), digest(v6, 2, 7))
	assert.NotEqual(t, digest(v6, 1, 7), digest(v6, 1, 8))

	last := byte(0)
	_, err := read(v6, 1, func() gocql.UUID { last++; return gocql.UUID{15: last} })
	require.ErrorIs(t, err, errChanged)
	require.True(t, readAgain(err))
}

// From Cassandra 6 on a table tells by DESCRIBE whether values are checked.
func TestTablesWhoseValuesAreChecked(t *testing.T) {
	n := startCQLNode(t, playedSchema{tables: 3}.answer)
	n.setRelease("6.0.0", nil)
	c, err := (&schemaReader{session: n.session, release: "6.0.0", rules: new(criticalRules)}).read(t.Context())
	require.NoError(t, err)
	for _, table := range c.critical {
		assert.Equal(t, table.name == "t1", table.Checked, table.name)
		assert.Empty(t, table.Refused)
	}
}

// A node is asked what its own release can tell, and must, whatever the release was when the proxy started: nodes are upgraded
// one by one, and proxies stay.
func TestNodesThatAreUpgraded(t *testing.T) {
	for release, tells := range map[string]struct{ masks, modes bool }{"4.1.9": {}, "5.0.8": {masks: true}, "6.0.0": {true, true}} {
		n := startCQLNode(t, func(a asked) message.Message {
			if strings.HasPrefix(a.text, "DESCRIBE TABLE ") {
				return rowOf("keyspace_name", []byte("k"), "create_statement", []byte("CREATE TABLE k.t (k int PRIMARY KEY) WITH transactional_mode = 'full'"))
			}
			return playedSchema{tables: 7}.answer(a)
		})
		n.setRelease(release, nil)
		for _, started := range []string{"4.1.9", "5.0.8", "6.0.0"} {
			n.take()
			c, err := (&schemaReader{session: n.session, release: started, rules: new(criticalRules)}).read(t.Context())
			require.NoError(t, err, release)
			masks, modes := 0, 0
			for _, a := range n.take() {
				masks += strings.Count(a.text, "column_masks")
				modes += strings.Count(a.text, "DESCRIBE")
			}
			assert.Equal(t, tells.masks, masks > 0, "%s, %s at the start", release, started)
			assert.Equal(t, tells.modes, modes > 0, "%s, %s at the start", release, started)
			assert.Equal(t, tells.modes, strings.Contains(c.critical[0].Refused, "transactional_mode"), "%s, %s at the start", release, started)
		}
	}
}

// No table is left out, and no list is longer than Cassandra may be set to take.
func TestFamilies(t *testing.T) {
	for name, of := range map[string]func(i int) (keyspace, table string){
		"one keyspace":   func(i int) (string, string) { return "k", fmt.Sprint("t", i) },
		"many keyspaces": func(i int) (string, string) { return fmt.Sprint("k", i), "t" },
	} {
		var tables []*dataTable
		for i := range 2*perStatement + 1 {
			keyspace, table := of(i)
			tables = append(tables, &dataTable{keyspace: keyspace, name: table})
		}
		all := families(tables)
		assert.Len(t, all, 3, name)
		var found []*dataTable
		for _, f := range all {
			assert.LessOrEqual(t, max(len(f.keyspaces), len(f.names)), perStatement, name)
			for at, table := range f.tables {
				assert.Contains(t, f.keyspaces, at[0], name)
				assert.Contains(t, f.names, at[1], name)
				found = append(found, table)
			}
		}
		assert.ElementsMatch(t, tables, found, name)
	}
}

// What cannot be read is not taken for what is not there.
func TestASchemaThatCannotBeReadIsNotRead(t *testing.T) {
	for _, from := range []string{"tables", "columns", "dropped_columns", "column_masks", "views", "keyspaces"} {
		n := startCQLNode(t, playedSchema{tables: 7, broken: "system_schema." + from}.answer)
		_, err := (&schemaReader{session: n.session, release: "5.0.8", rules: new(criticalRules)}).read(t.Context())
		assert.Error(t, err, from)
	}
}

// A row of music.tables that cannot be read keeps no other table from being locked.
func TestOneStoredRowThatCannotBeRead(t *testing.T) {
	p := playedSchema{tables: 9}
	lost := p.id(2)
	n := startCQLNode(t, func(a asked) message.Message {
		if bytes.Contains(a.where["id"], lost[:]) {
			return &message.Unavailable{ErrorMessage: "few"}
		}
		return p.answer(a)
	})
	var tables []*dataTable
	for i := range p.tables {
		tables = append(tables, &dataTable{name: p.name(i), Critical: catalog.Critical{ID: p.id(i), Marked: true}})
	}
	(&schemaReader{session: n.session}).readStored(t.Context(), tables...)
	for i, table := range tables {
		assert.Equal(t, i == 2, table.stored.err != nil, "%s: %v", table.name, table.stored.err)
		assert.Equal(t, map[bool]musiccore.Stamp{true: 77}[i == 5], table.stored.closed, table.name)
	}
}

// What one reading has settled the watch does not read again: not what failed, what waits for
// somebody, or another version.
func TestWhatIsSettledIsNotReadAgain(t *testing.T) {
	version := gocql.UUID{7} // as the played node says
	n := startCQLNode(t, playedSchema{}.answer)
	beats := newHeartbeat(n.session, new(clock), musiccore.Defaults(), sessionConfig{references: new(references)}, zerolog.Nop())
	s := newSchema(schemaReader{session: n.session, home: func() string { return version.String() }, release: "5.0.8", rules: new(criticalRules)},
		catalog.NewTables(), newCriticalTables(), beats, func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {})
	s.known.Store(&version)
	assert.False(t, s.isComplete(version), "nothing was read")
	refresh := func() error {
		_, err := s.refresh(t.Context())
		return err
	}
	require.NoError(t, refresh())
	assert.False(t, s.confirm(7, gocql.UUID{8}), "another version")
	assert.Zero(t, s.critical.checked.Load())
	assert.True(t, s.confirm(7, version))
	assert.EqualValues(t, 7, s.critical.checked.Load())
	s.readings.complete.at = time.Now().Add(-schemaReread)
	assert.False(t, s.isComplete(version), "long ago")

	s.owed = func() bool { return false }
	require.NoError(t, refresh())
	assert.True(t, s.isComplete(version))
	n.says(playedSchema{broken: "system_schema.tables"}.answer)
	require.Error(t, refresh())
	assert.False(t, s.isComplete(version), "it was not read")
	n.says(playedSchema{tables: 1}.answer)
	assert.False(t, s.confirm(8, version))
	assert.EqualValues(t, 7, s.critical.checked.Load(), "nor may its replicas be relied on")
	require.Error(t, refresh())
	assert.False(t, s.confirm(9, version), "a table could not be settled")
	assert.EqualValues(t, 9, s.critical.checked.Load(), "the replicas of the others are where they were read")
}
