package musiccore

import (
	"math"
	"sync/atomic"
	"time"
)

// Now is one moment, read by the caller from the clocks that PROTOCOL.md 1
// names. All three are read before the call that they are handed to.
type Now struct {
	Boot time.Duration // CLOCK_BOOTTIME: goes on during suspension (C12)
	Wall Stamp         // own wall clock
	Clk  Stamp         // clk() = min(own wall clock, cluster clock + 1 s); 0: the clocks differ by > 10 s, no new term
}

// ClockGap is how far own and cluster clock may differ for a clk() (PROTOCOL.md
// 1, clk).
const ClockGap = 10 * time.Second

// Closing answers the stamp that closes a table with lock rows to plain writes
// (PROTOCOL.md 1, D): above every base that any proxy can have taken from its
// clk() until then, or its LWT could still be applied, leave a row that looks
// as if it had been synchronised since, and show it to all who did not send it.
// clk() of one proxy lies at most ClockGap behind the cluster's clock, that of
// another a second ahead of it; what is left of twice ClockGap is for clocks of
// nodes that differ, and for steps that a proxy has not noticed yet. before is
// the stamp of the time before: closed never falls. Clk must not be 0.
func Closing(now Now, before Stamp) Stamp {
	return max(now.Clk+2*Stamp(ClockGap/time.Microsecond), before+1)
}

// EndedBeat is the beat of a session that ended by itself: dead at once for
// everybody (PROTOCOL.md 1, Shutdown).
const EndedBeat = math.MaxInt64

// Session is the life sign of this proxy, on which all its terms hang
// (PROTOCOL.md 1, Session). Once a deadline has passed it is dead for ever
// (C5): take a new one. Every method may be called concurrently.
type Session struct {
	id       SessionID
	lease    time.Duration
	beat     atomic.Int64
	deadline atomic.Pointer[deadline]
	dead     atomic.Bool
}

// deadline is the end of the lease on both clocks (C12): a suspended machine
// is caught by the one, a paused clock source by the other.
type deadline struct {
	boot time.Duration
	wall Stamp
}

func (d *deadline) passed(now Now) bool { return now.Boot >= d.boot || now.Wall >= d.wall }

// NewSession starts a session that is not yet valid: there is no term before
// the first acknowledged beat.
func NewSession(id SessionID, o Options) *Session {
	return &Session{id: id, lease: o.SessionLease}
}

// ID is the session's name in music.sessions and in lock rows.
func (s *Session) ID() SessionID { return s.id }

// Beat answers the number of the next beat: value and write timestamp of the
// row (C5, beats stamped by a clock). It is false once the session is dead.
// Read the start handed to Acked before the beat is sent.
func (s *Session) Beat(now Now) (n int64, ok bool) {
	if s.over(now) {
		return 0, false
	}
	return s.beat.Add(1), true
}

// Acked tells that beat n, begun at start, was acknowledged at QUORUM. The
// lease counts from the start, never from the acknowledgement, and an
// acknowledgement after the deadline revives nothing (C5).
func (s *Session) Acked(now, start Now, n int64) {
	if n < 1 || n > s.beat.Load() || s.over(now) {
		return
	}
	next := &deadline{
		boot: start.Boot + s.lease,
		wall: start.Wall + Stamp(s.lease.Microseconds()),
	}
	for {
		old := s.deadline.Load()
		if old != nil && old.boot >= next.boot {
			return
		}
		if s.deadline.CompareAndSwap(old, next) {
			s.over(now)
			return
		}
	}
}

// Valid reports that the lease runs: BOOTTIME and wall clock are both before
// the deadline. The first call that finds it passed ends the session.
func (s *Session) Valid(now Now) bool {
	return s.deadline.Load() != nil && !s.over(now)
}

// End kills the session by its owner's wish. Call it before beat = EndedBeat
// is written: from then on others may take its terms.
func (s *Session) End() { s.dead.Store(true) }

// Dead reports that the session has ended for ever.
func (s *Session) Dead() bool { return s.dead.Load() }

func (s *Session) over(now Now) bool {
	if d := s.deadline.Load(); d != nil && d.passed(now) {
		s.dead.Store(true)
	}
	return s.dead.Load()
}
