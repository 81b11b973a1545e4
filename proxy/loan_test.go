package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
	"music/proxy/peer"
)

// inTime is less than what any of the faults below would last: musiccore.Options.OpTimeout and more.
const inTime = 3 * time.Second

// soon requires that something takes less than inTime.
func soon(t *testing.T, what string, f func()) {
	t.Helper()
	begun := time.Now()
	f()
	assert.Less(t, time.Since(begun), inTime, what)
}

// gauge returns the value of a metric without labels.
func gauge(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	require.Fail(t, "no such metric", name)
	return 0
}

// A grant elsewhere under which nothing can be lent leaves nothing in flight at the lender.
func TestAGrantElsewhereInAStrictTable(t *testing.T) {
	a, b := two(t)
	for _, s := range []*station{a, b} {
		s.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
			return c.Strict(now, keyOf("x").Table, true, s.life.id())
		})
	}
	k := handingOut(t, a)
	before := a.held(k)
	waits, _ := b.waitingAt(a, k, 2)
	require.NoError(t, a.unlock(k, before).Err)
	ref := (<-waits).Grant.Ref
	require.Equal(t, before+1, ref)
	soon(t, "an operation", func() { b.put(k, ref) })
	soon(t, "UNLOCK", func() { require.NoError(t, b.unlock(k, ref).Err) })
	soon(t, "the next LOCK", func() { assert.Equal(t, ref+1, a.held(k)) })
}

// A client that goes away while its grant is on the way keeps nobody waiting.
func TestAClientGoesWhileItsGrantIsOnTheWay(t *testing.T) {
	a, b, between := linked(t)
	k := handingOut(t, a)
	before := a.held(k)
	waits, gone := b.waitingAt(a, k, 2)
	next, _ := a.waitingAt(a, k, 3)
	sent := between.hold()
	require.NoError(t, a.unlock(k, before).Err)
	between.arrived(sent)
	gone()
	require.ErrorIs(t, (<-waits).Err, errGone)
	between.letGo()
	soon(t, "the next one", func() { assert.Equal(t, before+2, (<-next).Grant.Ref) })
}

// A client with a token may come back for a grant of which it did not hear: nobody releases that.
func TestAClientComesBackForItsGrant(t *testing.T) {
	a, b, between := linked(t)
	k := handingOut(t, a)
	before := a.held(k)
	lock := musiccore.Request{Wait: time.Minute, Token: [16]byte{7}}
	gone := make(chan musiccore.Answer, 1)
	_, leave := b.Lock(k, lock, func(a musiccore.Answer) { gone <- a })
	require.NotNil(t, leave)
	require.Eventually(t, func() bool { return len(a.listHere(k, 10)) == 2 }, 20*time.Second, time.Millisecond)
	sent := between.hold()
	require.NoError(t, a.unlock(k, before).Err)
	between.arrived(sent)
	leave()
	require.ErrorIs(t, (<-gone).Err, errGone)
	between.letGo()
	require.Eventually(t, func() bool { return len(b.places) == 0 }, 20*time.Second, time.Millisecond)
	answer := a.lock(k, lock)
	require.NoError(t, answer.Err)
	require.Equal(t, musiccore.StateHeld, answer.Grant.State)
	assert.Equal(t, before+1, answer.Grant.Ref)
	a.put(k, answer.Grant.Ref)
}

// An UNLOCK that did not reach the lender gives the loan back when it is repeated.
func TestAnUnlockIsRepeated(t *testing.T) {
	for name, isHeard := range map[string]bool{"the question is lost": false, "the answer is lost": true} {
		t.Run(name, func(t *testing.T) {
			a, b, between := linked(t)
			k := handingOut(t, a)
			before := a.held(k)
			waits, _ := b.waitingAt(a, k, 2)
			next, _ := a.waitingAt(a, k, 3)
			require.NoError(t, a.unlock(k, before).Err)
			ref := (<-waits).Grant.Ref
			last := b.put(k, ref)
			released := make(chan musiccore.Answer, 1)
			unlock := func() { b.Unlock(k, ref, anna(), func(a musiccore.Answer) { released <- a }) }
			if isHeard {
				sent := between.hold()
				unlock()
				between.arrived(sent)
				between.hangUpOnce()
			} else {
				between.hangUp()
				unlock()
				require.Eventually(t, func() bool { return b.failed("unlock") > 0 }, 20*time.Second, time.Millisecond)
				between.mend()
			}
			soon(t, "UNLOCK", func() { assert.Equal(t, musiccore.StateReleased, (<-released).Grant.State) })
			soon(t, "the next one", func() { assert.Equal(t, ref+1, (<-next).Grant.Ref) })
			assert.Equal(t, last+32, a.put(k, ref+1), "nothing was unsettled")
		})
	}
}

