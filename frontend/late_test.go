package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/musiccore"
)

// stamplessLocks give no stamp in the end, and note which locks are given back.
type stamplessLocks struct {
	*delayedLocks
	err      error
	unlocked chan musiccore.LockRef
}

func (f *stamplessLocks) Begin(_ musiccore.Key, _ musiccore.LockRef, _ musiccore.Kind, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	f.held <- func() { done(musiccore.Answer{Err: f.err}) }
	return musiccore.Answer{}, false
}

func (f *stamplessLocks) Unlock(k musiccore.Key, ref musiccore.LockRef, _ musiccore.Client, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	f.unlocked <- ref
	return f.delayedLocks.Unlock(k, ref, musiccore.Client{}, done)
}

// An operation that has waited for its stamp in vain is answered with the reason, nothing of it is sent, and what was taken for it alone is
// given back: its turn on the key, and the lock of a section of its own.
func TestStampThatDoesNotCome(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, core := holdingRig(t)
		lost := &stamplessLocks{delayedLocks: core, err: musiccore.ErrLost, unlocked: make(chan musiccore.LockRef, 8)}
		r.server.Locks = lost
		client, backend := r.login(d)
		id := prepareWrite(client, backend)
		alone := []message.Message{
			query("UPDATE bank.auto SET n = 0x WHERE id = 'x'"),
			query("UPDATE bank.auto SET n = 0x WHERE id = 'x' IF balance = 5"),
			query("SELECT n FROM bank.accounts WHERE id = 'x' FOR UPDATE"),
		}
		turns := query("UPDATE bank.accounts USING LOCK 1 SET n = 0x WHERE id = 'x' IF balance = 5")
		for i, asked := range append(append(underLock(id), turns, turns, turns), alone...) {
			client.send(1, asked)
			taken(t, lost.held)()
			says := "MUSIC_LOST"
			if inOwnSection := i == 8 || i == 9; inOwnSection {
				says = "MUSIC_UNAVAILABLE"
			}
			assert.Contains(t, client.failure(1).GetErrorMessage(), says, i)
			if i >= 8 && i < 10 {
				assert.EqualValues(t, 9, taken(t, lost.unlocked))
			}
		}
		relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil)) // so nothing else was sent
		assert.Empty(t, core.ended, "there was no ticket")
	})
}

// A conditional write whose client or node goes while it waits for its stamp gives the turn on its key to the next one, and a section of one write
// its lock.
func TestTurnOfWhoHasGone(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		const locked, alone = "UPDATE bank.accounts USING LOCK 1 SET n = 0x WHERE id = 'x' IF balance = 5", "UPDATE bank.auto SET n = 0x WHERE id = 'x' IF balance = 5"
		for i, text := range []string{locked, locked, alone, alone} {
			r, core := holdingRig(t)
			noting := &stamplessLocks{delayedLocks: core, unlocked: make(chan musiccore.LockRef, 8)}
			r.server.Locks = &unlockLog{core, noting.unlocked}
			core.holds = true
			first, firstBackend := r.login(d)
			second, secondBackend := r.login(d)
			first.send(1, query(text))
			give := taken(t, core.held)
			auto := text == alone
			if auto {
				give() // the lock
				give = taken(t, core.held)
			}
			if i%2 == 0 {
				_ = first.Close()
				firstBackend.ended()
			} else {
				_ = firstBackend.Close()
				backendLost(first, 1)
				_ = first.Close()
			}
			r.end()
			if !auto {
				second.send(1, query(text))
			}
			give()
			assert.Equal(t, musiccore.OutcomeRefused, taken(t, core.ended))
			if auto {
				assert.EqualValues(t, 9, taken(t, noting.unlocked))
				continue
			}
			taken(t, core.held)()
			secondBackend.answer(1)
			_ = second.Close()
		}
	})
}

// unlockLog notes which locks are given back.
type unlockLog struct {
	*delayedLocks
	unlocked chan musiccore.LockRef
}

func (u *unlockLog) Unlock(k musiccore.Key, ref musiccore.LockRef, _ musiccore.Client, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	u.unlocked <- ref
	return u.delayedLocks.Unlock(k, ref, musiccore.Client{}, done)
}
