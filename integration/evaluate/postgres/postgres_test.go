package postgres

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store/storetest"
)

// serve starts a server, or skips the test where there is none on this machine.
func serve(t *testing.T) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // short: it is the path of a socket, and another user goes there
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s, err := StartServer(t.Context(), dir)
	if errors.Is(err, ErrNone) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(s.Kill)
	return s
}

// Both forms pass, and each has its fault.
func TestPostgres(t *testing.T) {
	server := serve(t)
	for name, each := range map[string]bool{"postgres": false, "postgres-each": true} {
		battery.Run(t, battery.System{Name: name, New: func(t testing.TB) section.Client {
			c, err := New(t.Context(), Options{URL: server.URL, Each: each})
			require.NoError(t, err)
			return c
		}})
	}
	t.Run("connection lost", func(t *testing.T) { connectionLost(t, server) })
	t.Run("node lost", func(t *testing.T) { nodeLost(t, server) })
}

// When the connection of a section is gone, the next one enters. What the first puts then is refused
// with FOR UPDATE, and what it has put has never been; with puts of their own it is written.
func connectionLost(t *testing.T, server *Server) {
	for key, each := range map[string]bool{"row": false, "advisory": true} {
		clients := storetest.NewClients(t)
		one, err := New(t.Context(), Options{URL: server.URL, Each: each})
		require.NoError(t, err)
		first := clients.Add(one, nil)
		lost := storetest.Enter(t, first, key)
		_, err = one.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE state = 'idle in transaction' AND pid <> pg_backend_pid()`)
		require.NoError(t, err)
		next := storetest.Enter(t, clients.Add(New(t.Context(), Options{URL: server.URL, Each: each})), key)
		storetest.Put(t, next, "of the next")
		late := lost.Put(t.Context(), []byte("late"))
		if each {
			require.NoError(t, late)
			assert.Equal(t, "late", storetest.Get(t, next))
			assert.Contains(t, clients.Faults(), judge.TwoHolders)
		} else {
			require.ErrorIs(t, late, section.ErrLost)
			assert.Equal(t, "of the next", storetest.Get(t, next))
			assert.Empty(t, clients.Faults())
		}
		storetest.Leave(t, next)
	}
}

// When the node is gone, nobody enters any more, and whoever is in a section has lost it.
func nodeLost(t *testing.T, server *Server) {
	c, err := New(t.Context(), Options{URL: server.URL})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	held := storetest.Enter(t, c, "node")
	server.Kill()
	require.ErrorIs(t, held.Put(t.Context(), []byte("x")), section.ErrLost)
	_, err = c.Enter(t.Context(), "another")
	require.Error(t, err)
}
