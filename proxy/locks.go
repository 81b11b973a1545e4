package proxy

import (
	"context"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"music/frontend"
	"music/musiccore"
	"music/proxy/peer"
)

// shardCount is the number of shards. The keys of different shards do not share a mutex.
const shardCount = 16

// locks implements frontend.Locks: by the shards of this proxy's core, and by asking the cores of
// other proxies. It is safe for concurrent use.
type locks struct {
	shards     [shardCount]*shard
	seed       maphash.Seed
	metrics    *lockMetrics
	tables     *criticalTables
	wait       time.Duration // of a LOCK that says none
	lastOp     atomic.Uint64
	peers      *peer.Client
	living     func(context.Context) (map[musiccore.SessionID]string, error) // returns the living sessions of other proxies, with their addresses
	newContext func() (context.Context, context.CancelFunc)                  // returns the context of an operation at another proxy
	places     chan struct{}                                                 // holds a value for each LOCK for a new reference that waits at another proxy
	turns      chan struct{}                                                 // … and for each with a reference of that one
	giving     atomic.Int64                                                  // UNLOCKs and tickets that are on their way to other proxies
}

// newLocks returns the locks of a session. Commands and operations at other proxies are cancelled
// when ctx ends.
func newLocks(ctx context.Context, self *musiccore.Session, o musiccore.Options, d lockDeps) *locks {
	l := &locks{
		seed: maphash.MakeSeed(), metrics: d.metrics, tables: d.tables, peers: d.peers, living: d.living, wait: o.Wait, places: make(chan struct{}, placesAsked), turns: make(chan struct{}, turnsAsked),
		newContext: func() (context.Context, context.CancelFunc) { return context.WithCancel(ctx) },
	}
	failures := d.log.Sample(&zerolog.BurstSampler{Burst: 1, Period: 10 * time.Second})
	for i := range l.shards {
		s := &shard{
			clock: d.clock, pendingLog: pendingLog{log: d.log}, reports: d.reports, failures: failures,
			outlets: outlets{
				do:       func(c musiccore.Command) musiccore.Result { return d.do(ctx, c) },
				tell:     func(all []musiccore.Hint) { d.peers.Hint(ctx, all) },
				giveBack: l.giveBackTo,
			},
			core:    musiccore.New(self, o),
			waiting: map[musiccore.OpID]func(musiccore.Answer){},
			owners:  newOwners(),
		}
		s.wake.timer = time.AfterFunc(time.Hour, s.tick)
		l.shards[i] = s
	}
	return l
}

// lockDeps are the dependencies of locks.
type lockDeps struct {
	clock  *clock
	tables *criticalTables
	do     carrier
	peers  *peer.Client
	living func(context.Context) (map[musiccore.SessionID]string, error)
	log    zerolog.Logger
	reports
}

// of returns the shard of a key.
func (l *locks) of(k musiccore.Key) *shard {
	return l.shards[maphash.Comparable(l.seed, k)%shardCount]
}

// lockHere is Lock at this proxy's core. For all methods that ask the core: if gone is nil, a is
// the answer. Otherwise the answer is passed to done, exactly once, and gone must be called if it is no
// longer waited for; done is called all the same.
func (l *locks) lockHere(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (a musiccore.Answer, gone func()) {
	s, op := l.of(k), l.nextOp()
	a, ok := s.enter(shardOp{op: op, refKey: refKey{k, q.Ref}}, func() func(musiccore.Answer) { return done }, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Lock(now, op, k, q) })
	return a, s.goneUnless(ok, op)
}

// unlockHere is Unlock at this proxy's core. If back has a ticket, that is the loan that is given back
// before.
func (l *locks) unlockHere(k musiccore.Key, r musiccore.LockRef, by musiccore.Client, back musiccore.Return, done func(musiccore.Answer)) (a musiccore.Answer, gone func()) {
	s, op := l.of(k), l.nextOp()
	a, ok := s.unlockKey(op, refKey{k, r}, by, &back, func() func(musiccore.Answer) { return done })
	return a, s.goneUnless(ok, op)
}

// forceHere is Force at this proxy's core: it ends the lock of reference r.
func (l *locks) forceHere(k musiccore.Key, r musiccore.LockRef, f frontend.Force, done func(musiccore.Answer)) (a musiccore.Answer, gone func()) {
	s, op := l.of(k), l.nextOp()
	a, ok := s.enter(shardOp{op: op, by: f.By}, func() func(musiccore.Answer) { return done }, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		return c.Force(now, op, k, r, f.String())
	})
	return a, s.goneUnless(ok, op)
}

// beginHere is Begin at this proxy's core; with lendTo for another proxy, which may get a loan.
func (l *locks) beginHere(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, lendTo musiccore.SessionID, done func(musiccore.Answer)) (a musiccore.Answer, gone func()) {
	s, op := l.of(k), l.nextOp()
	s.mu.Lock()
	defer s.unlock()
	a, ok := s.begin(op, refKey{k, r}, kind, lendTo)
	if !ok {
		s.waiting[op] = func(a musiccore.Answer) {
			s.countLost(a.Err)
			done(a)
		}
	}
	return a, s.goneUnless(ok, op)
}

