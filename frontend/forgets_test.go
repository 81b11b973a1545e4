package frontend

import (
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// collected tells that nothing holds a value any more.
func collected[E any](t *testing.T, p weak.Pointer[E]) {
	t.Helper()
	require.Eventually(t, func() bool { runtime.GC(); return p.Value() == nil }, patience, time.Millisecond)
}

// Who has had its turn is not held by those that still wait.
func TestATurnThatIsOverIsForgotten(t *testing.T) {
	var all turns
	begun := make(chan func(), 1)
	waits := func() weak.Pointer[[64]byte] {
		write := new([64]byte)
		all.take(holder{}, func(next func()) {
			write[0] = 1
			begun <- next
		})
		return weak.Make(write)
	}
	waits()
	first := waits()
	waits()
	(<-begun)()
	next := <-begun
	collected(t, first)
	next()
	(<-begun)()
}

// A connection that has ended is not held by what it has prepared.
func TestAClosedConnectionIsForgotten(t *testing.T) {
	r := newRig(t)
	client, backend := r.login(dialect{version: v4})
	relayed(client, backend, 1, execute(r.prepare(client, backend, "INSERT INTO b.c (a) VALUES (?)"), nil), &message.VoidResult{})
	var gone weak.Pointer[conn]
	r.server.each(func(c *conn) { gone = weak.Make(c) })
	_ = client.Close()
	r.end()
	collected(t, gone)
	assert.Equal(t, 1, r.server.prepared.lru.Len())
}

// A connection holds no statement that the cache has evicted, and one that it uses is not evicted before those that nobody uses.
func TestAnEvictedStatementIsForgotten(t *testing.T) {
	m := newMemoryConn(t, d4(), false)
	m.server.Limits().Prepared = 20 * entryMemory
	id := func(text string) preparedID { return preparedID(idOf(text)) }
	m.server.prepared.add(id("used"), &preparedStatement{}, nil)
	junk := func(n int, uses bool) {
		for i := range n {
			m.server.prepared.add(id(strings.Repeat("x", i)), &preparedStatement{}, nil)
			if uses {
				require.NotNil(t, m.statement(idOf("used")))
			}
		}
	}
	junk(100, true)
	one := weak.Make(m.statement(idOf("used")))
	junk(100, false)
	assert.Nil(t, m.statement(idOf("used")))
	collected(t, one)
	assert.LessOrEqual(t, m.server.prepared.size, 20*entryMemory)
	runtime.KeepAlive(m)
}

// A statement that is prepared again is found as it was read last.
func TestAStatementThatIsPreparedAgain(t *testing.T) {
	m := newMemoryConn(t, d4(), false)
	first, second := &preparedStatement{}, &preparedStatement{tables: make([]*catalog.Table, 1)}
	m.server.prepared.add(preparedID(idOf("x")), first, nil)
	assert.Same(t, first, m.statement(idOf("x")))
	m.server.prepared.add(preparedID(idOf("x")), second, nil)
	assert.Same(t, second, m.statement(idOf("x")))
}
