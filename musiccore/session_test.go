package musiccore

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func at(d time.Duration) Now {
	wall := t0 + Stamp(d.Microseconds())
	return Now{Boot: d, Raw: d, Wall: wall, Clk: wall}
}

// A session is not valid before its first acknowledged beat.
func TestNoTermBeforeTheFirstAck(t *testing.T) {
	s := NewSession(session(1), Defaults())
	require.False(t, s.Valid(at(0)), "valid without a beat")
	require.False(t, s.Dead(), "valid without a beat")
	n, ok := s.Beat(at(0))
	require.EqualValues(t, 1, n>>saltBits, "a beat that is only sent gives nothing")
	require.True(t, ok, "a beat that is only sent gives nothing")
	require.False(t, s.Valid(at(0)), "a beat that is only sent gives nothing")
	s.Acked(at(1), at(0), n)
	require.True(t, s.Valid(at(2)), "not valid after the acknowledgement")
}

// C5: the lease counts from the start of a beat, not from its acknowledgement.
func TestLeaseCountsFromTheStart(t *testing.T) { // C5, fromAck
	s := NewSession(session(1), Defaults())
	n, _ := s.Beat(at(0))
	s.Acked(at(9*time.Second), at(0), n)
	require.True(t, s.Valid(at(9*time.Second)), "not valid before start+L")
	require.False(t, s.Valid(at(10*time.Second)), "valid at start+L")
}

// C5: a session whose deadline has passed is never valid again.
func TestC5DeadForEver(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(0))
	s.Acked(at(0), at(0), one)
	two, _ := s.Beat(at(9 * time.Second))
	require.False(t, s.Valid(at(11*time.Second)), "valid past the deadline")
	s.Acked(at(11*time.Second), at(9*time.Second), two)
	require.False(t, s.Valid(at(11*time.Second)), "a late acknowledgement revived the session")
	require.False(t, s.Valid(at(9*time.Second)), "a late acknowledgement revived the session")
	require.True(t, s.Dead(), "a late acknowledgement revived the session")
	_, ok := s.Beat(at(12 * time.Second))
	require.False(t, ok, "a dead session beats")
}

// C5: an acknowledgement that comes after the deadline does not make it valid either.
func TestC5AnAckThatFindsTheDeadlinePassedRevivesNothing(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(0))
	two, _ := s.Beat(at(9 * time.Second))
	s.Acked(at(0), at(0), one)
	s.Acked(at(11*time.Second), at(9*time.Second), two) // nobody asked in between
	require.False(t, s.Valid(at(11*time.Second)), "revived")
}

// A first acknowledgement that comes after its lease makes nothing valid.
func TestFirstAckTooLate(t *testing.T) {
	s := NewSession(session(1), Defaults())
	n, _ := s.Beat(at(0))
	s.Acked(at(11*time.Second), at(0), n)
	require.False(t, s.Valid(at(11*time.Second)), "a session that others may have found dead came to life")
	require.True(t, s.Dead(), "a session that others may have found dead came to life")
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
		assert.False(t, s.Valid(now), "%s: still valid", name)
		assert.True(t, s.Dead(), "%s: still valid", name)
	}
}

// Acknowledgements may come in any order; one of a beat that was never sent counts for nothing.
func TestAcksOutOfOrderAndInvented(t *testing.T) {
	s := NewSession(session(1), Defaults())
	one, _ := s.Beat(at(0))
	two, _ := s.Beat(at(3 * time.Second))
	s.Acked(at(4*time.Second), at(3*time.Second), two)
	s.Acked(at(4*time.Second), at(0), one)
	require.True(t, s.Valid(at(12*time.Second)), "an older acknowledgement shortened the lease")
	s.Acked(at(12*time.Second), at(12*time.Second), 99)
	require.False(t, s.Valid(at(13*time.Second)), "a beat that was never sent counts")
}

// A session that was ended is dead at once.
func TestEnd(t *testing.T) {
	s := NewSession(session(1), Defaults())
	n, _ := s.Beat(at(0))
	s.Acked(at(0), at(0), n)
	s.End()
	require.False(t, s.Valid(at(1)), "ended, and valid")
	require.Equal(t, session(1), s.ID(), "ended, and valid")
}

// The methods of a session may be called concurrently: no two beats get one number.
func TestSessionUnderRace(t *testing.T) {
	s := NewSession(session(1), Defaults())
	var beats [4][]int64
	var g sync.WaitGroup
	for i := range beats {
		g.Go(func() {
			for range 1000 {
				if n, ok := s.Beat(at(0)); ok {
					beats[i] = append(beats[i], n)
					s.Acked(at(0), at(0), n)
				}
				s.Valid(at(0))
			}
		})
	}
	g.Wait()
	all := slices.Concat(beats[:]...)
	require.Len(t, all, 4000)
	slices.Sort(all)
	assert.Len(t, slices.Compact(all), 4000)
}

