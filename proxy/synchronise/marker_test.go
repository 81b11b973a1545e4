package synchronise

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
		"known by the rule":          {[]dataRow{rowAt("a", 9, 0), rowAt("b", -1, -1)}, []dataRow{rowAt("a", -1, 0), rowAt("b", 0, 0)}, []int32{0, 0}, false},
		"partition without any rows": {[]dataRow{static}, []dataRow{static}, []int32{0}, false},
	} {
		assert.Equal(t, tc.moved, learn(tc.first, tc.later), name)
		for i, r := range tc.first {
			assert.Equal(t, tc.marker[i], r.markerTTL(), name)
		}
	}
	assert.False(t, rowAt("a", -1, -1).guessed())
	assert.False(t, rowAt("a", 9, 0).guessed())
	assert.True(t, rowAt("a", 9, -1).guessed())
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
	require.False(t, learn(rows, []dataRow{rowAt("r", -1)}))
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
	}, wholly(t, table, rows, 100)[1:])
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
