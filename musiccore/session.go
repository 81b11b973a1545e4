package musiccore

import (
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Now is one moment, read by the caller from the clocks that docs/protocol.md 2.4 names. All are
// read before the call that they are handed to.
type Now struct {
	Boot  time.Duration // CLOCK_BOOTTIME: goes on during suspension (C12)
	Raw   time.Duration // CLOCK_MONOTONIC_RAW: nobody slews it (C12)
	Wall  Stamp         // own wall clock
	Clk   Stamp         // clk() = min(own wall clock, cluster clock + 1 s); 0: clocks differ, no new term
	Store Stamp         // the store's clock, read just before the others; 0: not read (only beats do)
}

// Since returns how much time has passed since another moment, by BOOTTIME or the raw clock,
// whichever shows less: to wait for the end of another proxy's lease, both must have advanced.
func (now Now) Since(o Now) time.Duration { return min(now.Boot-o.Boot, now.Raw-o.Raw) }

// ClockGap is how far own and cluster clock may differ for a clk() (docs/protocol.md 2.4, clk).
const ClockGap = 10 * time.Second

// Closing returns the stamp that closes a table with lock rows to plain writes (docs/protocol.md
// 2.3, D). It lies above every epoch that any proxy can have taken from its clk() until then: an
// LWT with a higher one could still be applied, and leave a row that looks as if the key had been
// synchronised since. clk() of one proxy lies at most ClockGap behind the cluster's clock, that of
// another a second ahead of it; the rest of twice ClockGap is for nodes whose clocks differ, and
// for a machine that has stood still, which its proxy has not noticed yet. before is the stamp of the time before, since closed
// never falls. now.Clk must not be 0.
func Closing(now Now, before Stamp) Stamp {
	return max(now.Clk+2*Stamp(ClockGap/time.Microsecond), before+1)
}

// belowClosing is how far an epoch may be ahead of clk() so that every closed that is chosen from now
// on lies above it, whichever proxy chooses it: that is ClockGap less a second (see Closing), of which
// about a half is left for nodes whose clocks differ.
const belowClosing = Stamp(ClockGap/time.Microsecond) / 2

// far reports whether a later closed may lie below an epoch, which a Synch that met a stamp of the
// future has put above it (docs/protocol.md 2.3, D).
func (now Now) far(epoch Stamp) bool { return epoch > now.Clk+belowClosing }

// EndedBeat is the beat of a session that ended by itself: it is dead at once for everybody
// (docs/protocol.md 3.19, Shutdown).
const EndedBeat = math.MaxInt64

// Errors for a session that has ended, other than by its deadline.
var (
	ErrForeignBeat = errors.New("another process beats for this session: the machine was cloned, or a snapshot of it restored")
	ErrBeatGone    = errors.New("the session's row has gone, or shows less than was acknowledged")
)

// Session is the life sign of this proxy, on which all its terms depend (docs/protocol.md 3.2,
// Session). Once a deadline has passed it is dead for ever (C5), and the proxy starts a new one.
// Its methods are safe for concurrent use.
type Session struct {
	id       SessionID
	lease    time.Duration
	deadline atomic.Pointer[deadline]
	dead     atomic.Bool
	stood    atomic.Int64 // how often the store's clock showed that the own ones had stood still

	mu    sync.Mutex
	sent  []int64 // numbers of the latest beats, ascending
	acked int64   // the highest that was acknowledged
}

// sentKept bounds the beats that a session remembers as its own. No older one can be under way.
const sentKept = 64

// stoodStill is by how much the store's clock must be ahead of the own ones.
const stoodStill = 100 * time.Millisecond

// saltBits is the number of low bits of a beat's number that come from the clocks: after a machine
// was cloned, and two processes count the beats of one session, they tell whose beat it is.
const saltBits = 24

// deadline is the end of the session lease on every clock (C12): BOOTTIME or the wall clock
// catches a machine that was suspended, the raw clock one that is slewed, and the store's clock
// one whose own clocks all stood still.
type deadline struct {
	boot, raw   time.Duration
	wall, store Stamp
}

// passed reports whether one of the clocks has reached the deadline.
func (d *deadline) passed(now Now) bool {
	return now.Boot >= d.boot || now.Raw >= d.raw || now.Wall >= d.wall || (d.store != 0 && now.Store >= d.store)
}

// within returns the deadline, or an earlier one: left after the moment from.
func (d deadline) within(from Now, left Stamp) *deadline {
	own := time.Duration(left) * time.Microsecond
	d.boot, d.raw, d.wall = min(d.boot, from.Boot+own), min(d.raw, from.Raw+own), min(d.wall, from.Wall+left)
	return &d
}

// NewSession returns a session that is not valid before its first acknowledged beat.
func NewSession(id SessionID, o Options) *Session {
	return &Session{id: id, lease: o.SessionLease}
}

// ID returns the name of the session in music.sessions and in lock rows.
func (s *Session) ID() SessionID { return s.id }

// Lease returns how long the session is valid from the start of a beat. It stands in
// music.sessions beside each beat, since other proxies may have another.
func (s *Session) Lease() time.Duration { return s.lease }

// Beat returns the number of the next beat, value and write timestamp of the row (C5: beats
// stamped by a clock). Numbers rise, whatever the clocks show. ok is false once the session is
// dead. The start handed to Acked is read before the beat is sent, and the store's clock before
// that.
func (s *Session) Beat(now Now) (n int64, ok bool) {
	if s.over(now) {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sent) > 0 {
		n = s.sent[len(s.sent)-1] >> saltBits
	}
	n = (n+1)<<saltBits | salt(now)
	if len(s.sent) == sentKept {
		s.sent = append(s.sent[:0], s.sent[1:]...)
	}
	s.sent = append(s.sent, n)
	return n, true
}

// salt returns bits that no other process will have in the same beat: its clocks show another
// nanosecond.
func salt(now Now) int64 {
	h := fnv.New64a()
	for _, x := range [...]int64{int64(now.Boot), int64(now.Raw), int64(now.Wall)} {
		for ; x != 0; x >>= 8 {
			_, _ = h.Write([]byte{byte(x)})
		}
	}
	sum := h.Sum64()
	return int64((sum ^ sum>>saltBits) & (1<<saltBits - 1))
}

// Acked says that beat n, begun at start, was acknowledged at QUORUM, with the store's clock as
// read after that. The lease counts from the start, not from the acknowledgement, and an
// acknowledgement after the deadline revives nothing (C5).
func (s *Session) Acked(now, start Now, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.sent, n) || s.over(now) {
		return
	}
	next := &deadline{
		boot: start.Boot + s.lease,
		raw:  start.Raw + s.lease,
		wall: start.Wall + Stamp(s.lease.Microseconds()),
	}
	if start.Store != 0 {
		next.store = start.Store + Stamp(s.lease.Microseconds())
	}
	if n < s.acked {
		return
	}
	s.acked = n
	s.deadline.Store(next)
	s.over(now)
}