// failed returns how many questions of a kind were not answered.
func (s *station) failed(asked string) float64 { return s.questions(asked, "no") }

// questions returns how many questions of a kind were answered, or were not.
func (s *station) questions(asked, answered string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "music_peer_requests_total" && labels["asked"] == asked && labels["answered"] == answered {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// The borrower's shutdown answers who waits at the lender.
func TestTheBorrowerDrains(t *testing.T) {
	a, b := two(t, func(o *musiccore.Options) { o.Wait = time.Minute })
	k := handingOut(t, a)
	a.held(k)
	waits, _ := b.waitingAt(a, k, 2)
	b.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Drain(now) })
	soon(t, "the answer", func() {
		answer := <-waits
		assert.True(t, answer.Err != nil || answer.Grant.State == musiccore.StateQueued, "%+v", answer)
	})
}

// The borrower's shutdown waits for what it gives back: the lender would wait for it until it is over.
func TestTheBorrowerGivesBackBeforeItEnds(t *testing.T) {
	a, b, between := linked(t)
	k := keyOf("x")
	ref := a.held(k)
	put := b.begin(k, ref, musiccore.Put)
	require.NoError(t, put.Err)
	for _, back := range []func(){
		func() { b.End(put.Ticket, musiccore.OutcomeUnknown) },
		func() { b.Unlock(k, ref, anna(), func(musiccore.Answer) {}) },
	} {
		require.Eventually(t, b.quiet, 20*time.Second, time.Millisecond)
		sent := between.hold()
		back()
		between.arrived(sent)
		assert.False(t, b.quiet())
		between.letGo()
	}
	require.Eventually(t, b.quiet, 20*time.Second, time.Millisecond)
}

// A LOCK that is about to wait at the lender when the borrower's shutdown begins is answered, too.
func TestTheBorrowerDrainsBefore(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	a.held(k)
	answers := make(chan musiccore.Answer, 1)
	w := b.newWaitingLock(k, musiccore.Request{Wait: time.Minute}, func(a musiccore.Answer) { answers <- a })
	b.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Drain(now) })
	go w.answered(musiccore.Answer{Err: &musiccore.ElsewhereError{Session: a.life.id()}})
	soon(t, "the answer", func() { assert.ErrorIs(t, (<-answers).Err, musiccore.ErrDraining) })
}

// The lender's shutdown answers who waits there from elsewhere; who has no reference goes on waiting here.
func TestTheLenderDrains(t *testing.T) {
	a, b := two(t, func(o *musiccore.Options) { o.Wait = time.Minute })
	k := handingOut(t, a)
	before := a.held(k)
	first, _ := b.waitingAt(a, k, 2)
	second, _ := b.waitingAt(a, k, 3)
	third, _ := b.waitingAt(a, k, 4)
	require.NoError(t, a.unlock(k, before).Err)
	ref := (<-first).Grant.Ref
	b.put(k, ref)
	fourth, _ := b.waitingAt(a, k, 4)
	a.server.Drain()
	a.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Drain(now) })
	soon(t, "who has a reference", func() {
		assert.Equal(t, musiccore.Grant{Ref: ref + 1, State: musiccore.StateQueued}, placed(<-second))
		assert.Equal(t, musiccore.Grant{Ref: ref + 2, State: musiccore.StateQueued}, placed(<-third))
	})
	require.Eventually(t, func() bool { return len(b.listHere(k, 10)) > 0 }, 20*time.Second, time.Millisecond)
	require.NoError(t, b.unlock(k, ref).Err)
	for _, next := range []musiccore.LockRef{ref + 1, ref + 2} {
		require.NoError(t, b.unlock(k, next).Err)
	}
	require.Eventually(t, a.quiet, 20*time.Second, time.Millisecond)
	a.ended()
	assert.Equal(t, musiccore.StateHeld, (<-fourth).Grant.State)
}

