package synchronise

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// modelOrder is clustering columns whose values are decimals of one digit: "10" and "1" are
// spellings of the same.
type modelOrder struct{ table tableLayout }

// compare is Cassandra's comparator of one column's values, as small numbers; the second digit is
// spelling alone.
func (modelOrder) compare(a, b int) int { return cmp.Compare(a/10, b/10) }

// order compares rows in the clustering order.
func (m modelOrder) order(a, b []int) int {
	for i, c := range m.table.clustering {
		if n := m.compare(a[i], b[i]); n != 0 {
			if c.descending {
				return -n
			}
			return n
		}
	}
	return 0
}

// spell is a small number as a decimal in wire form: 12 is 1 with two zeros behind.
func spell(n int) RawValue {
	scale := n % 10
	unscaled := new(big.Int).Mul(big.NewInt(int64(n/10)), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil))
	return append(wireInt32(int32(scale)), append([]byte{0}, unscaled.Bytes()...)...)
}

// terms are a row's clustering.
func (m modelOrder) terms(row []int) []cqlTerm {
	terms := make([]cqlTerm, len(row))
	for i, n := range row {
		terms[i] = cqlTerm{text: "?", values: []RawValue{spell(n)}}
	}
	return terms
}

// meets carries out a clause on a row, as Cassandra would: tuples are compared by values.
func (m modelOrder) meets(t *rapid.T, c clause, row []int, all [][]int) bool {
	values := c.values
	unspell := func() int {
		for _, r := range all {
			for _, n := range r {
				if string(spell(n)) == string(values[0]) {
					values = values[1:]
					return n
				}
			}
		}
		require.Fail(t, "unknown value", "%x", values[0])
		return 0
	}
	holds := true
	for _, relation := range strings.Split(c.text, " AND ")[1:] {
		names, operator, found := "", "", false
		for _, operator = range []string{" <= ", " >= ", " < ", " > ", " = "} {
			if names, _, found = strings.Cut(relation, operator); found {
				break
			}
		}
		require.True(t, found, c.text)
		order := 0
		for _, name := range strings.Split(strings.Trim(names, "()"), ", ") {
			i := slices.IndexFunc(m.table.clustering, func(c columnLayout) bool { return c.name == name })
			if n := m.compare(row[i], unspell()); order == 0 {
				order = n
			}
		}
		switch strings.TrimSpace(operator) {
		case "=":
			holds = holds && order == 0
		case "<":
			holds = holds && order < 0
		case "<=":
			holds = holds && order <= 0
		case ">":
			holds = holds && order > 0
		case ">=":
			holds = holds && order >= 0
		}
	}
	require.Empty(t, values)
	return holds
}

// drawOrder makes one to four clustering columns, and all rows of them.
func drawOrder(t *rapid.T, typeName string) (modelOrder, [][]int) {
	m := modelOrder{tableLayout{name: "t"}}
	rows := [][]int{nil}
	for i := range rapid.IntRange(1, 4).Draw(t, "columns") {
		m.table.clustering = append(m.table.clustering, columnLayout{
			name: fmt.Sprintf(`"c%d"`, i), typeName: typeName, descending: rapid.Bool().Draw(t, "descending"),
		})
		var next [][]int
		for _, r := range rows {
			for _, n := range []int{10, 11, 20, 30} {
				next = append(next, append(slices.Clone(r), n))
			}
		}
		rows = next
	}
	return m, rows
}

// drawInterval makes an interval that is not empty, or open ends.
func drawInterval(t *rapid.T, m modelOrder, rows [][]int) (lo, hi []int) {
	row := rapid.SampledFrom(rows)
	for {
		lo, hi = row.Draw(t, "lo"), row.Draw(t, "hi")
		if n := m.order(lo, hi); n > 0 {
			lo, hi = hi, lo
		} else if n == 0 {
			continue
		}
		switch rapid.IntRange(0, 4).Draw(t, "open") {
		case 0:
			lo = nil
		case 1:
			hi = nil
		}
		return lo, hi
	}
}