// Look is a read of the session's own row and of the store's clock that is under way.
type Look struct {
	start Now
	acked int64 // was the highest then
}

// Look begins a look. The read is sent after the call.
func (s *Session) Look(start Now) Look {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Look{start, s.acked}
}

// Saw says what a look showed: the beat in the session's own row (0: no such row), read at QUORUM,
// and in now the store's clock. It ends the session if that clock has passed the deadline. It also
// ends it, and returns an error, if the row is not that of this process: then others may find the
// session dead, or another process has the same session. If own clocks stood still since the beat
// began, the deadline is moved to what the store's clock leaves.
func (s *Session) Saw(now Now, l Look, beat int64) error {
	s.over(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deadline.Load(); d != nil && d.store != 0 && now.Store != 0 {
		next := d.within(l.start, d.store-now.Store)
		if next.boot < d.boot-stoodStill {
			s.stood.Add(1)
		}
		s.deadline.Store(next)
	}
	s.over(now)
	var err error
	switch {
	case s.dead.Load():
	case beat < l.acked:
		err = ErrBeatGone
	case beat != 0 && !slices.Contains(s.sent, beat):
		err = ErrForeignBeat
	}
	if err != nil {
		s.End()
	}
	return err
}

// Left returns the rest of the lease by the own clock that has advanced most; 0 before the first
// acknowledged beat, and once the session is dead.
func (s *Session) Left(now Now) time.Duration {
	d := s.deadline.Load()
	if d == nil || s.over(now) {
		return 0
	}
	return min(d.boot-now.Boot, d.raw-now.Raw, time.Duration(d.wall-now.Wall)*time.Microsecond)
}

// Valid reports whether the lease runs: every clock is before the deadline. The first call that
// finds it passed ends the session.
func (s *Session) Valid(now Now) bool {
	return s.deadline.Load() != nil && !s.over(now)
}

// End ends the session. It is called before EndedBeat is written: once that is read, other proxies
// may take over its terms.
func (s *Session) End() { s.dead.Store(true) }

// Dead reports whether the session has ended for ever.
func (s *Session) Dead() bool { return s.dead.Load() }

// over reports whether the session has ended, also by its lease.
func (s *Session) over(now Now) bool {
	if d := s.deadline.Load(); d != nil && d.passed(now) {
		s.dead.Store(true)
	}
	return s.dead.Load()
}
