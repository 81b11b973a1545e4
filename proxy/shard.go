package proxy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/rs/zerolog"

	"music/musiccore"
)

// refKey is a reference of a key.
type refKey struct {
	key musiccore.Key
	ref musiccore.LockRef
}

// reports are the receivers of the core's notes.
type reports struct {
	audit   *audit
	metrics *lockMetrics
}

// outlets carry out what a core asks for.
type outlets struct {
	do       func(musiccore.Command) musiccore.Result // carries out a command; it may block
	tell     func([]musiccore.Hint)                   // sends hints to other proxies; it does not block
	giveBack func(musiccore.Return)                   // gives a loan back to its lender; it blocks
}

// shard is a core with its mutex and its timer, and the operations that wait for its answers.
type shard struct {
	clock *clock
	outlets
	reports

	failures zerolog.Logger // sampled, for all shards

	mu      sync.Mutex
	reading reading
	core    *musiccore.Core
	waiting map[musiccore.OpID]func(musiccore.Answer)
	owners  *simplelru.LRU[refKey, owner] // a cache: the sessions of references that are at other proxies
	wake    wake
	closed  bool // close has been called: nothing is started any more
	pendingLog

	running sync.WaitGroup
	probing atomic.Bool // a goroutine of the watchdog waits for the mutex
}

// wake has the core called again at a moment that it asked for.
type wake struct {
	timer *time.Timer
	at    time.Duration // BOOTTIME; 0 = none
}

// reading is the last reading of the clocks.
type reading struct {
	now musiccore.Now
	at  time.Time
}

// readingLasts is for how long a reading of the clocks is used for operations that begin. The
// metrics of locks are wrong by no more than that.
const readingLasts = time.Millisecond

// now reads the clocks. It is called with the mutex held.
func (s *shard) now() musiccore.Now {
	wall := time.Now()
	s.reading = reading{s.clock.from(wall), wall}
	return s.reading.now
}

// recently returns the last reading of the clocks, or a new one if that is older than readingLasts.
// It is for operations that begin: these may be carried out long after the clocks were read anyway,
// since the machine can pause in between (docs/protocol.md 3.6, Begin), and the system calls of a
// reading cost more than the rest of the operation. For a moment after an answer now must be used.
// It is called with the mutex held.
func (s *shard) recently() musiccore.Now {
	if time.Since(s.reading.at) >= readingLasts {
		return s.now()
	}
	return s.reading.now
}

// ownersKept is the size of shard.owners, ownerKeyBytes the longest key in it: Cassandra takes keys of
// 64 KiB, and so many of those would take a gigabyte in all shards.
const (
	ownersKept    = 1024
	ownerKeyBytes = 1 << 10
)

// owner is the session of a reference that is at another proxy.
type owner struct {
	session musiccore.SessionID
	borrows bool // this proxy takes loans for it, since its client has waited for it here
}

// newOwners returns an empty cache.
func newOwners() *simplelru.LRU[refKey, owner] {
	owners, err := simplelru.NewLRU[refKey, owner](ownersKept, nil)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return owners
}

// shardOp is an operation for a shard's core.
type shardOp struct {
	op musiccore.OpID
	refKey
	by      musiccore.Client // the client that ends a lock with the operation, for the audit
	counted bool             // it is a LOCK, which the metrics count while it waits
}

// unlockKey is enter for an Unlock. If back has a ticket, that loan is given back before. Nothing comes
// between the two, such as another loan for who has the lock by now.
func (s *shard) unlockKey(op musiccore.OpID, p refKey, by musiccore.Client, back *musiccore.Return, done func() func(musiccore.Answer)) (a musiccore.Answer, ok bool) {
	return s.enter(shardOp{op: op, refKey: p, by: by}, done, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		if back != nil && back.Ticket.OK() {
			now = s.now() // read after what was done under the loan, as Core.End demands
			_, effects := c.End(now, back.Ticket, back.Outcome)
			s.carryOut(now, effects)
		}
		return c.Unlock(now, op, p.key, p.ref)
	})
}

