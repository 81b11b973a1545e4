package proxy

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// handingOut returns a key whose references a hands out: its sections were short.
func handingOut(t *testing.T, a *station) musiccore.Key {
	t.Helper()
	k := keyOf("x")
	a.short(k)
	return k
}

// short has short sections of a key.
func (s *station) short(k musiccore.Key) {
	s.t.Helper()
	for range 3 {
		ref := s.held(k)
		s.put(k, ref)
		require.NoError(s.t, s.unlock(k, ref).Err)
	}
}

// waitingAt returns the answer to a LOCK through s, and what cancels it, once so many have the key or wait
// for it at a.
func (s *station) waitingAt(a *station, k musiccore.Key, so int) (answer <-chan musiccore.Answer, gone func()) {
	s.t.Helper()
	waits := make(chan musiccore.Answer, 1)
	_, gone = s.Lock(k, musiccore.Request{Wait: time.Minute}, func(a musiccore.Answer) { waits <- a })
	require.NotNil(s.t, gone)
	require.Eventually(s.t, func() bool { return len(a.listHere(k, 10)) == so }, 20*time.Second, time.Millisecond)
	return waits, gone
}

// docs/protocol.md 3.21: a LOCK waits where references are handed out, and its client's operations
// are told without a question.
func TestALockWaitsWhereReferencesAreHandedOut(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	before := a.held(k)
	waits, _ := b.waitingAt(a, k, 2)
	a.put(k, before)
	require.NoError(t, a.unlock(k, before).Err)
	ref := (<-waits).Grant.Ref
	assert.Equal(t, before+1, ref)
	first := b.put(k, ref)
	a.cluster.mu.Lock()
	guard := a.cluster.rows[k].Guard
	a.cluster.mu.Unlock()
	assert.Equal(t, first+1, b.put(k, ref), "a stamp of the loan")
	get := b.begin(k, ref, musiccore.Get)
	require.NoError(t, get.Err)
	assert.NotZero(t, get.Ticket.Loan)
	v, wait := b.End(get.Ticket, musiccore.OutcomeAcked)
	assert.Equal(t, musiccore.VerdictTell, v)
	assert.Nil(t, wait, "nobody is asked")
	assert.Equal(t, musiccore.Grant{Applied: true, Ref: ref, State: musiccore.StateReleased}, b.unlock(k, ref).Grant)
	assert.Equal(t, ref+1, a.held(k))
	a.cluster.mu.Lock()
	defer a.cluster.mu.Unlock()
	assert.Equal(t, guard, a.cluster.rows[k].Guard, "no LWT")
}

// Clients of one proxy that wait elsewhere go one after the other: the lender hears of all of them with
// the last one. A client of its own that came between them waits for the run, and no longer.
func TestARun(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	before := a.held(k)
	first, _ := b.waitingAt(a, k, 2)
	own, _ := a.waitingAt(a, k, 3)
	second, _ := b.waitingAt(a, k, 4)
	third, _ := b.waitingAt(a, k, 5)
	fourth, _ := b.waitingAt(a, k, 6)
	require.NoError(t, a.unlock(k, before).Err)
	last := musiccore.Stamp(0)
	for i, waits := range []<-chan musiccore.Answer{first, second, third} {
		g := (<-waits).Grant
		require.Equal(t, musiccore.StateHeld, g.State)
		assert.Equal(t, before+1+musiccore.LockRef(i), g.Ref)
		assert.Len(t, a.listHere(k, 10), 5, "it has not heard of the run")
		stamp := b.put(k, g.Ref)
		assert.Greater(t, stamp, last)
		last = stamp
		assert.Equal(t, musiccore.Grant{Applied: true, Ref: g.Ref, State: musiccore.StateReleased}, b.unlock(k, g.Ref).Grant)
	}
	g := (<-own).Grant
	assert.Equal(t, before+4, g.Ref)
	assert.ErrorIs(t, b.begin(k, before+1, musiccore.Put).Err, musiccore.ErrLost)
	assert.Greater(t, a.put(k, g.Ref), last)
	require.NoError(t, a.unlock(k, g.Ref).Err)
	assert.Equal(t, before+5, (<-fourth).Grant.Ref)
}

// A LOCK that is repeated with its token takes the place of the first one, which is answered.
func TestALockIsRepeatedWhileItWaitsElsewhere(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	before := a.held(k)
	token := [16]byte{7}
	answers := make(chan musiccore.Answer, 2)
	for range 2 {
		_, gone := b.Lock(k, musiccore.Request{Wait: time.Minute, Token: token}, func(a musiccore.Answer) { answers <- a })
		require.NotNil(t, gone)
	}
	assert.Equal(t, musiccore.StateQueued, (<-answers).Grant.State)
	require.NoError(t, a.unlock(k, before).Err)
	assert.Equal(t, musiccore.StateHeld, (<-answers).Grant.State)
}

// An operation through the lender calls the loan back.
func TestALoanIsCalledBack(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	ref := b.held(k)
	require.Contains(t, b.of(k).owners.Keys(), refKey{k, ref})
	last := b.put(k, ref)
	begun := time.Now()
	assert.Greater(t, a.put(k, ref), last)
	assert.Less(t, time.Since(begun), musiccore.Defaults().OpTimeout)
	assert.Greater(t, b.put(k, ref), last)
	assert.Equal(t, musiccore.StateReleased, a.unlock(k, ref).Grant.State)
	assert.ErrorIs(t, b.begin(k, ref, musiccore.Put).Err, musiccore.ErrLost)
}

