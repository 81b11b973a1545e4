package musiccore

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// far is one key that clients at far sites want again and again, in time that costs nothing.
type far struct {
	mu    sync.Mutex // of all that follows
	store *store
	key   Key
	sites []*farSite
	order []LockRef // as they were granted
	lwts  int
	paxos chan struct{} // one LWT at a time
	ended chan struct{}
}

// farSite is a proxy there. rtt is its way to the nearest other replica and back.
type farSite struct {
	*far
	core     *Core
	session  *Session
	rtt      time.Duration
	waits    map[OpID]chan Answer
	last     OpID
	sections int
}

// newFar starts a proxy and some clients at each site.
func newFar(t *testing.T, clients int, rtts ...time.Duration) *far {
	t.Helper()
	d := newDesk(t)
	f := &far{store: newStore(d), key: d.key(), paxos: make(chan struct{}, 1), ended: make(chan struct{})}
	for i, rtt := range rtts {
		o := Defaults()
		s := &farSite{far: f, session: NewSession(session(byte(i+1)), o), rtt: rtt, waits: map[OpID]chan Answer{}}
		s.core = New(s.session, o)
		s.beat()
		f.sites = append(f.sites, s)
		for range clients {
			go func() {
				for s.section() {
				}
			}()
		}
	}
	return f
}

func farTime() Now {
	now := time.Hour + time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)) // when a bubble begins
	wall := t0 + Stamp(now.Microseconds())
	return Now{Boot: now, Wall: wall, Clk: wall}
}

// beat keeps the session alive until the end.
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

// call does something with the core and carries out what it wants.
func (s *farSite) call(do func() Effects) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fx := do()
	for _, a := range fx.Answers {
		if to := s.waits[a.Op]; to != nil {
			to <- a
		}
	}
	for _, c := range fx.Do {
		go s.do(c)
	}
	for _, h := range fx.Hints {
		to := s.sites[h.To[0]-1]
		time.AfterFunc(s.rtt/2, func() { to.call(func() Effects { return to.core.Hear(farTime(), h) }) })
	}
	if fx.Wake != 0 {
		time.AfterFunc(max(fx.Wake-farTime().Boot, time.Microsecond), func() { s.call(func() Effects { return s.core.Tick(farTime()) }) })
	}
}

// do carries out a command: an LWT goes to the others and back three times, once where it is refused, and nothing else
// changes the row meanwhile.
func (s *farSite) do(c Command) {
	select {
	case <-s.ended:
		return
	default:
	}
	switch a := c.Do.(type) {
	case Apply:
		s.paxos <- struct{}{}
		defer func() { <-s.paxos }()
		time.Sleep(s.rtt)
		s.mu.Lock()
		s.lwts++
		row := s.store.row
		s.mu.Unlock()
		if _, ok := a.Swap.Apply(row); ok {
			time.Sleep(2 * s.rtt)
		}
	case ReadRow:
		if a.Quorum {
			time.Sleep(s.rtt)
		}
	case Copy:
		time.Sleep(2 * s.rtt)
	}
	s.mu.Lock()
	r := s.store.do(c.Do)
	s.mu.Unlock()
	if _, beat := c.Do.(ReadBeat); beat {
		r.Beat = int64(farTime().Boot)
	}
	s.call(func() Effects { return s.core.Reply(farTime(), c.ID, r) })
}

// ask is an operation of a client, answered at once or later; false at the end.
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

// section is lock, get, put, unlock.
func (s *farSite) section() bool {
	q := Request{Wait: 5 * time.Second}
	a, ok := s.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, s.core.Lock(farTime(), op, s.key, q) })
	for ok && a.Grant.State == Queued {
		q.Ref = a.Grant.Ref
		a, ok = s.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, s.core.Lock(farTime(), op, s.key, q) })
	}
	if !ok {
		return false
	}
	ref := a.Grant.Ref
	s.mu.Lock()
	s.order = append(s.order, ref)
	s.mu.Unlock()
	for _, kind := range []Kind{Get, Put} {
		a, ok = s.ask(func(op OpID) (Ticket, Effects) { return s.core.Begin(farTime(), op, s.key, ref, kind) })
		if !ok {
			return false
		}
		time.Sleep(s.rtt)
		s.call(func() Effects { _, fx := s.core.End(farTime(), a.Ticket, OutcomeAcked); return fx })
	}
	_, ok = s.ask(func(op OpID) (Ticket, Effects) { return Ticket{}, s.core.Unlock(farTime(), op, s.key, ref) })
	s.sections++
	return ok
}

// Three clients at each of three sites want one key (54, 72 and 24 ms between them). In the end each site has one block
// in the queue, and one LWT gives it back and enqueues all who have come meanwhile: three sections for an LWT, or fewer
// than two where a site's clients have fallen apart into two blocks, one and a half without. They go in the order of their
// references, and no site is passed over.
func TestFarSitesShareAKeyByOneLWTATenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t, 3, 54*time.Millisecond, 24*time.Millisecond, 24*time.Millisecond)
		time.Sleep(10 * time.Second)
		f.mu.Lock()
		lwts, sections := f.lwts, len(f.order)
		f.mu.Unlock()
		time.Sleep(20 * time.Second)
		f.mu.Lock()
		lwts, sections = f.lwts-lwts, len(f.order)-sections
		close(f.ended)
		f.mu.Unlock()
		synctest.Wait()
		if !slices.IsSorted(f.order) {
			t.Errorf("out of order: %v", f.order)
		}
		if 5*lwts > 3*sections {
			t.Errorf("%d LWTs for %d sections", lwts, sections)
		}
		for i, s := range f.sites {
			if s.sections < len(f.order)/4 {
				t.Errorf("site %d: %d of %d sections", i+1, s.sections, len(f.order))
			}
		}
		time.Sleep(time.Minute) // for what is on its way
	})
}
