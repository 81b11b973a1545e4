package musiccore

import (
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
}

// farSite is the proxy of a site. rtt is the round trip to the nearest other replica.
type farSite struct {
	*farSim
	core     *Core
	session  *Session
	rtt      time.Duration
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
		s := &farSite{farSim: f, session: NewSession(session(byte(i+1)), o), rtt: rtt, waits: map[OpID]chan Answer{}}
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
	for _, hint := range fx.Hints {
		to := s.sites[hint.To[0]-1]
		time.AfterFunc(s.rtt/2, func() { to.call(func() Effects { return to.core.Hear(farTime(), hint) }) })
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

// section locks, does the operations and unlocks.
func (s *farSite) section() bool {
	q := Request{Wait: s.wait}
	a, ok := s.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, s.core.Lock(farTime(), op, s.key, q) })
	for ok && a.Grant.State == StateQueued {
		q.Ref = a.Grant.Ref
		a, ok = s.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, s.core.Lock(farTime(), op, s.key, q) })
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
		a, ok = s.ask(func(op OpID) (Ticket, Effects) { return s.core.Begin(farTime(), op, s.key, ref, kind) })
		if !ok {
			return false
		}
		time.Sleep(s.rtt)
		s.call(func() Effects { _, fx := s.core.End(farTime(), a.Ticket, OutcomeAcked); return fx })
	}
	_, ok = s.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, s.core.Unlock(farTime(), op, s.key, ref) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sections++
	return ok
}

// Clients at three sites (54, 72 and 24 ms apart) lock one key. After a while each site has one
// block in the queue, and one LWT releases it and enqueues all clients that have come meanwhile:
// one LWT for each term, which has as many sections as a site has clients, unless a site's clients
// are in two blocks. Sections follow the order of their references, and each site has its share.
func TestFarSitesShareAKeyByOneLWTATerm(t *testing.T) {
	for _, tc := range []struct {
		name    string
		clients int
		ops     []Kind
		least   int // sections in 10 s
	}{
		{"one client a site", 1, []Kind{Put}, 70},
		{"one client a site, which reads first", 1, []Kind{Get, Put}, 54},
		{"three clients a site", 3, []Kind{Put}, 125},
		{"three clients a site, which read first", 3, []Kind{Get, Put}, 85},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFar(t, load{clients: tc.clients, ops: tc.ops, wait: 5 * time.Second}, 54*time.Millisecond, 24*time.Millisecond, 24*time.Millisecond)
				settled := f.after(5 * time.Second)
				done := f.after(10 * time.Second)
				close(f.ended)
				synctest.Wait()
				lwts, sections := done.lwts-settled.lwts, done.sections[0]-settled.sections[0]
				assert.True(t, slices.IsSorted(f.order), "out of order: %v", f.order)
				assert.LessOrEqual(t, 10*lwts*tc.clients, 15*sections, "%d LWTs for %d sections", lwts, sections)
				assert.GreaterOrEqual(t, sections, tc.least, "%d LWTs for %d sections", lwts, sections)
				for i := range f.sites {
					n := done.sections[i+1] - settled.sections[i+1]
					assert.GreaterOrEqual(t, 4*n, sections, "site %d: %d of %d sections", i+1, n, sections)
				}
				time.Sleep(time.Minute) // until nothing is in flight
			})
		})
	}
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
