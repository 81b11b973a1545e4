package etcd

import (
	"context"
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/ensemble"
	"music/integration/evaluate/ensemble/ensembletest"
	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store/storetest"
)

var long = flag.Bool("evaluate.long", false, "build etcd where it has not been built: minutes")

func TestMain(m *testing.M) { battery.Main(m) }

// serve starts etcd, or skips the test where it would have to be built first, and returns the endpoint.
func serve(t *testing.T) string {
	t.Helper()
	if !ensemble.HasEtcd() && !*long {
		t.Skip("etcd is not built: -evaluate.long")
	}
	kind, err := ensemble.Etcd(t.Context())
	require.NoError(t, err)
	return ensembletest.Start(t, kind)
}

// Values in etcd and in Cassandra: both pass. A holder whose lock is taken away writes into
// Cassandra, and not into etcd.
func TestEtcd(t *testing.T) {
	inEtcd := Options{Endpoints: []string{serve(t)}}
	o, inCassandra := storetest.Options(t), inEtcd
	inCassandra.Cassandra = &o
	for name, o := range map[string]Options{"etcd": inEtcd, "etcd-cassandra": inCassandra} {
		battery.Run(t, battery.System{Name: name, New: func(t testing.TB) section.Client {
			c, err := New(o)
			require.NoError(t, err)
			return c
		}})
		t.Run(name+" late put", func(t *testing.T) { putsLate(t, o) })
	}
	t.Run("election", func(t *testing.T) { electsAnother(t, inEtcd) })
}

// putsLate has a holder's key deleted, as the end of its lease does it, and the holder put after the next one has.
func putsLate(t *testing.T, o Options) {
	clients := storetest.NewClients(t)
	one, err := New(o)
	require.NoError(t, err)
	first := storetest.Enter(t, clients.Add(one, nil), "late")
	other, err := New(o)
	require.NoError(t, err)
	require.NoError(t, other.Force(t.Context(), "late"))
	next := storetest.Enter(t, clients.Add(other, nil), "late")
	storetest.Put(t, next, "of the next")
	err = first.Put(t.Context(), []byte("late"))
	if o.Cassandra == nil {
		require.ErrorIs(t, err, section.ErrLost)
		assert.Equal(t, "of the next", storetest.Get(t, next))
		assert.Empty(t, clients.Faults())
		return
	}
	require.NoError(t, err)
	assert.Equal(t, "late", storetest.Get(t, next))
	assert.Contains(t, clients.Faults(), judge.TwoHolders)
}

// electsAnother has a leader resign, and another follow.
func electsAnother(t *testing.T, o Options) {
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for _, address := range []string{"host-1:8080", "host-2:8080"} {
		ctx, resign := context.WithCancel(t.Context())
		elected, over := make(chan struct{}), make(chan error, 1)
		go func() { over <- c.Lead(ctx, "service", address, func() { close(elected) }) }()
		<-elected
		leader, err := c.Leader(t.Context(), "service")
		require.NoError(t, err)
		assert.Equal(t, address, leader)
		resign()
		require.NoError(t, <-over)
	}
}
