package synchronise

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"music/musiccore"
)

// literals are values of a column's type as CQL writes them; the first and second of a type are not
// the same.
func literals(typeName string) []string {
	return map[string][]string{
		"int":                                {"1", "2", "-1", "blobasint(0x)", "3", "4", "5", "6"},
		"text":                               {"'a'", "'b'", "''", "'a b'", "'ä'"},
		"double":                             {"1", "2.5", "-1", "NaN", "-0.0", "0.0"},
		"decimal":                            {"1.0", "2", "1.00", "-3"},
		"varint":                             {"1", "2", "-300", "70000"},
		"blob":                               {"0x00", "0x01", "0x", "0x0001"},
		"boolean":                            {"true", "false"},
		"timeuuid":                           {"50554d6e-29bb-11e5-b345-feff819cdc9f", "60554d6e-29bb-11e5-b345-feff819cdc9f", "50554d6e-29bb-11e6-b345-feff819cdc9f"},
		"frozen<tuple<int, text>>":           {"(1, 'a')", "(2, 'a')", "(1, null)", "(null, '')"},
		"frozen<list<int>>":                  {"[1]", "[1, 2]", "[]", "[-1]"},
		"frozen<ty>":                         {"{x: 1}", "{x: 2, y: 'a'}"},
		"list<text>":                         {"['a']", "['b', 'a', 'b']", "['']"},
		"set<int>":                           {"{1}", "{2, 3}", "{4, 5}"},
		"map<text, frozen<list<int>>>":       {"{'a': [1]}", "{'b': [], '': [2]}"},
		"ty":                                 {"{x: 1, y: 'a'}", "{y: ''}"},
		"tuple<int, frozen<tuple<int,int>>>": {"(1, (2, null))", "(null, null)"},
	}[typeName]
}

// shape is a table that a test has made.
type shape struct {
	name            string
	clustering      []string // types
	regular, static []string // types
	text            string   // of its CREATE
	k               int      // the partition under test
}

// drawShape makes one out of a number: always the same.
func drawShape(n int) shape {
	r := rand.New(rand.NewPCG(uint64(n), 7))
	keys := []string{"int", "text", "double", "decimal", "varint", "blob", "boolean", "timeuuid", "frozen<tuple<int, text>>", "frozen<list<int>>"}
	values := []string{"int", "text", "list<text>", "set<int>", "map<text, frozen<list<int>>>", "ty", "frozen<ty>", "tuple<int, frozen<tuple<int,int>>>"}
	s := shape{name: fmt.Sprintf("shape%d", n)}
	var columns, names, order []string
	for i := range 1 + n%3 {
		s.clustering = append(s.clustering, keys[r.IntN(len(keys))])
		names = append(names, fmt.Sprintf("c%d", i))
		order = append(order, fmt.Sprintf("c%d %s", i, []string{"ASC", "DESC"}[r.IntN(2)]))
		columns = append(columns, fmt.Sprintf("c%d %s", i, s.clustering[i]))
	}
	for i := range r.IntN(4) {
		s.regular = append(s.regular, values[r.IntN(len(values))])
		columns = append(columns, fmt.Sprintf("r%d %s", i, s.regular[i]))
	}
	for i := range r.IntN(3) {
		s.static = append(s.static, values[r.IntN(len(values))])
		columns = append(columns, fmt.Sprintf("s%d %s static", i, s.static[i]))
	}
	s.text = fmt.Sprintf("CREATE TABLE KS.%s (k int, %s, PRIMARY KEY (k, %s)) WITH CLUSTERING ORDER BY (%s)",
		s.name, strings.Join(columns, ", "), strings.Join(names, ", "), strings.Join(order, ", "))
	return s
}

// at is a WHERE of the first columns of a row that is drawn.
func (s shape) at(t *rapid.T, columns int) string {
	where := fmt.Sprintf(" WHERE k = %d", s.k)
	for i, typeName := range s.clustering[:columns] {
		where += fmt.Sprintf(" AND c%d = %s", i, rapid.SampledFrom(literals(typeName)).Draw(t, "clustering"))
	}
	return where
}

