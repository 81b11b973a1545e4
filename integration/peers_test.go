package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// peerListen returns an unused address for other proxies.
func peerListen(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.12.%d:0", lastPeer.Add(1))
}

// lastPeer numbers the addresses that peerListen gives.
var lastPeer atomic.Int32

// peerSecret returns a file with the secret of a test's proxies.
func peerSecret(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte("known to the proxies of a test\n"), 0o600))
	return path
}

// twoProxies is two proxies in front of a node, each a process, and a table that both know.
type twoProxies struct {
	*tableFixture
	first, second *process
	here, there   client // at first and second
}

// startTwoProxies starts both with a short session lease.
func startTwoProxies(t *testing.T, node, keyspace string) *twoProxies {
	t.Helper()
	secret := peerSecret(t)
	start := func() *process {
		return startProcess(t, node, "--session-lease", killLease.String(), "--peer-listen", peerListen(t), "--peer-secret-file", secret, "--log-level", "debug")
	}
	p := &twoProxies{first: start(), second: start()}
	p.tableFixture = &tableFixture{t: t, driver: withGocql2(4, ""), address: p.first.address, keyspace: keyspace}
	p.direct = openGocql2(t, cluster2(node, "")).session
	p.create("@critical")
	p.here, p.there = p.client, p.driver.open(t, p.second.address, p.keyspace)
	for i, c := range []client{p.here, p.there} { // the table's barrier waits for proxies of earlier tests, which were killed
		eventually(t, time.Minute, "the table can be locked", func() error {
			o := p.do(c, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'ready%d'", i))
			if err := o.err(); err != nil {
				return err
			}
			return p.do(c, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'ready%d' USING LOCK %s", i, told(o, "lock_ref"))).err()
		})
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("first:\n%s\nsecond:\n%s", p.first.log, p.second.log)
		}
	})
	return p
}

// soon runs a statement until it succeeds: it fails while the session of a dead owner has not
// ended.
func (p *twoProxies) soon(c client, limit time.Duration, cql string) outcome {
	p.t.Helper()
	var o outcome
	eventually(p.t, limit, cql, func() error {
		o = p.do(c, cql)
		if err := o.err(); err != nil {
			assert.Contains(p.t, o.failure.text, "MUSIC_UNAVAILABLE")
			return err
		}
		return nil
	})
	return o
}

const (
	lockB   = "LOCK ACCOUNTS WHERE branch = 'b'"
	writeB  = "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = 'b' AND id = 'x'"
	readB   = "SELECT balance FROM ACCOUNTS WHERE branch = 'b' AND id = 'x' USING LOCK %d"
	unlockB = "UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d"
)

// Any proxy serves any reference: each statement at another proxy than the one that gave it.
func TestSectionAtTwoProxies(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "peers_section")
	ref := p.grant(p.works(p.here, lockB), "HELD")
	for i, c := range []client{p.there, p.here, p.there} {
		value := int64(i + 1)
		p.works(c, fmt.Sprintf(writeB, ref, value))
		p.inWindow("b", "x", ref, value)
	}
	p.works(p.there, "INSERT INTO ACCOUNTS (branch, id, balance) VALUES (?, ?, ?) USING LOCK ?", "b", "y", 7, ref)
	p.inWindow("b", "y", ref, 7)
	p.works(p.there, fmt.Sprintf("BEGIN BATCH USING LOCK %d UPDATE ACCOUNTS SET balance = 8 WHERE branch = 'b' AND id = 'x'; DELETE FROM ACCOUNTS WHERE branch = 'b' AND id = 'y'; APPLY BATCH", ref))
	for _, c := range []client{p.here, p.there} {
		assert.Equal(t, "8", told(p.works(c, fmt.Sprintf(readB, ref)), "balance"))
	}
	p.refused(p.there, "MUSIC_NOT_HELD", fmt.Sprintf(writeB, ref+1, 9))
	p.refused(p.there, "MUSIC_NOT_HELD", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 9 WHERE branch = 'c' AND id = 'x'", ref))
	renewed := p.works(p.there, fmt.Sprintf(lockB+" USING LOCK %d LEASE 20s", ref))
	p.grant(renewed, "HELD")
	assert.Contains(t, []string{"19", "20"}, told(renewed, "lease_ms")[:2], "%v", renewed)

	queued := p.grant(p.works(p.there, lockB+" WAIT 100ms"), "QUEUED")
	p.grant(p.works(p.there, fmt.Sprintf(unlockB, ref)), "RELEASED")
	for _, c := range []client{p.here, p.there} {
		p.refused(c, "MUSIC_LOST", fmt.Sprintf(writeB, ref, 9))
	}
	p.grant(p.works(p.here, fmt.Sprintf(lockB+" USING LOCK %d WAIT 5s", queued)), "HELD")
	p.works(p.here, fmt.Sprintf(writeB, queued, 10))
	p.inWindow("b", "x", queued, 10)
}

