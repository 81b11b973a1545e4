package proxy

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/rs/zerolog"

	"music/frontend"
	"music/musiccore"
	"music/proxy/peer"
)

// shardCount spreads keys over cores that do not wait for each other.
const shardCount = 16

// locks runs the core for clients' connections: it hands events in, carries the effects out, and gives the answers. It is
// the frontend's Locks.
type locks struct {
	shards [shardCount]*shard
	seed   maphash.Seed
	lastOp atomic.Uint64
	peers  *peer.Client
	living func(context.Context) (map[musiccore.SessionID]string, error) // the sessions of other proxies that are alive, with their addresses
	scope  func() (context.Context, context.CancelFunc)                  // of one operation at another proxy
}

// refKey is a reference of a key.
type refKey struct {
	key musiccore.Key
	ref musiccore.LockRef
}

// shard is one core with its mutex, its alarm clock, and those who wait for its answers.
type shard struct {
	clock *clock
	do    func(musiccore.Command) musiccore.Result // carries out a command; it may block
	tell  func([]musiccore.Hint)                   // to other proxies; it does not block
	log   zerolog.Logger
	audit *audit

	failures zerolog.Logger // sampled, for all shards

	mu         sync.Mutex
	core       *musiccore.Core
	waiting    map[musiccore.OpID]func(musiccore.Answer)
	owners     *simplelru.LRU[refKey, musiccore.SessionID] // sessions of references that are elsewhere, as they were found
	alarm      *time.Timer
	wake       time.Duration // what the alarm is set to; 0: to nothing that counts
	closed     bool          // close waits: nothing is started any more
	pendingLog               // for the log

	running sync.WaitGroup
	probing atomic.Bool // a look at the shard waits for its mutex
}

// newLocks makes the shards of one session. ctx ends the commands under way when the proxy gives up on them.
func newLocks(ctx context.Context, self *musiccore.Session, o musiccore.Options, d lockDeps) *locks {
	l := &locks{
		seed: maphash.MakeSeed(), peers: d.peers, living: d.living,
		scope: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
	}
	failures := d.log.Sample(&zerolog.BurstSampler{Burst: 1, Period: 10 * time.Second})
	for i := range l.shards {
		s := &shard{
			clock: d.clock, log: d.log, audit: d.audit, failures: failures,
			do:      func(c musiccore.Command) musiccore.Result { return d.do(ctx, c) },
			tell:    func(all []musiccore.Hint) { d.peers.Hint(ctx, all) },
			core:    musiccore.New(self, o),
			waiting: map[musiccore.OpID]func(musiccore.Answer){},
			owners:  newOwners(),
		}
		s.alarm = time.AfterFunc(time.Hour, s.tick)
		l.shards[i] = s
	}
	return l
}

// lockDeps is what the shards share.
type lockDeps struct {
	clock  *clock
	do     func(context.Context, musiccore.Command) musiccore.Result
	peers  *peer.Client
	living func(context.Context) (map[musiccore.SessionID]string, error)
	log    zerolog.Logger
	audit  *audit
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

// of is the shard of a key.
func (l *locks) of(k musiccore.Key) *shard {
	return l.shards[maphash.Comparable(l.seed, k)%shardCount]
}

// lockHere asks this proxy's core. done is called exactly once, also after gone.
func (l *locks) lockHere(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (gone func()) {
	s, op := l.of(k), l.nextOp()
	s.enter(call{op: op, refKey: refKey{k, q.Ref}}, done, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Lock(now, op, k, q) })
	return func() { s.gone(op) }
}

// unlockHere asks this proxy's core.
func (l *locks) unlockHere(k musiccore.Key, r musiccore.LockRef, by musiccore.Client, done func(musiccore.Answer)) (gone func()) {
	s, op := l.of(k), l.nextOp()
	s.enter(call{op, refKey{k, r}, by}, done, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Unlock(now, op, k, r) })
	return func() { s.gone(op) }
}

// forceHere asks this proxy's core.
func (l *locks) forceHere(k musiccore.Key, r musiccore.LockRef, f frontend.Force, done func(musiccore.Answer)) (gone func()) {
	s, op := l.of(k), l.nextOp()
	s.enter(call{op, refKey{}, f.By}, done, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		return c.Force(now, op, k, r, f.String())
	})
	return func() { s.gone(op) }
}

