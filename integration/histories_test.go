package integration

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
)

// How many histories are generated, and the first seed: `make histories` runs many.
var (
	historiesCount   = flag.Int("histories", 60, "histories of one client that are compared with Cassandra's")
	historiesShared  = flag.Int("histories.shared", 15, "histories of several clients that are to be linearizable")
	historiesFirst   = flag.Uint64("histories.first", 1, "the seed of the first history")
	historiesFor     = flag.Duration("histories.for", time.Hour*24, "no history of either kind begins later than this")
	historiesWorkers = flag.Int("histories.workers", 4, "so many histories at once")
)

// The histories of one client.
const (
	historyLength = 4 // writes in each
	boundLength   = 12
	historyTries  = 20
)

// trouble reports whether an answer says nothing about the conditions, since a node or proxy was
// overloaded or did not answer in time.
func trouble(o outcome) bool {
	if o.failure == nil {
		return false
	}
	switch o.failure.code {
	case 0x0000, 0x1000, 0x1001, 0x1002, 0x1100, 0x1200, 0x1300, 0x1500, 0x1700:
		return true
	}
	return false
}

// nothingDone reports whether an error says that nothing was done.
func nothingDone(o outcome) bool {
	return o.failure != nil && (o.failure.code == 0x1001 || o.failure.code == 0x1000) && strings.Contains(o.failure.text, "MUSIC_UNAVAILABLE")
}

// patient runs a statement until its outcome is not "nothing was done".
func patient(c client, s statement) (o outcome) {
	for range historyTries {
		if o = c.run(s); !nothingDone(o) {
			break
		}
	}
	return o
}

// eachHistory calls do with the seeds of n histories, several concurrently, and logs now and then
// how many have begun.
func eachHistory(t *testing.T, n int, do func(seed uint64)) {
	var next atomic.Int64
	var workers sync.WaitGroup
	end := time.Now().Add(*historiesFor)
	for range *historiesWorkers {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && time.Now().Before(end); i = next.Add(1) - 1 {
				if i > 0 && i%1000 == 0 {
					t.Logf("%d of %d histories have begun", i, n)
				}
				do(*historiesFirst + uint64(i))
			}
		})
	}
	workers.Wait()
}

// Histories of conditional writes of one client, each on a key of its own, have the same answers
// and leave the same rows as with Cassandra's own lightweight transactions.
func TestHistoriesAreAnsweredLikeLightweightTransactions(t *testing.T) {
	d := withGocql2(4, "")
	s := newTableFixtureFor(t, d)
	s.makeTwins("@critical(unlocked=auto)")
	direct := d.open(t, needEnvironment(t).direct(), s.keyspace)
	var compared, abandoned, applied atomic.Int64
	var struck atomic.Bool // a history was given up: it is to be waited for
	struck.Store(true)
	eachHistory(t, *historiesCount, func(seed uint64) {
		if struck.Swap(false) {
			s.awaitService(direct, "twin")
			s.awaitService(s.client, "locked")
		}
		h := oneClientHistory{keyspace: s.keyspace, key: fmt.Sprintf("h%d", seed), direct: direct, proxied: s.client}
		h.play(seed)
		assert.Empty(t, h.difference, "seed %d", seed)
		applied.Add(int64(h.applied))
		if h.abandoned {
			abandoned.Add(1)
			struck.Store(true)
		} else {
			compared.Add(1)
		}
	})
	t.Logf("%d histories of %d or %d writes from seed %d on are Cassandra's, %d were given up for time-outs; %d writes were applied", compared.Load(), historyLength, boundLength, *historiesFirst, abandoned.Load(), applied.Load())
	assert.Positive(t, applied.Load())
	assert.Greater(t, compared.Load(), abandoned.Load(), "so many time-outs say nothing")
	assert.Less(t, applied.Load(), compared.Load()*(historyLength+boundLength)/2, "both outcomes have been seen")
}

// oneClientHistory is a history of one key, and its answers.
type oneClientHistory struct {
	keyspace, key   string
	direct, proxied client

	difference string
	abandoned  bool
	applied    int
}

