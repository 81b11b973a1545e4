package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"music/frontend"
	"music/musiccore"
	"music/proxy/peer"
)

const (
	remotePatience = 1200 * time.Millisecond // how long an operation tries to reach the proxy that has its reference: drivers wait for 2 s
	remotePause    = 50 * time.Millisecond   // between two tries
)

// remoteOp is an operation on a reference that may be at another proxy.
type remoteOp struct {
	refKey
	local    func(done func(musiccore.Answer)) (a musiccore.Answer, gone func())         // asks this proxy's core
	remote   func(ctx context.Context, at musiccore.SessionID) (musiccore.Answer, error) // asks another proxy
	onlyOnce bool                                                                        // repeated only if it was certainly not carried out
}

// Force implements frontend.Locks. The proxy that has the holder carries it out, and writes the
// audit.
func (l *locks) Force(k musiccore.Key, f frontend.Force, done func(musiccore.Answer)) {
	var holder atomic.Int64 // the holder's reference, if it is at another proxy
	note := func(a musiccore.Answer) {
		var elsewhere *musiccore.ElsewhereError
		if errors.As(a.Err, &elsewhere) {
			holder.Store(int64(elsewhere.Ref))
		}
	}
	a, gone := l.run(remoteOp{
		refKey: refKey{key: k},
		local: func(done func(musiccore.Answer)) (musiccore.Answer, func()) {
			a, gone := l.forceHere(k, 0, f, func(a musiccore.Answer) {
				note(a)
				done(a)
			})
			if gone == nil {
				note(a)
			}
			return a, gone
		},
		remote: func(ctx context.Context, at musiccore.SessionID) (musiccore.Answer, error) {
			return l.peers.Force(ctx, at, k, musiccore.LockRef(holder.Load()), f)
		},
		onlyOnce: true,
	}, done)
	if gone == nil {
		l.of(k).running.Go(func() { done(a) })
	}
}

// beginThere continues a Begin with this core's answer a, by follow. It blocks.
func (l *locks) beginThere(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, a musiccore.Answer) musiccore.Answer {
	ctx, cancel := l.newContext()
	defer cancel()
	lent := kind
	if kind == musiccore.BlindPut {
		lent = musiccore.Put // which every version of a proxy knows
	}
	return l.follow(ctx, remoteOp{
		refKey: refKey{k, r},
		local: func(done func(musiccore.Answer)) (musiccore.Answer, func()) {
			return l.beginHere(k, r, kind, musiccore.SessionID{}, done)
		},
		remote: func(ctx context.Context, at musiccore.SessionID) (musiccore.Answer, error) {
			return l.borrow(ctx, at, k, r, lent)
		},
	}, a)
}

// unlockThere continues an Unlock with this core's answer a, by follow. It blocks.
func (l *locks) unlockThere(k musiccore.Key, r musiccore.LockRef, by musiccore.Client, a musiccore.Answer) musiccore.Answer {
	l.giving.Add(1)
	defer l.giving.Add(-1)
	ctx, cancel := l.newContext()
	defer cancel()
	var back musiccore.Return // it is given back with each try: who asks cannot know whether the first one arrived
	return l.follow(ctx, remoteOp{
		refKey: refKey{k, r},
		local: func(done func(musiccore.Answer)) (musiccore.Answer, func()) {
			return l.unlockHere(k, r, by, musiccore.Return{}, done)
		},
		remote: func(ctx context.Context, at musiccore.SessionID) (musiccore.Answer, error) {
			if !back.Ticket.OK() {
				var passed bool
				if back, passed = l.of(k).endLoan(k, r); passed {
					return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: r, State: musiccore.StateReleased}}, nil
				}
			}
			return l.peers.Unlock(ctx, peer.Reference{At: at, Key: k, Ref: r}, by, back)
		},
	}, a)
}

