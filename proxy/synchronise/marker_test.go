package synchronise

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra/cassandratest"
	"music/musiccore"
)

// rowAt is a row with one plain column for each TTL; -1 is null.
func rowAt(place string, ttls ...int32) dataRow {
	r := dataRow{clustering: termsOf(place)}
	for _, ttl := range ttls {
		cell := dataCell{ttl: ttl, term: termsOf("value")[0]}
		if ttl < 0 {
			cell = dataCell{}
		}
		r.regular = append(r.regular, cell)
	}
	return r
}

// The second read tells which rows have a marker without a time to live, and when a late write
// hides that.
func TestLearnMarkers(t *testing.T) {
	static := dataRow{clustering: []cqlTerm{{}}, static: rowAt("", 0).regular, regular: rowAt("", -1, -1).regular}
	for name, tc := range map[string]struct {
		first, later []dataRow
		marker       []int32
		moved        bool
	}{
		"there without columns":      {[]dataRow{rowAt("a", 9, -1), rowAt("b", 8, 9)}, []dataRow{rowAt("b", -1, -1)}, []int32{9, 0}, false},
		"not there":                  {[]dataRow{rowAt("a", 9, 5)}, []dataRow{static}, []int32{9}, false},
		"only there":                 {[]dataRow{rowAt("a", 9, 5)}, []dataRow{rowAt("b", -1, -1)}, []int32{9}, false},
		"hidden by a late write":     {[]dataRow{rowAt("a", 9, -1), rowAt("b", 9, 9)}, []dataRow{rowAt("a", -1, 0), rowAt("b", -1, -1)}, []int32{9, 0}, true},
		"now not taken":              {[]dataRow{rowAt("a", 9, 5)}, []dataRow{rowAt("a", 9, 5)}, []int32{9}, false},
		"now not taken, late write":  {[]dataRow{rowAt("a", 9, -1)}, []dataRow{rowAt("a", 9, 0)}, []int32{9}, false},
		"known by the rule":          {[]dataRow{rowAt("a", 9, 0)}, []dataRow{rowAt("a", -1, 0)}, []int32{0}, false},
		"a key with a late value":    {[]dataRow{rowAt("a", -1, -1)}, []dataRow{rowAt("a", -1, 0)}, []int32{0}, true},
		"partition without any rows": {[]dataRow{static}, []dataRow{static}, []int32{0}, false},
	} {
		_, moved := learn(tc.first, tc.later)
		assert.Equal(t, tc.moved, moved, name)
		for i, r := range tc.first {
			assert.Equal(t, tc.marker[i], r.markerTTL(), name)
		}
	}
	assert.True(t, rowAt("a", -1, -1).shows())
	assert.False(t, rowAt("a", 9, 0).shows())
	assert.True(t, rowAt("a", 9, -1).shows())
	assert.False(t, static.shows())
}

// Clustering values are told apart by their bytes and by where they stand.
func TestRowPlaces(t *testing.T) {
	table := newTestTable(t, "k partition_key int", "a clustering blob", "b clustering frozen<tuple<blob, blob>>")
	places := map[string]bool{}
	for _, key := range [][]RawValue{
		{{}, tupleOf(RawValue{}, RawValue{})},
		{{}, tupleOf(nil, RawValue{})},
		{{}, tupleOf(RawValue{}, nil)},
		{{}, tupleOf(RawValue{})},
		{{0}, tupleOf(RawValue{})},
		{{}, tupleOf(RawValue{0})},
		{{32}, tupleOf(nil)},
		{{0, 0}, tupleOf(nil)},
		{RawValue("?"), tupleOf(nil)},
	} {
		row, err := table.row([]RawValue{key[0], append(wireInt32(1), tupleOf(key[1])...)})
		require.NoError(t, err)
		places[row.clusteringKey()] = true
	}
	assert.Len(t, places, 9)
}

// A permanent marker is written back, although every column has a TTL.
func TestRewriteOfALearnedMarker(t *testing.T) {
	table := newTestTable(t, "k partition_key int", "c clustering int", "a regular int")
	rows := []dataRow{rowAt("r", 9)}
	ending, moved := learn(rows, []dataRow{rowAt("r", -1)})
	require.Empty(t, ending)
	require.False(t, moved)
	f1 := wireInt64(101)
	assert.Equal(t, []statement{
		{
			`INSERT INTO "ks"."t" ("k", "c", "a") VALUES (?, ?, ?) USING TIMESTAMP ? AND TTL ?`,
			[]RawValue{RawValue("key"), RawValue("r"), nil, f1, wireInt32(0)},
		},
		{
			`UPDATE "ks"."t" USING TIMESTAMP ? AND TTL ? SET "a" = ? WHERE "k" = ? AND "c" = ?`,
			[]RawValue{f1, wireInt32(9), RawValue("value"), RawValue("key"), RawValue("r")},
		},
	}, wholly(t, table, rows)[1:])
}

