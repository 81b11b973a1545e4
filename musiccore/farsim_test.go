package musiccore

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// farSim is one key that clients at distant sites lock again and again, on the virtual time of
// synctest.
type farSim struct {
	mu    sync.Mutex // guards the fields below
	store *fakeStore
	key   Key
	sites []*farSite
	order []LockRef // the references in the order of their grants
	lwts  int
	paxos chan struct{} // one LWT at a time
	ended chan struct{}
	load
	pause time.Duration // for how long the next holder keeps the lock; then 0
}

// load is what the clients of each site do, and how long an LWT takes.
type load struct {
	clients int
	ops     []Kind        // of a section
	wait    time.Duration // of a LOCK; 0: its default
	lwt     time.Duration // the duration of an LWT without the network's part
	place   Place         // where the clients wait
}

// farSite is the proxy of a site. rtt is the round trip to the nearest other replica.
type farSite struct {
	*farSim
	core     *Core
	session  *Session
	rtt      time.Duration
	n        int
	waits    map[OpID]chan Answer
	last     OpID
	sections int
	alarm    *time.Timer
}

// newFar starts a proxy and some clients at each site.
func newFar(t *testing.T, l load, rtts ...time.Duration) *farSim {
	t.Helper()
	h := newHarness(t)
	f := &farSim{store: newFakeStore(h), key: h.key(), paxos: make(chan struct{}, 1), ended: make(chan struct{}), load: l}
	for i, rtt := range rtts {
		o := Defaults()
		s := &farSite{farSim: f, n: i, session: NewSession(session(byte(i+1)), o), rtt: rtt, waits: map[OpID]chan Answer{}}
		s.core = New(s.session, o)
		s.alarm = time.AfterFunc(time.Hour, func() { s.call(func() Effects { return s.core.Tick(farTime()) }) })
		s.beat()
		f.sites = append(f.sites, s)
		for range l.clients {
			go func() {
				for s.section() {
				}
			}()
		}
	}
	return f
}

func farTime() Now {
	now := time.Hour + time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) // when a synctest bubble begins
	wall := t0 + Stamp(now.Microseconds())
	return Now{Boot: now, Raw: now, Wall: wall, Clk: wall}
}

// beat keeps the session alive until the simulation ends.
func (s *farSite) beat() {
	select {
	case <-s.ended:
		return
	default:
	}
	if n, ok := s.session.Beat(farTime()); ok {
		s.session.Acked(farTime(), farTime(), n)
	}
	time.AfterFunc(s.core.opts.SessionLease/3, s.beat)
}

// call passes an event to the core and carries out its effects.
func (s *farSite) call(do func() Effects) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fx := do()
	for _, a := range fx.Answers {
		if to := s.waits[a.Op]; to != nil {
			to <- a
		}
	}
	for _, c := range fx.Commands {
		go s.do(c)
	}
	for _, r := range fx.Returns {
		to := s.sites[r.Ticket.Lender[0]-1]
		go func() {
			v := VerdictUncertain
			s.visit(to, func() {
				t := r.Ticket
				t.Lender = SessionID{}
				to.call(func() Effects { var fx Effects; v, fx = to.core.End(farTime(), t, r.Outcome); return fx })
			})
			s.call(func() Effects { return s.core.Returned(farTime(), r.Loan, v) })
		}()
	}
	for _, hint := range fx.Hints {
		to := s.sites[hint.To[0]-1]
		time.AfterFunc(s.to(to)/2, func() { to.call(func() Effects { return to.core.Hear(farTime(), hint) }) })
	}
	if fx.Wake != 0 {
		s.alarm.Reset(max(fx.Wake-farTime().Boot, time.Microsecond))
	}
}

