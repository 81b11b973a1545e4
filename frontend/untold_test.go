package frontend

import (
	"errors"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/wire"
	"music/musiccore"
)

// renewingLocks grant every LOCK for a new reference, and answer one that renews it later: with an error, be it because it was cancelled.
type renewingLocks struct {
	*grantingLocks
	renewals chan func(error)
}

func (g *renewingLocks) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	if q.Ref == 0 {
		return g.grantingLocks.Lock(k, q, done)
	}
	answer := func(err error) { done(musiccore.Answer{Err: err}) }
	g.renewals <- answer
	return musiccore.Answer{}, func() { answer(errors.New("the operation was cancelled")) }
}

// All keys of a LOCK are released if it is not known whether one is still held: nobody is told its reference.
func TestAKeyThatIsNotRenewedIsReleased(t *testing.T) {
	for _, text := range []string{"LOCK bank.accounts WHERE id IN ('x', 'y')", "LOCK bank.accounts WHERE id IN ('x', 'y') SKIP LOCKED"} {
		for _, goes := range []bool{false, true} {
			g := &renewingLocks{newGrantingLocks(), make(chan func(error), 2)}
			r := rightsRig(t, g)
			client, _ := r.login(dialect{version: v4})
			client.send(1, query(text))
			for range 2 {
				if renewed := taken(t, g.renewals); goes {
					_ = client.Close()
				} else {
					renewed(musiccore.ErrUnavailable)
				}
				assert.EqualValues(t, 9, taken(t, g.unlocked), text)
			}
			if goes {
				continue
			}
			for _, row := range client.answer(1).(*message.RowsResult).Data {
				assert.NotEqual(t, "HELD", string(row[2]), text)
			}
		}
	}
}

// untoldLocks tell what is released.
type untoldLocks struct {
	*delayedLocks
	unlocked chan musiccore.LockRef
}

func (u *untoldLocks) Unlock(_ musiccore.Key, ref musiccore.LockRef, _ musiccore.Client, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	u.unlocked <- ref
	return musiccore.Answer{}, true
}

// A lock that is granted when its client's connection has ended is released, unless the client can come back for it.
func TestALockThatIsGrantedToNobody(t *testing.T) {
	for text, released := range map[string]int{
		"LOCK bank.accounts WHERE id = 'x'":                                            1,
		"LOCK bank.accounts WHERE id = 'x' TOKEN 6d2ac1f6-4d8e-4f7e-9a3b-3c2f7a1f0b11": 0,
		"LOCK bank.accounts WHERE id = 'x' USING LOCK 9":                               0,
		"SELECT balance FROM bank.accounts WHERE id = 'x' FOR UPDATE":                  1,
	} {
		for _, lost := range []bool{false, true} {
			core := &untoldLocks{newDelayedLocks(), make(chan musiccore.LockRef, 2)}
			core.holds = true
			client, backend := rightsRig(t, core).login(dialect{version: v4})
			client.send(1, query(text))
			give := taken(t, core.held)
			if lost {
				_ = backend.Close()
				backendLost(client, 1)
			} else {
				_ = client.Close()
				backend.ended()
			}
			give()
			assert.Len(t, core.unlocked, released, text)
		}
	}
}

// The lock of a SELECT … FOR UPDATE is released if its client is gone before the read may be told.
func TestForUpdateWhoseReadIsToldToNobody(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		core := &verdictLocks{ended: make(chan musiccore.Outcome, 1), verdicts: make(chan musiccore.Verdict, 1)}
		g := newGrantingLocks()
		client, backend := rightsRig(t, struct {
			Locker
			OperationGuard
			LockLister
		}{g, core, g}).login(d)
		client.send(1, query("SELECT balance FROM bank.accounts WHERE id = 'x' FOR UPDATE"))
		backend.answer(1)
		backend.send(1, balances(bigint(5)))
		<-core.ended
		_ = client.Close()
		backend.ended()
		core.verdicts <- musiccore.VerdictTell
		assert.EqualValues(t, 9, taken(t, g.unlocked))
	})
}

// slowGuard has a verdict at once, which takes a while.
type slowGuard struct{ *verdictLocks }

func (s slowGuard) End(_ musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	s.ended <- o
	return <-s.verdicts, nil
}

// So it is if the client goes when the answer to the read has just come.
func TestForUpdateWhoseClientGoesAsItIsTold(t *testing.T) {
	core := &verdictLocks{ended: make(chan musiccore.Outcome, 1), verdicts: make(chan musiccore.Verdict, 1)}
	g := newGrantingLocks()
	r := rightsRig(t, struct {
		Locker
		OperationGuard
		LockLister
	}{g, slowGuard{core}, g})
	client, backend := r.login(d4())
	client.send(1, query("SELECT balance FROM bank.accounts WHERE id = 'x' FOR UPDATE"))
	backend.answer(1)
	backend.send(1, balances(bigint(5)))
	<-core.ended
	_ = client.Close()
	r.server.each(func(c *conn) { <-c.done })
	core.verdicts <- musiccore.VerdictTell
	assert.EqualValues(t, 9, taken(t, g.unlocked))
}

// So it is if Cassandra's answer to the read cannot be read.
func TestForUpdateWhoseReadIsNotUnderstood(t *testing.T) {
	for _, columns := range []byte{0, 0x80} { // nine and no more, or less than none, at which the library panics
		for _, later := range []bool{false, true} {
			core := &verdictLocks{ended: make(chan musiccore.Outcome, 1), verdicts: make(chan musiccore.Verdict, 1)}
			g := newGrantingLocks()
			guard := OperationGuard(slowGuard{core})
			if later {
				guard = core
			}
			client, backend := rightsRig(t, struct {
				Locker
				OperationGuard
				LockLister
			}{g, guard, g}).login(d4())
			client.send(1, query("SELECT balance FROM bank.accounts WHERE id = 'x' FOR UPDATE"))
			backend.answer(1)
			backend.write(wire.ResponseEnvelope(byte(v4), 1, primitive.OpCodeResult, []byte{0, 0, 0, 2, 0, 0, 0, 1, columns, 0, 0, 9, 0, 1, 'k', 0, 1, 't'}))
			<-core.ended
			core.verdicts <- musiccore.VerdictTell
			assert.EqualValues(t, 9, taken(t, g.unlocked), "%x %t", columns, later)
		}
	}
}

// So it is if Cassandra's connection ends while the read waits for the core.
func TestForUpdateWhoseReadIsNotSent(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		core, g := newDelayedLocks(), newGrantingLocks()
		core.holds = true
		client, backend := rightsRig(t, struct {
			Locker
			OperationGuard
			LockLister
		}{g, core, g}).login(d)
		client.send(1, query("SELECT balance FROM bank.accounts WHERE id = 'x' FOR UPDATE"))
		give := taken(t, core.held)
		_ = backend.Close()
		backendLost(client, 1)
		give()
		assert.EqualValues(t, 9, taken(t, g.unlocked))
		assert.Equal(t, musiccore.OutcomeRefused, taken(t, core.ended))
	})
}