// endThere returns a borrowed ticket to its proxy, which alone can tell the verdict
// (docs/protocol.md 3.15, Remote).
func (l *locks) endThere(t musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	verdict := make(chan musiccore.Verdict, 1)
	l.giving.Add(1)
	l.of(t.Key).running.Go(func() {
		defer l.giving.Add(-1)
		ctx, cancel := l.newContext()
		defer cancel()
		verdict <- l.peers.End(ctx, t, o)
	})
	return musiccore.VerdictUncertain, func() musiccore.Verdict { return <-verdict }
}

// run asks this proxy's core and, if that names another proxy, continues by follow. The results are
// as for lockHere.
func (l *locks) run(e remoteOp, done func(musiccore.Answer)) (a musiccore.Answer, gone func()) {
	ctx, cancel := l.newContext()
	follow := func(a musiccore.Answer) {
		defer cancel()
		done(l.follow(ctx, e, a))
	}
	a, here := e.local(follow)
	switch {
	case here != nil:
		return a, func() {
			cancel()
			here()
		}
	case errors.Is(a.Err, musiccore.ErrElsewhere):
		l.of(e.key).running.Go(func() { follow(a) })
		return a, cancel
	}
	cancel()
	return a, nil
}

// follow asks the proxy that the answer a of this proxy's core names, and returns its answer. If
// the reference is not found there, it asks this core again: by then the session may be known to
// have ended, and its reference is taken over here (docs/protocol.md 3.13, Takeover). It blocks for
// about remotePatience.
func (l *locks) follow(ctx context.Context, e remoteOp, a musiccore.Answer) musiccore.Answer {
	var elsewhere *musiccore.ElsewhereError
	for start := time.Now(); errors.As(a.Err, &elsewhere); a = await(ctx, e.local) {
		told, err := e.remote(ctx, elsewhere.Session)
		if err == nil {
			err = told.Err
		}
		if !isElsewhere(err) {
			l.found(e.refKey, elsewhere.Session, err)
			return told
		}
		l.forget(e.refKey)
		if e.onlyOnce && !errors.Is(err, peer.ErrNotAsked) || time.Since(start) > remotePatience || !pause(ctx, remotePause) {
			return musiccore.Answer{Err: awayError(err)}
		}
	}
	return a
}

// isElsewhere reports whether an error of another proxy means that the reference may no longer be
// there.
func isElsewhere(err error) bool {
	for _, away := range []error{peer.ErrAway, peer.ErrOtherSession, musiccore.ErrElsewhere, musiccore.ErrNoSession, musiccore.ErrDraining} {
		if errors.Is(err, away) {
			return true
		}
	}
	return false
}

// awayError returns the error for a reference whose proxy was not reached.
func awayError(err error) error {
	if errors.Is(err, peer.ErrAway) {
		return err
	}
	return peer.ErrAway
}

