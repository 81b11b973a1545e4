package integration

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plainWriter writes rising balances to a branch of its own without a lock, at one proxy, until it
// has been refused often enough.
type plainWriter struct {
	branch string
	put    func(balance int) error // refused with MUSIC_UNLOCKED, or done
	last   int                     // balance written
	tail   int                     // tries since the table is critical
}

// tries is how often a plain writer tries after the table has become critical: for longer than a
// proxy needs to follow the schema by itself.
const (
	tries     = 300
	triesPace = 5 * time.Millisecond
)

// run writes until it has tried enough after closed.
func (w *plainWriter) run(closed <-chan struct{}) error {
	refused := false
	pace := time.NewTicker(triesPace)
	defer pace.Stop()
	for balance := 1; w.tail < tries; balance++ {
		<-pace.C
		after := false
		select {
		case <-closed:
			w.tail++
			after = true
		default:
		}
		err := w.put(balance)
		switch {
		case err == nil && (after || refused):
			return errorf("%s: a plain write was accepted on a critical table (its DDL answered: %v, one refused before: %v)", w.branch, after, refused)
		case err == nil:
			w.last = balance
		case strings.Contains(err.Error(), "MUSIC_UNLOCKED: "), strings.Contains(err.Error(), "MUSIC_REFUSED: "): // other proxies see the lock rows later
			refused = true
		default:
			return fmt.Errorf("%s: %w", w.branch, err)
		}
	}
	return nil
}

// plainWriters returns three for each proxy: one writes by text, one by a prepared statement, one
// by a prepared statement that gets its stamp from Cassandra.
func plainWriters(t *testing.T, keyspace string) (all []*plainWriter) {
	t.Helper()
	for k, address := range proxyAddresses() {
		session := pinned(t, address).session
		text, bound, bare := fmt.Sprint("text", k), fmt.Sprint("bound", k), fmt.Sprint("bare", k)
		all = append(all, &plainWriter{branch: text, put: func(balance int) error {
			return session.Query(fmt.Sprintf("UPDATE %s.accounts SET balance = %d WHERE branch = '%s' AND id = 'x'", keyspace, balance, text)).Exec()
		}}, &plainWriter{branch: bound, put: func(balance int) error {
			return session.Query("UPDATE "+keyspace+".accounts SET balance = ? WHERE branch = ? AND id = 'x'", balance, bound).Exec()
		}}, &plainWriter{branch: bare, put: bareWriter(t, address, keyspace, bare)})
	}
	return all
}

// bareWriter returns a writer that executes a prepared statement without a stamp.
func bareWriter(t *testing.T, address, keyspace, branch string) func(balance int) error {
	t.Helper()
	w := openWire(t, address, primitive.ProtocolVersion4, primitive.CompressionNone)
	p := prepareWire(t, w, fmt.Sprintf("UPDATE %s.accounts SET balance = ? WHERE branch = '%s' AND id = 'x'", keyspace, branch))
	require.NotNil(t, p)
	return func(balance int) error {
		o := &message.QueryOptions{Consistency: primitive.ConsistencyLevelQuorum, PositionalValues: []*primitive.Value{primitive.NewValue(bigintOf(balance))}}
		e, err := w.ask(&message.Execute{QueryId: p.PreparedQueryId, Options: o})
		if err == nil && e.opcode() == primitive.OpCodeError {
			err = errorf("%s", e.body)
		}
		return err
	}
}

