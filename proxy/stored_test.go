package proxy

import (
	"context"
	"net"
	"slices"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend/catalog"
	"music/integration/cassandra/cassandratest"
)

// What the lock rows rest on stays, whatever a comment says that came past the proxies.
func TestStoredSettings(t *testing.T) {
	row := catalog.Settings{Row: true}
	for name, tc := range map[string]struct {
		comment      string
		made         bool
		stored       string
		want         catalog.Settings
		ignored, err bool
	}{
		"new":                        {"@critical(key=row)", false, "", row, false, false},
		"becomes so again":           {"@critical(key=row)", false, plainSettings, row, false, false},
		"as before":                  {"@critical(key=row)", true, "unlocked=reject, key=row", row, false, false},
		"other key":                  {"@critical(lease=5s)", true, "unlocked=reject, key=row", catalog.Settings{Row: true, Lease: 5e9}, true, false},
		"other key, no lock rows":    {"@critical", false, "unlocked=reject, key=row", catalog.Settings{}, false, false},
		"other scope":                {"@critical", true, "unlocked=reject, key=partition, scope=local, dc=dc, 1", catalog.Settings{Local: true, Centre: "dc, 1"}, true, false},
		"centre of whoever is first": {"@critical(scope=local)", false, "unlocked=reject, key=partition, scope=local, dc=dc1", catalog.Settings{Local: true, Centre: "dc1"}, false, false},
		"centre of the comment":      {"@critical(scope=local, dc=DC2)", false, "", catalog.Settings{Local: true, Centre: "DC2"}, false, false},
		"… instead of the first":     {"@critical(scope=local, dc=DC2)", false, "unlocked=reject, key=partition, scope=local, dc=dc1", catalog.Settings{Local: true, Centre: "DC2"}, false, false},
		"other centre":               {"@critical(scope=local, dc=DC2)", true, "unlocked=reject, key=partition, scope=local, dc=dc1", catalog.Settings{Local: true, Centre: "dc1"}, true, false},
		"the same centre":            {"@critical(scope=local, dc=dc1)", true, "unlocked=reject, key=partition, scope=local, dc=dc1", catalog.Settings{Local: true, Centre: "dc1"}, false, false},
		"its centre is kept":         {"@critical(scope=local, lease=5s)", true, "unlocked=reject, key=partition, scope=local, dc=dc1", catalog.Settings{Local: true, Lease: 5e9, Centre: "dc1"}, false, false},
		"no centre any more":         {"@critical", false, "unlocked=reject, key=partition, scope=local, dc=dc1", catalog.Settings{}, false, false},
		"comment lost":               {"moved", true, "unlocked=allow, key=row, lease=1m0s", catalog.Settings{Row: true, Unlocked: catalog.Allow, Lease: 60e9}, false, false},
		"comment lost, plain":        {"moved", true, plainSettings, catalog.Settings{}, false, true},
		"nonsense":                   {"@critical", true, "key=column", catalog.Settings{}, false, true},
	} {
		table := &dataTable{stored: storedTable{text: tc.stored}, Critical: catalog.Critical{Made: tc.made}}
		table.readComment(tc.comment)
		err := table.keepStored()
		assert.Equal(t, tc.err, err != nil, "%s: %v", name, err)
		assert.Equal(t, tc.want, table.Settings, name)
		assert.Equal(t, tc.ignored, table.ignored != "", name)
		if tc.want.Centre != "" {
			again := &dataTable{stored: storedTable{text: table.Settings.String()}, Critical: catalog.Critical{Made: true, Marked: true, Settings: table.Settings}}
			require.NoError(t, again.keepStored())
			assert.Equal(t, table.Settings, again.Settings, name)
			assert.Empty(t, again.ignored)
		}
	}
}

// The data centre of a proxy is that of its contact points, where they are all in one.
func TestCentreOfTheContactPoints(t *testing.T) {
	at := net.ParseIP
	one := []node{{at("127.0.9.1"), "dc1"}, {at("127.0.9.2"), "dc1"}}
	two := []node{one[0], one[1], {at("127.0.9.3"), "dc2"}, {at("127.0.9.4"), "dc2"}}
	for name, tc := range map[string]struct {
		points []string
		nodes  []node
		want   string
	}{
		"one centre":                  {[]string{"127.0.9.1"}, one, "dc1"},
		"unknown, one centre":         {[]string{"127.0.9.9"}, one, "dc1"},
		"in the second":               {[]string{"127.0.9.3", "127.0.9.4"}, two, "dc2"},
		"in both":                     {[]string{"127.0.9.2", "127.0.9.3"}, two, ""},
		"one of them unknown":         {[]string{"127.0.9.2", "127.0.9.9"}, two, ""},
		"one of them without address": {[]string{"127.0.9.2", "no name at all"}, two, ""},
		"nobody there":                {[]string{"127.0.9.1"}, nil, ""},
	} {
		l := newLocality(config.Cassandra{ContactPoints: tc.points, Port: 9042}, &nodeDialer{})
		assert.Equal(t, tc.want, l.centreOf(t.Context(), tc.nodes), name)
	}
}

