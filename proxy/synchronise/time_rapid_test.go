package synchronise

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// aged is the partition some seconds later: without what has expired, and without rows of which
// nothing is left.
func (m modelPartition) aged(by int32) modelPartition {
	later := modelPartition{}
	for at, row := range m {
		now := modelRow{marker: left(row.marker, by), cells: map[string][]modelCell{}}
		for name, cells := range row.cells {
			for _, c := range cells {
				if c.ttl = left(c.ttl, by); c.ttl >= 0 {
					now.cells[name] = append(now.cells[name], c)
				}
			}
		}
		if len(now.cells) > 0 || now.marker >= 0 {
			later[at] = now
		}
	}
	return later
}

// left is what is left of a TTL, -1 for nothing.
func left(ttl, by int32) int32 {
	switch {
	case ttl <= 0:
		return ttl
	case ttl <= by:
		return -1
	}
	return ttl - by
}

// shown is what a client sees: the cells of each row, by key. Markers show by the rows that are
// there.
func (m modelPartition) shown() map[string]map[string][]modelCell {
	rows := map[string]map[string][]modelCell{}
	for at, row := range m {
		rows[at] = row.cells
	}
	return rows
}

// page is what a SELECT answers.
func (m modelPartition) page(table tableLayout) [][]RawValue {
	columns := func(at string, of []columnLayout) (values []RawValue) {
		for _, c := range of {
			values = append(values, selected(c, m[at].cells[c.name], 7)...)
		}
		return values
	}
	static := columns("", table.static)
	var pages [][]RawValue
	for _, at := range slices.Sorted(maps.Keys(m)) {
		if at != "" {
			pages = append(pages, slices.Concat([]RawValue{RawValue(at)}, static, columns(at, table.regular)))
		}
	}
	if _, some := m[""]; some && pages == nil {
		pages = append(pages, slices.Concat([]RawValue{nil}, static, make([]RawValue, 3*len(table.regular))))
	}
	return pages
}

// synchronised is the partition after one attempt at this second.
func (m modelPartition) synchronised(t *rapid.T, table tableLayout) modelPartition {
	var rows []dataRow
	for _, values := range m.page(table) {
		row, err := table.row(values)
		require.NoError(t, err)
		rows = append(rows, row)
	}
	m.learn(t, table, rows)
	pk, err := table.key("key")
	require.NoError(t, err)
	after := modelPartition{}
	batches := table.rewrite(pk, resultPage{rows: rows}, rewriting{fence: 100, batch: math.MaxInt})
	require.Len(t, batches, 1)
	after.run(t, table, batches[0].writes, 100)
	return after
}

// drawMarkers gives rows any marker that they can have: none beside columns, one for ever, or one
// that expires before the last column, with it, or after it.
func drawMarkers(t *rapid.T, p modelPartition) {
	for _, at := range slices.Sorted(maps.Keys(p)) {
		row := p[at]
		if at == "" {
			continue
		}
		row.marker = rapid.SampledFrom([]int32{-1, 0, 1, 4, 8, 9, 13, 17}).Draw(t, "marker")
		if len(row.cells) == 0 {
			row.marker = max(row.marker, 0)
		}
		p[at] = row
	}
}

// Any number of synchronises, at any seconds, and nobody can tell at any later second that there
// was one: every value is there as long as it would have been, and every row, also where somebody
// deletes its columns.
func TestNoSynchroniseShowsAtAnySecond(t *testing.T) {
	table, err := modelTable()
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		want, _ := drawPartition(t, table)
		drawMarkers(t, want)
		got := maps.Clone(want)
		for range rapid.IntRange(1, 3).Draw(t, "synchronises") {
			by := rapid.Int32Range(0, 6).Draw(t, "seconds")
			want, got = want.aged(by), got.aged(by).synchronised(t, table)
			for second := range int32(20) {
				before, after := want.aged(second), got.aged(second)
				require.Equal(t, before.shown(), after.shown(), "%d s later", second)
				for at, row := range before {
					require.True(t, row.marker < 0 || after[at].marker >= 0, "row %s would not outlive its columns, %d s later", at, second)
				}
			}
		}
	})
}