// begin1 is a beat with its look before it: the start, the number, and the store's clock beside them.
func begin1(s *Session, now, store time.Duration) (start Now, n int64) {
	start = at(now)
	start.Store = storeAt(store)
	n, _ = s.Beat(start)
	return start, n
}

func storeAt(d time.Duration) Stamp { return t0/2 + Stamp(d.Microseconds()) }

// look1 is one that begins and ends at the same moment.
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
		require.NoError(t, look1(s, 3*time.Second, 3*time.Second+stood.before, n), name)
		start, n = begin1(s, 3*time.Second, 3*time.Second+stood.before)
		now := at(3 * time.Second)
		now.Store = storeAt(3*time.Second + stood.after)
		s.Acked(now, start, n)
		assert.False(t, s.Valid(at(3*time.Second)), "%s: valid though others may have found it dead", name)
		assert.True(t, s.Dead(), "%s: valid though others may have found it dead", name)
	}
}

// At the next look, the time that the own clocks missed is taken off what is left of the lease.
func TestTheStoresClockShortensTheLease(t *testing.T) { // C12
	s := NewSession(session(1), Defaults())
	start, n := begin1(s, 0, 0)
	s.Acked(at(0), start, n)
	require.NoError(t, look1(s, 2*time.Second, 7*time.Second, n))
	require.Equal(t, 3*time.Second, s.Left(at(2*time.Second)), "are left of the lease, and 3s by the store's clock")
	err := look1(s, 4*time.Second, 9*time.Second-1000, n)
	require.NoError(t, err, "not valid")
	require.True(t, s.Valid(at(4*time.Second)), "not valid %v", err)
	require.False(t, s.Valid(at(5*time.Second)), "valid when the store's clock has passed the deadline")
}

// A cloned machine gives two processes one session. Each sees a beat that it has not sent, and the
// first to see one ends.
func TestASessionOfTwoProcesses(t *testing.T) {
	one, two := NewSession(session(1), Defaults()), NewSession(session(1), Defaults())
	first, n := begin1(one, 0, 0)
	one.Acked(at(0), first, n)
	two.Acked(at(0), first, func() int64 { _, n := begin1(two, 0, 0); return n }())
	require.NoError(t, look1(two, time.Second, time.Second, n), "the earlier beat is of both")
	start, n := begin1(one, 3*time.Second, 3*time.Second)
	one.Acked(at(3*time.Second), start, n)
	_, other := begin1(two, 3*time.Second+1, 3*time.Second) // its clocks show another moment: another number, that is not written yet
	require.NotEqual(t, n, other, "both send the same beat")
	err := look1(two, 3*time.Second+1, 3*time.Second, n)
	require.ErrorIs(t, err, ErrForeignBeat, "a beat of another process is taken for its own")
	require.True(t, two.Dead(), "a beat of another process is taken for its own: %v", err)
	err = look1(one, 4*time.Second, 4*time.Second, n)
	require.NoError(t, err, "the other one, which goes on alone")
	require.True(t, one.Valid(at(4*time.Second)), "the other one, which goes on alone: %v", err)
}

// A session ends if its row is missing: other proxies find a session dead whose beats they cannot
// see.
func TestASessionWhoseRowHasGone(t *testing.T) {
	s := NewSession(session(1), Defaults())
	require.NoError(t, look1(s, 0, 0, 0), "before its first beat there is no row")
	start, n := begin1(s, 0, 0)
	under := s.Look(at(0)) // may show the row of before the beat
	s.Acked(at(0), start, n)
	require.NoError(t, s.Saw(at(1), under, 0), "a look from before the acknowledgement")
	err := look1(s, 2, 2, 0)
	require.ErrorIs(t, err, ErrBeatGone, "the row has gone")
	require.True(t, s.Dead(), "the row has gone: %v", err)
	s = NewSession(session(2), Defaults())
	start, n = begin1(s, 0, 0)
	s.Acked(at(0), start, n)
	err = look1(s, 1, 1, EndedBeat)
	require.ErrorIs(t, err, ErrForeignBeat, "somebody has written that it ended")
	require.True(t, s.Dead(), "somebody has written that it ended: %v", err)
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
			stood := h.now - since
			assert.GreaterOrEqual(t, stood, max(own, lease), "own lease %v, the session's %v", own, lease)
			assert.LessOrEqual(t, stood, max(own, lease)*11/10+2*time.Second, "own lease %v, the session's %v", own, lease)
		}
	}
}