// Where a read at the far future could do harm, none is made.
func TestForgotten(t *testing.T) {
	d := tableDescription{grace: 864000, compaction: map[string]string{"class": "any", "only_purge_repaired_tombstones": "false"}}
	assert.Equal(t, farFuture-864000, d.forgotten())
	d.compaction["only_purge_repaired_tombstones"] = "true"
	assert.Zero(t, d.forgotten())
}

// names are the texts of the first clustering column, at a given second.
func (s *store) names(k Target, now int) (all []string) {
	s.t.Helper()
	rows, _ := s.look(k, now)
	for _, r := range rows {
		if r.staticOnly() {
			continue
		}
		all = append(all, string(r.clustering[0].values[0]))
	}
	return all
}

// A row that was inserted to stay outlives what was put into it for a while, as a lease is.
func TestSynchroniseKeepsPermanentMarkers(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.lease (k int, c text, st int static, holder text, m map<int, int>, PRIMARY KEY (k, c))")
	for _, c := range []string{"inserted", "inserted, with elements", "inserted, with a TTL since"} {
		s.Do("INSERT INTO KS.lease (k, c) VALUES (1, '" + c + "') USING TIMESTAMP 1")
	}
	s.Do("INSERT INTO KS.lease (k, c, holder) VALUES (1, 'inserted, with a TTL since', 'x') USING TIMESTAMP 2 AND TTL 300")
	s.Do("INSERT INTO KS.lease (k, c, holder) VALUES (1, 'deleted since', 'x') USING TIMESTAMP 1")
	s.Do("DELETE FROM KS.lease USING TIMESTAMP 2 WHERE k = 1 AND c = 'deleted since'")
	for _, c := range []string{"deleted since", "inserted", "updated"} {
		s.Do("UPDATE KS.lease USING TIMESTAMP 3 AND TTL 300 SET holder = 'x' WHERE k = 1 AND c = '" + c + "'")
	}
	s.Do("UPDATE KS.lease USING TIMESTAMP 3 AND TTL 200 SET m = {1: 1} WHERE k = 1 AND c = 'inserted, with elements'")
	s.Do("UPDATE KS.lease USING TIMESTAMP 4 AND TTL 300 SET m[2] = 2 WHERE k = 1 AND c = 'inserted, with elements'")
	s.Do("UPDATE KS.lease USING TIMESTAMP 4 SET st = 1 WHERE k = 1")
	k := s.key("lease", wireInt32(1))
	now := int(time.Now().Unix())
	seen := s.JSON("lease", "k = 1")
	before, _ := s.look(k, now)
	require.Len(t, before, 5)
	forGood := []string{"inserted", "inserted, with elements"}
	require.Equal(t, forGood, s.names(k, now+400), "as Cassandra has it")
	for _, fence := range []musiccore.Stamp{1000, 1002} {
		s.synchronise(k, fence)
		after, _ := s.look(k, now)
		assert.Equal(t, before, after)
		assert.Equal(t, seen, s.JSON("lease", "k = 1"))
		assert.Equal(t, forGood, s.names(k, now+400))
	}

	s.Do("CREATE TABLE KS.single (k int PRIMARY KEY, holder text)")
	s.Do("INSERT INTO KS.single (k) VALUES (1) USING TIMESTAMP 1")
	for _, k := range []string{"1", "2"} {
		s.Do("UPDATE KS.single USING TIMESTAMP 2 AND TTL 300 SET holder = 'x' WHERE k = " + k)
	}
	for k, rows := range map[int32]int{1: 1, 2: 0} {
		s.synchronise(s.key("single", wireInt32(k)), 1000)
		after, _ := s.look(s.key("single", wireInt32(k)), now+400)
		assert.Len(t, after, rows)
	}
}