// placed returns an answer's state and reference.
func placed(a musiccore.Answer) musiccore.Grant {
	return musiccore.Grant{Ref: a.Grant.Ref, State: a.Grant.State}
}

// The metrics and the audit of a lender have every section of a run.
func TestARunIsCounted(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	before := a.held(k)
	first, _ := b.waitingAt(a, k, 2)
	second, _ := b.waitingAt(a, k, 3)
	third, _ := b.waitingAt(a, k, 4)
	loans := gauge(t, b.registry, "music_loans_total")
	require.NoError(t, a.unlock(k, before).Err)
	for _, waits := range []<-chan musiccore.Answer{first, second, third} {
		ref := (<-waits).Grant.Ref
		b.put(k, ref)
		require.NoError(t, b.unlock(k, ref).Err)
	}
	assert.Equal(t, loans+1, gauge(t, b.registry, "music_loans_total"))
	for _, s := range []*station{a, b} {
		assert.Zero(t, gauge(t, s.registry, "music_locks_held"))
		assert.Zero(t, gauge(t, s.registry, "music_locks_waiting"))
		assert.Zero(t, gauge(t, s.registry, "music_oldest_holder_seconds"))
		assert.Zero(t, gauge(t, s.registry, "music_oldest_waiter_seconds"))
	}
	granted, ended := a.audited.of("lock granted"), a.audited.of("lock ended")
	assert.Len(t, granted, 7)
	assert.Len(t, ended, 7)
}

// A grant that is lost on its way is asked for again.
func TestAGrantIsLostOnItsWay(t *testing.T) {
	a, b, between := linked(t)
	k := handingOut(t, a)
	before := a.held(k)
	waits, _ := b.waitingAt(a, k, 2)
	sent := between.hold()
	require.NoError(t, a.unlock(k, before).Err)
	between.arrived(sent)
	between.hangUpOnce()
	soon(t, "the grant", func() { assert.Equal(t, musiccore.StateHeld, (<-waits).Grant.State) })
}

// waitsFor has so many clients of a proxy ask for a key at once, and returns when, with others, so many in all have
// it or wait for it, there or at the lender.
func (s *station) waitsFor(a *station, k musiccore.Key, many, inAll int) (answers <-chan musiccore.Answer) {
	s.t.Helper()
	all := make(chan musiccore.Answer, many)
	for range many {
		_, gone := s.Lock(k, musiccore.Request{Wait: time.Minute}, func(a musiccore.Answer) { all <- a })
		require.NotNil(s.t, gone)
	}
	require.Eventually(s.t, func() bool {
		return len(a.listHere(k, peer.MaxListed))+len(s.listHere(k, peer.MaxListed)) == inAll
	}, 20*time.Second, time.Millisecond)
	return all
}

// As many LOCKs as come at once wait elsewhere and are served.
func TestABurstOfLocksElsewhere(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	before := a.held(k)
	const many = 200
	answers := b.waitsFor(a, k, many, many+1)
	assert.Zero(t, b.failed("lock"))
	require.NoError(t, a.unlock(k, before).Err)
	for range many {
		g := <-answers
		require.NoError(t, g.Err)
		require.Equal(t, musiccore.StateHeld, g.Grant.State)
		b.put(k, g.Grant.Ref)
		require.NoError(t, b.unlock(k, g.Grant.Ref).Err)
	}
}

// LOCKs that wait elsewhere keep no other question out.
func TestLocksElsewhereKeepNobodyOut(t *testing.T) {
	a, b := two(t, func(o *musiccore.Options) { o.Retain, o.ClientLease = time.Minute, time.Hour })
	k, other := handingOut(t, a), keyOf("other")
	a.held(k)
	ref := a.held(other)
	for i := range 11 { // one by one, so that only their number counts
		b.waitsFor(a, k, 100, 100*(i+1)+1)
	}
	assert.Zero(t, b.failed("lock"))
	b.put(other, ref)
}