// play generates the history of a seed and compares the answers. Every other one is of bound statements
// on two rows, which go on from what the last one wrote.
func (h *oneClientHistory) play(seed uint64) {
	next, length := conditionGenerator{rand.New(rand.NewPCG(seed, 11)), true}.next, historyLength
	if seed%2 == 0 {
		next, length = boundGenerator{rand.New(rand.NewPCG(seed, 12))}.next, boundLength
	}
	h.compare(conditionalWrite{before: "INSERT INTO TABLE (k, c) VALUES ('key', -1)", insert: true})
	for range length {
		h.compare(next())
	}
	h.compare(conditionalWrite{before: "SELECT * FROM TABLE WHERE k = 'key'"})
}

// boundGenerator makes up writes with few columns and few values, so that many conditions hold. Each UPDATE
// gives the row a value that no write takes away alone: a row whose values are deleted one by one may stay
// (docs/guarantees.md, Rows without values).
type boundGenerator struct{ *rand.Rand }

// value returns a value for a column; seldom null.
func (r boundGenerator) value(column string) any {
	n := 1 + r.IntN(2)
	switch {
	case r.IntN(10) == 0:
		return nil
	case column == "t":
		return fmt.Sprint("x", n)
	case column == "b":
		return int64(n)
	case column == "o":
		return n == 1
	}
	return n
}

// column returns a random column.
func (r boundGenerator) column() string { return []string{"a", "a", "t", "b", "o"}[r.IntN(5)] }

// next returns one write: mostly an UPDATE with IF whose values are bound.
func (r boundGenerator) next() conditionalWrite {
	one, two := r.column(), []string{"t", "b", "s"}[r.IntN(3)]
	row := fmt.Sprintf(" WHERE k = 'key' AND c = %d", r.IntN(2))
	w := conditionalWrite{before: "UPDATE TABLE", behind: " SET g = 1.5, " + one + " = ?", values: []any{r.value(one)}}
	if r.IntN(8) == 0 {
		w.ttl = "90000"
	}
	if two != one && r.IntN(2) == 0 {
		w.behind += ", " + two + " = ?"
		w.values = append(w.values, r.value(two))
	}
	switch r.IntN(16) {
	case 0:
		return conditionalWrite{before: "DELETE FROM TABLE", behind: row + []string{" IF EXISTS", ""}[r.IntN(2)]}
	case 1:
		return conditionalWrite{before: "DELETE " + one + " FROM TABLE", behind: row + " IF " + one + " = ?", values: []any{r.value(one)}}
	case 2:
		text := "INSERT INTO TABLE (c, k, " + one + ") VALUES (?, 'key', ?)" + []string{" IF NOT EXISTS", ""}[r.IntN(2)]
		return conditionalWrite{before: text, insert: true, ttl: w.ttl, values: []any{r.IntN(2), r.value(one)}}
	case 3:
		w.behind += row // without a condition
		return w
	case 4:
		return conditionalWrite{before: "BEGIN BATCH UPDATE TABLE SET g = 1.5, " + one + " = ?" + row + " IF " + one + " != ?; UPDATE TABLE SET g = 1.5, t = ? WHERE k = 'key' AND c = 1 APPLY BATCH", values: []any{r.value(one), r.value(one), r.value("t")}}
	case 5:
		return conditionalWrite{before: "UPDATE TABLE", behind: " SET st = ? WHERE k = 'key' IF st = ?", values: []any{r.value("st"), r.value("st")}}
	case 6:
		w.behind += ", li = li + [1]"
	case 7:
		w.behind += ", y = y + 1"
	case 8:
		return conditionalWrite{before: "UPDATE TABLE", behind: " SET g = 1.5, a = 1" + row + " IF a = 2"}
	}
	switch r.IntN(6) {
	case 0:
		w.behind += row + " IF EXISTS"
	case 1:
		w.behind += row + " IF " + one + " = ? AND " + two + " != ?"
		w.values = append(w.values, r.value(one), r.value(two))
	case 2:
		w.behind += row + " IF " + one + " IN (?, ?)"
		w.values = append(w.values, r.value(one), r.value(one))
	default:
		w.behind += row + " IF " + one + " = ?"
		w.values = append(w.values, r.value(one))
	}
	return w
}