// enter passes an operation to the core as event. If ok is true, a is the answer; else the answer
// is passed to the function that done returns. If the reference is known to be at another proxy,
// the core is not asked.
func (s *shard) enter(o shardOp, done func() func(musiccore.Answer), event func(*musiccore.Core, musiccore.Now) musiccore.Effects) (a musiccore.Answer, ok bool) {
	s.mu.Lock()
	defer s.unlock()
	if at, known := s.owners.Get(o.refKey); known {
		return musiccore.Answer{Op: o.op, Err: &musiccore.ElsewhereError{Session: at.session}}, true
	}
	now := s.recently()
	effects := event(s.core, now)
	if a, ok = takeAnswer(&effects, o.op); !ok {
		s.waiting[o.op] = s.counted(o, done())
	}
	s.carryOutFor(o.by, s.reading.now, effects) // the event may have read the clocks anew
	return a, ok
}

// counted returns done, for a counted operation with the metrics of its answer.
func (s *shard) counted(o shardOp, done func(musiccore.Answer)) func(musiccore.Answer) {
	if !o.counted {
		return done
	}
	told := s.metrics.asked(o.key, boottime())
	return func(a musiccore.Answer) {
		told(a)
		done(a)
	}
}

// goneUnless returns the function that cancels an operation; nil if it has been answered.
func (s *shard) goneUnless(answered bool, op musiccore.OpID) (gone func()) {
	if answered {
		return nil
	}
	return func() { s.gone(op) }
}

// takeAnswer removes the answer to an operation from the core's effects; ok is false if there is
// none yet.
func takeAnswer(e *musiccore.Effects, op musiccore.OpID) (a musiccore.Answer, ok bool) {
	for i, told := range e.Answers {
		if told.Op == op {
			e.Answers = slices.Delete(e.Answers, i, i+1)
			return told, true
		}
	}
	return a, false
}

// gone cancels an operation that still waits; its answer has errGone.
func (s *shard) gone(op musiccore.OpID) {
	s.mu.Lock()
	done := s.waiting[op]
	if done != nil {
		delete(s.waiting, op)
		now := s.now()
		s.carryOut(now, s.core.ClientGone(now, op))
	}
	s.unlock()
	if done != nil {
		done(musiccore.Answer{Op: op, Err: errGone})
	}
}

// errGone is the error for an operation that was cancelled: no client sees it.
var errGone = errors.New("the operation was cancelled")

// call passes an event to the core.
func (s *shard) call(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
	s.mu.Lock()
	defer s.unlock()
	now := s.now()
	s.carryOut(now, event(s.core, now))
}

// tick is called at the moment that the core asked for.
func (s *shard) tick() {
	s.call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		s.wake.at = 0
		return c.Tick(now)
	})
}

// carryOut carries out the core's effects. It is called with the mutex held, and does not block.
// Commands block, and so may passing an answer to a client that does not read: each gets a
// goroutine. Answers come last, so that whoever has one finds it in the metrics. The answer to the
// present operation has been taken out before, by takeAnswer.
func (s *shard) carryOut(now musiccore.Now, e musiccore.Effects) {
	s.carryOutFor(musiccore.Client{}, now, e)
}