// A proxy whose name server does not answer for a while stands where it stood: its tables with scope=local would be
// refused else, and their locks could not even be released.
func TestCentreWhereNamesAreNotTold(t *testing.T) {
	l := newLocality(config.Cassandra{ContactPoints: []string{"node1", "node2"}, Port: 9042}, &nodeDialer{})
	known := map[string][]net.IP{"node1": {net.ParseIP("127.0.9.1")}, "node2": {net.ParseIP("127.0.9.2")}}
	var asked int
	l.lookUp = func(ctx context.Context, _, host string) ([]net.IP, error) {
		asked++
		if found := known[host]; found != nil {
			return found, nil
		}
		<-ctx.Done() // as a resolver does whose servers are gone
		return nil, ctx.Err()
	}
	nodes := []node{{net.ParseIP("127.0.9.1"), "dc1"}, {net.ParseIP("127.0.9.2"), "dc1"}, {net.ParseIP("127.0.9.3"), "dc2"}}
	assert.Equal(t, "dc1", l.centreOf(t.Context(), nodes))
	delete(known, "node2")
	assert.Equal(t, "dc1", l.centreOf(t.Context(), nodes), "the name is not told now")
	known["node2"] = []net.IP{net.ParseIP("127.0.9.3")}
	assert.Empty(t, l.centreOf(t.Context(), nodes), "it is another node by now")
	assert.Equal(t, 6, asked)
}

// Cassandra 4.1 shows neither stamp nor time to live of what has many cells.
func TestColumnsOfManyCells(t *testing.T) {
	for release, tells := range map[string]bool{"4.1.7": false, "4.2": false, "5.0.8": true, "5.1-SNAPSHOT": true, "6.0": true, "": false, "nonsense": false} {
		assert.Equal(t, tells, releaseTellsElements(release), release)
	}
	for typeName, many := range map[string]bool{
		"list<int>": true, "set<frozen<list<int>>>": true, "map<int, int>": true, "ty": true, `"Q t"`: true,
		"frozen<list<int>>": false, "frozen<ty>": false, "int": false, "frozen<tuple<int, text>>": false, "vector<float, 3>": false,
	} {
		for kind, may := range map[string]bool{"regular": true, "static": true, "clustering": false, "partition_key": false} {
			assert.Equal(t, many && may, manyCells(typeName, kind), "%s %s", kind, typeName)
		}
	}
}

// Before 5.0 a table with a collection or UDT that is not frozen cannot be locked.
func TestTablesOfManyCellsAreRefusedOn41(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(5))
	s.Do("CREATE TYPE KS.ty (x int)")
	s.Do("CREATE TABLE KS.lists (k int PRIMARY KEY, l list<int>)")
	s.Do("CREATE TABLE KS.types (k int, c int, u ty static, PRIMARY KEY (k, c))")
	s.Do("CREATE TABLE KS.frozen (k int PRIMARY KEY, l frozen<list<int>>, u frozen<ty>)")
	for name, column := range map[string]string{"lists": "l", "types": "u", "frozen": ""} {
		for _, release := range []string{"4.1.7", "5.0.8"} {
			table := &dataTable{keyspace: s.Name, name: name}
			require.NoError(t, (&schemaReader{session: s.Session, release: release}).readColumns(t.Context(), table))
			if column == "" || release == "5.0.8" {
				assert.Empty(t, table.Refused, name)
			} else {
				assert.Equal(t, "its column "+column+" is not frozen: Cassandra 4.1.7 does not show the times to live in it: make it frozen, or run Cassandra 5.0 and restart the proxies then", table.Refused)
			}
		}
	}
}