// A column is dropped and added again through one proxy: once that is answered, the owner of a lock at another proxy writes above
// the drop, so that what it acknowledges is read.
func TestAlterAtAnotherProxy(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "peers_alter")
	ref := p.grant(p.works(p.there, lockB), "HELD")
	for n := int64(1); n <= 5; n++ {
		p.works(p.there, fmt.Sprintf(writeB, ref, -n))
		p.works(p.here, "ALTER TABLE ACCOUNTS DROP balance")
		p.works(p.here, "ALTER TABLE ACCOUNTS ADD balance bigint")
		p.works(p.there, fmt.Sprintf(writeB, ref, n))
		assert.Equal(t, fmt.Sprint(n), told(p.works(p.there, fmt.Sprintf(readB, ref)), "balance"))
	}
}

// The owner is killed within a section: its client continues at the other proxy when the session
// has been silent for long enough.
func TestKilledOwner(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "peers_killed")
	ref := p.grant(p.works(p.here, lockB), "HELD")
	p.works(p.there, fmt.Sprintf(writeB, ref, 1))
	base, _ := p.term("b")
	require.NoError(t, p.first.cmd.Process.Kill())
	p.here.close()
	assert.Equal(t, "1", told(p.soon(p.there, 30*time.Second, fmt.Sprintf(readB, ref)), "balance"), "the latest state")
	after, _ := p.term("b")
	assert.Greater(t, after, base, "a window of its own")
	p.works(p.there, fmt.Sprintf(writeB, ref, 2))
	p.inWindow("b", "x", ref, 2)
	p.lateWrites("b", base, base+5, base+window-1)
	p.grant(p.works(p.there, fmt.Sprintf(unlockB, ref)), "RELEASED")
	p.second.log.tells(t, "taken over")
}

// A driver whose proxy dies while it waits sends its LOCK to another proxy: it gets a place there,
// and its old place delays no one.
func TestWaiterOfAKilledProxyGetsAPlaceAtAnother(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "peers_waiter")
	holder := p.grant(p.works(p.there, lockB+" LEASE 60s"), "HELD")
	lock := lockB + " WAIT 1500ms TOKEN 123e4567-e89b-12d3-a456-426614174000"
	lost := p.grant(p.works(p.here, lock), "QUEUED")
	waiting := make(chan outcome, 1)
	go func() { waiting <- p.do(p.here, lock) }()
	require.NoError(t, p.first.cmd.Process.Kill())
	assert.Error(t, (<-waiting).err(), "the driver is not left waiting")
	next := p.grant(p.soon(p.there, 30*time.Second, lock), "QUEUED")
	assert.Greater(t, next, lost)
	p.grant(p.works(p.there, fmt.Sprintf(unlockB, holder)), "RELEASED")
	eventually(t, time.Minute, "the place comes to be the first", func() error {
		o := p.do(p.there, lock)
		if told(o, "state") != "held" {
			return errorf("%v", o)
		}
		return o.err()
	})
	p.works(p.there, fmt.Sprintf(writeB, next, 1))
	p.inWindow("b", "x", next, 1)
}

// After SIGTERM of the owner, its session has ended, so its locks can be used at other proxies at
// once.
func TestEndedOwner(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "peers_ended")
	ref := p.grant(p.works(p.here, lockB), "HELD")
	waiting := p.grant(p.works(p.here, lockB+" WAIT 100ms"), "QUEUED")
	p.works(p.there, fmt.Sprintf(writeB, ref, 1))
	require.NoError(t, p.first.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 0, p.first.status(t), "%s", p.first.log)
	p.works(p.there, fmt.Sprintf(writeB, ref, 2)) // the first statement already
	p.inWindow("b", "x", ref, 2)
	p.grant(p.works(p.there, fmt.Sprintf(unlockB, ref)), "RELEASED")
	p.grant(p.works(p.there, fmt.Sprintf(lockB+" USING LOCK %d WAIT 5s", waiting)), "HELD")
	p.works(p.there, fmt.Sprintf(writeB, waiting, 3))
	p.inWindow("b", "x", waiting, 3)
}