// assignments are columns with values of their types.
func assignments(t *rapid.T, prefix string, types []string) (set []string) {
	for i, typeName := range types {
		if !rapid.Bool().Draw(t, "set") {
			continue
		}
		name, value := fmt.Sprintf("%s%d", prefix, i), rapid.SampledFrom(literals(typeName)).Draw(t, "value")
		collection := strings.HasPrefix(typeName, "list<") || strings.HasPrefix(typeName, "set<") || strings.HasPrefix(typeName, "map<")
		if collection && rapid.Bool().Draw(t, "add") {
			value = name + " + " + value
		}
		set = append(set, name+" = "+value)
	}
	return set
}

// statement is one write of any kind, at a stamp. Rows without a value get no TTL: CQL does not
// show it.
func (s shape) statement(t *rapid.T, stamp int) string {
	using := fmt.Sprintf(" USING TIMESTAMP %d", stamp)
	ttl := rapid.SampledFrom([]string{"", "", " AND TTL 5000", " AND TTL 7000", " AND TTL 90000"}).Draw(t, "TTL")
	table := "KS." + s.name
	switch kind := rapid.IntRange(0, 19).Draw(t, "kind"); {
	case kind < 7:
		names, values := "k", fmt.Sprint(s.k)
		for i, typeName := range s.clustering {
			names += fmt.Sprintf(", c%d", i)
			values += ", " + rapid.SampledFrom(literals(typeName)).Draw(t, "clustering")
		}
		return "INSERT INTO " + table + " (" + names + ") VALUES (" + values + ")" + using
	case kind < 14:
		if set := assignments(t, "r", s.regular); set != nil {
			return "UPDATE " + table + using + ttl + " SET " + strings.Join(set, ", ") + s.at(t, len(s.clustering))
		}
	case kind < 17:
		if set := assignments(t, "s", s.static); set != nil {
			return "UPDATE " + table + using + ttl + " SET " + strings.Join(set, ", ") + s.at(t, 0)
		}
	case kind < 19:
		return "DELETE FROM " + table + using + s.at(t, rapid.IntRange(1, len(s.clustering)).Draw(t, "columns"))
	}
	at := s.at(t, 1)
	return "DELETE FROM " + table + using + strings.Replace(at, "c0 =", rapid.SampledFrom([]string{"c0 >", "c0 <="}).Draw(t, "range"), 1)
}

// snapshot is all that can be seen of a partition: now with the time that is left of each value,
// and when all that is to go has gone.
type snapshot struct {
	now, later []dataRow
	json       []string
}

func (s *store) snapshot(k Target, now int) snapshot {
	s.t.Helper()
	pk, err := RawValue(k.PK).int32()
	require.NoError(s.t, err)
	var all snapshot
	all.now, _ = s.look(k, now)
	all.later, _ = s.look(k, farFuture)
	all.json = s.JSON(k.Table, fmt.Sprintf("k = %d", pk))
	return all
}

// breaker ends a context after so many batches; the session tells it of each.
type breaker struct {
	mu       sync.Mutex
	seen, at int
	end      context.CancelFunc
}

// ObserveBatch implements gocql.BatchObserver.
func (b *breaker) ObserveBatch(context.Context, gocql.ObservedBatch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen++; b.seen == b.at {
		b.end()
	}
}

// after is a context that ends after so many batches.
func (b *breaker) after(ctx context.Context, batches int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at, b.end = b.seen+batches, cancel
	return ctx, cancel
}