// bigintOf returns a bigint as it is on the wire.
func bigintOf(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// newPlainFixture makes a table of three replicas that is not critical, seen through the first of
// three proxies.
func newPlainFixture(t *testing.T, keyspace string) *tableFixture {
	t.Helper()
	s := &tableFixture{t: t, driver: withGocql2(4, ""), keyspace: keyspace}
	s.direct = openGocql2(t, cluster2(threeNodes(t).Nodes()[0].Addr(), "")).session
	execOnNodes(t, "DROP KEYSPACE IF EXISTS "+keyspace)
	execOnNodes(t, "CREATE KEYSPACE "+keyspace+" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}")
	execOnNodes(t, "CREATE TABLE "+keyspace+".accounts (branch text, id text, balance bigint, PRIMARY KEY (branch, id))")
	s.client = pinned(t, proxyAddresses()[0])
	return s
}

// A table becomes critical while plain writers use it through all proxies. Once the DDL is answered
// no plain write is accepted, and none that was accepted before, or is still in flight, hides what
// is written under a lock.
func TestTableBecomesCriticalUnderPlainWriters(t *testing.T) {
	threeProxies(t)
	s := newPlainFixture(t, "barrier")
	writers := plainWriters(t, s.keyspace)
	closed := make(chan struct{})
	var group taskGroup
	for _, w := range writers {
		group.Go(func() error { return w.run(closed) })
	}
	eventually(t, time.Minute, "all of them write", func() error { return s.written(len(writers)) })
	o := s.works(s.client, "ALTER TABLE ACCOUNTS WITH comment = '@critical'")
	close(closed)
	assert.NotContains(t, fmt.Sprint(o.warnings), "MUSIC: ", "every proxy has followed")
	require.NoError(t, group.Wait())

	from := s.closed()
	for i, w := range writers {
		c := pinned(t, proxyAddresses()[i/3])
		s.firstLock(c, w, from)
		c.close()
	}
}

// written reports whether so many branches have a balance.
func (s *tableFixture) written(branches int) error {
	n := s.direct.Query("SELECT branch FROM " + s.keyspace + ".accounts").Iter().NumRows()
	if n < branches {
		return errorf("%d of %d", n, branches)
	}
	return nil
}

// closed returns the table's closed, which is above all plain writes.
func (s *tableFixture) closed() (stamp int64) {
	s.t.Helper()
	var id gocql.UUID
	require.NoError(s.t, s.direct.Query("SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = 'accounts'", s.keyspace).Scan(&id))
	require.NoError(s.t, s.direct.Query("SELECT closed FROM music.tables WHERE id = ?", id).Scan(&stamp))
	return stamp
}

// firstLock takes the first lock of a writer's branch. It reads what was acknowledged to the
// writer; after that read, nothing with a stamp below closed is visible.
func (s *tableFixture) firstLock(c client, w *plainWriter, closed int64) {
	s.t.Helper()
	var stamp int64
	require.NoError(s.t, s.direct.Query("SELECT writetime(balance) FROM "+s.keyspace+".accounts WHERE branch = ? AND id = 'x'", w.branch).Scan(&stamp))
	assert.Less(s.t, stamp, closed, "%s", w.branch)
	var ref int64
	eventually(s.t, 20*time.Second, "the first lock", func() error { // each proxy has yet to see that there are lock rows
		o := s.do(c, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = '%s' WAIT 5s", w.branch))
		if o.askedAgain() {
			return errorf("%v", o)
		}
		if o.failure == nil {
			ref = s.grant(o, "HELD")
		}
		return o.err()
	})
	read := fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = '%s' AND id = 'x' USING LOCK %d", w.branch, ref)
	balance := told(s.works(c, read), "balance")
	assert.Equal(s.t, strconv.Itoa(w.last), balance, "%s", w.branch)
	s.lateWrites(w.branch, closed-1)
	s.works(c, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1000000 WHERE branch = '%s' AND id = 'x'", ref, w.branch))
	s.lateWrites(w.branch, closed-1) // every plain write is below closed, from which the first term begins
	s.inWindow(w.branch, "x", ref, 1000000)
	s.grant(s.works(c, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = '%s' USING LOCK %d", w.branch, ref)), "RELEASED")
}

// A plain write without a stamp is in flight to its node when the table becomes critical; Cassandra
// gives it a stamp when it arrives. No lock is granted before that, and the stamp is below closed.
func TestPlainWriteOnItsWayWhenATableBecomesCritical(t *testing.T) {
	forgetProxies(t)
	g := newStallingRelay(t, threeNodes(t).Nodes()[2].Addr(), "666666")
	var all [3]*clusterProxy
	for k := range all {
		c := proxyOfNode(t, k+1)
		c.Music.SessionLease = 30 * time.Second // a schema change waits as long for other proxies
		if k == 2 {
			c.Cassandra.ContactPoints = []string{g.address}
		}
		all[k] = startWithoutWaiting(t, c)
	}
	for _, m := range all {
		m.listens()
	}
	s := newPlainFixture(t, "underway")
	w := openWire(t, all[2].address, primitive.ProtocolVersion4, primitive.CompressionNone)
	require.NoError(t, w.send(plainQuery("INSERT INTO underway.accounts (branch, id, balance) VALUES ('b', 'x', 666666)"), nil))
	<-g.held

	done := make(chan outcome, 1)
	go func() {
		done <- s.client.run(statement{cql: "ALTER TABLE underway.accounts WITH comment = '@critical'"})
	}()
	for _, m := range all {
		c := pinned(t, m.address)
		eventually(t, time.Minute, "the table is closed to plain writes", func() error {
			o := s.do(c, "INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('c', 'x', 1)")
			if o.failure == nil || !strings.HasPrefix(o.failure.text, "MUSIC_") {
				return errorf("%v", o)
			}
			return nil
		})
	}
	other := pinned(t, all[1].address)
	assert.ErrorContains(t, poll(2*time.Second, func() error { // longer than it takes where nothing is waited for
		return s.do(other, "LOCK ACCOUNTS WHERE branch = 'b' WAIT 50ms").err()
	}), "it is becoming critical")
	g.open()
	e, err := w.receive()
	require.NoError(t, err)
	assert.Equal(t, primitive.OpCodeResult, e.opcode())
	o := <-done
	require.NoError(t, o.err())
	assert.NotContains(t, fmt.Sprint(o.warnings), "MUSIC: ", "every proxy has followed")
	s.firstLock(other, &plainWriter{branch: "b", last: 666666}, s.closed())
}