// beginHere asks this proxy's core.
func (l *locks) beginHere(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (gone func()) {
	s, op := l.of(k), l.nextOp()
	s.mu.Lock()
	defer s.unlock()
	a, ok := s.begin(op, refKey{k, r}, kind)
	if ok {
		s.running.Go(func() { done(a) })
		return func() {}
	}
	s.waiting[op] = func(a musiccore.Answer) {
		s.fenced(a.Err)
		done(a)
	}
	return func() { s.gone(op) }
}

// Lock implements frontend.Locks. A new reference is always this proxy's own.
func (l *locks) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (gone func()) {
	here := func(done func(musiccore.Answer)) (gone func()) { return l.lockHere(k, q, done) }
	if q.Ref == 0 {
		return here(done)
	}
	return l.run(remoteOp{refKey: refKey{k, q.Ref}, local: here, remote: func(ctx context.Context, at musiccore.SessionID) (musiccore.Answer, error) {
		return l.peers.Lock(ctx, at, k, q)
	}}, done)
}

// Unlock implements frontend.Locks.
func (l *locks) Unlock(k musiccore.Key, r musiccore.LockRef, by musiccore.Client, done func(musiccore.Answer)) {
	l.run(remoteOp{
		refKey: refKey{k, r},
		local:  func(done func(musiccore.Answer)) (gone func()) { return l.unlockHere(k, r, by, done) },
		remote: func(ctx context.Context, at musiccore.SessionID) (musiccore.Answer, error) {
			return l.peers.Unlock(ctx, at, k, r, by)
		},
	}, done)
}

// Begin implements frontend.Locks.
func (l *locks) Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	s, op := l.of(k), l.nextOp()
	s.mu.Lock()
	defer s.unlock()
	a, ok := s.begin(op, refKey{k, r}, kind)
	if ok && !errors.Is(a.Err, musiccore.ErrElsewhere) {
		return a, true
	}
	follow := func(a musiccore.Answer) {
		s.fenced(a.Err)
		done(l.beginThere(k, r, kind, a))
	}
	if ok {
		first := a // a copy: what a closure holds is on the heap, and most operations end above
		s.running.Go(func() { follow(first) })
	} else {
		s.waiting[op] = follow
	}
	return musiccore.Answer{}, false
}

// begin asks the core, with the mutex held. Where ok is true the answer is there.
func (s *shard) begin(op musiccore.OpID, p refKey, kind musiccore.Kind) (a musiccore.Answer, ok bool) {
	if owner, known := s.owners.Get(p); known {
		return musiccore.Answer{Op: op, Err: &musiccore.ElsewhereError{Session: owner}}, true
	}
	now := s.clock.now()
	ticket, effects := s.core.Begin(now, op, p.key, p.ref, kind)
	a, ok = musiccore.Answer{Op: op, Ticket: ticket}, ticket.OK()
	for i, told := range effects.Answers {
		if told.Op == op {
			a, ok = told, true
			effects.Answers = append(effects.Answers[:i:i], effects.Answers[i+1:]...)
			break
		}
	}
	s.carryOut(now, effects)
	if ok && errors.Is(a.Err, musiccore.ErrLost) {
		s.audit.fencedOff.Inc()
	}
	return a, ok
}

// End implements frontend.Locks.
func (l *locks) End(t musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	if t.Lender != (musiccore.SessionID{}) {
		return l.endThere(t, o)
	}
	s := l.of(t.Key)
	s.mu.Lock()
	defer s.unlock()
	now := s.clock.now()
	v, effects := s.core.End(now, t, o)
	var wait func() musiccore.Verdict
	if v == musiccore.VerdictPending {
		v, wait = musiccore.VerdictUncertain, l.verdictOf(s, t)
	}
	s.carryOut(now, effects)
	if v == musiccore.VerdictLost {
		s.audit.fencedOff.Inc()
	}
	return v, wait
}