// Whatever the schema and the data: what is there before is there afterwards, to the second of each
// TTL; after a crash in the middle and at every later attempt; and nothing late surfaces.
func TestSynchroniseAnySchemaInPieces(t *testing.T) {
	breaker := &breaker{}
	s := newObservedStore(t, breaker)
	s.Do("CREATE TYPE KS.ty (x int, y text)")
	made := map[int]shape{}
	keys := 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 17).Draw(t, "schema")
		sh, ok := made[n]
		if !ok {
			sh = drawShape(n)
			s.Do(sh.text)
			made[n] = sh
		}
		keys++
		sh.k = keys
		k := s.key(sh.name, wireInt32(int32(keys)))
		now := int(time.Now().Unix())
		for i := range rapid.SampledFrom([]int{40, 20, 10, 3, 1, 0}).Draw(t, "statements") {
			s.Do(sh.statement(t, 100+10*i))
		}
		before := s.snapshot(k, now)
		p := s.partition(k, now)
		p.sizes.short, p.sizes.full = rapid.IntRange(1, 3).Draw(t, "short"), rapid.IntRange(1, 6).Draw(t, "full")
		p.sizes.batch = rapid.SampledFrom([]int{1, 400, 2000}).Draw(t, "batch")

		ctx, cancel := breaker.after(context.Background(), rapid.IntRange(1, 5).Draw(t, "crash after"))
		r := p.run(ctx, musiccore.Synch{Fence: 1000})
		cancel()
		require.Contains(t, []musiccore.Status{musiccore.StatusDone, musiccore.StatusUnknown}, r.Status, "%v", r.Cause)
		require.Equal(t, before, s.snapshot(k, now), "after a crash")
		for fence := musiccore.Stamp(1002); fence <= 1004; fence += 2 {
			r = p.run(t.Context(), musiccore.Synch{Fence: fence})
			require.NoError(t, r.Cause)
			require.Equal(t, musiccore.StatusDone, r.Status)
			require.Equal(t, before, s.snapshot(k, now), "at fence %d", fence)
		}
		_, stamps := s.look(k, now)
		for _, stamp := range stamps {
			require.Equal(t, musiccore.Stamp(1005), stamp)
		}
		for range rapid.IntRange(3, 12).Draw(t, "late") {
			late := sh.statement(t, rapid.SampledFrom([]int{50, 999, 1003, 1004}).Draw(t, "stamp"))
			s.Do(late)
		}
		require.Equal(t, before, s.snapshot(k, now), "after late writes")
		s.Do("DELETE FROM KS." + sh.name + " USING TIMESTAMP 1004" + sh.at(t, 0))
		require.Equal(t, before, s.snapshot(k, now))
	})
	t.Log(len(made), "schemas,", breaker.seen, "batches")
}

// Clients that read at ONE meanwhile see each row all the time (I8).
func TestRowsAreThereAllTheTime(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.seen (k int, a int, b text, st text static, v int, m map<int, int>, PRIMARY KEY (k, a, b)) WITH CLUSTERING ORDER BY (a DESC, b ASC)")
	for a := range 8 {
		for _, b := range []string{"", "x", "y"} {
			s.Do(fmt.Sprintf("INSERT INTO KS.seen (k, a, b, st, v, m) VALUES (1, %d, '%s', 'static', %d, {1: %d, 2: 2}) USING TIMESTAMP 5", a, b, a, a))
		}
	}
	k := s.key("seen", wireInt32(1))
	seen := s.JSON("seen", "k = 1")
	require.Len(t, seen, 24)
	var done atomic.Bool
	var readers sync.WaitGroup
	reads := atomic.Int64{}
	for range 3 {
		readers.Go(func() {
			for !done.Load() {
				if !assert.Equal(t, seen, s.JSON("seen", "k = 1")) {
					return
				}
				reads.Add(1)
			}
		})
	}
	p := s.partition(k, int(time.Now().Unix()))
	p.sizes.short, p.sizes.full, p.sizes.batch = 2, 3, 300
	for fence := musiccore.Stamp(10); fence < 50; fence += 2 {
		require.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, p.run(t.Context(), musiccore.Synch{Fence: fence}))
	}
	done.Store(true)
	readers.Wait()
	assert.Positive(t, reads.Load())
}

// A stamp above the fence on a later page ends the attempt after some intervals were written; the
// next one makes it good.
func TestAboveAfterSomeIntervals(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.half (k int, c int, st int static, v int, PRIMARY KEY (k, c))")
	s.Do("UPDATE KS.half USING TIMESTAMP 5 SET st = 7 WHERE k = 1")
	for c := range 9 {
		s.Do(fmt.Sprintf("INSERT INTO KS.half (k, c, v) VALUES (1, %d, %d) USING TIMESTAMP %d", c, c, 5+c/8*100))
	}
	k := s.key("half", wireInt32(1))
	now := int(time.Now().Unix())
	before := s.snapshot(k, now)
	p := s.partition(k, now)
	p.sizes.short, p.sizes.full = 2, 2
	require.Equal(t, musiccore.Result{Status: musiccore.StatusAbove, Stamp: 105}, p.run(t.Context(), musiccore.Synch{Fence: 50}))
	_, stamps := s.look(k, now)
	slices.Sort(stamps)
	assert.Equal(t, []musiccore.Stamp{51, 105}, slices.Compact(stamps), "the static column and eight rows were written")
	assert.Equal(t, before, s.snapshot(k, now))
	require.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, p.run(t.Context(), musiccore.Synch{Fence: 106}))
	assert.Equal(t, before, s.snapshot(k, now))
	s.Do("DELETE FROM KS.half USING TIMESTAMP 106 WHERE k = 1")
	assert.Equal(t, before, s.snapshot(k, now))
}