// The owner is paused in a section, with a write that it has not read yet. The other proxy takes
// over; what the owner does after the pause changes nothing.
func TestPausedOwner(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "peers_paused")
	ref := p.grant(p.works(p.here, lockB), "HELD")
	p.works(p.there, fmt.Sprintf(writeB, ref, 1))
	base, _ := p.term("b")
	late := openWire(t, p.first.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	require.NoError(t, p.first.cmd.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = p.first.cmd.Process.Signal(syscall.SIGCONT) })
	write := fmt.Sprintf("UPDATE %s.accounts USING LOCK %d SET balance = 666 WHERE branch = 'b' AND id = 'x'", p.keyspace, ref)
	require.NoError(t, late.send(plainQuery(write), nil))

	p.soon(p.there, 60*time.Second, fmt.Sprintf(writeB, ref, 2))
	p.inWindow("b", "x", ref, 2)
	require.NoError(t, p.first.cmd.Process.Signal(syscall.SIGCONT))
	e, err := late.receive()
	require.NoError(t, err)
	assert.Equal(t, primitive.OpCodeError, e.opcode(), "the owner has lost its session")
	p.inWindow("b", "x", ref, 2)
	p.lateWrites("b", base, base+5, base+window-1)
	p.works(p.there, fmt.Sprintf(writeB, ref, 3))
	assert.Equal(t, "3", told(p.works(p.there, fmt.Sprintf(readB, ref)), "balance"))

	// The old owner runs again, with another session: it asks the other proxy about the reference.
	p.soon(p.here, 30*time.Second, fmt.Sprintf(writeB, ref, 4))
	p.inWindow("b", "x", ref, 4)
}

// The owner is killed between Cassandra's answer and its own: the client gets "unknown outcome",
// and later finds the write settled.
func TestLostEnd(t *testing.T) {
	node := needDisposableNode(t)
	p := startTwoProxies(t, node.Addr(), "peers_lost_end")
	ref := p.grant(p.works(p.here, lockB), "HELD")
	p.works(p.there, fmt.Sprintf(writeB, ref, 1))
	second := &instance{metrics: p.second.metrics}
	before, err := second.requests("QUERY", "fenced")
	require.NoError(t, err)
	w := openWire(t, p.second.address, primitive.ProtocolVersion4, primitive.CompressionNone)
	pause(t, node)
	write := fmt.Sprintf("UPDATE %s.accounts USING LOCK %d SET balance = 2 WHERE branch = 'b' AND id = 'x'", p.keyspace, ref)
	require.NoError(t, w.send(plainQuery(write), nil))
	eventually(t, wireTimeout, "the write has its stamp and is on its way", func() error {
		if n, err := second.requests("QUERY", "fenced"); err != nil || n <= before {
			return errorf("%d fenced, %w", n, err)
		}
		return nil
	})
	require.NoError(t, p.first.cmd.Process.Kill())
	_ = p.first.status(t)
	require.NoError(t, node.Resume())
	e, err := w.receive()
	require.NoError(t, err)
	f, err := w.decode(e)
	require.NoError(t, err)
	timeout, ok := f.Body.Message.(*message.WriteTimeout)
	require.True(t, ok, "%v", f.Body.Message)
	assert.Contains(t, timeout.ErrorMessage, "MUSIC_UNCERTAIN")

	value := told(p.soon(p.there, 30*time.Second, fmt.Sprintf(readB, ref)), "balance")
	assert.Contains(t, []string{"1", "2"}, value)
	base, _ := p.term("b")
	p.lateWrites("b", base-1, base-window+5)
	assert.Equal(t, value, told(p.works(p.there, fmt.Sprintf(readB, ref)), "balance"), "settled")
}

