package frontend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
)

// Limits that change while the server serves hold from the next request on, and what is remembered
// shrinks with the next statement.
func TestLimitsThatChange(t *testing.T) {
	l := DefaultLimits()
	limits := func() *Limits { return &l }
	s := newStatements(limits)
	share := new(preparedShare)
	remember := func(n byte, by *preparedShare) {
		s.add(preparedID{n}, &preparedStatement{tables: make([]*catalog.Table, 10)}, by)
	}
	for n := range byte(20) {
		remember(n, share)
	}
	assert.Equal(t, 20, s.lru.Len())
	l.PreparedEach = 3 * (entryMemory + 10*pairMemory)
	remember(20, share)
	assert.Equal(t, 3, s.lru.Len())
	l.Prepared = 2 * (entryMemory + 10*pairMemory)
	remember(21, nil)
	assert.Equal(t, 2, s.lru.Len())

	assert.Nil(t, limits().checkText([]byte(strings.Repeat("x", 2000))))
	l.Statement = 1000
	assert.NotNil(t, limits().checkText([]byte(strings.Repeat("x", 2000))))
}