// do carries out a command. An LWT takes three round trips to the other replicas, or one if it is
// refused, and excludes other LWTs meanwhile. The other replicas have it when its commit arrives,
// half a round trip before it is answered.
func (s *farSite) do(c Command) {
	select {
	case <-s.ended:
		return
	default:
	}
	back := time.Duration(0)
	switch a := c.Action.(type) {
	case Apply:
		s.paxos <- struct{}{}
		defer func() { <-s.paxos }()
		time.Sleep(s.rtt + s.lwt)
		s.mu.Lock()
		s.lwts++
		row := s.store.row
		s.mu.Unlock()
		if _, ok := a.Swap.Apply(row); ok {
			back = s.rtt / 2
			time.Sleep(2*s.rtt - back)
		}
	case ReadRow:
		if a.Quorum {
			time.Sleep(s.rtt)
		}
	case Synch:
		time.Sleep(2 * s.rtt)
	case ReadStamps:
		time.Sleep(s.rtt)
	}
	s.mu.Lock()
	r := s.store.do(c.Action)
	s.mu.Unlock()
	time.Sleep(back)
	if _, beat := c.Action.(ReadBeat); beat {
		r.Beat = int64(farTime().Boot)
	}
	s.call(func() Effects { return s.core.Reply(farTime(), c.ID, r) })
}

// ask does an operation of a client and waits for its answer. It returns false when the simulation
// has ended.
func (s *farSite) ask(do func(OpID) (Ticket, Effects)) (a Answer, ok bool) {
	got := make(chan Answer, 1)
	s.call(func() Effects {
		s.last++
		s.waits[s.last] = got
		tk, fx := do(s.last)
		if tk.OK() {
			got <- Answer{Ticket: tk}
		}
		return fx
	})
	select {
	case a = <-got:
		return a, true
	case <-s.ended:
		return a, false
	}
}

// to returns the round trip to another site. The first and the last are a third farther apart than the
// first and the one between.
func (s *farSite) to(other *farSite) time.Duration {
	longest := max(s.rtt, other.rtt)
	if s.n+other.n == 2 && s.n != 1 {
		return longest * 4 / 3
	}
	return longest
}

// visit does something at another site, and returns when its answer is here.
func (s *farSite) visit(to *farSite, do func()) {
	time.Sleep(s.to(to) / 2)
	do()
	time.Sleep(s.to(to) / 2)
}

// lock asks for a reference, at another site if this one's core says so, and returns who has given it.
func (s *farSite) lock(q Request) (a Answer, at *farSite, ok bool) {
	a, ok = s.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, s.core.Lock(farTime(), op, s.key, q) })
	var elsewhere *ElsewhereError
	if !ok || !errors.As(a.Err, &elsewhere) {
		return a, s, ok
	}
	at = s.sites[elsewhere.Session[0]-1]
	if a, ok = s.lockThere(at, q); ok && errors.Is(a.Err, ErrNoBlock) {
		q.Place = PlaceHere
		return s.lock(q)
	}
	return a, at, ok
}

// lockThere asks another site for a reference, until that or a loan which is passed on gives one.
func (s *farSite) lockThere(at *farSite, q Request) (Answer, bool) {
	q.Place, q.Via = PlaceBlock, s.session.ID()
	granted := make(chan Answer, 2)
	s.mu.Lock()
	s.last++
	op := s.last
	q.Token = [16]byte{byte(s.n), byte(op), byte(op >> 8), byte(op >> 16)}
	s.waits[op] = granted
	s.core.AddRemoteWait(op, s.key, q.Token)
	s.mu.Unlock()
	sent := farTime()
	go s.visit(at, func() {
		a, ok := at.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, at.core.Lock(farTime(), op, s.key, q) })
		if ok && a.Grant.Applied {
			a.Ticket, _ = at.lend(s.key, a.Grant.Ref, s)
		}
		time.AfterFunc(s.to(at)/2, func() {
			s.mu.Lock()
			s.core.RemoveRemoteWait(op, s.key, q.Token)
			delete(s.waits, op)
			s.mu.Unlock()
			if a.Ticket.OK() {
				s.borrow(sent, a.Ticket)
			}
			granted <- a // the second one is not looked at
		})
	})
	select {
	case a := <-granted:
		return a, true
	case <-s.ended:
		return Answer{}, false
	}
}