// Waiters of both proxies are served in the order of their references, and each is released through
// the other proxy.
func TestWaitersOfTwoProxies(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "peers_waiters")
	held := p.grant(p.works(p.here, lockB+" LEASE 30s"), "HELD")
	proxies := []string{p.first.address, p.second.address}
	var mu sync.Mutex
	var served []int64
	var waiting sync.WaitGroup
	for i := range 6 {
		mine, other := p.driver.open(t, proxies[i%2], p.keyspace), p.driver.open(t, proxies[(i+1)%2], p.keyspace)
		ref := p.grant(p.works(mine, lockB+" WAIT 50ms"), "QUEUED")
		assert.Equal(t, number(held)+int64(i)+1, number(ref))
		waiting.Go(func() {
			err := poll(time.Minute, func() error {
				o, err := p.must(mine, lockB+" USING LOCK %d WAIT 1500ms", ref)
				if err != nil {
					return fatal{err}
				}
				if told(o, "state") != "held" {
					return errorf("%v", o)
				}
				return nil
			})
			if !assert.NoError(t, err) {
				return
			}
			mu.Lock()
			served = append(served, number(ref))
			mu.Unlock()
			for _, c := range []client{other, mine} {
				_, err = p.must(c, writeB, ref, ref)
				assert.NoError(t, err)
			}
			_, err = p.must(other, unlockB, ref)
			assert.NoError(t, err)
		})
	}
	p.grant(p.works(p.there, fmt.Sprintf(unlockB, held)), "RELEASED")
	waiting.Wait()
	want := []int64{}
	for i := range 6 {
		want = append(want, number(held)+int64(i)+1)
	}
	assert.Equal(t, want, served)
}

// LIST LOCKS shows what all living proxies know, in one order, and says who could not be asked.
func TestListAndForceAtTwoProxies(t *testing.T) {
	p := startTwoProxies(t, needEnvironment(t).direct(), "peers_list")
	p.works(p.there, "LOCK ACCOUNTS WHERE branch = 'c' AS 'carla'")
	ref := p.grant(p.works(p.here, lockB+" AS 'anna'"), "HELD")
	next := p.grant(p.works(p.there, lockB+" WAIT 100ms AS 'ben'"), "QUEUED")
	p.works(p.here, "LOCK ACCOUNTS WHERE branch = 'd' AS 'dora'")
	var seen []string
	for _, c := range []client{p.here, p.there} {
		o := p.works(c, "LIST LOCKS ON ACCOUNTS")
		assert.Empty(t, missing(o))
		var holders []string
		for _, row := range o.rows {
			holders = append(holders, strings.Trim(row[5], `"`))
		}
		seen = append(seen, fmt.Sprint(holders))
	}
	assert.Equal(t, []string{"[anna ben carla dora]", "[anna ben carla dora]"}, seen)
	o := p.works(p.there, "LIST LOCKS ON ACCOUNTS WHERE branch = 'b'")
	assert.Len(t, o.rows, 2)

	p.works(p.there, fmt.Sprintf(writeB, ref, 1))
	forced := p.works(p.there, "UNLOCK ACCOUNTS WHERE branch = 'b' FORCE REASON 'anna is at lunch'")
	assert.Equal(t, strconv.FormatInt(ref, 10), told(forced, "lock_ref"), "%v", forced)
	p.refused(p.here, "MUSIC_LOST", fmt.Sprintf(writeB, ref, 2))
	p.first.log.tells(t, "anna is at lunch")
	p.grant(p.works(p.there, fmt.Sprintf(lockB+" USING LOCK %d WAIT 5s", next)), "HELD")
	assert.Equal(t, "1", told(p.works(p.there, fmt.Sprintf(readB, next)), "balance"))

	require.NoError(t, p.first.cmd.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = p.first.cmd.Process.Signal(syscall.SIGCONT) })
	o = p.works(p.there, "LIST LOCKS ON ACCOUNTS WHERE branch = 'b'")
	assert.Len(t, o.rows, 1)
	require.Len(t, missing(o), 1, "%v", o)
	assert.Contains(t, missing(o)[0], "does not answer")
}

// missing returns the warnings about proxies of the test; proxies of other tests may count as
// living, and answer no one.
func missing(o outcome) []string {
	return slices.DeleteFunc(slices.Clone(o.warnings), func(w string) bool { return !strings.Contains(w, "127.0.12.") })
}
