package synchronise

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// What a client reads of a partition is the same before and after, with every kind of column,
// content and time to live.
func TestSynchroniseKeepsEverything(t *testing.T) {
	s := newStore(t, 5)
	now := s.everything()
	k := s.key("everything", wireInt32(1))
	before, _ := s.look(k, now)
	seen := s.JSON("everything", "k = 1")
	require.Len(t, seen, 7)
	for _, fence := range []musiccore.Stamp{1000, 1002} {
		s.synchronise(k, fence)
		after, stamps := s.look(k, now)
		assert.Equal(t, before, after, "to the second of each TTL")
		assert.Equal(t, seen, s.JSON("everything", "k = 1"))
		for _, stamp := range stamps {
			assert.Equal(t, fence+1, stamp)
		}
	}
}

// A write from below the fence that comes late has no effect, on cells, rows and deletions alike.
func TestSynchroniseFencesLateWritesOff(t *testing.T) {
	s := newStore(t, 5)
	now := s.everything()
	k := s.key("everything", wireInt32(1))
	s.synchronise(k, 1000)
	before, stamps := s.look(k, now)
	const row = " WHERE k = 1 AND c1 = (3, null) AND c2 = 'elements'"
	for _, stamp := range []int64{999, 1000} {
		for _, text := range []string{
			"INSERT INTO KS.everything (k, c1, c2, tint) VALUES (1, (0, 'late'), '', 1)",
			"INSERT INTO KS.everything (k, c1, c2, ttext) VALUES (1, (1, 'a'), '', 'late')",
			"UPDATE KS.everything SET m['late'] = []" + row, "UPDATE KS.everything SET m = {}" + row,
			"UPDATE KS.everything SET l = l + ['late']" + row, "UPDATE KS.everything SET l = ['late']" + row,
			"UPDATE KS.everything SET s = s + {99}, u.y = 'late'" + row, "UPDATE KS.everything SET s = null, u = null" + row,
			"UPDATE KS.everything SET st = 'late', sm['late'] = 1 WHERE k = 1", "DELETE st, sl FROM KS.everything WHERE k = 1",
			"DELETE FROM KS.everything" + row, "DELETE FROM KS.everything WHERE k = 1 AND c1 > (0, '')", "DELETE FROM KS.everything WHERE k = 1",
		} {
			text = strings.ReplaceAll(text, "KS", s.Name)
			require.NoError(t, s.Session.Query(text).WithTimestamp(stamp).Exec(), text)
			after, same := s.look(k, now)
			require.Equal(t, before, after, "%s at %d", text, stamp)
			require.Equal(t, stamps, same, "%s at %d", text, stamp)
		}
	}
}

// An empty partition is fenced, too.
func TestSynchroniseEmptyKey(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.plain (k int PRIMARY KEY, v int)")
	k := s.key("plain", wireInt32(1))
	late := func(stamp int64) {
		require.NoError(t, s.Session.Query("INSERT INTO "+s.Name+".plain (k, v) VALUES (1, 1)").WithTimestamp(stamp).Exec())
	}

	s.synchronise(k, 200)
	late(200)
	assert.Empty(t, s.JSON("plain", "k = 1"), "an empty key is fenced as well")
}

// A stamp at or above the fence ends the attempt, which names it.
func TestSynchroniseMeetsStampsAboveTheFence(t *testing.T) {
	s := newStore(t, 5)
	s.Do(`CREATE TYPE KS.ty (x int, y int)`)
	s.Do("CREATE TABLE KS.above (k int, c int, st int static, ss set<int> static, v int, l list<int>, m map<int, int>, u ty, f frozen<ty>, PRIMARY KEY (k, c))")
	for i, set := range []string{"v = 1", "l = l + [1]", "m[2] = 2", "u.y = 1", "f = {x: 1}", "st = 1", "ss = ss + {2}"} {
		k := s.key("above", wireInt32(int32(i)))
		write := func(set string, stamp int64) {
			where := fmt.Sprintf(" WHERE k = %d", i)
			if !strings.HasPrefix(set, "s") {
				where += " AND c = 1"
			}
			require.NoError(t, s.Session.Query("UPDATE "+s.Name+".above SET "+set+where).WithTimestamp(stamp).Exec())
		}
		write("v = 0, l = [0], m = {1: 1}, u = {x: 1}", 50)
		write("st = 0, ss = {1}", 50)
		write(set, 100)
		for _, fence := range []musiccore.Stamp{99, 100} {
			r := Run(t.Context(), s.cluster(), k, musiccore.Synch{Fence: fence})
			assert.Equal(t, musiccore.Result{Status: musiccore.StatusAbove, Stamp: 100}, r, set)
		}
		_, stamps := s.look(k, int(time.Now().Unix()))
		assert.Contains(t, stamps, musiccore.Stamp(50), "nothing was written")
		s.synchronise(k, 101)
	}
}