// A proxy has not followed a change of a table while something is in use that it lent before.
func TestAChangeWaitsForWhatIsLent(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	put := b.begin(k, b.held(k), musiccore.Put)
	require.NotZero(t, put.Ticket.Loan)
	s := &schema{cores: a.each}
	require.True(t, s.answered(t.Context()))
	a.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Altered(now, k.Table, 0) })
	require.False(t, s.answered(t.Context()))
	late, err := s.barrier(t.Context(), &dataTable{Critical: catalog.Critical{Marked: true}}, [16]byte{})
	require.NoError(t, err)
	assert.Equal(t, []string{thisOne}, late)
	b.verdict(put.Ticket, musiccore.OutcomeAcked)
	assert.Eventually(t, func() bool { return s.answered(t.Context()) }, 20*time.Second, time.Millisecond)
}

// An unknown outcome is told when the lender knows of it, which synchronises before it goes on.
func TestAnUnknownPutIsReported(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	ref := b.held(k)
	put := b.begin(k, ref, musiccore.Put)
	require.NoError(t, put.Err)
	assert.Equal(t, musiccore.VerdictUncertain, b.verdict(put.Ticket, musiccore.OutcomeUnknown))
	assert.Greater(t, a.put(k, ref), put.Ticket.Stamp+1, "two stamps are the fence's")
}

// A client that goes away while it waits elsewhere leaves nothing there.
func TestAWaitElsewhereIsCancelled(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	ref := a.held(k)
	waits, gone := b.waitingAt(a, k, 2)
	gone()
	assert.ErrorIs(t, (<-waits).Err, errGone)
	require.Eventually(t, func() bool { return len(a.listHere(k, 10)) == 1 }, 20*time.Second, time.Millisecond)
	require.NoError(t, a.unlock(k, ref).Err)
}

// Where the other proxy does not answer, a LOCK waits here.
func TestALockWaitsHereIfTheOtherProxyIsSilent(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	a.held(k)
	a.stop()
	answer := b.lock(k, musiccore.Request{Wait: time.Second})
	require.NoError(t, answer.Err)
	assert.Equal(t, musiccore.StateQueued, answer.Grant.State)
	assert.NotZero(t, answer.Grant.Ref, "it has a reference of its own")
}

// What was lent by a session that has ended is not given back to the one that has taken its reference over, where it
// would end an operation of the same numbers: a put could surface after a release that says that none can.
func TestALoanIsNotGivenBackToASuccessor(t *testing.T) {
	a, b := two(t)
	c := startStation(t, a.cluster)
	k := handingOut(t, a)
	ref := b.held(k)
	lent := b.begin(k, ref, musiccore.Put).Ticket
	require.NotZero(t, lent.Loan)
	require.Equal(t, musiccore.VerdictTell, b.verdict(lent, musiccore.OutcomeAcked))
	for i, terms := 0, uint64(1); terms < lent.Term; i++ { // so that the next term there has the same number
		if other := keyOf(strconv.Itoa(i)); c.of(other) == c.of(k) {
			c.held(other)
			terms++
		}
	}
	require.Eventually(t, func() bool { return a.cluster.row(k).Owner == a.life.id() }, 20*time.Second, time.Millisecond, "it can be taken over")
	a.ended()
	a.stop()
	var put musiccore.Ticket
	for range lent.Number + 1 {
		answer := c.begin(k, ref, musiccore.Put)
		require.NoError(t, answer.Err)
		put = answer.Ticket
	}
	require.Equal(t, [2]uint64{lent.Term, lent.Number}, [2]uint64{put.Term, put.Number})
	require.Equal(t, musiccore.StateReleased, b.unlock(k, ref).Grant.State)
	assert.Equal(t, musiccore.VerdictTell, c.verdict(put, musiccore.OutcomeAcked), "it was in flight until now")
}

// However many LOCKs with references of another proxy wait there, they keep no other question out, and each is served in
// its turn.
func TestReferencesElsewhereKeepNobodyOut(t *testing.T) {
	a, b := two(t, func(o *musiccore.Options) { o.ClientLease, o.QueuedLease = time.Hour, time.Hour })
	k, other := keyOf("x"), keyOf("other")
	before, ref := a.held(k), a.held(other)
	const many = 1100
	answers := make([]chan musiccore.Answer, many)
	for i := range answers {
		queued := a.lock(k, musiccore.Request{AtOnce: true})
		require.Equal(t, before+1+musiccore.LockRef(i), queued.Grant.Ref)
		answers[i] = make(chan musiccore.Answer, 1)
		_, gone := b.Lock(k, musiccore.Request{Ref: queued.Grant.Ref, Wait: time.Minute}, func(a musiccore.Answer) { answers[i] <- a })
		require.NotNil(t, gone)
		require.Eventually(t, func() bool { // one by one, so that only their number counts
			s := a.of(k)
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.waiting)+int(b.questions("lock", "yes")) > i
		}, 20*time.Second, time.Millisecond)
	}
	soon(t, "an operation", func() { b.put(other, ref) })
	assert.Zero(t, b.failed("lock"))
	for i := range turnsAsked + 3 {
		require.NoError(t, a.unlock(k, before+musiccore.LockRef(i)).Err)
		require.Equal(t, musiccore.StateHeld, (<-answers[i]).Grant.State)
	}
}
