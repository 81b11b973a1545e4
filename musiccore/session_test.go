package musiccore

import (
	"errors"
	"sync"
	"testing"
	"time"
)

func at(d time.Duration) Now {
	wall := t0 + Stamp(d.Microseconds())
	return Now{Boot: d, Raw: d, Wall: wall, Clk: wall}
}

// A session is not valid before its first acknowledged beat.
func TestNoTermBeforeTheFirstAck(t *testing.T) {
	s := NewSession(session(1), Defaults())
	if s.Valid(at(0)) || s.Dead() {
		t.Fatal("valid without a beat")
	}
	n, ok := s.Beat(at(0))
	if n>>saltBits != 1 || !ok || s.Valid(at(0)) {
		t.Fatal("a beat that is only sent gives nothing")
	}
	s.Acked(at(1), at(0), n)
	if !s.Valid(at(2)) {
		t.Fatal("not valid after the acknowledgement")
	}
}

// C5: the lease counts from the start of a beat, not from its acknowledgement.
func TestLeaseCountsFromTheStart(t *testing.T) { // C5, fromAck
	s := NewSession(session(1), Defaults())
	n, _ := s.Beat(at(0))
	s.Acked(at(9*time.Second), at(0), n)
	if !s.Valid(at(9 * time.Second)) {
		t.Fatal("not valid before start+L")
	}
	if s.Valid(at(10 * time.Second)) {
		t.Fatal("valid at start+L")
	}
}

// C5: a session whose deadline has passed is never valid again.
func TestC5DeadForEver(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(0))
	s.Acked(at(0), at(0), one)
	two, _ := s.Beat(at(9 * time.Second))
	if s.Valid(at(11 * time.Second)) {
		t.Fatal("valid past the deadline")
	}
	s.Acked(at(11*time.Second), at(9*time.Second), two)
	if s.Valid(at(11*time.Second)) || s.Valid(at(9*time.Second)) || !s.Dead() {
		t.Fatal("a late acknowledgement revived the session")
	}
	if _, ok := s.Beat(at(12 * time.Second)); ok {
		t.Fatal("a dead session beats")
	}
}

// C5: an acknowledgement that comes after the deadline does not make it valid either.
func TestC5AnAckThatFindsTheDeadlinePassedRevivesNothing(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(0))
	two, _ := s.Beat(at(9 * time.Second))
	s.Acked(at(0), at(0), one)
	s.Acked(at(11*time.Second), at(9*time.Second), two) // nobody asked in between
	if s.Valid(at(11 * time.Second)) {
		t.Fatal("revived")
	}
}

// A first acknowledgement that comes after its lease makes nothing valid.
func TestFirstAckTooLate(t *testing.T) {
	s := NewSession(session(1), Defaults())
	n, _ := s.Beat(at(0))
	s.Acked(at(11*time.Second), at(0), n)
	if s.Valid(at(11*time.Second)) || !s.Dead() {
		t.Fatal("a session that others may have found dead came to life")
	}
}

// C12: whichever clock reaches the deadline first ends the lease.
func TestC12EitherClockEndsTheLease(t *testing.T) {
	for name, now := range map[string]Now{
		"suspended: boot goes on": {Boot: 11 * time.Second, Wall: t0},
		"wall jumps ahead":        {Boot: time.Second, Wall: t0 + Stamp(time.Hour.Microseconds())},
		"the others are slewed":   {Boot: time.Second, Raw: 10 * time.Second, Wall: t0},
		"all own clocks stopped":  {Store: t0 + Stamp((11 * time.Second).Microseconds())},
	} {
		s := NewSession(session(1), Defaults())
		start := at(0)
		start.Store = t0 + 1000
		n, _ := s.Beat(start)
		s.Acked(at(0), start, n)
		if s.Valid(now) || !s.Dead() {
			t.Errorf("%s: still valid", name)
		}
	}
}

// Acknowledgements may come in any order; one of a beat that was never sent counts for nothing.
func TestAcksOutOfOrderAndInvented(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(0))
	two, _ := s.Beat(at(3 * time.Second))
	s.Acked(at(4*time.Second), at(3*time.Second), two)
	s.Acked(at(4*time.Second), at(0), one)
	if !s.Valid(at(12 * time.Second)) {
		t.Fatal("an older acknowledgement shortened the lease")
	}
	s.Acked(at(12*time.Second), at(12*time.Second), 99)
	if s.Valid(at(13 * time.Second)) {
		t.Fatal("a beat that was never sent counts")
	}
}

// A session that was ended is dead at once.
func TestEnd(t *testing.T) {
	s := NewSession(session(1), Defaults())
	n, _ := s.Beat(at(0))
	s.Acked(at(0), at(0), n)
	s.End()
	if s.Valid(at(1)) || s.ID() != session(1) {
		t.Fatal("ended, and valid")
	}
}

// The methods of a session may be called concurrently.
func TestSessionUnderRace(t *testing.T) {
	s := NewSession(session(1), Defaults())
	var g sync.WaitGroup
	for i := range 4 {
		g.Go(func() {
			for j := range 1000 {
				now := at(time.Duration(i*1000+j) * time.Millisecond)
				if n, ok := s.Beat(now); ok {
					s.Acked(now, now, n)
				}
				s.Valid(now)
			}
		})
	}
	g.Wait()
}

// begin is a beat with its look before it: the start, the number, and the store's clock beside them.
func begin1(s *Session, now, store time.Duration) (start Now, n int64) {
	start = at(now)
	start.Store = storeAt(store)
	n, _ = s.Beat(start)
	return start, n
}

func storeAt(d time.Duration) Stamp { return t0/2 + Stamp(d.Microseconds()) }