// found caches the session that has a reference.
func (l *locks) found(p refKey, at musiccore.SessionID, err error) {
	if err != nil || p.ref == 0 || len(p.key.PK) > ownerKeyBytes {
		return
	}
	s := l.of(p.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, known := s.owners.Peek(p); !known || o.session != at {
		s.owners.Add(p, owner{session: at})
	}
}

// forget removes a reference from the cache, so that the next operation on it asks this proxy's
// core.
func (l *locks) forget(p refKey) {
	s := l.of(p.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.owners.Remove(p)
}

// await blocks until the answer to an operation. If ctx ends before, it cancels the operation, and
// the answer has errGone.
func await(ctx context.Context, ask func(done func(musiccore.Answer)) (a musiccore.Answer, gone func())) musiccore.Answer {
	answer := make(chan musiccore.Answer, 1)
	a, gone := ask(func(a musiccore.Answer) { answer <- a })
	if gone == nil {
		return a
	}
	select {
	case a := <-answer:
		return a
	case <-ctx.Done():
		gone()
		return <-answer
	}
}

// listHere returns at most so many holders and waiters at this proxy; if only is not zero, those of
// its table or key.
func (l *locks) listHere(only musiccore.Key, most int) []musiccore.Listing {
	shards := l.shards[:]
	if only.PK != "" {
		shards = []*shard{l.of(only)}
	}
	var all []musiccore.Listing
	for _, s := range shards {
		s.mu.Lock()
		all = append(all, s.core.List(s.now(), only, most-len(all))...)
		s.mu.Unlock()
	}
	return all
}

// List implements frontend.Locks.
func (l *locks) List(only musiccore.Key) (all []musiccore.Listing, missing []string) {
	if all = l.listHere(only, peer.MaxListed+1); len(all) > peer.MaxListed {
		all, missing = all[:peer.MaxListed], []string{"only some of the locks of this proxy are shown: name a table or key"}
	}
	ctx, cancel := l.newContext()
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, peer.ListLimit)
	defer stop()
	living, err := l.living(ctx)
	if err != nil {
		return all, append(missing, "the locks of other proxies are not shown: music.sessions cannot be read")
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for id, address := range living {
		asking.Go(func() {
			found, more, err := l.peers.List(ctx, id, only)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found...)
			switch {
			case errors.Is(err, peer.ErrNoAddress):
				missing = append(missing, fmt.Sprintf("the locks of session %x are not shown: its proxy does not listen for other proxies (peer-listen is not set there)", id))
			case err != nil:
				missing = append(missing, fmt.Sprintf("the locks of the proxy at %q are not shown: it does not answer", address))
			case more:
				missing = append(missing, fmt.Sprintf("only some of the locks of the proxy at %q are shown: name a table or key", address))
			}
		})
	}
	asking.Wait()
	return all, missing
}

// local gives other proxies access to this proxy's core: it implements peer.Sections and
// peer.Queues. Who asks for a reference takes it for one of this session, so the cache of those that are
// elsewhere is not believed: it may be older than a Takeover.
type local struct{ locks *locks }

// Lock implements peer.Sections.
func (l local) Lock(ctx context.Context, k musiccore.Key, q musiccore.Request, to musiccore.SessionID) musiccore.Answer {
	q.Via = to
	l.locks.forget(refKey{k, q.Ref})
	a := await(ctx, func(done func(musiccore.Answer)) (musiccore.Answer, func()) { return l.locks.lockHere(k, q, done) })
	if to != (musiccore.SessionID{}) && a.Grant.State == musiccore.StateHeld {
		a.Ticket = l.locks.lendAtOnce(k, a.Grant.Ref, to)
	}
	return a
}

// Unlock implements peer.Sections.
func (l local) Unlock(ctx context.Context, k musiccore.Key, r musiccore.LockRef, by musiccore.Client, back musiccore.Return) musiccore.Answer {
	l.locks.forget(refKey{k, r})
	return await(ctx, func(done func(musiccore.Answer)) (musiccore.Answer, func()) {
		return l.locks.unlockHere(k, r, by, back, done)
	})
}

// Begin implements peer.Sections.
func (l local) Begin(ctx context.Context, k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, to musiccore.SessionID) musiccore.Answer {
	l.locks.forget(refKey{k, r})
	return await(ctx, func(done func(musiccore.Answer)) (musiccore.Answer, func()) {
		return l.locks.beginHere(k, r, kind, to, done)
	})
}

// End implements peer.Sections.
func (l local) End(t musiccore.Ticket, o musiccore.Outcome) musiccore.Verdict {
	v, wait := l.locks.End(t, o)
	if wait != nil {
		v = wait()
	}
	return v
}

// Force implements peer.Queues.
func (l local) Force(ctx context.Context, k musiccore.Key, r musiccore.LockRef, f frontend.Force) musiccore.Answer {
	return await(ctx, func(done func(musiccore.Answer)) (musiccore.Answer, func()) { return l.locks.forceHere(k, r, f, done) })
}

// List implements peer.Queues.
func (l local) List(only musiccore.Key, most int) []musiccore.Listing {
	return l.locks.listHere(only, most)
}

// Hear implements peer.Queues.
func (l local) Hear(h musiccore.Hint) {
	l.locks.of(h.Key).call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Hear(now, h) })
}
