package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reloadable is a proxy whose configuration stands in a file.
type reloadable struct {
	*process
	t    *testing.T
	path string
}

// startReloadable starts it before the shared node.
func startReloadable(t *testing.T, args ...string) *reloadable {
	t.Helper()
	r := &reloadable{t: t, path: filepath.Join(t.TempDir(), "music.yaml")}
	require.NoError(t, os.WriteFile(r.path, nil, 0o600))
	r.process = startProcess(t, needEnvironment(t).direct(), append([]string{"--config", r.path}, args...)...)
	return r
}

// reload has the proxy read its configuration again, and waits until it has logged what it has
// applied and what needs a restart.
func (r *reloadable) reload(text, taken, restart string) {
	r.t.Helper()
	require.NoError(r.t, os.WriteFile(r.path, []byte(text), 0o600))
	begun := len(r.log.String())
	require.NoError(r.t, r.cmd.Process.Signal(syscall.SIGHUP))
	want := fmt.Sprintf(`"taken_over":[%s],"wait_for_a_restart":[%s]`, taken, restart)
	eventually(r.t, time.Minute, "the configuration is read again", func() error {
		if said := r.log.String()[begun:]; !strings.Contains(said, want) {
			return errorf("not %s: %s", want, said)
		}
		return nil
	})
}

// answerTo returns the text of the error that answers a message; "" where it is no error.
func answerTo(t *testing.T, w *wire, m message.Message) string {
	t.Helper()
	e, err := w.ask(m)
	require.NoError(t, err)
	f, err := w.decode(e)
	require.NoError(t, err)
	if failure, failed := f.Body.Message.(message.Error); failed {
		return failure.GetErrorMessage()
	}
	return ""
}