// verdictOf waits for what the lock row says of an operation of a strict table; the shard's mutex is held. A proxy that stops says
// that it does not know.
func (l *locks) verdictOf(s *shard, t musiccore.Ticket) func() musiccore.Verdict {
	verdict := make(chan musiccore.Verdict, 1)
	s.waiting[t.Op] = func(a musiccore.Answer) {
		if a.Verdict == musiccore.VerdictLost {
			s.audit.fencedOff.Inc()
		}
		verdict <- a.Verdict
	}
	return func() musiccore.Verdict {
		ctx, cancel := l.scope()
		defer cancel()
		select {
		case v := <-verdict:
			return v
		case <-ctx.Done():
			return musiccore.VerdictUncertain
		}
	}
}

// fenced counts an operation that got no stamp because its lock is lost: not one whose client has given the lock back itself.
func (s *shard) fenced(err error) {
	if errors.Is(err, musiccore.ErrLost) && !errors.Is(err, musiccore.ErrReleased) {
		s.audit.fencedOff.Inc()
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
	l.peers.Close()
}

// call is an operation as a shard takes it in. by is the client that ends a lock by it; nobody where it ends none.
type call struct {
	op musiccore.OpID
	refKey
	by musiccore.Client
}

// enter hands in an event whose answer done waits for. A reference that was found elsewhere is not looked for again.
func (s *shard) enter(c call, done func(musiccore.Answer), event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
	s.mu.Lock()
	defer s.unlock()
	if owner, known := s.owners.Get(c.refKey); known {
		s.running.Go(func() { done(musiccore.Answer{Op: c.op, Err: &musiccore.ElsewhereError{Session: owner}}) })
		return
	}
	s.waiting[c.op] = done
	now := s.clock.now()
	s.carryOutFor(c.by, now, event(s.core, now))
}

// gone gives up an operation that still waits for its answer; it gets errGone.
func (s *shard) gone(op musiccore.OpID) {
	s.mu.Lock()
	done := s.waiting[op]
	if done != nil {
		delete(s.waiting, op)
		now := s.clock.now()
		s.carryOut(now, s.core.Gone(now, op))
	}
	s.unlock()
	if done != nil {
		done(musiccore.Answer{Op: op, Err: errGone})
	}
}

// errGone is told to nobody: who asked has gone.
var errGone = errors.New("nobody waits for this any more")

// call hands in an event.
func (s *shard) call(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
	s.mu.Lock()
	defer s.unlock()
	now := s.clock.now()
	s.carryOut(now, event(s.core, now))
}

// tick is the alarm clock's.
func (s *shard) tick() {
	s.call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		s.wake = 0
		return c.Tick(now)
	})
}

// carryOut starts what the core wants done because of what happened now. The mutex is held: a goroutine each for commands, which
// block, and for answers, whose client may not be reading.
func (s *shard) carryOut(now musiccore.Now, e musiccore.Effects) {
	s.carryOutFor(musiccore.Client{}, now, e)
}

// carryOutFor is carryOut of what a client has brought about, as far as the audit says by whom a lock was ended.
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
		s.later(func() { s.audit.note(n, by) })
	}
	for _, a := range e.Alarms {
		s.later(func() {
			s.log.Error().Str("rule", a.Rule).Hex("table", a.Key.Table[:]).Hex("key", []byte(a.Key.PK)).Msg(a.Text)
		})
	}
	s.setAlarm(now, e.Wake)
}

// setAlarm has the core called again at a moment of BOOTTIME, if any. Most operations move none, and to set a timer anew, even to the
// same moment, can wake a thread of Go's scheduler, which costs more than the operation. Where a moment has passed, the timer may be one that
// stood still while the machine was suspended.
func (s *shard) setAlarm(now musiccore.Now, at time.Duration) {
	if at == 0 || (at == s.wake && at > now.Boot) {
		return
	}
	s.wake = at
	s.alarm.Reset(max(0, at-now.Boot))
}

// run carries out one command and tells the core.
func (s *shard) run(c musiccore.Command) {
	result := s.do(c)
	if result.Cause != nil && !errors.Is(result.Cause, context.Canceled) {
		s.failures.Warn().Err(result.Cause).Type("command", c.Action).Hex("table", c.Key.Table[:]).Hex("key", []byte(c.Key.PK)).
			Msg("Cassandra does not carry out what locks need (of such lines there is one in ten seconds)")
	}
	s.call(func(core *musiccore.Core, now musiccore.Now) musiccore.Effects { return core.Reply(now, c.ID, result) })
}