func (s *farSite) lend(id Key, ref LockRef, to *farSite) (Ticket, bool) {
	a, ok := s.ask(func(op OpID) (Ticket, Effects) {
		return s.core.Lend(farTime(), op, LoanRequest{Key: id, Ref: ref, Kind: Put, To: to.session.ID()})
	})
	a.Ticket.Lender = s.session.ID()
	return a.Ticket, ok
}

func (s *farSite) borrow(sent Now, tk Ticket) {
	s.call(func() Effects { return s.core.Borrow(farTime(), sent, tk) })
}

// begin begins an operation under a reference of a site.
func (s *farSite) begin(at *farSite, ref LockRef, kind Kind) (tk Ticket, ok bool) {
	if at == s {
		a, ok := s.ask(func(op OpID) (Ticket, Effects) { return s.core.Begin(farTime(), op, s.key, ref, kind) })
		return a.Ticket, ok
	}
	for {
		s.call(func() (fx Effects) {
			s.last++
			tk, fx = s.core.BorrowedTicket(farTime(), s.last, s.key, ref, kind)
			return fx
		})
		if tk.OK() {
			return tk, true
		}
		sent := farTime()
		var lent Ticket
		s.visit(at, func() { lent, ok = at.lend(s.key, ref, s) })
		if !ok {
			return tk, false
		}
		s.borrow(sent, lent)
	}
}

func (s *farSite) unlock(at *farSite, ref LockRef) (ok bool) {
	unlock := func() {
		_, ok = at.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, at.core.Unlock(farTime(), op, s.key, ref) })
	}
	if at == s {
		unlock()
		return ok
	}
	var back Return
	var passed bool
	s.call(func() (fx Effects) { back, passed, fx = s.core.GiveBack(farTime(), s.key, ref); return fx })
	if passed {
		return true
	}
	s.visit(at, func() {
		if back.Ticket.OK() {
			back.Ticket.Lender = SessionID{}
			at.call(func() Effects { _, fx := at.core.End(farTime(), back.Ticket, back.Outcome); return fx })
		}
		unlock()
	})
	return ok
}

// section locks, does the operations and unlocks.
func (s *farSite) section() bool {
	q := Request{Wait: s.wait, Place: s.place}
	a, at, ok := s.lock(q)
	for ok && a.Grant.State == StateQueued {
		q.Ref = a.Grant.Ref
		a, ok = at.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, at.core.Lock(farTime(), op, s.key, q) })
	}
	if !ok {
		return false
	}
	ref := a.Grant.Ref
	s.mu.Lock()
	s.order = append(s.order, ref)
	pause := s.pause
	s.pause = 0
	s.mu.Unlock()
	time.Sleep(pause)
	for _, kind := range s.ops {
		tk, ok := s.begin(at, ref, kind)
		if !ok {
			return false
		}
		time.Sleep(s.rtt)
		s.call(func() Effects { _, fx := s.core.End(farTime(), tk, OutcomeAcked); return fx })
	}
	ok = s.unlock(at, ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sections++
	return ok
}

// Clients at three sites (54, 72 and 24 ms apart) lock one key. After a while one site hands its
// references out, and the clients of the others wait there: there are no LWTs but one for a new
// block now and then. Sections follow the order of their references, and each site has its share.
func TestFarSitesShareAKeyWithoutLWTs(t *testing.T) {
	for _, tc := range []struct {
		name    string
		clients int
		ops     []Kind
		least   int // sections in 10 s
	}{
		{"one client a site", 1, []Kind{Put}, 110},
		{"one client a site, which reads first", 1, []Kind{Get, Put}, 80},
		{"three clients a site", 3, []Kind{Put}, 140},
		{"three clients a site, which read first", 3, []Kind{Get, Put}, 90},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFar(t, load{clients: tc.clients, ops: tc.ops, wait: 5 * time.Second}, 54*time.Millisecond, 24*time.Millisecond, 24*time.Millisecond)
				settled := f.after(5 * time.Second)
				done := f.after(10 * time.Second)
				close(f.ended)
				synctest.Wait()
				f.mu.Lock()
				order := slices.Clone(f.order)
				f.mu.Unlock()
				lwts, sections := done.lwts-settled.lwts, done.sections[0]-settled.sections[0]
				assert.True(t, slices.IsSorted(order), "out of order: %v", order)
				assert.LessOrEqual(t, lwts, 5, "LWTs for %d sections", sections)
				assert.GreaterOrEqual(t, sections, tc.least, "%d LWTs for %d sections", lwts, sections)
				for i := range f.sites {
					n := done.sections[i+1] - settled.sections[i+1]
					assert.GreaterOrEqual(t, 5*n, sections, "site %d: %d of %d sections", i+1, n, sections)
				}
				time.Sleep(time.Minute) // until nothing is in flight
			})
		})
	}
}