// waitTwice has one connection wait for two locks that another client holds, and returns its first
// error.
func (r *reloadable) waitTwice() (told string) {
	r.t.Helper()
	lock := func(k int, clauses string) message.Message {
		return plainQuery(fmt.Sprintf("LOCK music.named WHERE name = 'reloaded%d' %s", k, clauses))
	}
	holder := openWire(r.t, r.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	defer func() { _ = holder.net.Close() }()
	for k := range 2 {
		require.Empty(r.t, answerTo(r.t, holder, lock(k, "WAIT 1s LEASE 1s")))
	}
	w := openWire(r.t, r.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	defer func() { _ = w.net.Close() }()
	require.NoError(r.t, w.send(lock(0, "WAIT 300ms"), nil))
	return answerTo(r.t, w, lock(1, "WAIT 300ms"))
}

// Each limit that SIGHUP changes applies at once in a running proxy, also to existing connections,
// and can be changed back.
func TestLimitsAreReloaded(t *testing.T) {
	r := startReloadable(t)
	lock := func(clauses string) *message.Query {
		return plainQuery("LOCK music.named WHERE name = 'reloaded' " + clauses)
	}
	key := 0
	execute := func(prepared int, w *wire) string { // the first of so many that are prepared
		var first message.Message
		for k := range prepared {
			key++
			e, err := w.ask(&message.Prepare{Query: fmt.Sprintf("LOCK music.named WHERE name = ? AS '%d%s'", key, strings.Repeat("x", 180))})
			require.NoError(t, err)
			f, err := w.decode(e)
			require.NoError(t, err)
			if p, ok := f.Body.Message.(*message.PreparedResult); ok && k == 0 {
				first = &message.Execute{QueryId: p.PreparedQueryId, Options: &message.QueryOptions{PositionalValues: []*primitive.Value{primitive.NewValue([]byte("k" + fmt.Sprint(key)))}}}
			}
		}
		return answerTo(t, w, first)
	}
	for _, c := range []struct {
		name, value string
		try         func(*wire) string // returns the error that the small limit causes
		want        string
	}{
		{"max-frame-size", "4KiB", func(w *wire) string {
			return answerTo(t, w, plainQuery("SELECT * FROM system.local WHERE key = '"+strings.Repeat("x", 5000)+"'"))
		}, "Request is too big"},
		{"max-label-size", "16", func(w *wire) string { return answerTo(t, w, lock("NOWAIT AS '"+strings.Repeat("x", 20)+"'")) }, "max-label-size"},
		{"max-statement-size", "1KiB", func(w *wire) string { return answerTo(t, w, lock("NOWAIT"+strings.Repeat(" ", 2000))) }, "max-statement-size"},
		{"max-prepared-per-connection", "64KiB", func(w *wire) string { return execute(20, w) }, "Prepared query with ID"},
		{"max-prepared-size", "1MiB", func(w *wire) string { // other connections prepare, too
			return execute(200, w)
		}, "Prepared query with ID"},
		{"max-waits-per-connection", "1", func(*wire) string { return r.waitTwice() }, "max-waits-per-connection"},
		{"max-connections", "1", func(*wire) string {
			other, err := greetWire(r.address, primitive.ProtocolVersion4, primitive.CompressionNone)
			if err != nil {
				return "turned away"
			}
			return fmt.Sprint(other.net.Close())
		}, "turned away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := openWire(t, r.address, primitive.ProtocolVersion4, primitive.CompressionNone)
			assert.NotContains(t, c.try(w), c.want, "before")
			r.reload(c.name+": "+c.value+"\n", `"`+c.name+`"`, "")
			assert.Contains(t, c.try(w), c.want)
			r.reload("", `"`+c.name+`"`, "")
			w = openWire(t, r.address, primitive.ProtocolVersion4, primitive.CompressionNone) // the frame that was too large has ended the other
			assert.NotContains(t, c.try(w), c.want, "after")
		})
	}
}

// A pattern that is added to a running proxy closes its tables to plain writes there, and no proxy
// can lock them before all have the pattern. One that is removed stays in force until a restart,
// and the log says so.
func TestCriticalPatternsAreReloaded(t *testing.T) {
	shared := withGocql2(4, "").open(t, needProxy(t), "") // it has the pattern from its start
	node := withGocql2(4, "").open(t, needEnvironment(t).direct(), "")
	require.NoError(t, node.run(statement{cql: "CREATE KEYSPACE IF NOT EXISTS " + patternKeyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"}).err())
	r := startReloadable(t)
	here := withGocql2(4, "").open(t, r.address, "")
	table := patternKeyspace + ".reloaded"
	require.NoError(t, node.run(statement{cql: "CREATE TABLE " + table + " (k int PRIMARY KEY, v int)"}).err())
	defer func() { require.NoError(t, node.run(statement{cql: "DROP TABLE " + table}).err()) }()
	write, lock := statement{cql: "INSERT INTO " + table + " (k, v) VALUES (1, 1)"}, statement{cql: "LOCK " + table + " WHERE k = 1 NOWAIT"}

	eventually(t, time.Minute, "the table is there", func() error { return here.run(write).err() })
	eventually(t, time.Minute, "it is critical where the pattern is", func() error {
		if f := shared.run(write).failure; f == nil || !strings.HasPrefix(f.text, "MUSIC_UNLOCKED") {
			return errorf("%v", f)
		}
		return nil
	})
	require.Error(t, shared.run(lock).err(), "no lock before all have the pattern")

	r.reload("critical: ["+patternKeyspace+".*]\n", `"critical"`, "")
	for _, c := range []client{shared, here} {
		eventually(t, time.Minute, "the table can be locked", func() error {
			return c.run(statement{cql: "LOCK " + table + " WHERE k = 1 WAIT 1s LEASE 1s"}).err()
		})
	}
	refused := func(why string) {
		t.Helper()
		o := here.run(write)
		require.Error(t, o.err(), why)
		assert.Contains(t, o.failure.text, "MUSIC_UNLOCKED", why)
	}
	refused("the pattern closes the table here")
	r.reload("", "", `"critical"`)
	refused("the pattern stays until a restart")
}
