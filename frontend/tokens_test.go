package frontend

import (
	"errors"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// oneWaits grant every LOCK at once but the second one, which is answered when it is cancelled.
type oneWaits struct {
	*grantingLocks
	asked int
	waits chan struct{}
}

func (o *oneWaits) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	if o.asked++; o.asked != 2 {
		return o.grantingLocks.Lock(k, q, done)
	}
	close(o.waits)
	return musiccore.Answer{}, func() { done(musiccore.Answer{Err: errors.New("the operation was cancelled")}) }
}

// A LOCK on several keys that is sent twice with one TOKEN, since its client does not know whether the first one has come, does
// not tell that it holds what the first one is about to release.
func TestALockOnSeveralKeysThatIsSentTwice(t *testing.T) {
	core := &oneWaits{grantingLocks: newGrantingLocks(), waits: make(chan struct{})}
	r := rightsRig(t, core, func(o *Options) { o.MaxWait = patience })
	first, _ := r.login(d4())
	second, _ := r.login(d4())
	lock := query("LOCK bank.accounts WHERE id IN ('x', 'y') TOKEN 6d2ac1f6-4d8e-4f7e-9a3b-3c2f7a1f0b11")
	first.send(1, lock)
	taken(t, core.waits)
	second.send(1, lock)
	second.silent()
	assert.Empty(t, core.unlocked)
	hasty, _ := r.login(d4())
	hasty.send(1, query("LOCK bank.accounts WHERE id IN ('x', 'y') WAIT 20ms TOKEN 6d2ac1f6-4d8e-4f7e-9a3b-3c2f7a1f0b11"))
	for _, row := range hasty.answer(1).(*message.RowsResult).Data {
		assert.Equal(t, "BUSY", string(row[2]))
	}
	_ = first.Close()
	held := second.answer(1).(*message.RowsResult).Data
	require.Len(t, held, 2)
	for _, row := range held {
		assert.Equal(t, "HELD", string(row[2]))
	}
	assert.Len(t, core.unlocked, 1, "before the second one was asked for")
	r.end()
	assert.Len(t, core.unlocked, 1)
}

// lateGrants grant every LOCK at once but the first one, which they grant after it was cancelled, when the test says so.
type lateGrants struct {
	*grantingLocks
	asked     int
	cancelled chan func()
}

func (l *lateGrants) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	if l.asked++; l.asked != 1 {
		return l.grantingLocks.Lock(k, q, done)
	}
	return musiccore.Answer{}, func() { l.cancelled <- func() { done(granted) } }
}

// A grant that was on its way when its LOCK's time was over is not released under another LOCK with the same TOKEN, which has got the same reference.
func TestALockOnSeveralKeysThatIsGrantedLate(t *testing.T) {
	core := &lateGrants{grantingLocks: newGrantingLocks(), cancelled: make(chan func(), 1)}
	r := rightsRig(t, core, func(o *Options) { o.MaxWait = patience })
	first, _ := r.login(d4())
	second, _ := r.login(d4())
	const lock = "LOCK bank.accounts WHERE id IN ('x', 'y') TOKEN 6d2ac1f6-4d8e-4f7e-9a3b-3c2f7a1f0b11"
	first.send(1, query(lock+" WAIT 20ms"))
	give := taken(t, core.cancelled)
	second.send(1, query(lock))
	second.silent()
	give()
	for _, client := range []*peer{first, second} {
		for _, row := range client.answer(1).(*message.RowsResult).Data {
			assert.Equal(t, "HELD", string(row[2]))
		}
	}
	assert.Empty(t, core.unlocked)
}