// compare sends one write to both tables, unless the history has ended.
func (h *oneClientHistory) compare(w conditionalWrite) {
	if h.difference != "" || h.abandoned {
		return
	}
	want, got := h.send(h.direct, w, "twin"), h.send(h.proxied, w, "locked")
	if trouble(want) || trouble(got) {
		h.abandoned = true
		return
	}
	if told(got, "[applied]") == "true" {
		h.applied++
	}
	want.warnings, got.warnings = nil, nil
	if a, b := want.String(), strings.ReplaceAll(got.String(), "locked", "twin"); a != b {
		h.difference = fmt.Sprintf("%v: Cassandra answers %s, the proxy %s", w.on("t", 0), a, b)
	}
}

// send sends a write to a table, with the key of the history.
func (h *oneClientHistory) send(c client, w conditionalWrite, table string) outcome {
	s := w.on(h.keyspace+"."+table, 0)
	s.cql = strings.ReplaceAll(s.cql, "'key'", "'"+h.key+"'")
	values := make([]any, len(s.values))
	for i, v := range s.values {
		switch v := v.(type) {
		case string:
			values[i] = strings.ReplaceAll(v, "key", h.key)
		case []byte:
			values[i] = bytes.ReplaceAll(v, []byte("key"), []byte(h.key))
		default:
			values[i] = v
		}
	}
	if s.values != nil {
		s.values = values
	}
	return patient(c, s)
}

// sharedWrite is a write of one of several clients on one row.
type sharedWrite struct {
	kind          int
	value, is, or int
	column, using string
	row           string // the condition on the key, with the key as %[1]s
}

// sharedTold is the answer to a sharedWrite.
type sharedTold struct {
	unknown, applied bool
	shown            int // the value in the answer if it was not applied; 0 for null
}

// sharedRow is the state of the row; 0: there is none.
type sharedRow int

// sharedColumns are columns that the clients of a history write, each with a text in which only the
// value is a digit of 1 to 3.
func sharedColumns() [][2]string {
	return [][2]string{
		{"a", "%d"},
		{"a", boundColumn},
		{"a", "abs(-%d)"},
		{"t", "'%d' + ''"},
		{"tp", "(%d, 'x')"},
		{"ud", "{f: %d, g: 'x'}"},
		{"fu", "{f: %d}"},
		{"ve", "[%d, 0]"},
		{"vt", "['%d', '']"},
		{"m", "{'a': %d}"},
		{"e", "{%d, 9}"},
		{"li", "[%d, 8]"},
		{"fl", "[%d, 7]"},
	}
}

// alikeWriteOf makes up a write of a history whose writes are few statements with other values, so that a proxy
// carries out several of them together.
func alikeWriteOf(r *rand.Rand, column string) sharedWrite {
	kinds := []int{0, 1, 2, 4, 5, 6, 6, 6, 6, 6, 6, 6}
	return sharedWrite{kind: kinds[r.IntN(len(kinds))], value: 1 + r.IntN(3), is: 1 + r.IntN(3), or: 1 + r.IntN(3), column: column, row: " WHERE k = '%[1]s' AND c = 1"}
}

// sharedWriteOf makes up a write on the column of a history.
func sharedWriteOf(r *rand.Rand, column string) sharedWrite {
	rows := []string{"k = '%[1]s' AND c = 1", "k = '%[1]s' AND c = 1", "k IN ('%[1]s') AND c IN (1)", "c = 3 - 2 AND k = '%[1]s' + ''"}
	w := sharedWrite{kind: r.IntN(8), value: 1 + r.IntN(3), is: 1 + r.IntN(3), or: 1 + r.IntN(3), column: column, row: " WHERE " + rows[r.IntN(len(rows))]}
	if r.IntN(4) == 0 {
		w.using = " USING TTL 90000"
	}
	return w
}

