package synchronise

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"music/musiccore"
	"music/rewrite"
)

// modelCell is a cell of the model: of a plain column, or an element of a collection, or a field of
// a UDT.
type modelCell struct {
	path  string // key of a map, element of a set, field of a UDT; lists are kept in order
	value string
	ttl   int32
}

// modelRow is a row: the TTL of its marker, -1 for none, and its cells by column.
type modelRow struct {
	marker int32
	cells  map[string][]modelCell
}

// modelPartition is a partition of the model: rows by clustering key, "" for the static columns.
type modelPartition map[string]modelRow

// rowOf is the row, made where there is none.
func (m modelPartition) rowOf(at string) modelRow {
	if _, ok := m[at]; !ok {
		m[at] = modelRow{marker: -1, cells: map[string][]modelCell{}}
	}
	return m[at]
}

// modelTable has a column of every storage, static and not.
func modelTable() (tableLayout, error) {
	d := tableDescription{keyspace: "ks", name: "t", flags: []string{"compound"}, types: map[string][]string{"ty": {"f0", "f1"}}}
	d.columns = append(d.columns, columnDescription{"k", "partition_key", "int", 0, "none"}, columnDescription{"c", "clustering", "int", 0, "asc"})
	types := map[string]string{"p": "int", "q": "text", "l": "list<int>", "s": "set<int>", "m": "map<int, int>", "u": "ty", "t": "frozen<tuple<int, int>>"}
	for name, typeName := range types {
		d.columns = append(d.columns, columnDescription{"r" + name, "regular", typeName, -1, "none"}, columnDescription{"s" + name, "static", typeName, -1, "none"})
	}
	return newTableLayout(d)
}

// drawCells makes what a column holds, in the order of a SELECT.
func drawCells(t *rapid.T, c columnLayout, ttl *rapid.Generator[int32]) []modelCell {
	value := rapid.SampledFrom([]string{"", "a", "bb"})
	many := rapid.IntRange(0, 4).Draw(t, "size")
	if c.storage == plainStorage && many > 0 {
		many = 1
	}
	var cells []modelCell
	for i := range many {
		cell := modelCell{path: fmt.Sprint(i), value: value.Draw(t, "value"), ttl: ttl.Draw(t, "ttl")}
		switch c.storage {
		case plainStorage, listStorage:
			cell.path = ""
		case setStorage:
			cell.value = ""
		case udtStorage:
			if i > 1 || rapid.Bool().Draw(t, "null field") {
				continue
			}
		}
		if c.shape != nil {
			cell.value = string(tupleOf(RawValue(cell.value), nil))
		}
		cells = append(cells, cell)
	}
	return cells
}

func tupleOf(values ...RawValue) RawValue {
	all := RawValue{}
	for _, v := range values {
		if v == nil {
			all = append(all, wireInt32(-1)...)
			continue
		}
		all = append(append(all, wireInt32(int32(len(v)))...), v...)
	}
	return all
}

// selected is what TTL(), WRITETIME() and the value itself are of a column.
func selected(c columnLayout, cells []modelCell, stamp int64) []RawValue {
	if len(cells) == 0 {
		return []RawValue{nil, nil, nil}
	}
	var elements, ttls []RawValue
	for i, at := 0, 0; i < len(cells) || c.storage == udtStorage && at < 2; at++ {
		if c.storage == udtStorage && (i == len(cells) || cells[i].path != fmt.Sprint(at)) {
			elements, ttls = append(elements, nil), append(ttls, nil)
			continue
		}
		cell := cells[i]
		i++
		switch c.storage {
		case setStorage:
			elements = append(elements, RawValue(cell.path))
		case mapStorage:
			elements = append(elements, RawValue(cell.path), RawValue(cell.value))
		default:
			elements = append(elements, append(RawValue{}, cell.value...))
		}
		if cell.ttl == 0 {
			ttls = append(ttls, nil)
		} else {
			ttls = append(ttls, wireInt32(cell.ttl))
		}
	}
	count := wireInt32(int32(len(ttls)))
	switch {
	case c.shape != nil:
		return []RawValue{append(wireInt32(1), tupleOf(elements[0])...), ttls[0], wireInt64(stamp)}
	case c.storage == plainStorage:
		return []RawValue{elements[0], ttls[0], wireInt64(stamp)}
	case c.storage == udtStorage:
		return []RawValue{tupleOf(elements...), append(count, tupleOf(ttls...)...), wireInt64(stamp)}
	}
	return []RawValue{append(slices.Clone(count), tupleOf(elements...)...), append(count, tupleOf(ttls...)...), wireInt64(stamp)}
}