// Lock implements frontend.Locks.
func (l *locks) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (a musiccore.Answer, gone func()) {
	if q.Ref != 0 {
		return l.lockAfter(k, q, done)
	}
	q.Behind = q.Once != 0 && l.inSeveralCentres(k)
	if len(k.PK) > ownerKeyBytes {
		q.Place = musiccore.PlaceHere // who has its references is not remembered, so a loan would not be found
	}
	var w *waitingLock // not made before it is needed: most are answered at once
	ask := q
	s, op := l.of(k), l.nextOp()
	a, ok := s.enter(shardOp{op: op, refKey: refKey{key: k}, counted: true}, func() func(musiccore.Answer) {
		w = l.newWaitingLock(k, ask, done)
		return w.answered
	}, func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Lock(now, op, k, ask) })
	switch {
	case !ok:
		return a, func() {
			w.cancel()
			s.gone(op)
		}
	case errors.Is(a.Err, musiccore.ErrElsewhere):
		first, waits := a, l.newWaitingLock(k, ask, done)
		s.running.Go(func() { waits.answered(first) })
		return musiccore.Answer{}, waits.cancel
	}
	l.metrics.answeredAtOnce(k, a)
	return a, nil
}

// inSeveralCentres reports whether the replicas of a key's lock row are in several data centres. There the check
// of a statement costs its client more than a Release, which comes behind the answer.
func (l *locks) inSeveralCentres(k musiccore.Key) bool {
	t := l.tables.table(k.Table)
	return t != nil && t.severalCentres
}

// lockAfter is Lock with a given reference, which may be another proxy's.
func (l *locks) lockAfter(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (a musiccore.Answer, gone func()) {
	told := l.metrics.asked(k, boottime())
	a, gone = l.run(remoteOp{
		refKey: refKey{k, q.Ref},
		local:  func(done func(musiccore.Answer)) (musiccore.Answer, func()) { return l.lockHere(k, q, done) },
		remote: func(ctx context.Context, at musiccore.SessionID) (musiccore.Answer, error) {
			return l.lockThere(ctx, at, k, q)
		},
	}, func(a musiccore.Answer) {
		told(a)
		done(a)
	})
	if gone == nil {
		told(a)
	}
	return a, gone
}

// Unlock implements frontend.Locks.
func (l *locks) Unlock(k musiccore.Key, r musiccore.LockRef, by musiccore.Client, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	s := l.of(k)
	follow := func() func(musiccore.Answer) { // not made before it is needed: most are answered at once
		return func(a musiccore.Answer) { done(l.unlockThere(k, r, by, a)) }
	}
	a, ok := s.unlockKey(l.nextOp(), refKey{k, r}, by, nil, follow)
	if ok && errors.Is(a.Err, musiccore.ErrElsewhere) {
		first, then := a, follow() // a copy: what a closure holds is on the heap
		s.running.Go(func() { then(first) })
		return musiccore.Answer{}, false
	}
	return a, ok
}

// Begin implements frontend.Locks.
func (l *locks) Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	s, op := l.of(k), l.nextOp()
	s.mu.Lock()
	defer s.unlock()
	a, ok := s.begin(op, refKey{k, r}, kind, musiccore.SessionID{})
	if ok && !errors.Is(a.Err, musiccore.ErrElsewhere) {
		return a, true
	}
	follow := func(a musiccore.Answer) {
		s.countLost(a.Err)
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

// End implements frontend.Locks.
func (l *locks) End(t musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	if t.Lender != (musiccore.SessionID{}) && t.Loan == 0 {
		return l.endThere(t, o)
	}
	s := l.of(t.Key)
	s.mu.Lock()
	defer s.unlock()
	now := s.now() // read after Cassandra's answer has come, as Core.End demands
	v, effects := s.core.End(now, t, o)
	var wait func() musiccore.Verdict
	if v == musiccore.VerdictPending {
		v, wait = musiccore.VerdictUncertain, l.verdictOf(s, t)
	}
	s.carryOut(now, effects)
	if v == musiccore.VerdictLost && t.Lent == nil { // what was done under a loan is counted by its borrower
		s.metrics.fencedOff.Inc()
	}
	return v, wait
}

// verdictOf returns a function that blocks until the verdict on an operation of a strict table. If
// the proxy ends before, the verdict is uncertain. verdictOf is called with the shard's mutex held.
func (l *locks) verdictOf(s *shard, t musiccore.Ticket) func() musiccore.Verdict {
	verdict := make(chan musiccore.Verdict, 1)
	s.waiting[t.Op] = func(a musiccore.Answer) {
		if a.Verdict == musiccore.VerdictLost {
			s.metrics.fencedOff.Inc()
		}
		verdict <- a.Verdict
	}
	return func() musiccore.Verdict {
		ctx, cancel := l.newContext()
		defer cancel()
		select {
		case v := <-verdict:
			return v
		case <-ctx.Done():
			return musiccore.VerdictUncertain
		}
	}
}

// nextOp returns a new id of an operation.
func (l *locks) nextOp() musiccore.OpID { return musiccore.OpID(l.lastOp.Add(1)) }

// each calls event with the core of every shard, one after the other.
func (l *locks) each(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
	for _, s := range l.shards {
		s.call(event)
	}
}

// hasLoansOut reports whether something that this proxy has lent may still be in use, see Core.HasLoansOut.
func (l *locks) hasLoansOut() bool {
	for _, s := range l.shards {
		s.mu.Lock()
		lent := s.core.HasLoansOut(s.now())
		s.mu.Unlock()
		if lent {
			return true
		}
	}
	return false
}

// quiet reports whether all cores are quiet, see Core.Quiet, and nothing is being given back to other proxies: they would
// wait for it until it is over.
func (l *locks) quiet() bool {
	for _, s := range l.shards {
		s.mu.Lock()
		quiet := s.core.Quiet()
		s.mu.Unlock()
		if !quiet {
			return false
		}
	}
	return l.giving.Load() == 0 && !l.hasLoansOut()
}

// close blocks until everything that was started has ended. The context of newLocks must have
// ended.
func (l *locks) close() {
	for _, s := range l.shards {
		s.mu.Lock()
		s.closed = true
		s.wake.timer.Stop()
		s.mu.Unlock()
		s.running.Wait()
	}
	l.peers.Close()
}
