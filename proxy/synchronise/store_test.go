package synchronise

import (
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra/cassandratest"
	"music/musiccore"
)

// store is a keyspace of one test, and what is known of its tables.
type store struct {
	*cassandratest.Keyspace
	t     testing.TB
	known Descriptions
}

// newStore makes one whose session speaks a version of the protocol.
func newStore(t testing.TB, version int) *store {
	t.Helper()
	return &store{t: t, Keyspace: cassandratest.NewKeyspace(t, cassandratest.Version(version))}
}

// newObservedStore makes one whose session tells an observer of its batches.
func newObservedStore(t testing.TB, o gocql.BatchObserver) *store {
	t.Helper()
	configure := func(c *gocql.ClusterConfig) { c.ProtoVersion, c.BatchObserver = 5, o }
	return &store{t: t, Keyspace: cassandratest.NewKeyspace(t, configure)}
}

// cluster returns where the tables of the keyspace are synchronised.
func (s *store) cluster() Cluster {
	return Cluster{Session: s.Session, Quorum: gocql.Quorum, Known: &s.known}
}

// partition is where an attempt at a given second reads and writes.
func (s *store) partition(k Target, now int) partition {
	s.t.Helper()
	described, err := schemaView{}.describe(s.t.Context(), s.Session, k)
	require.NoError(s.t, err)
	table, err := newTableLayout(described)
	require.NoError(s.t, err)
	pk, err := table.key(k.PK)
	require.NoError(s.t, err)
	p := partition{Cluster: s.cluster(), table: table, pk: pk, now: now, sizes: usualSizes()}
	p.sizes.largest, err = schemaView{}.largestBatch(s.t.Context(), s.Session)
	require.NoError(s.t, err)
	return p
}

// look is the partition as synchronise sees it at a given second, and the stamps in it.
func (s *store) look(k Target, now int) ([]dataRow, []musiccore.Stamp) {
	s.t.Helper()
	rows, err := s.partition(k, now).all(s.t.Context(), clause{})
	require.NoError(s.t, err)
	var stamps []musiccore.Stamp
	for _, r := range rows {
		for _, cells := range [][]dataCell{r.static, r.regular} {
			for i := range cells {
				if !cells[i].term.null() {
					stamps = append(stamps, cells[i].stamp)
				}
				cells[i].stamp = 0
			}
		}
	}
	return rows, stamps
}

func (s *store) key(table string, pk RawValue) Target {
	return Target{Keyspace: s.Name, Table: table, PK: string(pk)}
}

func (s *store) synchronise(k Target, fence musiccore.Stamp) {
	s.t.Helper()
	r := Run(s.t.Context(), s.cluster(), k, musiccore.Synch{Fence: fence})
	require.NoError(s.t, r.Cause)
	require.Equal(s.t, musiccore.StatusDone, r.Status)
}

