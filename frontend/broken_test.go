package frontend

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// breakingListener accepts sockets to which nothing can be written once they are broken.
type breakingListener struct {
	net.Listener
	broken *atomic.Bool
}

func (l breakingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return breakingConn{conn, l.broken}, err
}

type breakingConn struct {
	net.Conn
	broken *atomic.Bool
}

func (c breakingConn) Write(b []byte) (int, error) {
	if c.broken.Load() {
		return 0, errors.New("broken")
	}
	return c.Conn.Write(b)
}

// A write with IF whose read is answered when its client cannot be written to any more, and what waits to be written
// fills its room, is over: the next one of the key has its turn.
func TestAConditionalWriteOfAClientThatCannotBeWrittenTo(t *testing.T) {
	broken := new(atomic.Bool)
	r := rigBetween(t, breakingListener{listen(t), broken}, listen(t), []func(*Options){func(o *Options) { o.Locks = newGrantingLocks() }})
	r.seats(catalog.Reject, func(*catalog.Critical) {})
	conditional := query("UPDATE bank.seats USING LOCK 9 SET n = 1 WHERE hall = 'x' AND seat = 'y' IF n = 2")
	client, backend := r.login(d4())
	client.send(2, query("SELECT a FROM b.c"))
	backend.answer(2)
	client.send(1, conditional)
	assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT")
	other := backend.envelope(t, 2, page(nil, strings.Repeat("x", 2000)))
	backend.write(other[:1000])
	_, err := io.ReadFull(client, make([]byte, 1000))
	require.NoError(t, err)
	r.server.each(func(c *conn) {
		c.post(make([]byte, 300<<10))
		assert.True(t, c.down.Out.Full(), "the answer to the SELECT has begun")
	})
	broken.Store(true)
	backend.write(append(other[1000:], backend.envelope(t, 1, numbers(2))...))
	backend.ended()

	broken.Store(false)
	client, backend = r.login(d4())
	client.send(1, conditional)
	assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT")
	_ = client.Close()
}

// So it is where the proxy fails by a bug of its own, which ends only the connection.
func TestAConditionalWriteInWhichTheProxyFails(t *testing.T) {
	core := newGrantingLocks()
	core.verdict = musiccore.VerdictLost
	r := rigBetween(t, listen(t), listen(t), []func(*Options){func(o *Options) { o.Locks, o.Audit = core, func(Refusal) { panic("a bug") } }})
	r.seats(catalog.Reject, func(*catalog.Critical) {})
	conditional := query("UPDATE bank.seats USING LOCK 9 SET n = 1 WHERE hall = 'x' AND seat = 'y' IF n = 2")
	for range 2 {
		client, backend := r.login(d4())
		client.send(1, conditional)
		assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT")
		backend.send(1, numbers(2))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_BACKEND: internal error")
	}
}

// A write with IF that is not over when its lock is lost, be it that its client does not read its answers, keeps no turn of
// the next holder.
func TestATurnOfALostLock(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
		r.seats(catalog.Reject, func(*catalog.Critical) {})
		for _, ref := range []string{"9", "10"} {
			client, backend := r.login(d)
			client.send(1, query("UPDATE bank.seats USING LOCK "+ref+" SET n = 1 WHERE hall = 'x' AND seat = 'y' IF n = 2"))
			assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT", "%s", ref)
		}
	})
}

// lossAtStep have lost the lock when so many operations have begun, which they tell later if late is set.
type lossAtStep struct {
	*grantingLocks
	left int
	late bool
}

func (g *lossAtStep) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	a, ok := g.grantingLocks.Begin(k, ref, kind, done)
	if g.left--; g.left == 0 {
		a = musiccore.Answer{Err: musiccore.ErrLost}
		if g.late {
			go done(a)
			return musiccore.Answer{}, false
		}
	}
	return a, ok
}

// A bug where a step of a write with IF is about to be sent does not hold the key for ever either, nor the lock that was taken for it.
func TestAConditionalWriteInWhichAStepFails(t *testing.T) {
	for _, using := range []string{"USING LOCK 9 ", ""} {
		for _, step := range []int{1, 2} {
			for _, late := range []bool{false, true} {
				t.Run(fmt.Sprintf("%sstep %d, late %t", using, step, late), func(t *testing.T) {
					core := &lossAtStep{newGrantingLocks(), step, late}
					r := rigBetween(t, listen(t), listen(t), []func(*Options){func(o *Options) { o.Locks, o.Audit = core, func(Refusal) { panic("a bug") } }})
					r.seats(catalog.Auto, func(c *catalog.Critical) { c.MaxLease = time.Minute })
					conditional := query("UPDATE bank.seats " + using + "SET n = 1 WHERE hall = 'x' AND seat = 'y' IF n = 2")
					client, backend := r.login(d4())
					client.send(1, conditional)
					if step == 2 {
						backend.answer(1)
						backend.send(1, numbers(2))
					}
					assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_BACKEND: internal error")
					if using == "" {
						assert.EqualValues(t, 9, taken(t, core.unlocked))
					}
					client, backend = r.login(d4())
					client.send(1, conditional)
					assert.Contains(t, backend.answer(1).(*message.Query).Query, "SELECT")
				})
			}
		}
	}
}

// brokenEnd fails by a bug when an operation ends, be it at once or where the verdict comes later.
type brokenEnd struct {
	*grantingLocks
	later bool
}

func (g brokenEnd) End(musiccore.Ticket, musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	if !g.later {
		panic("a bug")
	}
	return musiccore.VerdictUncertain, func() musiccore.Verdict { panic("a bug") }
}

// A bug when an operation ends, or when its lock is lost, holds nothing for longer than the connection either: no turn, and no lock that was taken for it.
func TestAnOperationInWhichTheProxyFails(t *testing.T) {
	for _, text := range []string{
		"UPDATE bank.seats USING LOCK 9 SET n = 1 WHERE hall = 'x' AND seat = 'y' IF n = 2",
		"UPDATE bank.seats SET n = 1 WHERE hall = 'x' AND seat = 'y' IF n = 2",
		"UPDATE bank.seats SET n = 1 WHERE hall = 'x' AND seat = 'y'",
		"SELECT n FROM bank.seats WHERE hall = 'x' AND seat = 'y' FOR UPDATE",
	} {
		g := newGrantingLocks()
		g.verdict = musiccore.VerdictLost
		for name, core := range map[string]Locks{"at once": brokenEnd{g, false}, "later": brokenEnd{g, true}, "lost": g} {
			t.Run(text+", "+name, func(t *testing.T) {
				r := rigBetween(t, listen(t), listen(t), []func(*Options){func(o *Options) { o.Locks, o.Audit = core, func(Refusal) { panic("a bug") } }})
				r.seats(catalog.Auto, func(c *catalog.Critical) { c.MaxLease = time.Minute })
				for range 2 {
					client, backend := r.login(d4())
					client.send(1, query(text))
					backend.answer(1)
					backend.send(1, numbers(2))
					assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_BACKEND: internal error")
					if !strings.Contains(text, "USING LOCK") {
						assert.EqualValues(t, 9, taken(t, g.unlocked))
					}
				}
			})
		}
	}
}
