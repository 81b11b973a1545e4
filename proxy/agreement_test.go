package proxy

import (
	"errors"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// A table is critical until the home node and all that are up say otherwise, or music.tables does,
// by a quorum; or another one has its name. So is its lock table there, and so are its columns. A node that is behind, or
// the only one that answers, says nothing of that.
func TestNothingOpensOnTheWordOfANodeThatIsBehind(t *testing.T) {
	version, host := gocql.UUID{7}, gocql.UUID{7}.String() // as the played node says
	known := func() *dataTable {
		return &dataTable{keyspace: "k", name: "t", written: 10, Critical: catalog.Critical{ID: [16]byte{1}, Generation: [16]byte{2}, Made: true, Marked: true}}
	}
	settings := func(text string) message.Message {
		id := known().ID
		return rowOf("id", id[:], "closed", bigint(5), "settings", []byte(text))
	}
	unmade, remade, other := known(), known(), known()
	unmade.Made, unmade.Generation = false, [16]byte{}
	remade.Generation = [16]byte{3}
	other.ID = [16]byte{4}
	earlier, later := known(), known()
	earlier.written, later.written = 9, 11
	again := storedTable{closed: 5, text: plainSettings}
	for name, c := range map[string]struct {
		home    string
		version gocql.UUID
		stored  message.Message
		found   *dataTable
		read    storedTable // what was stored when the table was read last
		keeps   bool
	}{
		"gone, all agree":                       {host, version, settings("unlocked=reject, key=partition"), nil, storedTable{}, false},
		"gone, the home node is silent":         {"another", version, settings("unlocked=reject, key=partition"), nil, storedTable{}, true},
		"gone, the home node is not known":      {"", version, settings("unlocked=reject, key=partition"), nil, storedTable{}, true},
		"gone, another proxy has retired it":    {"another", version, settings(plainSettings), nil, storedTable{}, false},
		"gone, no quorum":                       {"another", version, &message.Unavailable{ErrorMessage: "few"}, nil, storedTable{}, true},
		"gone, another table has its name":      {"another", version, settings("unlocked=reject, key=partition"), other, storedTable{}, false},
		"no lock table, all agree":              {host, version, settings(""), unmade, storedTable{}, false},
		"no lock table, the home node is away":  {"another", version, settings(""), unmade, storedTable{}, true},
		"another lock table, all agree":         {host, version, settings(""), remade, storedTable{}, false},
		"another lock table, home node is away": {"another", version, settings(""), remade, storedTable{}, true},
		"as it was, the home node is away":      {"another", version, settings(""), earlier, storedTable{}, true},
		"as it was, all agree":                  {host, version, settings(""), earlier, storedTable{}, false},
		"changed, the home node is away":        {"another", version, settings(""), later, storedTable{}, false},
		"gone, stored as plain since before":    {"another", version, settings(plainSettings), nil, again, true},
		"gone, as before, all agree":            {host, version, settings(plainSettings), nil, again, false},
		"gone, stored as plain anew":            {"another", version, settings(plainSettings), nil, storedTable{closed: 4, text: plainSettings}, false},
		"gone, what was stored was not read":    {"another", version, settings(plainSettings), nil, storedTable{err: errors.New("no quorum")}, true},
	} {
		n := startCQLNode(t, nil)
		n.saysAlways(c.stored)
		s := &schema{schemaReader: schemaReader{session: n.session, home: func() string { return c.home }, node: host}}
		old := known()
		old.stored = c.read
		var found []*dataTable
		if c.found != nil {
			found = []*dataTable{c.found}
		}
		kept, late := s.keep(t.Context(), map[[16]byte]*dataTable{old.ID: old}, found, c.version)
		if !c.keeps {
			assert.Empty(t, late, name)
			assert.NotContains(t, kept, old, name)
			continue
		}
		assert.Equal(t, []*dataTable{old}, kept, name)
		assert.Equal(t, []string{disagreeing}, late, name)
	}
}

// Nor does a table that was made before it and has its name still, at a node that has missed DROP and CREATE:
// the locks would end, and music.tables would say that the table is plain. One that was made after it takes its
// place at once, since writes go there; so does one whose id does not tell.
func TestNoOlderTableTakesTheNameOfOneWithLocks(t *testing.T) {
	version, host := gocql.UUID{7}, gocql.UUID{7}.String() // as the played node says
	made := func(at int64) *dataTable {
		return &dataTable{keyspace: "k", name: "t", Critical: catalog.Critical{ID: gocql.UUIDFromTime(time.UnixMicro(at)), Made: true, Marked: true}}
	}
	old, chosen := made(tableMade), made(tableMade)
	chosen.ID = tableID("chosen by hand")
	for name, c := range map[string]struct {
		home  string
		found *dataTable
		keeps bool
	}{
		"older":                      {"another", made(tableMade - 1000), true},
		"older, and all agree":       {host, made(tableMade - 1000), false},
		"later":                      {"another", made(tableMade + 1000), false},
		"nobody knows when it began": {"another", chosen, false},
	} {
		n := startCQLNode(t, nil)
		n.saysAlways(noRow("id", "closed", "settings"))
		s := &schema{schemaReader: schemaReader{session: n.session, home: func() string { return c.home }, node: host}}
		kept, late := s.keep(t.Context(), map[[16]byte]*dataTable{old.ID: old}, []*dataTable{c.found}, version)
		if !c.keeps {
			assert.Equal(t, []*dataTable{c.found}, kept, name)
			assert.Empty(t, late, name)
			continue
		}
		assert.Equal(t, []*dataTable{old}, kept, name)
		assert.Equal(t, []string{disagreeing}, late, name)
	}
}

// A proxy that starts takes a table for critical until then, too, if music.tables says that it is.
func TestATableThatWasCriticalBeforeTheStart(t *testing.T) {
	n := startCQLNode(t, nil)
	plain, critical, unreadable, unknown := gocql.UUID{1}, gocql.UUID{2}, gocql.UUID{3}, gocql.UUID{4}
	rows := rowOf("id", plain[:], "closed", bigint(4), "settings", []byte(plainSettings))
	for id, text := range map[gocql.UUID]string{critical: "unlocked=auto, key=row, scope=local, dc=dc1", unreadable: "key=column"} {
		rows.Data = append(rows.Data, message.Row{id[:], bigint(5), []byte(text)})
	}
	n.says(func(a asked) message.Message {
		if a.text == "SELECT id, closed, settings FROM music.tables" {
			assert.Equal(t, primitive.ConsistencyLevelQuorum, a.level)
			return rows
		}
		return noRow("column_name")
	})
	r := schemaReader{session: n.session, release: "5.0.8"}
	var read []*dataTable
	for _, id := range []gocql.UUID{plain, critical, unreadable, unknown} {
		read = append(read, &dataTable{keyspace: "k", name: id.String(), Critical: catalog.Critical{ID: id}})
	}
	before, err := r.criticalBefore(t.Context(), read)
	require.NoError(t, err)
	require.Len(t, before, 2)
	assert.Equal(t, catalog.Settings{Unlocked: catalog.Auto, Row: true, Local: true, Centre: "dc1"}, before[critical].Settings)
	assert.Equal(t, catalog.Settings{}, before[unreadable].Settings, "which refuse plain writes")
	assert.EqualValues(t, 5, before[critical].stored.closed, "by which it is retired")

	n.saysAlways(&message.Unavailable{ErrorMessage: "few"})
	_, err = r.criticalBefore(t.Context(), read)
	assert.Error(t, err)
}

// So it does when it reads the schema for the first time, from a node that may be behind.
func TestAStartAtANodeThatIsBehind(t *testing.T) {
	id := gocql.UUID{1}
	settings := []byte("unlocked=reject, key=partition") // which another proxy has stored
	n := startCQLNode(t, func(a asked) message.Message {
		for begins, answer := range map[string]message.Message{
			"SELECT keyspace_name, table_name, id": rowOf("keyspace_name", []byte("k"), "table_name", []byte("t"), "id", id[:], "comment", []byte{}, "flags", nil,
				"gc_grace_seconds", []byte{0, 15, 0, 0}, "default_time_to_live", make([]byte, 4), "writetime(comment)", bigint(1)),
			"SELECT keyspace_name, table_name FROM system_virtual": noRow("keyspace_name", "table_name"),
			"SELECT keyspace_name, base_table_name, view_name":     noRow("keyspace_name", "base_table_name", "view_name"),
			"SELECT id, closed, settings FROM music.tables":        rowOf("id", id[:], "closed", bigint(5), "settings", settings),
			"SELECT keyspace_name, table_name, column_name":        noRow("table_name", "column_name"),
		} {
			if strings.HasPrefix(a.text, begins) {
				return answer
			}
		}
		return &message.Invalid{ErrorMessage: "not played"}
	})
	beats := newHeartbeat(n.session, new(clock), musiccore.Defaults(), sessionConfig{references: new(references)}, zerolog.Nop())
	s := newSchema(schemaReader{session: n.session, home: func() string { return "another" }, release: "5.0.8", rules: new(criticalRules)},
		catalog.NewTables(), newCriticalTables(), beats, func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {})
	for range 2 { // the second reading keeps what the first one has found
		n.take()
		late, err := s.refresh(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{disagreeing}, late)
		assert.False(t, s.isComplete(gocql.UUID{7}), "it is read again")
		require.NotNil(t, s.tables.Of("k", "t").Critical())
		assert.Equal(t, catalog.Reject, s.tables.Of("k", "t").Critical().Unlocked)
		for _, a := range n.take() {
			assert.Equal(t, "SELECT", a.verb(), "nothing is settled of a table that is doubtful: %s", a.text)
		}
		assert.Zero(t, *beats.schema.Load(), "it has not followed")
	}
}

// A proxy that keeps the locks of a table, since it doubts that its lock rows are gone, has not followed: others, which are sure,
// make a new lock table, and would give the same locks.
func TestAProxyThatKeepsLocksHasNotFollowed(t *testing.T) {
	s := startedUnready(t, playedSchema{tables: 1}, nobodyRefuses, noSessions()) // which shows no lock table, also after it was made
	home := s.home
	s.home = func() string { return "another" }
	s.heartbeat.schema.Store(&appliedSchema{})
	kept := s.critical.table(playedSchema{}.id(0))
	require.True(t, kept.Made)
	late, err := s.refresh(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{disagreeing}, late)
	assert.Same(t, kept, s.critical.table(playedSchema{}.id(0)))
	assert.Zero(t, *s.heartbeat.schema.Load(), "its terms go on")
	s.confirm(9, gocql.UUID{7})
	assert.Zero(t, s.critical.checked.Load(), "where its replicas are was read before")
	s.home = home
	late, err = s.refresh(t.Context())
	require.NoError(t, err)
	assert.Empty(t, late)
	assert.NotSame(t, kept, s.critical.table(playedSchema{}.id(0)))
	assert.Equal(t, s.applied, *s.heartbeat.schema.Load())
}

// A table becomes open to plain writes when music.tables says so, and not by a comment: which may
// be an older one.
func TestAllowWaitsForMusicTables(t *testing.T) {
	for name, c := range map[string]struct {
		made   bool
		stored storedTable
		want   catalog.Policy
	}{
		"as stored":        {true, storedTable{text: "unlocked=allow, key=partition"}, catalog.Allow},
		"reject is stored": {true, storedTable{text: "unlocked=reject, key=partition"}, catalog.Reject},
		"auto is stored":   {true, storedTable{text: "unlocked=auto, key=partition"}, catalog.Auto},
		"not readable":     {true, storedTable{err: errors.New("no quorum")}, catalog.Reject},
		"nor that":         {false, storedTable{err: errors.New("no quorum")}, catalog.Reject},
		"no lock rows yet": {false, storedTable{}, catalog.Allow},
		"nor before":       {false, storedTable{text: plainSettings}, catalog.Allow},
		"none seen here":   {false, storedTable{text: "unlocked=reject, key=partition"}, catalog.Reject},
	} {
		table := &dataTable{stored: c.stored, Critical: catalog.Critical{Made: c.made}}
		table.readComment("@critical(unlocked=allow)")
		if c.stored.err == nil {
			assert.NoError(t, table.keepStored(), name)
		}
		assert.Equal(t, c.want, table.shown().Unlocked, name)
	}
}

// That goes for a table as well that cannot be locked, for whatever reason: its lock rows are there, and
// other proxies may give its locks. Nor may it take plain writes that no closed lies above later.
func TestATableThatCannotBeLockedOpensLikeAnyOther(t *testing.T) {
	host := gocql.UUID{7}.String() // as the played node says
	for name, c := range map[string]struct {
		home   string
		stored string
		made   bool
		late   []string
		want   catalog.Policy
		lwts   int
	}{
		"all agree":                         {host, "unlocked=reject, key=partition", true, nil, catalog.Allow, 1},
		"a node that is behind":             {"another", "unlocked=reject, key=partition", true, []string{disagreeing}, catalog.Reject, 0},
		"one that has missed the lock rows": {"another", "unlocked=reject, key=partition", false, []string{disagreeing}, catalog.Reject, 0},
		"as stored":                         {"another", "unlocked=allow, key=partition", true, nil, catalog.Allow, 0},
		"never locked":                      {"another", "", false, nil, catalog.Allow, 0},
	} {
		n, s := closingBefore(t, applied(true))
		s.home, s.node, s.tables = func() string { return c.home }, host, catalog.NewTables()
		table := &dataTable{keyspace: "k", name: "t", stored: storedTable{text: c.stored, closed: 5}, Critical: catalog.Critical{ID: [16]byte{1}, Made: c.made}}
		table.readComment("@critical(unlocked=allow)")
		require.NoError(t, table.keepStored(), name)
		table.Refused = "it has a view"
		s.show(table, "it is becoming critical")
		late, err := s.makeReady(t.Context(), nil, table, gocql.UUID{7}, musiccore.SessionID{})
		require.NoError(t, err, name)
		assert.Equal(t, c.late, late, name)
		shown := s.tables.Of("k", "t").Critical()
		assert.Equal(t, c.want, shown.Unlocked, name)
		assert.Equal(t, table.Refused, shown.Refused, name)
		assert.False(t, shown.Passing, name)
		assert.Len(t, n.tablesAsked(), c.lwts, "%s: closed is raised and stored with the settings", name)
	}
}

// A node that has missed the lock rows is not believed about the settings either, which would be stored.
func TestSettingsOfANodeThatIsBehindAreNotStored(t *testing.T) {
	n, s := closingBefore(t, applied(true))
	s.home, s.node = func() string { return "another" }, gocql.UUID{7}.String()
	table := &dataTable{keyspace: "k", name: "t", stored: storedTable{text: "unlocked=reject, key=partition", closed: 5}, Critical: catalog.Critical{ID: [16]byte{1}}}
	table.readComment("@critical(unlocked=allow)")
	late, err := s.barrier(t.Context(), table, gocql.UUID{7})
	require.NoError(t, err)
	assert.Equal(t, []string{disagreeing}, late)
	assert.Empty(t, n.tablesAsked())
}
