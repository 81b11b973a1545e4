package catalog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each statement that writes a table is looked up.
func BenchmarkInSchema(b *testing.B) {
	tables := NewTables()
	var names [][2]string
	for i := range 1000 {
		names = append(names, [2]string{"bank", fmt.Sprint("t", i)})
	}
	tables.Read(names)
	key := []byte("bank\x00t77")
	b.ReportAllocs()
	for b.Loop() {
		if !tables.InSchema(key) {
			require.Fail(b, "it is there")
		}
	}
}

// Of several tables the one that lets the least through is told, whatever their order, and none
// that is ordinary.
func TestStrictest(t *testing.T) {
	table := func(name string, p *Policy) *Table {
		made := &Table{Keyspace: "bank", Name: name}
		if p != nil {
			made.critical.Store(&Critical{Settings: Settings{Unlocked: *p}})
		}
		return made
	}
	policies := []*Policy{nil, new(Policy), new(Policy), new(Policy)}
	*policies[1], *policies[2], *policies[3] = Allow, Auto, Reject
	rank := map[*Policy]int{}
	for i, p := range policies {
		rank[p] = i
	}
	for _, a := range policies {
		for _, b := range policies {
			for _, c := range policies {
				which, policy := Strictest([]*Table{table("a", a), nil, table("b", b), table("c", c)})
				want := slices.MaxFunc([]*Policy{a, b, c}, func(x, y *Policy) int { return rank[x] - rank[y] })
				if want == nil {
					assert.Nil(t, which)
					continue
				}
				require.NotNil(t, which)
				assert.Equal(t, *want, policy)
				assert.Equal(t, *want, which.Critical().Unlocked)
			}
		}
	}
}
