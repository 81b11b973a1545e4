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

// reports is where it is noted what happens to locks.
type reports struct {
	audit   *audit
	metrics *lockMetrics
}

// shard is one core with its mutex and its alarm, and the operations that wait for its answers.
type shard struct {
	clock *clock
	do    func(musiccore.Command) musiccore.Result // carries out a command; it may block
	tell  func([]musiccore.Hint)                   // to other proxies; it does not block
	reports

	failures zerolog.Logger // sampled, for all shards

	mu         sync.Mutex
	reading    reading
	core       *musiccore.Core
	waiting    map[musiccore.OpID]func(musiccore.Answer)
	owners     *simplelru.LRU[refKey, musiccore.SessionID] // sessions of references that are elsewhere, as they were found
	alarm      alarm
	closed     bool // close waits: nothing is started any more
	pendingLog      // for the log

	running sync.WaitGroup
	probing atomic.Bool // a look at the shard waits for its mutex
}

// alarm has the core called again at a moment that it asked for.
type alarm struct {
	timer *time.Timer
	at    time.Duration // BOOTTIME; 0: no moment that counts
}

// reading is what the clocks showed when a shard read them last.
type reading struct {
	now musiccore.Now
	at  time.Time
}

// readingLasts is for how long a reading serves what begins. By so much at most the metrics of locks
// are wrong.
const readingLasts = time.Millisecond

// now reads the clocks. The mutex is held.
func (s *shard) now() musiccore.Now {
	wall := time.Now()
	s.reading = reading{s.clock.from(wall), wall}
	return s.reading.now
}

// recently returns the last reading of the clocks, or a new one where that is not of just now. It
// is for what begins: that may be carried out however long after its moment was read, for the
// machine can pause in between (docs/protocol.md 3.6, Begin), and the system calls of a reading cost
// more than all else of it. What is judged by a moment after an answer takes now. The mutex is held.
func (s *shard) recently() musiccore.Now {
	if time.Since(s.reading.at) >= readingLasts {
		return s.now()
	}
	return s.reading.now
}

// ownersKept bounds the references of other proxies that a shard remembers the proxy of.
const ownersKept = 1024

// newOwners remembers nothing yet.
func newOwners() *simplelru.LRU[refKey, musiccore.SessionID] {
	owners, err := simplelru.NewLRU[refKey, musiccore.SessionID](ownersKept, nil)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	return owners
}

// shardOp is an operation that a shard takes in. by is the client that ends a lock with it, for the
// audit.
type shardOp struct {
	op musiccore.OpID
	refKey
	by      musiccore.Client
	counted bool // a LOCK, which the metrics count while it waits
}

// unlockKey gives a reference back, as enter does.
func (s *shard) unlockKey(op musiccore.OpID, p refKey, by musiccore.Client, done func() func(musiccore.Answer)) (a musiccore.Answer, ok bool) {
	return s.enter(shardOp{op: op, refKey: p, by: by}, done, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		return c.Unlock(now, op, p.key, p.ref)
	})
}

// enter hands an event to the core. Where ok is true the answer is there, else what done returns
// gets it. A reference that was found at another proxy is not looked for here again.
func (s *shard) enter(o shardOp, done func() func(musiccore.Answer), event func(*musiccore.Core, musiccore.Now) musiccore.Effects) (a musiccore.Answer, ok bool) {
	s.mu.Lock()
	defer s.unlock()
	if owner, known := s.owners.Get(o.refKey); known {
		return musiccore.Answer{Op: o.op, Err: &musiccore.ElsewhereError{Session: owner}}, true
	}
	now := s.recently()
	effects := event(s.core, now)
	if a, ok = takeAnswer(&effects, o.op); !ok {
		s.waiting[o.op] = s.counted(o, done())
	}
	s.carryOutFor(o.by, now, effects)
	return a, ok
}

// counted returns what an operation that waits is answered with.
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

// goneUnless returns what gives up an operation; nil where it has been answered.
func (s *shard) goneUnless(answered bool, op musiccore.OpID) (gone func()) {
	if answered {
		return nil
	}
	return func() { s.gone(op) }
}

// takeAnswer takes the answer to an operation out of what the core wants done; ok is false where it
// is still to come.
func takeAnswer(e *musiccore.Effects, op musiccore.OpID) (a musiccore.Answer, ok bool) {
	for i, told := range e.Answers {
		if told.Op == op {
			e.Answers = slices.Delete(e.Answers, i, i+1)
			return told, true
		}
	}
	return a, false
}

// gone gives up an operation that still waits; its answer is errGone.
func (s *shard) gone(op musiccore.OpID) {
	s.mu.Lock()
	done := s.waiting[op]
	if done != nil {
		delete(s.waiting, op)
		now := s.now()
		s.carryOut(now, s.core.Gone(now, op))
	}
	s.unlock()
	if done != nil {
		done(musiccore.Answer{Op: op, Err: errGone})
	}
}