// text returns the write as CQL, where value makes the text of a value.
func (w sharedWrite) text(table, key, value string) string {
	is := func(n int) string { return fmt.Sprintf(value, n) }
	row := fmt.Sprintf(w.row, key)
	update := fmt.Sprintf("UPDATE %s%s SET %s = %s%s IF ", table, w.using, w.column, is(w.value), row)
	switch w.kind {
	case 0:
		return fmt.Sprintf("INSERT INTO %s (k, c, %s) VALUES ('%s', 1, %s) IF NOT EXISTS%s", table, w.column, key, is(w.value), w.using)
	case 1:
		return "DELETE FROM " + table + row + " IF EXISTS"
	case 2:
		return update + "EXISTS"
	case 3:
		return fmt.Sprintf("BEGIN BATCH %s%s = %s; INSERT INTO %s (k, c) VALUES ('%s', 2) APPLY BATCH", update, w.column, is(w.is), table, key)
	case 4:
		return fmt.Sprintf("%s%s IN (%s, %s)", update, w.column, is(w.is), is(w.or))
	case 5:
		return update + w.column + " != " + is(w.is)
	}
	return update + w.column + " = " + is(w.is)
}

// step returns whether the write is applied to a row, and the row afterwards.
func (w sharedWrite) step(row sharedRow) (applied bool, after sharedRow) {
	switch w.kind {
	case 0:
		applied = row == 0
	case 1, 2:
		applied = row != 0
	case 4:
		applied = row == sharedRow(w.is) || row == sharedRow(w.or)
	case 5:
		applied = row != sharedRow(w.is)
	default:
		applied = row == sharedRow(w.is)
	}
	switch {
	case !applied:
		return false, row
	case w.kind == 1:
		return true, 0
	}
	return true, sharedRow(w.value)
}

// sharedModel is the row as one register. A write whose outcome is unknown took effect at some time
// or never, which is modelled as at the end.
func sharedModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return sharedRow(0) },
		Step: func(state, input, output any) (bool, any) {
			row, told := state.(sharedRow), output.(sharedTold)
			applied, after := input.(sharedWrite).step(row)
			return told.unknown || applied == told.applied && (applied || told.shown == int(row)), after
		},
	}
}

// Conditional writes of several clients on one row, at two proxies, are linearizable: some order
// explains all answers, in which a write that was answered before another was sent comes first.
func TestHistoriesOfSeveralClientsAreLinearizable(t *testing.T) {
	d := withGocql2(4, "")
	s := newTableFixtureFor(t, d)
	s.makeTwins("@critical(unlocked=auto)")
	other := startProxy(t, nil)
	clients := []client{s.client, d.open(t, s.address, s.keyspace), d.open(t, other.address, s.keyspace)}
	for range 3 {
		clients = append(clients, d.open(t, s.address, s.keyspace))
	}
	var linearizable, answered, unknown atomic.Int64
	var struck atomic.Bool // the outcome of a write stayed unknown: likewise
	struck.Store(true)
	eachHistory(t, *historiesShared, func(seed uint64) {
		if struck.Swap(false) {
			for _, c := range clients {
				s.awaitService(c, "locked")
			}
		}
		ops := playShared(t, clients, s.keyspace+".locked", seed)
		for _, o := range ops {
			if o.Output.(sharedTold).unknown {
				unknown.Add(1)
				struck.Store(true)
			} else {
				answered.Add(1)
			}
		}
		if porcupine.CheckOperationsTimeout(sharedModel(), ops, time.Minute) != porcupine.Ok {
			assert.Fail(t, "not linearizable", "seed %d: %+v", seed, ops)
			return
		}
		linearizable.Add(1)
	})
	t.Logf("%d histories of up to %d clients from seed %d on are linearizable; %d writes were answered, the outcome of %d stayed unknown", linearizable.Load(), len(clients), *historiesFirst, answered.Load(), unknown.Load())
	assert.Greater(t, answered.Load(), unknown.Load(), "so many unknown outcomes say nothing")
}