// drawPartition makes a partition and the page that a SELECT would answer, with a marker for each
// row: as the rule has it, or one without a TTL.
func drawPartition(t *rapid.T, table tableLayout) (modelPartition, [][]RawValue) {
	p := modelPartition{}
	fill := func(at string, columns []columnLayout) (page []RawValue) {
		ttl := rapid.SampledFrom(rapid.SampledFrom([][]int32{{0}, {9}, {5, 7, 9}, {0, 0, 5, 9}}).Draw(t, "TTLs"))
		for _, c := range columns {
			cells := drawCells(t, c, ttl)
			if cells != nil {
				p.rowOf(at).cells[c.name] = cells
			}
			page = append(page, selected(c, cells, rapid.Int64Range(0, 99).Draw(t, "stamp"))...)
		}
		return page
	}
	static := fill("", table.static)
	var pages [][]RawValue
	for i := range rapid.IntRange(0, 3).Draw(t, "rows") {
		at := fmt.Sprintf("row%d", i)
		p.rowOf(at)
		pages = append(pages, slices.Concat([]RawValue{RawValue(at)}, static, fill(at, table.regular)))
		row := p[at]
		row.marker = markerByRule(row)
		if rapid.Bool().Draw(t, "permanent") {
			row.marker = 0
		}
		p[at] = row
	}
	if pages == nil && p[""].cells != nil {
		pages = append(pages, slices.Concat([]RawValue{nil}, static, make([]RawValue, 3*len(table.regular))))
	}
	return p, pages
}

// later are the rows at farFuture that have no columns left; others tell nothing of a marker.
func (m modelPartition) later(table tableLayout) []dataRow {
	var rows []dataRow
	for at, r := range m {
		if at != "" && r.marker == 0 && (len(r.cells) == 0 || markerByRule(r) != 0) {
			rows = append(rows, dataRow{clustering: termsOf(at), regular: make([]dataCell, len(table.regular))})
		}
	}
	return rows
}

// learn notes the markers that the model shows at later seconds.
func (m modelPartition) learn(t *rapid.T, table tableLayout, rows []dataRow) {
	ending, moved := learn(rows, m.later(table))
	require.False(t, moved)
	require.NoError(t, findEnds(0, partition{table: table}.searches(ending), func(s search, at int) (there, gone []*dataRow, err error) {
		later := m.aged(int32(at))
		for _, r := range s.rows {
			row, some := later[string(r.clustering[0].values[0])]
			require.Empty(t, row.cells, "columns at %d", at)
			if some {
				there = append(there, r)
			} else {
				gone = append(gone, r)
			}
		}
		return there, gone, nil
	}))
}

func markerByRule(r modelRow) int32 {
	var longest int32
	for _, cells := range r.cells {
		for _, c := range cells {
			if c.ttl == 0 {
				return 0
			}
			longest = max(longest, c.ttl)
		}
	}
	return longest
}

// run carries out the batch on an empty partition, as Cassandra would, and holds its rules: stamps,
// one partition, no null.
func (m modelPartition) run(t *rapid.T, table tableLayout, writes []statement, fence musiccore.Stamp) {
	for i, w := range writes {
		values := w.values
		next := func() RawValue {
			v := values[0]
			values = values[1:]
			return v
		}
		verb, rest, _ := strings.Cut(w.text, " ")
		switch verb {
		case "DELETE":
			require.Zero(t, i)
			require.Equal(t, []RawValue{wireInt64(int64(fence)), RawValue("key")}, values)
			require.Equal(t, `FROM "ks"."t" USING TIMESTAMP ? WHERE "k" = ?`, rest)
			continue
		case "INSERT":
			names, terms, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(rest, `INTO "ks"."t" (`), ") USING TIMESTAMP ? AND TTL ?"), ") VALUES (")
			ttl := values[len(values)-1]
			require.Equal(t, wireInt64(int64(fence)+1), values[len(values)-2])
			require.Equal(t, RawValue("key"), next())
			at := string(next())
			n, err := ttl.int32()
			require.NoError(t, err)
			row := m.rowOf(at)
			row.marker = n
			m[at] = row
			terminals := splitTerms(terms)
			for j, name := range strings.Split(names, ", ")[2:] {
				m.assign(t, table, at, assignment{name: name, value: bind(terminals[j+2], next), ttl: n})
			}
		case "UPDATE":
			set, where, _ := strings.Cut(strings.TrimPrefix(rest, `"ks"."t" USING TIMESTAMP ? AND TTL ? SET `), " WHERE ")
			require.Equal(t, wireInt64(int64(fence)+1), next())
			n, err := next().int32()
			require.NoError(t, err)
			at := ""
			if strings.Contains(where, `"c"`) {
				at = string(values[len(values)-1])
			}
			for _, equation := range splitTerms(set) {
				name, term, _ := strings.Cut(equation, " = ")
				addend, add := strings.CutPrefix(term, name+" + ")
				m.assign(t, table, at, assignment{name: name, value: bind(addend, next), ttl: n, add: add})
			}
		}
	}
}