// everything makes a table with every kind of column, and a partition k = 1 with every kind of
// content. Stamps are below 1000. Returned is a second that lies before all expiries.
func (s *store) everything() int {
	s.Do(`CREATE TYPE KS."Ty pe" ("X x" int, y text, z frozen<list<int>>)`)
	s.Do(`CREATE TABLE KS.everything (k int, c1 frozen<tuple<int, text>>, c2 text,
		st text static, sl list<int> static, sm map<text, int> static, su "Ty pe" static,
		tasc ascii, tbig bigint, tblob blob, tbool boolean, tdate date, tdec decimal, tdou double, tdur duration, tflo float,
		tinet inet, tint int, tsmall smallint, ttext text, ttime time, tstamp timestamp, ttu timeuuid, ttiny tinyint, tuuid uuid,
		tvar varint, vec vector<float, 3>, tup tuple<int, text>, ftup frozen<tuple<int, frozen<list<int>>>>,
		fl frozen<list<int>>, fs frozen<set<text>>, fm frozen<map<text, int>>, fu frozen<"Ty pe">,
		l list<text>, s set<int>, m map<text, frozen<list<int>>>, u "Ty pe", "Que""er" int, "select" set<frozen<tuple<int, int>>>,
		PRIMARY KEY (k, c1, c2)) WITH CLUSTERING ORDER BY (c1 DESC, c2 ASC) AND default_time_to_live = 600`)
	now := int(time.Now().Unix())
	for i, text := range []string{
		`INSERT INTO KS.everything (k, c1, c2, tasc, tbig, tblob, tbool, tdate, tdec, tdou, tdur, tflo, tinet, tint, tsmall, ttext, ttime,
			tstamp, ttu, ttiny, tuuid, tvar, vec, tup, ftup, fl, fs, fm, fu, l, s, m, u, "Que""er", "select")
		 VALUES (1, (1, 'a'), '', 'a', 2, 0x00ff, true, '2026-01-02', 1.50, 2.5, 1mo2d3ns, 1.5, '127.0.0.1', 7, 8, 'ü', '08:12:54.1',
			'2026-01-02 03:04:05Z', 50554d6e-29bb-11e5-b345-feff819cdc9f, 3, 50554d6e-29bb-41e5-b345-feff819cdc9f, 123456789012345678901234567890,
			[1, 2, 3], (1, null), (null, [1]), [], {'a', ''}, {'': 1}, {"X x": 1}, ['b', 'a', '', 'b'], {3, 1}, {'': [], 'a': [1]},
			{"X x": 1, z: []}, 9, {(1, 2)}) USING TTL 0`,
		`UPDATE KS.everything USING TTL 0 SET st = 's', sl = [3, 1, 3], su = {y: ''} WHERE k = 1`,
		`UPDATE KS.everything USING TTL 5000 SET sm = {'a': 1} WHERE k = 1`,
		`UPDATE KS.everything USING TTL 6000 SET sm['b'] = 2 WHERE k = 1`,
		`UPDATE KS.everything USING TTL 0 SET sm['c'] = 3 WHERE k = 1`,
		`INSERT INTO KS.everything (k, c1, c2, tint, ttext) VALUES (1, (2, ''), 'all under one TTL', 1, '') USING TTL 7000`,
		`INSERT INTO KS.everything (k, c1, c2, tint) VALUES (1, (2, ''), 'two TTLs', 1) USING TTL 7000`,
		`UPDATE KS.everything USING TTL 8000 SET ttext = 'x', l = ['p', 'q'], u = {y: 'y'} WHERE k = 1 AND c1 = (2, '') AND c2 = 'two TTLs'`,
		`UPDATE KS.everything USING TTL 0 SET l = ['1'] WHERE k = 1 AND c1 = (3, null) AND c2 = 'elements'`,
		`UPDATE KS.everything USING TTL 500 SET l = l + ['2', '3'] WHERE k = 1 AND c1 = (3, null) AND c2 = 'elements'`,
		`UPDATE KS.everything USING TTL 0 SET l = l + ['4'] WHERE k = 1 AND c1 = (3, null) AND c2 = 'elements'`,
		`UPDATE KS.everything USING TTL 500 SET l = l + ['5'], s = {5, 7}, m = {'x': [5]}, u."X x" = 5, u.z = [5] WHERE k = 1 AND c1 = (3, null) AND c2 = 'elements'`,
		`UPDATE KS.everything USING TTL 900 SET s = s + {6}, m['y'] = [], u.y = '' WHERE k = 1 AND c1 = (3, null) AND c2 = 'elements'`,
		`UPDATE KS.everything USING TTL 0 SET s = s + {4}, m['a'] = [4] WHERE k = 1 AND c1 = (3, null) AND c2 = 'elements'`,
		`INSERT INTO KS.everything (k, c1, c2) VALUES (1, (4, ''), 'key only') USING TTL 0`,
		`INSERT INTO KS.everything (k, c1, c2, tint, tbool, tup) VALUES (1, (4, ''), 'empty', blobasint(0x), null, (null, null)) USING TTL 0`,
		`INSERT INTO KS.everything (k, c1, c2, tint) VALUES (1, (4, ''), 'only nulls', 1) USING TTL 0`,
		`DELETE tint FROM KS.everything WHERE k = 1 AND c1 = (4, '') AND c2 = 'only nulls'`,
	} {
		text := strings.ReplaceAll(text, "KS", s.Name)
		require.NoError(s.t, s.Session.Query(text).WithTimestamp(int64(100+10*i)).Exec(), text)
	}
	return now
}