// A row goes when it would have gone without a synchronise: one that lives by its key alone, or
// whose key outlives its values, to the second.
func TestSynchroniseKeepsTheEndsOfMarkers(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.ends (k int, c text, a int, b int, PRIMARY KEY (k, c))")
	s.Do("CREATE TABLE KS.bydefault (k int PRIMARY KEY, v int) WITH default_time_to_live = 250")
	s.Do("INSERT INTO KS.bydefault (k) VALUES (1) USING TIMESTAMP 1")
	now := int(time.Now().Unix()) - 1
	for _, text := range []string{
		"INSERT INTO KS.ends (k, c) VALUES (1, 'a key') USING TIMESTAMP 1 AND TTL 250",
		"INSERT INTO KS.ends (k, c, a) VALUES (1, 'value deleted', 1) USING TIMESTAMP 1 AND TTL 250",
		"DELETE a FROM KS.ends USING TIMESTAMP 2 WHERE k = 1 AND c = 'value deleted'",
		"INSERT INTO KS.ends (k, c, a) VALUES (1, 'value shorter', 1) USING TIMESTAMP 1 AND TTL 600",
		"UPDATE KS.ends USING TIMESTAMP 2 AND TTL 250 SET a = 2 WHERE k = 1 AND c = 'value shorter'",
		"INSERT INTO KS.ends (k, c, a) VALUES (1, 'years', 1) USING TIMESTAMP 1 AND TTL 300000000",
		"UPDATE KS.ends USING TIMESTAMP 2 AND TTL 250 SET a = 2 WHERE k = 1 AND c = 'years'",
		"INSERT INTO KS.ends (k, c) VALUES (1, 'stays') USING TIMESTAMP 1",
	} {
		require.NoError(t, s.Session.Query(strings.ReplaceAll(text, "KS", s.Name)).WithNowInSeconds(now).Exec(), text)
	}
	p := s.partition(s.key("ends", wireInt32(1)), now)
	for fence := musiccore.Stamp(10); fence < 14; fence += 2 {
		require.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, p.run(t.Context(), musiccore.Synch{Fence: fence}))
		for ahead, want := range map[int][]string{
			249: {"a key", "stays", "value deleted", "value shorter", "years"}, 250: {"stays", "value shorter", "years"},
			599: {"stays", "value shorter", "years"}, 600: {"stays", "years"}, 299999999: {"stays", "years"}, 300000000: {"stays"},
		} {
			assert.Equal(t, want, s.names(s.key("ends", wireInt32(1)), now+ahead), "%d s later", ahead)
		}
		p = p.at(now + 100)
	}
	s.synchronise(s.key("bydefault", wireInt32(1)), 10)
	after, _ := s.look(s.key("bydefault", wireInt32(1)), now+260)
	assert.Empty(t, after)
}

// Many rows that end at seconds of their own are found, on pages of any size, and whatever their
// keys are.
func TestSynchroniseFindsManyEnds(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.many (k int, a frozen<tuple<int, text>>, b int, st int static, PRIMARY KEY (k, a, b)) WITH CLUSTERING ORDER BY (a ASC, b DESC)")
	now := int(time.Now().Unix())
	for i := range 150 {
		text := fmt.Sprintf("INSERT INTO %s.many (k, a, b) VALUES (1, (%d, null), %d) USING TIMESTAMP 1 AND TTL %d", s.Name, i/10, i%10, 100+7*(i%50))
		require.NoError(t, s.Session.Query(text).WithNowInSeconds(now).Exec())
	}
	k := s.key("many", wireInt32(1))
	s.Do("UPDATE KS.many USING TIMESTAMP 1 AND TTL 5000 SET st = 1 WHERE k = 1")
	p := s.partition(k, now)
	p.sizes.short, p.sizes.full = 3, 60
	require.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, p.run(t.Context(), musiccore.Synch{Fence: 10}))
	for i := range 50 {
		rows, _ := s.look(k, now+100+7*i)
		assert.Len(t, rows, max(1, 150-3*(i+1)), "the static column stands alone when the last has gone")
	}
}

// Where no second read is possible, or it cannot be trusted, a row goes with its last column.
func TestSynchroniseGuessesMarkers(t *testing.T) {
	for name, tc := range map[string]struct {
		version int
		options string
	}{
		"version 4":             {4, ""},
		"tombstones kept":       {5, " WITH compaction = {'class': 'SizeTieredCompactionStrategy', 'only_purge_repaired_tombstones': 'true'}"},
		"tombstones of decades": {5, " WITH gc_grace_seconds = 600000000"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, tc.version)
			s.Do("CREATE TABLE KS.lease (k int, c text, holder text, PRIMARY KEY (k, c))" + tc.options)
			s.Do("INSERT INTO KS.lease (k, c) VALUES (1, 'inserted') USING TIMESTAMP 1")
			s.Do("UPDATE KS.lease USING TIMESTAMP 2 AND TTL 300 SET holder = 'x' WHERE k = 1 AND c = 'inserted'")
			k := s.key("lease", wireInt32(1))
			s.synchronise(k, 1000)
			reader := newStore(t, 5)
			reader.Name, s.Name = s.Name, reader.Name // each drops the other's
			now := int(time.Now().Unix())
			assert.Equal(t, []string{"inserted"}, reader.names(k, now))
			assert.Empty(t, reader.names(k, now+400))
		})
	}
}

