package synchronise

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

var histories = flag.Int("histories", 40, "histories of TestHistoriesAreThoseOfAPlainTable")

// twins are two tables that see the same statements; the second is synchronised now and then.
type twins struct {
	*store
	name   string
	wide   bool // several rows a partition, a static column
	k      int32
	r      *rand.Rand
	now    int
	stamp  int
	told   []string
	synced map[string]int // of rows that had a column when they were synchronised, the second at which the last goes
	of     [2]partition   // of both tables, at any key
}

// columns of every storage; a UDT is one of several cells, too.
const twinColumns = "a int, b int, m map<int, int>, s set<int>, u ty"

func (w *twins) tables() [2]string { return [2]string{w.name + "_plain", w.name + "_synchronised"} }

// create makes the tables.
func (w *twins) create(options string) {
	for _, table := range w.tables() {
		columns := "k int, c int, st int static, sm map<int, int> static, " + twinColumns + ", PRIMARY KEY (k, c)"
		if !w.wide {
			columns = "k int PRIMARY KEY, " + twinColumns
		}
		w.Do("CREATE TABLE KS." + table + " (" + columns + ")" + options)
	}
	for i, table := range w.tables() {
		w.of[i] = w.partition(w.key(table, wireInt32(0)), 0)
	}
}

// statement draws one; T is its table.
func (w *twins) statement() string {
	pick := func(of ...string) string { return of[w.r.IntN(len(of))] }
	using := fmt.Sprintf(" USING TIMESTAMP %d", w.stamp)
	ttl := pick("", "", " AND TTL 10", " AND TTL 25", " AND TTL 60", " AND TTL 300", " AND TTL 0")
	c := w.r.IntN(3)
	at, key, value := fmt.Sprintf(" WHERE k = %d", w.k), "k", fmt.Sprint(w.k)
	row := at
	if w.wide {
		row, key, value = fmt.Sprintf("%s AND c = %d", at, c), "k, c", fmt.Sprintf("%d, %d", w.k, c)
	}
	n := w.r.IntN(9)
	column := pick("a", "a", "b", "m", "s", "u")
	literal := map[string]string{"a": "%d", "b": "%d", "m": "{%[1]d: %[1]d}", "s": "{%d}", "u": "{x: %d}"}[column]
	literal = fmt.Sprintf(literal, n)
	switch kind := w.r.IntN(20); {
	case kind < 3:
		return "INSERT INTO T (" + key + ") VALUES (" + value + ")" + using + ttl
	case kind < 7:
		return "INSERT INTO T (" + key + ", " + column + ") VALUES (" + value + ", " + literal + ")" + using + ttl
	case kind < 11:
		return "UPDATE T" + using + ttl + " SET " + column + " = " + literal + row
	case kind < 13:
		return "UPDATE T" + using + ttl + " SET " + pick("m = m + {7: 8}", "s = s + {9}", "u.y = 5") + row
	case kind < 16:
		return "DELETE " + pick(column, "a, b", "a, b, m, s, u", "m[1]") + " FROM T" + using + row
	case kind < 17:
		return "DELETE FROM T" + using + row
	case w.wide && kind < 18:
		return "DELETE FROM T" + using + at + pick(" AND c > 0", " AND c <= 1", "")
	case w.wide && kind < 19:
		return "UPDATE T" + using + ttl + " SET " + pick("st = 1", "sm = sm + {1: 2}", "sm = {3: 4}", "st = null") + at
	}
	return "UPDATE T" + using + " SET a = null, m = null" + row
}

// do has both tables carry out a statement at the history's second.
func (w *twins) do(text string) {
	w.told = append(w.told, fmt.Sprintf("%d s: %s", w.now, text))
	for _, table := range w.tables() {
		text := strings.Replace(text, " T ", " "+w.Name+"."+table+" ", 1)
		require.NoError(w.t, w.Session.Query(text).WithNowInSeconds(w.now).Exec(), text)
	}
}

// at is the partition in one of the tables at a second.
func (w *twins) at(table, now int) partition {
	p := w.of[table].at(now)
	p.pk = termsOf(string(wireInt32(w.k)))
	return p
}