// splitTerms splits at the commas outside brackets.
func splitTerms(list string) []string {
	return splitTypes(strings.NewReplacer("(", "<", ")", ">", `"`, "").Replace(list))
}

// bind is the value of a term; nil is UNSET.
func bind(term string, next func() RawValue) RawValue {
	inner, ok := strings.CutPrefix(term, "<")
	if !ok {
		return next()
	}
	var values []RawValue
	for _, element := range splitTypes(strings.TrimSuffix(inner, ">")) {
		if element == "null" {
			values = append(values, nil)
		} else {
			values = append(values, next())
		}
	}
	return tupleOf(values...)
}

// assignment is `name = value`, or `name = name + value`.
type assignment struct {
	name  string // without its quotes
	value RawValue
	ttl   int32
	add   bool
}

func (m modelPartition) assign(t *rapid.T, table tableLayout, at string, a assignment) {
	if a.value == nil {
		return
	}
	name, field, isField := strings.Cut(strings.ReplaceAll(a.name, `"`, ""), ".")
	cells := m.rowOf(at).cells
	name = rewrite.Quote(name)
	columns := table.columns()
	c := columns[slices.IndexFunc(columns, func(c columnLayout) bool { return c.name == name })]
	if isField {
		cells[name] = append(cells[name], modelCell{path: field[1:], value: string(a.value), ttl: a.ttl})
		slices.SortFunc(cells[name], func(a, b modelCell) int { return cmp.Compare(a.path, b.path) })
		return
	}
	if !a.add {
		require.Empty(t, cells[name], "assigned twice")
	}
	cells[name] = append(cells[name], cellsOf(t, c, a.value, a.ttl)...)
	if c.storage != listStorage {
		slices.SortFunc(cells[name], func(a, b modelCell) int { return cmp.Compare(a.path, b.path) })
	}
}

func cellsOf(t *rapid.T, c columnLayout, value RawValue, ttl int32) []modelCell {
	if c.storage == plainStorage {
		return []modelCell{{value: string(value), ttl: ttl}}
	}
	if c.storage != udtStorage {
		value = value[4:]
	}
	values, err := value.values()
	require.NoError(t, err)
	var cells []modelCell
	for i := 0; i < len(values); i++ {
		switch {
		case c.storage == setStorage:
			cells = append(cells, modelCell{path: string(values[i]), ttl: ttl})
		case c.storage == mapStorage:
			cells = append(cells, modelCell{path: string(values[i]), value: string(values[i+1]), ttl: ttl})
			i++
		case c.storage == listStorage:
			cells = append(cells, modelCell{value: string(values[i]), ttl: ttl})
		case values[i] != nil:
			cells = append(cells, modelCell{path: fmt.Sprint(i), value: string(values[i]), ttl: ttl})
		}
	}
	return cells
}

// What is read and written back is what was there: every value, order, and TTL, every row and its
// marker.
func TestRewriteKeepsThePartition(t *testing.T) {
	table, err := modelTable()
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		want, page := drawPartition(t, table)
		var rows []dataRow
		for _, values := range page {
			row, err := table.row(values)
			require.NoError(t, err)
			rows = append(rows, row)
		}
		want.learn(t, table, rows)
		pk, err := table.key("key")
		require.NoError(t, err)
		got := modelPartition{}
		batches := table.rewrite(pk, resultPage{rows: rows}, rewriting{fence: 100, batch: math.MaxInt})
		require.Len(t, batches, 1)
		got.run(t, table, batches[0].writes, 100)
		require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
		require.Equal(t, want, got)
	})
}