// A marker is seen by reading with a now of the far future: only what has no TTL is left then.
func TestSynchroniseMarkers(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.marker (k int, c text, a int, b set<int>, PRIMARY KEY (k, c)) WITH default_time_to_live = 1000")
	s.Do("INSERT INTO KS.marker (k, c) VALUES (1, 'key only') USING TIMESTAMP 1 AND TTL 0")
	s.Do("UPDATE KS.marker USING TIMESTAMP 1 AND TTL 100 SET a = 1 WHERE k = 1 AND c = 'longest is an element'")
	s.Do("UPDATE KS.marker USING TIMESTAMP 2 AND TTL 200 SET b = {1} WHERE k = 1 AND c = 'longest is an element'")
	s.Do("UPDATE KS.marker USING TIMESTAMP 3 AND TTL 300 SET b = b + {2} WHERE k = 1 AND c = 'longest is an element'")
	s.Do("UPDATE KS.marker USING TIMESTAMP 1 AND TTL 100 SET a = 1 WHERE k = 1 AND c = 'one has none'")
	s.Do("UPDATE KS.marker USING TIMESTAMP 1 AND TTL 0 SET b = {1} WHERE k = 1 AND c = 'one has none'")
	k := s.key("marker", wireInt32(1))
	now := int(time.Now().Unix())
	s.synchronise(k, 10)
	s.Do("DELETE a, b FROM KS.marker USING TIMESTAMP 20 WHERE k = 1 AND c IN ('longest is an element', 'one has none')")
	names := func(now int) (all []string) {
		rows, _ := s.look(k, now)
		for _, r := range rows {
			all = append(all, string(r.clustering[0].values[0]))
		}
		return all
	}
	assert.Equal(t, []string{"key only", "longest is an element", "one has none"}, names(now))
	assert.Equal(t, []string{"key only", "longest is an element", "one has none"}, names(now+290))
	assert.Equal(t, []string{"key only", "one has none"}, names(now+310))
	assert.Equal(t, []string{"key only", "one has none"}, names(now+1<<29))
}

// Keys of several columns, with quoted names, and keys that are tuples name their partition.
func TestSynchroniseKeysOfEveryShape(t *testing.T) {
	s := newStore(t, 5)
	s.Do(`CREATE TABLE KS."Quoted" ("Part ""1" text, "from" frozen<tuple<int, text>>, p3 blob, PRIMARY KEY (("Part ""1", "from", p3)))`)
	s.Do(`INSERT INTO KS."Quoted" ("Part ""1", "from", p3) VALUES ('', (1, null), 0x0001) USING TIMESTAMP 5`)
	tuple := append(append(wireInt32(4), wireInt32(1)...), wireInt32(-1)...)
	pk := append(RawValue{0, 0, 0, 0, byte(len(tuple))}, tuple...)
	pk = append(pk, 0, 0, 2, 0, 1, 0)
	k := s.key("Quoted", pk)
	s.synchronise(k, 10)
	rows, _ := s.look(k, int(time.Now().Unix()))
	assert.Len(t, rows, 1)

	s.Do("CREATE TABLE KS.only (k frozen<tuple<int, text>> PRIMARY KEY)")
	s.Do("INSERT INTO KS.only (k) VALUES ((1, null)) USING TIMESTAMP 5")
	k = s.key("only", tuple)
	s.synchronise(k, 10)
	s.Do("DELETE FROM KS.only USING TIMESTAMP 10 WHERE k = (1, null)")
	rows, _ = s.look(k, int(time.Now().Unix()))
	assert.Len(t, rows, 1, "read, and written at 11")

	s.Do("CREATE TABLE KS.statics (k text, c int, st int static, PRIMARY KEY (k, c))")
	s.Do("INSERT INTO KS.statics (k, st) VALUES ('a', 7) USING TIMESTAMP 5")
	s.synchronise(s.key("statics", RawValue("a")), 10)
	assert.Equal(t, []string{`{"k": "a", "c": null, "st": 7}`}, s.JSON("statics", "k = 'a'"))
}

