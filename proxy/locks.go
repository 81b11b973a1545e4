package proxy

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"music/musiccore"
)

// shardCount spreads keys over cores that do not wait for each other.
const shardCount = 16

// locks runs the core for clients' connections: it hands events in, carries the effects out, and gives the answers. It is
// the frontend's Locks.
type locks struct {
	shards [shardCount]*shard
	seed   maphash.Seed
	lastOp atomic.Uint64
}

// shard is one core with its mutex, its alarm clock, and those who wait for its answers.
type shard struct {
	clock *clock
	do    func(musiccore.Command) musiccore.Result // carries out a command; it may block
	log   zerolog.Logger
	audit *audit

	mu      sync.Mutex
	core    *musiccore.Core
	waiting map[musiccore.OpID]func(musiccore.Answer)
	alarm   *time.Timer
	closed  bool // close waits: nothing is started any more

	running sync.WaitGroup
}

// newLocks makes the shards of one session. ctx ends the commands under way when the proxy gives up on them.
func newLocks(ctx context.Context, self *musiccore.Session, o musiccore.Options, d lockDeps) *locks {
	l := &locks{seed: maphash.MakeSeed()}
	for i := range l.shards {
		s := &shard{
			clock: d.clock, log: d.log, audit: d.audit,
			do:      func(c musiccore.Command) musiccore.Result { return d.executor.do(ctx, c) },
			core:    musiccore.New(self, o),
			waiting: map[musiccore.OpID]func(musiccore.Answer){},
		}
		s.alarm = time.AfterFunc(time.Hour, s.tick)
		l.shards[i] = s
	}
	return l
}

// lockDeps is what the shards share.
type lockDeps struct {
	clock    *clock
	executor *executor
	log      zerolog.Logger
	audit    *audit
}

// of is the shard of a key.
func (l *locks) of(k musiccore.Key) *shard {
	return l.shards[maphash.Comparable(l.seed, k)%shardCount]
}

// Lock implements frontend.Locks.
func (l *locks) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (gone func()) {
	s, op := l.of(k), l.nextOp()
	s.enter(op, done, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Lock(now, op, k, q) })
	return func() {
		s.call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Gone(now, op) })
	}
}

// Unlock implements frontend.Locks.
func (l *locks) Unlock(k musiccore.Key, r musiccore.LockRef, done func(musiccore.Answer)) {
	s, op := l.of(k), l.nextOp()
	s.enter(op, done, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Unlock(now, op, k, r) })
}

// Begin implements frontend.Locks.
func (l *locks) Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	s, op := l.of(k), l.nextOp()
	s.mu.Lock()
	ticket, effects := s.core.Begin(s.clock.now(), op, k, r, kind)
	answer, ok := musiccore.Answer{Op: op, Ticket: ticket}, ticket.OK()
	for i, a := range effects.Answers {
		if a.Op == op {
			answer, ok = a, true
			effects.Answers = append(effects.Answers[:i:i], effects.Answers[i+1:]...)
			break
		}
	}
	if !ok {
		s.waiting[op] = func(a musiccore.Answer) {
			s.fenced(k, r, a.Err)
			done(a)
		}
	}
	s.carryOut(effects)
	s.mu.Unlock()
	s.fenced(k, r, answer.Err)
	return answer, ok
}

// List implements frontend.Locks.
func (l *locks) List() []musiccore.Listing {
	var all []musiccore.Listing
	for _, s := range l.shards {
		s.mu.Lock()
		all = append(all, s.core.List(s.clock.now())...)
		s.mu.Unlock()
	}
	return all
}

// End implements frontend.Locks.
func (l *locks) End(t musiccore.Ticket, o musiccore.Outcome) musiccore.Verdict {
	s := l.of(t.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	v, effects := s.core.End(s.clock.now(), t, o)
	s.carryOut(effects)
	if v == musiccore.Lost {
		s.audit.fenced(t.Key, t.Ref)
	}
	return v
}

// fenced audits an operation that got no stamp because its lock is lost.
func (s *shard) fenced(k musiccore.Key, r musiccore.LockRef, err error) {
	if errors.Is(err, musiccore.ErrLost) {
		s.audit.fenced(k, r)
	}
}

func (l *locks) nextOp() musiccore.OpID { return musiccore.OpID(l.lastOp.Add(1)) }

// each calls the core of every shard.
func (l *locks) each(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
	for _, s := range l.shards {
		s.call(event)
	}
}

// quiet tells whether no core has anything under way.
func (l *locks) quiet() bool {
	for _, s := range l.shards {
		s.mu.Lock()
		quiet := s.core.Quiet()
		s.mu.Unlock()
		if !quiet {
			return false
		}
	}
	return true
}

// close starts nothing new and waits until everything that was started has ended. The context of the commands has ended before.
func (l *locks) close() {
	for _, s := range l.shards {
		s.mu.Lock()
		s.closed = true
		s.alarm.Stop()
		s.mu.Unlock()
		s.running.Wait()
	}
}

// enter hands in an event whose answer done waits for.
func (s *shard) enter(op musiccore.OpID, done func(musiccore.Answer), event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[op] = done
	s.carryOut(event(s.core, s.clock.now()))
}

// call hands in an event.
func (s *shard) call(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carryOut(event(s.core, s.clock.now()))
}

// tick is the alarm clock's.
func (s *shard) tick() {
	s.call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Tick(now) })
}

// carryOut starts what the core wants done. The mutex is held: a goroutine each for commands, which block, and for answers, whose
// client may not be reading.
func (s *shard) carryOut(e musiccore.Effects) {
	if s.closed {
		return
	}
	for _, c := range e.Do {
		s.running.Go(func() { s.run(c) })
	}
	for _, a := range e.Answers {
		if done := s.waiting[a.Op]; done != nil {
			delete(s.waiting, a.Op)
			s.running.Go(func() { done(a) })
		}
	}
	for _, n := range e.Notes {
		s.audit.note(n)
	}
	for _, a := range e.Alarms {
		s.log.Error().Str("rule", a.Rule).Hex("table", a.Key.Table[:]).Hex("key", []byte(a.Key.PK)).Msg(a.Text)
	}
	if e.Wake != 0 {
		s.alarm.Reset(max(0, e.Wake-boottime()))
	}
}

// run carries out one command and tells the core.
func (s *shard) run(c musiccore.Command) {
	result := s.do(c)
	if result.Cause != nil {
		s.log.Debug().Err(result.Cause).Type("command", c.Do).Hex("key", []byte(c.Key.PK)).Msg("command failed")
	}
	s.call(func(core *musiccore.Core, now musiccore.Now) musiccore.Effects { return core.Reply(now, c.ID, result) })
}