// errGone is the answer to an operation that was given up: no client reads it.
var errGone = errors.New("nobody waits for this any more")

// call hands an event to the core.
func (s *shard) call(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
	s.mu.Lock()
	defer s.unlock()
	now := s.now()
	s.carryOut(now, event(s.core, now))
}

// tick is called by the alarm.
func (s *shard) tick() {
	s.call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		s.alarm.at = 0
		return c.Tick(now)
	})
}

// carryOut starts what the core wants done because of what happened now. The mutex is held.
// Commands block, and the client that an answer is for may not be reading: each gets a goroutine,
// but for the answer to the operation at hand (takeAnswer).
func (s *shard) carryOut(now musiccore.Now, e musiccore.Effects) {
	s.carryOutFor(musiccore.Client{}, now, e)
}

// carryOutFor is carryOut for the audit: by is the client that has ended a lock, nobody where none
// has.
func (s *shard) carryOutFor(by musiccore.Client, now musiccore.Now, e musiccore.Effects) {
	if s.closed {
		return
	}
	for _, c := range e.Commands {
		s.running.Go(func() { s.run(c) })
	}
	for _, a := range e.Answers {
		if done := s.waiting[a.Op]; done != nil {
			delete(s.waiting, a.Op)
			s.running.Go(func() { done(a) })
		}
	}
	if len(e.Hints) > 0 {
		s.tell(e.Hints)
	}
	for _, n := range e.Notes {
		s.metrics.note(n, now.Boot)
		if !s.audit.hasNoLine(&n, &by) {
			s.tellLater(n, by)
		}
	}
	for _, a := range e.Alarms {
		s.metrics.alarms.Inc()
		s.later(func() {
			s.log.Error().Str("rule", a.Rule).Hex("table", a.Key.Table[:]).Hex("key", []byte(a.Key.PK)).Msg(a.Text)
		})
	}
	s.setAlarm(now, e.Wake)
	s.core.Reuse(e)
}

// tellLater has the audit tell what happened to a lock once the mutex is free.
func (s *shard) tellLater(n musiccore.Note, by musiccore.Client) {
	s.later(func() { s.audit.tell(n, by) })
}

// setAlarm has the core called again at a moment of BOOTTIME, if any, or earlier. To set a timer
// anew, even to the same moment, can wake a thread of Go's scheduler, which costs more than the
// operation: one that is set to an earlier moment stays, and the core says then when it is to be
// called. Where a moment has passed, the timer may be one that stood still
// while the machine was suspended.
func (s *shard) setAlarm(now musiccore.Now, at time.Duration) {
	if at == 0 || (s.alarm.at != 0 && s.alarm.at <= at && s.alarm.at > now.Boot) {
		return
	}
	s.alarm.at = at
	s.alarm.timer.Reset(max(0, at-now.Boot))
}

// run carries out one command and tells the core.
func (s *shard) run(c musiccore.Command) {
	begun := time.Now()
	result := s.do(c)
	s.metrics.commands.done(c.Action, result.Status, time.Since(begun))
	if result.Cause != nil && !errors.Is(result.Cause, context.Canceled) {
		s.failures.Warn().Err(result.Cause).Type("command", c.Action).Hex("table", c.Key.Table[:]).Hex("key", []byte(c.Key.PK)).
			Msg("Cassandra does not carry out what locks need (of such lines there is one in ten seconds)")
	}
	s.call(func(core *musiccore.Core, now musiccore.Now) musiccore.Effects { return core.Reply(now, c.ID, result) })
}

// begin asks the core; the mutex is held. Where ok is true the answer is there, else it comes
// later.
func (s *shard) begin(op musiccore.OpID, p refKey, kind musiccore.Kind) (a musiccore.Answer, ok bool) {
	if owner, known := s.owners.Get(p); known {
		return musiccore.Answer{Op: op, Err: &musiccore.ElsewhereError{Session: owner}}, true
	}
	now := s.recently()
	ticket, effects := s.core.Begin(now, op, p.key, p.ref, kind)
	if a, ok = takeAnswer(&effects, op); !ok {
		a, ok = musiccore.Answer{Op: op, Ticket: ticket}, ticket.OK()
	}
	s.carryOut(now, effects)
	if ok && errors.Is(a.Err, musiccore.ErrLost) {
		s.metrics.fencedOff.Inc()
	}
	return a, ok
}

// fenced counts an operation that was refused because its lock is lost, but not where the client
// has given the lock back itself.
func (s *shard) fenced(err error) {
	if errors.Is(err, musiccore.ErrLost) && !errors.Is(err, musiccore.ErrReleased) {
		s.metrics.fencedOff.Inc()
	}
}