// The clauses of an interval together select its rows, each once, whatever the clustering order and
// the spellings of values.
func TestClausesAreTheInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, rows := drawOrder(t, "decimal")
		lo, hi := drawInterval(t, m, rows)
		var v interval
		if lo != nil {
			v.lo = m.terms(lo)
		}
		if hi != nil {
			v.hi = m.terms(hi)
		}
		clauses := m.table.clauses(v)
		require.LessOrEqual(t, len(clauses), 2*len(m.table.clustering)-1)
		for _, r := range rows {
			in := (lo == nil || m.order(r, lo) > 0) && (hi == nil || m.order(r, hi) <= 0)
			met := 0
			for _, c := range clauses {
				if m.meets(t, c, r, rows) {
					met++
				}
			}
			require.Equal(t, in, met == 1, "%v in (%v, %v] by %v", r, lo, hi, clauses)
			require.LessOrEqual(t, met, 1)
		}
	})
}

// Of a type whose equal values are not known, the clauses reach back where they must, and never
// beyond the end.
func TestClausesOfUnknownSpellings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, rows := drawOrder(t, "frozen<list<decimal>>")
		lo, hi := drawInterval(t, m, rows)
		if lo == nil || hi == nil {
			return
		}
		clauses := m.table.clauses(interval{m.terms(lo), m.terms(hi)})
		for _, r := range rows {
			met := slices.ContainsFunc(clauses, func(c clause) bool { return m.meets(t, c, r, rows) })
			if m.order(r, hi) > 0 {
				require.False(t, met, "%v behind (%v, %v] by %v", r, lo, hi, clauses)
			} else if m.order(r, lo) > 0 {
				require.True(t, met, "%v in (%v, %v] by %v", r, lo, hi, clauses)
			}
		}
	})
}

// The clauses of some intervals, as text.
func TestClauses(t *testing.T) {
	table := newTestTable(t, "k partition_key int", "a clustering int", "b clustering frozen<tuple<int, int>>", "c clustering int")
	tuple := cqlTerm{text: "(?, null)", values: []RawValue{wireInt32(5)}}
	at := func(a string, c string) []cqlTerm { return []cqlTerm{termsOf(a)[0], tuple, termsOf(c)[0]} }
	text := func(v interval) (all []string) {
		for _, c := range table.clauses(v) {
			all = append(all, c.text)
		}
		return all
	}
	assert.Equal(t, []string{""}, text(interval{}))
	assert.Equal(t, []string{` AND ("a", "b", "c") > (?, (?, null), ?) AND ("a", "b", "c") <= (?, (?, null), ?)`}, text(interval{at("1", "1"), at("1", "2")}))
	for i := range table.clustering {
		table.clustering[i].descending = true
	}
	assert.Equal(t, []string{` AND ("a", "b", "c") < (?, (?, null), ?)`}, text(interval{lo: at("1", "1")}))
	table.clustering[1].descending = false
	assert.Equal(t, []string{` AND "a" = ? AND "b" = (?, null) AND "c" < ? AND "c" >= ?`}, text(interval{at("1", "2"), at("1", "1")}))
	assert.Equal(t, []string{
		` AND "a" = ? AND "b" = (?, null) AND "c" < ?`, ` AND "a" = ? AND "b" > (?, null)`,
		` AND "a" < ? AND "a" > ?`,
		` AND "a" = ? AND "b" < (?, null)`, ` AND "a" = ? AND "b" = (?, null) AND "c" >= ?`,
	}, text(interval{at("\x00\x00\x00\x02", "1"), at("\x00\x00\x00\x01", "1")}))
	one := newTestTable(t, "k partition_key int", "a clustering int")
	one.clustering[0].descending = true
	assert.Equal(t, []clause{{` AND "a" < ? AND "a" >= ?`, []RawValue{RawValue("2"), RawValue("1")}}}, one.clauses(interval{termsOf("2"), termsOf("1")}))
}