// look is one that begins and ends at the same moment.
func look1(s *Session, now, store time.Duration, beat int64) error {
	seen := at(now)
	seen.Store = storeAt(store)
	return s.Saw(seen, s.Look(at(now)), beat)
}

// A paused hypervisor or a snapshot stops all clocks of a machine. Only the store's clock shows it,
// so it is read before a beat and after its acknowledgement: nobody can have found the session dead
// by the time of the second read.
func TestAcknowledgedAfterAllClocksStoodStill(t *testing.T) { // C12
	for name, stood := range map[string]struct{ before, after time.Duration }{
		"before the beat":             {8 * time.Second, 8 * time.Second},
		"between look and the answer": {0, 8 * time.Second},
	} {
		s := NewSession(session(1), Defaults())
		start, n := begin1(s, 0, 0)
		s.Acked(at(0), start, n)
		if err := look1(s, 3*time.Second, 3*time.Second+stood.before, n); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		start, n = begin1(s, 3*time.Second, 3*time.Second+stood.before)
		now := at(3 * time.Second)
		now.Store = storeAt(3*time.Second + stood.after)
		s.Acked(now, start, n)
		if s.Valid(at(3*time.Second)) || !s.Dead() {
			t.Errorf("%s: valid though others may have found it dead", name)
		}
	}
}

// At the next look, the time that the own clocks missed is taken off what is left of the lease.
func TestTheStoresClockShortensTheLease(t *testing.T) { // C12
	s := NewSession(session(1), Defaults())
	start, n := begin1(s, 0, 0)
	s.Acked(at(0), start, n)
	if err := look1(s, 2*time.Second, 7*time.Second, n); err != nil {
		t.Fatal(err)
	}
	if left := s.Left(at(2 * time.Second)); left != 3*time.Second {
		t.Fatalf("%v are left of the lease, and 3s by the store's clock", left)
	}
	if err := look1(s, 4*time.Second, 9*time.Second-1000, n); err != nil || !s.Valid(at(4*time.Second)) {
		t.Fatal("not valid", err)
	}
	if s.Valid(at(5 * time.Second)) {
		t.Fatal("valid when the store's clock has passed the deadline")
	}
}

// A cloned machine gives two processes one session. Each sees a beat that it has not sent, and the
// first to see one ends.
func TestASessionOfTwoProcesses(t *testing.T) {
	one, two := NewSession(session(1), Defaults()), NewSession(session(1), Defaults())
	first, n := begin1(one, 0, 0)
	one.Acked(at(0), first, n)
	two.Acked(at(0), first, func() int64 { _, n := begin1(two, 0, 0); return n }())
	if err := look1(two, time.Second, time.Second, n); err != nil {
		t.Fatalf("the beat of before is of both: %v", err)
	}
	start, n := begin1(one, 3*time.Second, 3*time.Second)
	one.Acked(at(3*time.Second), start, n)
	_, other := begin1(two, 3*time.Second+1, 3*time.Second) // its clocks show another moment: another number, that is not written yet
	if other == n {
		t.Fatal("both send the same beat")
	}
	if err := look1(two, 3*time.Second+1, 3*time.Second, n); !errors.Is(err, ErrForeignBeat) || !two.Dead() {
		t.Fatalf("a beat of another process is taken for its own: %v", err)
	}
	if err := look1(one, 4*time.Second, 4*time.Second, n); err != nil || !one.Valid(at(4*time.Second)) {
		t.Fatalf("the other one, which goes on alone: %v", err)
	}
}

// A session ends if its row is missing: other proxies find a session dead whose beats they cannot
// see.
func TestASessionWhoseRowHasGone(t *testing.T) {
	s := NewSession(session(1), Defaults())
	if err := look1(s, 0, 0, 0); err != nil {
		t.Fatalf("before its first beat there is no row: %v", err)
	}
	start, n := begin1(s, 0, 0)
	under := s.Look(at(0)) // may show the row of before the beat
	s.Acked(at(0), start, n)
	if err := s.Saw(at(1), under, 0); err != nil {
		t.Fatalf("a look of before the acknowledgement: %v", err)
	}
	if err := look1(s, 2, 2, 0); !errors.Is(err, ErrBeatGone) || !s.Dead() {
		t.Fatalf("the row has gone: %v", err)
	}
	s = NewSession(session(2), Defaults())
	start, n = begin1(s, 0, 0)
	s.Acked(at(0), start, n)
	if err := look1(s, 1, 1, EndedBeat); !errors.Is(err, ErrForeignBeat) || !s.Dead() {
		t.Fatalf("somebody has written that it ended: %v", err)
	}
}

// If two proxies have different session leases, the longer one counts for both.
func TestTheLongerLeaseCounts(t *testing.T) { // A setting that changes from proxy to proxy breaks nothing.
	for _, own := range []time.Duration{5 * time.Second, 10 * time.Second, 30 * time.Second} {
		for _, lease := range []time.Duration{0, 5 * time.Second, 10 * time.Second, 30 * time.Second} {
			h := newHarness(t, func(o *Options) { o.SessionLease = own })
			w := h.core.watch(h.time(), session(9))
			since := h.now
			for !w.dead {
				for _, c := range h.open {
					h.core.Reply(h.time(), c.ID, Result{Status: StatusDone, Beat: 7, Lease: lease})
				}
				h.open = nil
				h.now += 100 * time.Millisecond
				h.core.watch(h.time(), session(9))
				h.collect(h.core.Tick(h.time()))
			}
			if stood := h.now - since; stood < max(own, lease) || stood > max(own, lease)*11/10+2*time.Second {
				t.Errorf("own lease %v, the session's %v: dead after %v", own, lease, stood)
			}
		}
	}
}
