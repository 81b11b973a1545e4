// Package storetest sets up tests of systems that stand on Cassandra, and strikes their clients with
// faults.
package storetest

import (
	"strings"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra/cassandratest"
	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// Options makes a keyspace for a test on the node of battery.Main.
func Options(t testing.TB) store.Options {
	t.Helper()
	k := cassandratest.NewKeyspace(t, cassandratest.Version(0))
	return store.Options{Hosts: []string{cassandratest.Address(t)}, Keyspace: k.Name}
}

// Clients are closed at the end of a test, and their operations noted.
type Clients struct {
	t       testing.TB
	history judge.History
	count   int
}

// NewClients begins a history.
func NewClients(t testing.TB) *Clients { return &Clients{t: t} }

// Add takes a client as its constructor returns it.
func (c *Clients) Add(client section.Client, err error) section.Client {
	c.t.Helper()
	require.NoError(c.t, err)
	c.t.Cleanup(client.Close)
	c.count++
	return judge.Record(client, c.count, c.history.Add)
}

// Faults returns what is wrong in the history, and logs the operations that show it.
func (c *Clients) Faults() []judge.Fault {
	c.t.Helper()
	var faults []judge.Fault
	for _, v := range c.history.Check() {
		c.t.Log(v)
		faults = append(faults, v.Fault)
	}
	return faults
}

// Enter enters a key, which must succeed.
func Enter(t testing.TB, client section.Client, key string) section.Held {
	t.Helper()
	held, err := client.Enter(t.Context(), key)
	require.NoError(t, err)
	return held
}

// Put puts a value, which must succeed.
func Put(t testing.TB, held section.Held, value string) {
	t.Helper()
	require.NoError(t, held.Put(t.Context(), []byte(value)))
}

// Get returns the value, "" where there is none.
func Get(t testing.TB, held section.Held) string {
	t.Helper()
	value, err := held.Get(t.Context())
	if err != nil {
		require.ErrorIs(t, err, section.ErrNoValue)
	}
	return string(value)
}

// Leave leaves a section, which must succeed.
func Leave(t testing.TB, held section.Held) {
	t.Helper()
	require.NoError(t, held.Leave(t.Context()))
}

// Gate holds a client's statements back, before they are sent: a process that is paused there.
type Gate struct {
	Reached chan struct{} // closed when the first statement stands before it
	open    chan struct{}
	prefix  string
	once    sync.Once
}

// NewGate is for statements that begin with prefix.
func NewGate(prefix string) *Gate {
	return &Gate{Reached: make(chan struct{}), open: make(chan struct{}), prefix: prefix}
}

// Hook is a store.Hook.
func (g *Gate) Hook(statement string, send func() error) error {
	if strings.HasPrefix(statement, g.prefix) {
		g.once.Do(func() { close(g.Reached) })
		<-g.open
	}
	return send()
}

// Open lets everything pass from now on.
func (g *Gate) Open() { close(g.open) }

// LoseAnswer is a store.Hook: the statements that begin with prefix are carried out, and the first of
// them is answered as if the answer had been lost on its way.
func LoseAnswer(prefix string) store.Hook {
	var once sync.Once
	return func(statement string, send func() error) error {
		err := send()
		if err == nil && strings.HasPrefix(statement, prefix) {
			once.Do(func() { err = gocql.ErrTimeoutNoResponse })
		}
		return err
	}
}

// Ahead is a clock that is ahead by d, or behind if that is negative.
func Ahead(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}