// synchronise settles the second table, and remembers which rows had a column.
func (w *twins) synchronise() {
	w.told = append(w.told, fmt.Sprintf("%d s: synchronise at %d", w.now, w.stamp))
	for _, r := range w.rows(1, w.now) {
		end := w.now + int(r.longest())
		switch {
		case len(r.ttls()) == 0:
			continue
		case r.longest() == 0:
			end = math.MaxInt
		}
		w.synced[r.clusteringKey()] = max(end, w.synced[r.clusteringKey()])
	}
	r := w.at(1, w.now).run(w.t.Context(), musiccore.Synch{Fence: musiccore.Stamp(w.stamp)})
	require.Equal(w.t, musiccore.Result{Status: musiccore.StatusDone}, r)
	w.stamp += 2
}

// rows are what one of the tables shows at a second.
func (w *twins) rows(table, now int) map[string]dataRow {
	rows, err := w.at(table, now).all(w.t.Context(), clause{})
	require.NoError(w.t, err)
	all := map[string]dataRow{}
	for _, r := range rows {
		for _, cells := range [][]dataCell{r.static, r.regular} {
			for i := range cells {
				cells[i].stamp = 0
			}
		}
		all[r.clusteringKey()] = r
	}
	return all
}

// play draws a history, and answers how the tables differ at seconds after it: how often a row
// remains in the second without a column, and what differs else.
func (w *twins) play() (remaining int, differences []string) {
	w.told, w.synced = nil, map[string]int{}
	w.k++
	w.now, w.stamp = int(time.Now().Unix())+60, 1000
	for range 1 + w.r.IntN(2) {
		for range 1 + w.r.IntN(6) {
			w.do(w.statement())
			w.now += w.r.IntN(12)
			w.stamp += 10
		}
		w.synchronise()
	}
	for range w.r.IntN(4) {
		w.do(w.statement())
		w.now += w.r.IntN(12)
		w.stamp += 10
	}
	for _, ahead := range []int{0, 1, 5, 9, 10, 11, 15, 24, 25, 40, 59, 61, 200, 301, farFuture - w.now} {
		want, got := w.rows(0, w.now+ahead), w.rows(1, w.now+ahead)
		for at, row := range got {
			if _, there := want[at]; !there && w.now+ahead < w.synced[at] && len(row.ttls()) == 0 && !row.staticOnly() {
				delete(got, at)
				remaining++
			}
		}
		if len(got) == 0 && remaining > 0 {
			maps.DeleteFunc(want, func(_ string, r dataRow) bool { return r.staticOnly() }) // it stands for a partition without rows
		}
		if !assert.ObjectsAreEqual(want, got) {
			differences = append(differences, fmt.Sprintf("%d s later: want %v, got %v", ahead, want, got))
		}
	}
	return remaining, differences
}

// A history of statements and synchronises leaves what the same statements leave without any: every
// row, value and time to live, at every later second. But for one thing, which is told here: a row
// that had a column when it was synchronised may remain without one, for as long as that would have
// lived.
func TestHistoriesAreThoseOfAPlainTable(t *testing.T) {
	s := newStore(t, 5)
	s.Do("CREATE TYPE KS.ty (x int, y int)")
	r := rand.New(rand.NewPCG(19, 1))
	var all []*twins
	for i, options := range []string{"", " WITH default_time_to_live = 25"} {
		for _, wide := range []bool{false, true} {
			w := &twins{store: s, name: fmt.Sprintf("t%d_%t", i, wide), wide: wide, r: r}
			w.create(options)
			all = append(all, w)
		}
	}
	remaining, differing := 0, 0
	for i := range *histories {
		w := all[i%len(all)]
		n, differences := w.play()
		if n > 0 {
			remaining++
		}
		if differences != nil {
			differing++
			assert.Fail(t, "a difference", "history %d of %s:\n%s\n%s", i, w.name, strings.Join(w.told, "\n"), strings.Join(differences, "\n"))
		}
	}
	t.Logf("%d histories: %d differ, in %d a row of nulls remains", *histories, differing, remaining)
}