// Tuples keep their length and their nulls, in values and in keys.
func TestSynchroniseTuples(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.tuples (k int, c tuple<int, text>, v tuple<int, frozen<tuple<text, int>>, list<tuple<int, int>>>, st tuple<int, int> static, PRIMARY KEY (k, c))")
	for i, v := range []string{
		"(1, (null, 2), [(1, null)])", "(1, ('a'), null)", "(null, null, null)", "(1, (null, null))", "(1)", "(null)", "null", "(5, ('', 1), [])",
	} {
		s.Do(fmt.Sprintf("INSERT INTO KS.tuples (k, c, v) VALUES (1, (%d), %s) USING TIMESTAMP %d", i, v, i+1))
	}
	s.Do("INSERT INTO KS.tuples (k, c, v) VALUES (1, (null, ''), (1)) USING TIMESTAMP 5 AND TTL 500")
	s.Do("UPDATE KS.tuples USING TIMESTAMP 5 SET st = (1, null) WHERE k = 1")
	k := s.key("tuples", wireInt32(1))
	now := int(time.Now().Unix())
	before, _ := s.look(k, now)
	s.synchronise(k, 10)
	after, stamps := s.look(k, now)
	assert.Len(t, after, 9)
	assert.Equal(t, before, after)
	assert.Len(t, stamps, 9+8)
	assert.NotContains(t, stamps, musiccore.Stamp(5))
}

// Tables that can never be written back are told apart from what may go better next time.
func TestSynchroniseRefusesForGood(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.counts (k int PRIMARY KEY, n counter)")
	r := Run(t.Context(), s.cluster(), s.key("counts", wireInt32(1)), musiccore.Synch{Fence: 10})
	assert.Equal(t, musiccore.StatusTooLarge, r.Status)
	require.ErrorIs(t, r.Cause, errNotSynchronisable)

	s.Do("CREATE TABLE KS.pair (a int, b int, PRIMARY KEY ((a, b)))")
	r = Run(t.Context(), s.cluster(), s.key("pair", wireInt32(1)), musiccore.Synch{Fence: 10})
	assert.Equal(t, musiccore.StatusTooLarge, r.Status)
	require.ErrorIs(t, r.Cause, errNotSynchronisable)
}

// A table that is not there is no reason to give up for good.
func TestSynchroniseUnknownTable(t *testing.T) {
	s := newStore(t, 5)
	r := Run(t.Context(), s.cluster(), s.key("none", wireInt32(1)), musiccore.Synch{Fence: 10})
	assert.Equal(t, musiccore.StatusUnknown, r.Status)
	require.ErrorIs(t, r.Cause, gocql.ErrNotFound)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r = Run(ctx, s.cluster(), s.key("none", wireInt32(1)), musiccore.Synch{Fence: 10})
	assert.Equal(t, musiccore.StatusUnknown, r.Status)
	require.ErrorIs(t, r.Cause, context.Canceled)
}