// farLoads has TestFarLoads run.
var farLoads = flag.Bool("far.loads", false, "measure sections a second in virtual time, with and without loans")

// TestFarLoads measures, in virtual time, how many sections a second the clients of three proxies have of one
// key, and how many LWTs a section takes: if they wait where the references are handed out, and if each
// waits at its own proxy. Each number is the median of five runs.
func TestFarLoads(t *testing.T) {
	if !*farLoads {
		t.Skip("a measurement: -far.loads")
	}
	const ms = time.Millisecond
	far, near := []time.Duration{54 * ms, 24 * ms, 24 * ms}, []time.Duration{ms, ms, ms}
	puts := func(n int) []Kind { return append([]Kind{Get}, slices.Repeat([]Kind{Put}, n)...) }
	for _, tc := range []struct {
		name string
		rtts []time.Duration
		load
	}{
		{"1 a site, 1 ms", near, load{clients: 1, ops: []Kind{Put}}},
		{"3 a site, 1 ms", near, load{clients: 3, ops: []Kind{Put}}},
		{"16 a site, 1 ms", near, load{clients: 16, ops: []Kind{Put}, lwt: 2 * ms}},
		{"1 a site, far", far, load{clients: 1, ops: []Kind{Put}}},
		{"3 a site, far", far, load{clients: 3, ops: []Kind{Put}}},
		{"10 a site, far", far, load{clients: 10, ops: []Kind{Put}}},
		{"3 a site, far, a get and 5 puts", far, load{clients: 3, ops: puts(5)}},
		{"1 a site, far, a get and 8 puts", far, load{clients: 1, ops: puts(8)}},
		{"3 a site, far, a get and 20 puts", far, load{clients: 3, ops: puts(20)}},
	} {
		for _, place := range []Place{PlaceAny, PlaceHere} {
			l := tc.load
			l.wait, l.place = 5*time.Second, place
			t.Logf("%-34s with loans %-5v  %s", tc.name, place == PlaceAny, farRate(t, l, tc.rtts))
		}
	}
}

// farRate returns the median of five runs over 20 s, after the first 8 s.
func farRate(t *testing.T, l load, rtts []time.Duration) string {
	t.Helper()
	type rate struct{ sections, lwts int }
	var rates []rate
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			f := newFar(t, l, rtts...)
			settled := f.after(8 * time.Second)
			done := f.after(20 * time.Second)
			close(f.ended)
			rates = append(rates, rate{done.sections[0] - settled.sections[0], done.lwts - settled.lwts})
			time.Sleep(time.Minute) // until nothing is in flight
		})
	}
	slices.SortFunc(rates, func(a, b rate) int { return a.sections - b.sections })
	r := rates[len(rates)/2]
	return fmt.Sprintf("%6.1f sections a second, %.2f LWTs each", float64(r.sections)/20, float64(r.lwts)/float64(max(r.sections, 1)))
}

// count is how much has been done so far: LWTs, and sections of all sites and of each.
type count struct {
	lwts     int
	sections [4]int
}

// after returns the count after some time.
func (f *farSim) after(d time.Duration) count {
	time.Sleep(d)
	f.mu.Lock()
	defer f.mu.Unlock()
	c := count{lwts: f.lwts}
	for i, s := range f.sites {
		c.sections[i+1] = s.sections
		c.sections[0] += s.sections
	}
	return c
}