// Late writes between the two reads are fenced off, or make the attempt start again.
func TestSynchroniseMarkersMeetLateWrites(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.late (k int, c text, holder text, v int, PRIMARY KEY (k, c))")
	const at = " WHERE k = 1 AND c = 'row'"
	k := s.key("late", wireInt32(1))
	for _, tc := range []struct {
		late   string // between the reads
		err    error
		marker int32
	}{
		{"INSERT INTO KS.late (k, c) VALUES (1, 'another') USING TIMESTAMP 5", nil, 0},
		{"UPDATE KS.late USING TIMESTAMP 5 AND TTL 5000 SET v = 1" + at, nil, 0},
		{"INSERT INTO KS.late (k, c, v) VALUES (1, 'row', 1) USING TIMESTAMP 0 AND TTL 5000", nil, 0},
		{"DELETE FROM KS.late USING TIMESTAMP 5" + at, nil, 300},
		{"UPDATE KS.late USING TIMESTAMP 5 SET v = 1" + at, errMoved, 300},
	} {
		s.Do("TRUNCATE KS.late")
		s.Do("INSERT INTO KS.late (k, c) VALUES (1, 'row') USING TIMESTAMP 1")
		s.Do("UPDATE KS.late USING TIMESTAMP 2 AND TTL 300 SET holder = 'x'" + at)
		p := s.partition(k, int(time.Now().Unix())-1)
		page, err := p.first(t.Context())
		require.NoError(t, err)
		s.Do(tc.late)
		require.ErrorIs(t, p.learnMarkers(t.Context(), page), tc.err, tc.late)
		require.Len(t, page.rows, 1, tc.late)
		assert.InDelta(t, tc.marker, page.rows[0].markerTTL(), 3, tc.late)

		p.table.repaired = false
		require.NoError(t, p.learnMarkers(t.Context(), page), "the rule, where it would never end")
	}
}

// counter counts what a session sends.
type counter struct{ reads, batches atomic.Int32 }

// ObserveQuery implements gocql.QueryObserver.
func (c *counter) ObserveQuery(context.Context, gocql.ObservedQuery) { c.reads.Add(1) }

// ObserveBatch implements gocql.BatchObserver.
func (c *counter) ObserveBatch(context.Context, gocql.ObservedBatch) { c.batches.Add(1) }

// Only a row whose marker shows costs another read, and only one whose marker ends more than that.
func TestStatementsOfASynchronise(t *testing.T) {
	count := &counter{}
	s := &store{t: t, Keyspace: cassandratest.NewKeyspace(t, func(c *gocql.ClusterConfig) {
		c.ProtoVersion, c.QueryObserver, c.BatchObserver = 5, count, count
	})}
	s.Do("CREATE TABLE KS.cost (k int, c int, v int, w int, PRIMARY KEY (k, c))")
	for i, tc := range []struct {
		name string
		rows []string
		read int32
	}{
		{"values for ever", []string{"(k, c, v) VALUES (K, 1, 1)", "(k, c, v, w) VALUES (K, 2, 2, 2)"}, 1},
		{"nothing", nil, 1},
		{"a value for ever beside one that ends", []string{"(k, c, v) VALUES (K, 1, 1)", "(k, c, w) VALUES (K, 1, 1) USING TTL 500"}, 1},
		{"keys for ever", []string{"(k, c) VALUES (K, 1)", "(k, c) VALUES (K, 2)"}, 2},
		{"leases", []string{"(k, c, v) VALUES (K, 1, 1) USING TTL 500", "(k, c, v) VALUES (K, 2, 1) USING TTL 500"}, 3},
		{"keys that end", []string{"(k, c) VALUES (K, 1) USING TTL 500", "(k, c) VALUES (K, 2) USING TTL 500"}, 2 + 6 + 9},
	} {
		now := int(time.Now().Unix())
		for _, row := range tc.rows {
			text := strings.ReplaceAll("INSERT INTO "+s.Name+".cost "+row, "K", fmt.Sprint(i))
			require.NoError(t, s.Session.Query(text).WithNowInSeconds(now).WithTimestamp(5).Exec(), text)
		}
		p := s.partition(s.key("cost", wireInt32(int32(i))), now)
		reads, batches := count.reads.Load(), count.batches.Load()
		require.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, p.run(t.Context(), musiccore.Synch{Fence: 10}))
		assert.Equal(t, tc.read, count.reads.Load()-reads, tc.name)
		assert.Equal(t, int32(1), count.batches.Load()-batches, tc.name)
	}
}