// A partition that does not fit one page or one mutation is written back in pieces.
func TestSynchroniseLargeKeys(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.large (k int, c int, v blob, PRIMARY KEY (k, c))")
	fill := func(k int32, from, to, size int, stamp int64) {
		for from < to {
			b := s.Session.Batch(gocql.UnloggedBatch).WithTimestamp(stamp)
			for ; from < to && b.Size() < max(1, min(1000, 1<<20/size)); from++ {
				b.Query("INSERT INTO "+s.Name+".large (k, c, v) VALUES (?, ?, ?)", k, from, make([]byte, size))
			}
			require.NoError(t, b.Exec())
		}
	}
	fate := func(k int32, fence musiccore.Stamp) musiccore.Result {
		return Run(t.Context(), s.cluster(), s.key("large", wireInt32(k)), musiccore.Synch{Fence: fence})
	}
	for k, tc := range map[int32]struct{ rows, size int }{1: {5000, 20}, 2: {5001, 20}, 3: {12_000, 20}, 4: {2, 1 << 19}, 5: {101, 1 << 16}} {
		fill(k, 0, tc.rows, tc.size, 1)
		assert.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, fate(k, 10), tc)
		rows, stamps := s.look(s.key("large", wireInt32(k)), int(time.Now().Unix()))
		assert.Len(t, rows, tc.rows)
		assert.Equal(t, slices.Repeat([]musiccore.Stamp{11}, tc.rows), stamps)
	}
	fill(1, 9000, 9001, 20, 12)
	assert.Equal(t, musiccore.Result{Status: musiccore.StatusAbove, Stamp: 12}, fate(1, 12))
	fill(3, 12_000, 12_001, 20, 30)
	assert.Equal(t, musiccore.Result{Status: musiccore.StatusAbove, Stamp: 30}, fate(3, 20), "on a later page")
	assert.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, fate(3, 31))

	p := partition{Cluster: s.cluster(), table: newTestTable(t, "k partition_key int", "v regular blob"), pk: termsOf(string(wireInt32(1)))}
	p.table.name = s.Name + ".large"
	page, err := p.page(t.Context(), clause{}, 100, nil)
	require.NoError(t, err)
	assert.True(t, page.more)
	assert.Len(t, page.rows, 100, "the driver does not go on by itself")
}

// Whoever reads meanwhile, and whenever an attempt is cut off, the partition is whole: each sees
// one mutation or none.
func TestSynchroniseIsAllOrNothing(t *testing.T) {
	s := newStore(t, 5)
	s.everything()
	k := s.key("everything", wireInt32(1))
	seen := s.JSON("everything", "k = 1")
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					assert.Equal(t, seen, s.JSON("everything", "k = 1"))
				}
			}
		})
	}
	start := time.Now()
	s.synchronise(k, 1000)
	whole := time.Since(start)
	const attempts = 60
	fates := map[musiccore.Status]int{}
	for i := range attempts {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(2*i)/attempts)
		r := Run(ctx, s.cluster(), k, musiccore.Synch{Fence: musiccore.Stamp(1002 + 2*i)})
		cancel()
		fates[r.Status]++
	}
	close(done)
	readers.Wait()
	t.Log("one attempt takes", whole, "fates", fates)
	s.synchronise(k, 5000)
	assert.Equal(t, seen, s.JSON("everything", "k = 1"))
}

// With version 4 of the protocol, which has no now of the client, all but the marker rule is the
// same.
func TestSynchroniseOnVersion4(t *testing.T) {
	s := newStore(t, 4)
	s.everything()
	seen := s.JSON("everything", "k = 1")
	k := s.key("everything", wireInt32(1))
	s.synchronise(k, 1000)
	s.synchronise(k, 1002)
	assert.Equal(t, seen, s.JSON("everything", "k = 1"))
}

// Columns and fields that were added since the last attempt are kept.
func TestSynchroniseFollowsTheSchema(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TYPE KS.ty (x int)")
	s.Do("CREATE TABLE KS.grows (k int PRIMARY KEY, u ty)")
	s.Do("INSERT INTO KS.grows (k, u) VALUES (1, {x: 1}) USING TIMESTAMP 5")
	k := s.key("grows", wireInt32(1))
	s.synchronise(k, 10)
	s.Do("ALTER TABLE KS.grows ADD v int")
	s.Do("ALTER TYPE KS.ty ADD y text")
	s.Do("UPDATE KS.grows USING TIMESTAMP 15 SET v = 2, u.y = 'new' WHERE k = 1")
	s.synchronise(k, 20)
	rows := s.JSON("grows", "k = 1")
	require.Len(t, rows, 1)
	var row map[string]any
	require.NoError(t, json.Unmarshal([]byte(rows[0]), &row))
	assert.Equal(t, map[string]any{"k": 1.0, "v": 2.0, "u": map[string]any{"x": 1.0, "y": "new"}}, row)
}