// One row may be larger than a page and than a batch of several rows, up to what Cassandra takes in
// one message.
func TestLargeRows(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.wide (k int, c int, st text static, v blob, l list<tinyint>, PRIMARY KEY (k, c))")
	put := func(k, c, size int, stamp int64) {
		require.NoError(t, s.Session.Query("INSERT INTO "+s.Name+".wide (k, c, v) VALUES (?, ?, ?)", k, c, make([]byte, size)).WithTimestamp(stamp).Exec())
	}
	largest := s.partition(s.key("wide", wireInt32(1)), 0).sizes.largest
	const beside = 200 // of the frame
	for c, size := range []int{10, largest - beside - 1000, 10, 2 << 20, 1 << 20} {
		put(1, c, size, 5)
	}
	s.Do("UPDATE KS.wide USING TIMESTAMP 5 SET st = 'static' WHERE k = 1")
	k := s.key("wide", wireInt32(1))
	require.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, Run(t.Context(), s.cluster(), k, musiccore.Synch{Fence: 10}))
	rows, stamps := s.look(k, int(time.Now().Unix()))
	assert.Len(t, rows, 5)
	assert.Equal(t, []musiccore.Stamp{11}, slices.Compact(stamps))

	// A statement of the client's own is a little smaller than the one that writes its row back.
	put(2, 1, 10, 5)
	put(2, 2, largest-100, 5)
	r := Run(t.Context(), s.cluster(), s.key("wide", wireInt32(2)), musiccore.Synch{Fence: 10})
	assert.Equal(t, musiccore.StatusTooLarge, r.Status)
	require.ErrorIs(t, r.Cause, errTooLarge)
	require.ErrorContains(t, r.Cause, fmt.Sprint(largest))

	// In a mutation, elements of a list weigh more than in a message.
	elements := make([]int8, 60_000)
	for c := range 4 {
		require.NoError(t, s.Session.Query("UPDATE "+s.Name+".wide SET l = ? WHERE k = 3 AND c = ?", elements, c).WithTimestamp(5).Exec())
	}
	p := s.partition(s.key("wide", wireInt32(3)), int(time.Now().Unix()))
	page, err := p.first(t.Context())
	require.NoError(t, err)
	assert.Nil(t, page.after)
	assert.False(t, page.more)
	batches := p.table.rewrite(p.pk, page, rewriting{fence: 10, batch: 1 << 20})
	assert.Len(t, batches, 4)
	require.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, p.run(t.Context(), musiccore.Synch{Fence: 10}))
}

// Markers of later pages are learned as well.
func TestMarkersOfLaterPages(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TABLE KS.leases (k int, a int, b int, holder text, PRIMARY KEY (k, a, b)) WITH CLUSTERING ORDER BY (a ASC, b DESC)")
	for i := range 20 {
		if i%3 == 0 {
			s.Do(fmt.Sprintf("INSERT INTO KS.leases (k, a, b) VALUES (1, %d, %d) USING TIMESTAMP 5", i/5, i%5))
		}
		s.Do(fmt.Sprintf("UPDATE KS.leases USING TIMESTAMP 6 AND TTL 5000 SET holder = 'x' WHERE k = 1 AND a = %d AND b = %d", i/5, i%5))
	}
	k := s.key("leases", wireInt32(1))
	now := int(time.Now().Unix())
	before := s.snapshot(k, now)
	require.Len(t, before.now, 20)
	require.Len(t, before.later, 7)
	p := s.partition(k, now)
	p.sizes.short, p.sizes.full = 2, 3
	require.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, p.run(t.Context(), musiccore.Synch{Fence: 10}))
	assert.Equal(t, before, s.snapshot(k, now))
}