// One row must be one lock: types of which a value has several spellings are no key of a row.
func TestKeysOfRows(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(5))
	s.Do("CREATE TABLE KS.good (a int, b text, c double, d timeuuid, st int static, v list<int>, PRIMARY KEY ((b, a), d, c))")
	s.Do("CREATE TABLE KS.decimals (a int, b decimal, PRIMARY KEY (a, b))")
	s.Do("CREATE TABLE KS.tuples (a int, b frozen<tuple<int, int>>, PRIMARY KEY (a, b))")
	s.Do("CREATE TABLE KS.lists (a int, b frozen<list<int>>, PRIMARY KEY (a, b))")
	for name, refused := range map[string]string{
		"good": "", "decimals": "type decimal", "tuples": "type frozen<tuple<int, int>>", "lists": "type frozen<list<int>>",
	} {
		table := &dataTable{keyspace: s.Name, name: name, Critical: catalog.Critical{Settings: catalog.Settings{Row: true}}}
		require.NoError(t, (&schemaReader{session: s.Session, release: "5.0.8"}).readColumns(t.Context(), table))
		if refused != "" {
			assert.Contains(t, table.Refused, "key=row, and its clustering column b is of "+refused)
			continue
		}
		assert.Empty(t, table.Refused)
		assert.Equal(t, []catalog.Column{{Name: "b", Type: "text"}, {Name: "a", Type: "int"}, {Name: "d", Type: "timeuuid", Clustering: true}, {Name: "c", Type: "double", Clustering: true}}, table.Key)
		assert.Equal(t, []string{"st"}, table.Static)
		table.Settings.Row, table.Key = false, nil
		require.NoError(t, (&schemaReader{session: s.Session, release: "5.0.8"}).readColumns(t.Context(), table))
		assert.Len(t, table.Key, 2)
	}
}

// A table was born critical if nothing but its CREATE has written its comment: then it never took a plain
// write. One that became critical later did, whatever has changed with that or since.
func TestWhichTablesWereBornCritical(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(0))
	s.Do("CREATE TABLE KS.born (k int, c int, v int, st int static, PRIMARY KEY (k, c)) WITH comment = '@critical'")
	s.Do("CREATE TABLE KS.later (k int, c int, v int, PRIMARY KEY (k, c))")
	s.Do("ALTER TABLE KS.later WITH comment = '@critical'")
	s.Do("CREATE TABLE KS.renamed (k int, c int, v int, PRIMARY KEY (k, c))")
	s.Do("ALTER TABLE KS.renamed WITH comment = '@critical'")
	s.Do("ALTER TABLE KS.renamed RENAME k TO a AND c TO b")
	s.Do("CREATE TABLE KS.named (k int, v int, PRIMARY KEY (k))")
	rules := config.Music{Critical: []string{s.Name + ".named"}}
	r := &schemaReader{session: s.Session, release: "5.0.8", rules: new(criticalRules)}
	all, _, _, err := r.readTables(t.Context(), rules)
	require.NoError(t, err)
	all = slices.DeleteFunc(all, func(t *dataTable) bool { return t.keyspace != s.Name })
	require.Len(t, all, 4)
	require.NoError(t, r.readColumns(t.Context(), all...))
	for _, table := range all {
		assert.True(t, table.Marked, table.name)
		assert.Equal(t, table.name == "born", table.born, "%s: %d", table.name, table.written)
	}
}

// A column that was dropped and added again looks as before, but what was written before is hidden.
func TestColumnsThatWereAway(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(5))
	s.Do("CREATE TABLE KS.away (k int PRIMARY KEY, v int)")
	look := func() string {
		table := &dataTable{keyspace: s.Name, name: "away"}
		require.NoError(t, (&schemaReader{session: s.Session, release: "5.0.8"}).readColumns(t.Context(), table))
		return table.definition
	}
	before := look()
	assert.Equal(t, before, look())
	s.Do("ALTER TABLE KS.away DROP v")
	s.Do("ALTER TABLE KS.away ADD v int")
	assert.NotEqual(t, before, look())
}

// A comment that came past the proxies and only looks as if it had settings makes its table
// critical with the defaults, and is told.
func TestCommentsThatOnlyLookLikeSettings(t *testing.T) {
	for comment, refused := range map[string]bool{"@critical unlocked=auto": false, "@critical (see 5)": false, "@critical[key=row]": false, "@critical(key=column)": true} {
		table := &dataTable{}
		table.readComment(comment)
		assert.True(t, table.Marked, comment)
		assert.Equal(t, catalog.Settings{}, table.Settings, comment)
		assert.Equal(t, refused, table.Refused != "", comment)
		assert.Equal(t, !refused, table.ignored != "", comment)
	}
}

// A table that was open meanwhile is told from one that was not, though it looks as before: a proxy
// may have followed the opening, and what it told before must not count.
func TestTablesThatWereOpenMeanwhile(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(0))
	s.Do("CREATE TABLE KS.open (k int PRIMARY KEY, v int) WITH comment = '@critical'")
	look := func() gocql.UUID {
		_, _, digest, err := (&schemaReader{session: s.Session, rules: new(criticalRules)}).readTables(t.Context(), config.Music{})
		require.NoError(t, err)
		return digest
	}
	before := look()
	assert.Equal(t, before, look())
	s.Do("ALTER TABLE KS.open WITH comment = ''")
	s.Do("ALTER TABLE KS.open WITH comment = '@critical'")
	assert.NotEqual(t, before, look())
}
