package synchronise

import (
	"errors"
	"fmt"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Rows are searched together that can end together, at QUORUM where they have no column; not at
// more seconds than a synchronise has the time for.
func TestSearches(t *testing.T) {
	table := newTestTable(t, "k partition_key int", "c clustering int", "a regular int")
	p := partition{Cluster: Cluster{Quorum: gocql.LocalQuorum}, table: table, now: 1000}
	var rows []*dataRow
	add := func(ttl int32, n int) {
		for range n {
			r := rowAt(fmt.Sprint(len(rows)), ttl)
			rows = append(rows, &r)
		}
	}
	type start struct {
		level gocql.Consistency
		at    int
	}
	named := func() map[start]int {
		all := map[start]int{}
		for _, s := range p.searches(rows) {
			assert.LessOrEqual(t, len(s.rows), rowsAtOnce)
			assert.Equal(t, [2]int{s.lo, farFuture}, [2]int{s.from, s.hi})
			all[start{s.level, s.lo}] += len(s.rows)
		}
		return all
	}
	add(-1, 300)
	add(50, 2)
	require.Equal(t, map[start]int{{gocql.LocalQuorum, 1000}: 300, {gocql.One, 1049}: 2}, named())
	for ttl := range int32(mostSeconds) {
		add(ttl+1, 1)
	}
	require.Equal(t, map[start]int{{gocql.LocalQuorum, 1000}: 300}, named(), "too many seconds")
	p.table.staticAlone = true
	require.Equal(t, map[start]int{{gocql.One, 1000}: 300}, named(), "a read of the keys reads static columns, too")
}

// A search that fails ends all.
func TestFindEndsFails(t *testing.T) {
	r := rowAt("a", -1)
	broken := errors.New("broken")
	err := findEnds(1000, []search{{rows: []*dataRow{&r}, lo: 1000, hi: farFuture}}, func(search, int) (there, gone []*dataRow, err error) {
		return nil, nil, broken
	})
	require.ErrorIs(t, err, broken)
	assert.False(t, r.marker.found)
}

// The last second of any marker is found, by few reads.
func TestFindEndsFindsAnyEnd(t *testing.T) {
	const now = 1_800_000_000
	for _, end := range []int{1, 2, 3, 4, 5, 60, 600, 86_400, 86_401, longestTTL, farFuture - now - 1, farFuture - now} {
		if now+end > farFuture {
			continue
		}
		r, reads := rowAt("a", -1), 0
		err := findEnds(now, []search{{rows: []*dataRow{&r}, from: now, lo: now, hi: farFuture}}, func(s search, at int) (there, gone []*dataRow, err error) {
			reads++
			assert.True(t, s.lo < at && at < s.hi)
			if at < now+end {
				return s.rows, nil, nil
			}
			return nil, s.rows, nil
		})
		require.NoError(t, err)
		assert.Equal(t, markerLife{found: true, ttl: int32(min(end, longestTTL))}, r.marker)
		assert.LessOrEqual(t, reads, 45, "%d s", end)
	}
}