// carryOutFor is carryOut with the client that has ended a lock, for the audit; zero if there is
// none.
func (s *shard) carryOutFor(by musiccore.Client, now musiccore.Now, e musiccore.Effects) {
	if s.closed {
		return
	}
	for _, c := range e.Commands {
		s.running.Go(func() { s.run(c) })
	}
	if len(e.Hints) > 0 {
		s.tell(e.Hints)
	}
	for _, r := range e.Returns {
		s.running.Go(func() { s.outlets.giveBack(r) })
	}
	for _, n := range e.Notes {
		s.metrics.note(n, now.Boot)
		if !s.audit.takes(&n, &by) {
			s.tellLater(n, by)
		}
	}
	for _, a := range e.Alarms {
		s.metrics.alarms.Inc()
		s.later(func() {
			s.audit.keyed(s.log.Error().Str("rule", a.Rule), a.Key).Msg(a.Text)
		})
	}
	for _, a := range e.Answers {
		if done := s.waiting[a.Op]; done != nil {
			delete(s.waiting, a.Op)
			s.running.Go(func() { done(a) })
		}
	}
	s.setWake(now, e.Wake)
	s.core.Reuse(e)
}

// tellLater has the audit write a line when the mutex has been released.
func (s *shard) tellLater(n musiccore.Note, by musiccore.Client) {
	s.later(func() { s.audit.tell(n, by) })
}

// setWake has the core called again at a moment of BOOTTIME, or earlier; 0 means that it need not
// be. Resetting a timer, even to the same moment, can wake a thread of Go's scheduler, which costs
// more than the operation. So a timer that is set to an earlier moment stays, and the core then
// returns the next moment. A timer whose moment has passed is reset, since it may have stood still
// while the machine was suspended.
func (s *shard) setWake(now musiccore.Now, at time.Duration) {
	if at == 0 || (s.wake.at != 0 && s.wake.at <= at && s.wake.at > now.Boot) {
		return
	}
	s.wake.at = at
	s.wake.timer.Reset(max(0, at-now.Boot))
}

// run carries out one command and passes its result to the core. It blocks.
func (s *shard) run(c musiccore.Command) {
	begun := time.Now()
	result := s.do(c)
	s.metrics.commands.done(c.Action, result.Status, time.Since(begun))
	if result.Cause != nil && !errors.Is(result.Cause, context.Canceled) {
		s.audit.keyed(s.failures.Warn().Err(result.Cause).Type("command", c.Action), c.Key).
			Msg("a command of the lock protocol failed at Cassandra (at most one such line every ten seconds)")
	}
	s.call(func(core *musiccore.Core, now musiccore.Now) musiccore.Effects { return core.Reply(now, c.ID, result) })
}

// begin asks the core to begin an operation under a lock. If ok is true, a is the answer; else it
// comes later. It is called with the mutex held.
func (s *shard) begin(op musiccore.OpID, p refKey, kind musiccore.Kind, lendTo musiccore.SessionID) (a musiccore.Answer, ok bool) {
	if at, known := s.owners.Get(p); known {
		if at.borrows {
			if ticket := s.borrowed(op, p, kind); ticket.OK() {
				return musiccore.Answer{Op: op, Ticket: ticket}, true
			}
		}
		return musiccore.Answer{Op: op, Err: &musiccore.ElsewhereError{Session: at.session}}, true
	}
	var ticket musiccore.Ticket
	var effects musiccore.Effects
	now := s.recently()
	if lendTo == (musiccore.SessionID{}) {
		ticket, effects = s.core.Begin(now, op, p.key, p.ref, kind)
	} else {
		now = s.now() // what is lent counts from then, at another proxy
		ticket, effects = s.core.Lend(now, op, musiccore.LoanRequest{Key: p.key, Ref: p.ref, Kind: kind, To: lendTo})
	}
	if a, ok = takeAnswer(&effects, op); !ok {
		a, ok = musiccore.Answer{Op: op, Ticket: ticket}, ticket.OK()
	}
	s.carryOut(now, effects)
	if ok {
		s.countLost(a.Err)
	}
	return a, ok
}

// countLost counts an operation that was refused because its lock is lost, unless the client has
// released the lock.
func (s *shard) countLost(err error) {
	if errors.Is(err, musiccore.ErrLost) && !errors.Is(err, musiccore.ErrReleased) {
		s.metrics.fencedOff.Inc()
	}
}