// awaitService waits until a client's conditional write on a table is answered: where a machine does
// too much else, histories without answers would all be as they should.
func (s *tableFixture) awaitService(c client, table string) {
	s.t.Helper()
	eventually(s.t, 10*time.Minute, "conditional writes are served", func() error {
		return c.run(statement{cql: "UPDATE " + s.keyspace + "." + table + " SET a = 1 WHERE k = 'nobody' AND c = 1 IF a = 2"}).err()
	})
}

// playShared plays the history of a seed, and returns the writes and their answers.
func playShared(t *testing.T, clients []client, table string, seed uint64) []porcupine.Operation {
	var mu sync.Mutex
	var ops []porcupine.Operation
	var group sync.WaitGroup
	began := time.Now()
	column := sharedColumns()[seed%uint64(len(sharedColumns()))]
	next := alikeWriteOf
	if column[1] != boundColumn {
		next, clients = sharedWriteOf, clients[:3]
	}
	for i, c := range clients {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		group.Go(func() {
			for range historyLength {
				w := next(r, column[0])
				called := int64(time.Since(began))
				o := patient(c, sharedStatement(w.text(table, fmt.Sprintf("s%d", seed), column[1])))
				told, returned := sharedAnswer(o, column[0]), int64(time.Since(began))
				assert.False(t, o.failure != nil && !trouble(o), "%v: %v", w, o)
				if told.unknown {
					returned = math.MaxInt64
				}
				mu.Lock()
				ops = append(ops, porcupine.Operation{ClientId: i, Input: w, Output: told, Call: called, Return: returned})
				mu.Unlock()
				if told.unknown {
					return // it may be carried out at any time, so the client sends nothing more
				}
			}
		})
	}
	group.Wait()
	return ops
}

// boundColumn makes the text of a value that is to be bound.
const boundColumn = "<%d>"

// boundNumbers are the numbers of a text that are to be bound.
var boundNumbers = regexp.MustCompile("<([0-9])>")

// sharedStatement returns the statement of a text.
func sharedStatement(text string) (s statement) {
	for _, n := range boundNumbers.FindAllStringSubmatch(text, -1) {
		s.values = append(s.values, int(n[1][0]-'0'))
	}
	s.cql = boundNumbers.ReplaceAllString(text, "?")
	return s
}

// sharedAnswer returns what an answer says of a column.
func sharedAnswer(o outcome, shown string) (a sharedTold) {
	if o.failure != nil {
		return sharedTold{unknown: true}
	}
	a.applied = told(o, "[applied]") == "true"
	at := slices.Index(o.columns, shown)
	if a.applied || at < 0 {
		return a
	}
	if shown > "tp" {
		at += len(o.rows[0]) - len(o.columns) // gocql shows the parts of a tuple as cells
	}
	if n := strings.IndexAny(o.rows[0][at], "123"); n >= 0 {
		a.shown = int(o.rows[0][at][n] - '0')
	}
	return a
}

// makeTwins makes two tables with columns of all kinds, of which locked has a comment.
func (s *tableFixture) makeTwins(comment string) {
	s.t.Helper()
	const columns = " (k text, c int, a int, b bigint, s smallint, y tinyint, t text, n decimal, v varint, f double, g float, u uuid, w timestamp, o boolean, d date, i inet, l blob, h time, m map<text, int>, e set<int>, li list<int>, fl frozen<list<int>>, fm frozen<map<text, int>>, tp tuple<int, text>, ud pair, fu frozen<pair>, du duration, ve vector<float, 2>, vt vector<text, 2>, st int static, su int static, ms map<text, int> static, PRIMARY KEY (k, c))"
	s.works(s.client, "CREATE TYPE pair (f int, g text)")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".locked"+columns+" WITH comment = '"+comment+"'")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".twin"+columns)
}