// What a LOCK has waited here counts when it waits on elsewhere.
func TestALockThatMovesWaitsNoLonger(t *testing.T) {
	a, b := two(t)
	k := handingOut(t, a)
	a.held(k)
	answers := make(chan musiccore.Answer, 1)
	w := b.newWaitingLock(k, musiccore.Request{Wait: 20 * time.Second}, func(a musiccore.Answer) { answers <- a })
	w.begun -= 20*time.Second - inTime/3
	soon(t, "the answer", func() {
		w.answered(musiccore.Answer{Err: &musiccore.ElsewhereError{Session: a.life.id()}})
		assert.Equal(t, musiccore.StateQueued, (<-answers).Grant.State)
	})
}

// Nothing is told as done that the lender could not be asked about, and whoever goes on is told so in bounded time;
// at the lender the lock goes on when the loan is over.
func TestTheLinkBreaksWhileALoanIsOut(t *testing.T) {
	a, b, between := linked(t, func(o *musiccore.Options) { o.OpTimeout = time.Second })
	k := handingOut(t, a)
	ref := b.held(k)
	b.put(k, ref)
	put, get := b.begin(k, ref, musiccore.Put), b.begin(k, ref, musiccore.Get)
	require.NotZero(t, put.Ticket.Loan)
	between.hangUp()
	b.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Altered(now, k.Table, 0) })
	verdicts := make(chan musiccore.Verdict, 2)
	for _, ended := range []musiccore.Answer{put, get} {
		v, wait := b.End(ended.Ticket, musiccore.OutcomeAcked)
		require.Equal(t, musiccore.VerdictUncertain, v)
		go func() { verdicts <- wait() }()
	}
	assert.Equal(t, musiccore.VerdictUncertain, <-verdicts)
	assert.Equal(t, musiccore.VerdictUncertain, <-verdicts)
	assert.Equal(t, musiccore.VerdictUncertain, b.verdict(put.Ticket, musiccore.OutcomeAcked), "it ends once")
	assert.ErrorIs(t, b.begin(k, ref, musiccore.Put).Err, peer.ErrAway)
	assert.ErrorIs(t, b.unlock(k, ref).Err, peer.ErrAway)
	assert.Greater(t, a.put(k, ref), put.Ticket.Stamp+32)
	between.mend()
	b.put(k, ref)
	assert.Equal(t, musiccore.StateReleased, b.unlock(k, ref).Grant.State)
}

// A loan whose borrower cannot reach its lender for a moment comes back all the same: a run would be lost with it.
func TestALoanComesBackAfterABreak(t *testing.T) {
	a, b, between := linked(t)
	k := handingOut(t, a)
	ref := b.held(k)
	put := b.begin(k, ref, musiccore.Put)
	require.NotZero(t, put.Ticket.Loan)
	between.hangUp()
	b.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Altered(now, k.Table, 0) })
	_, wait := b.End(put.Ticket, musiccore.OutcomeAcked)
	require.Eventually(t, func() bool { return b.failed("end") >= 3 }, 20*time.Second, time.Millisecond)
	between.mend()
	assert.Equal(t, musiccore.VerdictTell, wait())
	soon(t, "the lender", func() { a.put(k, ref) })
}

// A loan for a long key could not be found again: its LOCKs wait here.
func TestALockOfALongKeyWaitsHere(t *testing.T) {
	a, b := two(t)
	k := keyOf(strings.Repeat("x", ownerKeyBytes))
	a.short(k)
	before := a.held(k)
	_, gone := b.Lock(k, musiccore.Request{Wait: time.Minute}, func(musiccore.Answer) {})
	require.NotNil(t, gone)
	require.Eventually(t, func() bool { return len(b.listHere(k, 10)) == 1 }, 20*time.Second, time.Millisecond)
	require.NoError(t, a.unlock(k, before).Err)
}
