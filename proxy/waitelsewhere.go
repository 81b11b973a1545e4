package proxy

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"music/musiccore"
	"music/proxy/peer"
)

// placesAsked is how many LOCKs of this proxy wait elsewhere at once for a new reference, turnsAsked how many with one of
// another proxy. Each takes a connection, of which other questions need some, too: a proxy has them for eight others
// (peer.Listen).
const (
	placesAsked = 128
	turnsAsked  = 896
)

// waitingLock is a LOCK for a new reference while it waits, here or at another proxy.
type waitingLock struct {
	l      *locks
	key    musiccore.Key
	ask    musiccore.Request
	begun  time.Duration // when LOCK came, BOOTTIME
	done   func(musiccore.Answer)
	ctx    context.Context //nolint:containedctx // it ends with the operation, as gone does
	cancel context.CancelFunc
}

// newWaitingLock returns a LOCK that waits. Its answer is passed to done.
func (l *locks) newWaitingLock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) *waitingLock {
	w := &waitingLock{l: l, key: k, ask: q, begun: boottime(), done: done}
	w.ctx, w.cancel = l.newContext()
	return w
}

// answered takes the answer of this proxy's core. If that names another session, the LOCK waits there
// for a place, and, if it gets none, here. It blocks.
func (w *waitingLock) answered(a musiccore.Answer) {
	defer w.cancel()
	var elsewhere *musiccore.ElsewhereError
	if errors.As(a.Err, &elsewhere) {
		w.waitThere(elsewhere.Session)
		return
	}
	w.done(a)
}

// timeLeft returns what is left of the LOCK's time.
func (w *waitingLock) timeLeft() time.Duration {
	return max(cmp.Or(w.ask.Wait, w.l.wait)-(boottime()-w.begun), time.Millisecond)
}

// hasToken reports whether the client gave a token: it may come back with that, here or elsewhere, for a
// grant of which it did not hear.
func (w *waitingLock) hasToken() bool { return w.ask.Token != [16]byte{} }

// waitThere waits for a place at another session. The LOCK may be answered meanwhile: the lock was passed on to
// it under a loan, its client is gone, or this proxy shuts down. The other session need not know yet, so
// its answer is waited for all the same: it may be a grant on its way.
func (w *waitingLock) waitThere(at musiccore.SessionID) {
	s := w.l.of(w.key)
	begun, _ := s.borrowing()
	told := w.l.metrics.asked(w.key, begun.Boot)
	select {
	case w.l.places <- struct{}{}:
		defer func() { <-w.l.places }()
	default:
		a := w.waitHere(at, false)
		told(a)
		w.done(a)
		return
	}
	asked := w.ask
	asked.Place = musiccore.PlaceBlock
	if !w.hasToken() {
		asked.Token = uuid.New() // it keeps the place between two questions
	}
	meanwhile := make(chan musiccore.Answer, 1)
	here := s.addRemoteWait(w.l.nextOp(), w.key, asked.Token, func(a musiccore.Answer) {
		s.acceptGrant(begun, w.key, at, a)
		told(a)
		w.done(a)
		meanwhile <- a
	})
	defer context.AfterFunc(w.ctx, func() {
		if done := s.removeRemoteWait(here, w.key, asked.Token); done != nil {
			done(musiccore.Answer{Err: errGone})
		}
	})()
	a, sent, err := w.askThere(at, asked, here)
	granted := err == nil && a.Err == nil
	waited := s.removeRemoteWait(here, w.key, asked.Token) != nil
	if granted {
		s.acceptGrant(sent, w.key, at, a)
	}
	switch {
	case !waited && granted && (<-meanwhile).Err != nil && !w.hasToken():
		w.releaseThere(at, a.Grant.Ref)
	case waited:
		if !granted {
			a = w.waitHere(at, err != nil)
		}
		told(a)
		w.done(a)
	}
}

// askThere asks another session for a place until it gives the lock or says that it gives none. Each
// question waits for no longer than a LOCK does that says nothing, so that a proxy which has stopped is
// noticed; one whose answer is lost is repeated once. here is the LOCK's operation at this proxy. sent is
// from before the last question.
func (w *waitingLock) askThere(at musiccore.SessionID, asked musiccore.Request, here musiccore.OpID) (a musiccore.Answer, sent musiccore.Now, err error) {
	s := w.l.of(w.key)
	ctx, cancel := w.l.newContext() // not w.ctx: of a question that is cancelled nobody knows what it was answered
	defer cancel()
	for broken := false; ; {
		var self musiccore.SessionID
		sent, self = s.borrowing()
		asked.Wait = min(w.timeLeft(), w.l.wait)
		a, err = w.l.peers.Lock(ctx, at, w.key, asked, peer.Asker{Session: self, OwnToken: !w.hasToken()})
		now, _ := s.borrowing()
		late := now.Boot-sent.Boot >= asked.Wait
		switch {
		case err != nil && !late && !broken && ctx.Err() == nil:
			broken = true // the token still finds the place
		case err == nil && a.Err == nil && a.Grant.State == musiccore.StateQueued && late && w.timeLeft() > time.Millisecond && s.isWaiting(here):
			asked.Ref, broken = a.Grant.Ref, false // one that is answered sooner has been replaced by another LOCK with its token
		default:
			return a, sent, err
		}
	}
}

// releaseThere releases a reference that another session has given to a client which no longer waits for it.
func (w *waitingLock) releaseThere(at musiccore.SessionID, r musiccore.LockRef) {
	if r != 0 {
		w.l.unlockThere(w.key, r, w.ask.By, musiccore.Answer{Err: &musiccore.ElsewhereError{Session: at}})
	}
}

// addRemoteWait registers a LOCK with a token that waits at another proxy. If the lock is passed on to it
// here, or this proxy shuts down, the answer is passed to done.
func (s *shard) addRemoteWait(op musiccore.OpID, k musiccore.Key, token [16]byte, done func(musiccore.Answer)) musiccore.OpID {
	s.mu.Lock()
	defer s.unlock()
	s.waiting[op] = done
	s.carryOut(s.now(), s.core.AddRemoteWait(op, k, token))
	return op
}

// isWaiting reports whether an operation has no answer yet.
func (s *shard) isWaiting(op musiccore.OpID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[op] != nil
}

// removeRemoteWait removes a LOCK that has waited at another proxy, and returns what takes its answer; nil
// if it has been answered.
func (s *shard) removeRemoteWait(op musiccore.OpID, k musiccore.Key, token [16]byte) (done func(musiccore.Answer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done = s.waiting[op]
	delete(s.waiting, op)
	s.core.RemoveRemoteWait(op, k, token)
	return done
}

// waitHere waits at this proxy for what is left of the LOCK's time, unless its client is gone. silent means
// that the other one has not answered.
func (w *waitingLock) waitHere(at musiccore.SessionID, silent bool) musiccore.Answer {
	s, q := w.l.of(w.key), w.ask
	if silent {
		s.call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.PeerSilent(now, at) })
	}
	if w.ctx.Err() != nil {
		return musiccore.Answer{Err: errGone}
	}
	q.Place, q.Wait = musiccore.PlaceHere, w.timeLeft()
	return await(w.ctx, func(done func(musiccore.Answer)) (musiccore.Answer, func()) { return w.l.lockHere(w.key, q, done) })
}

// acceptGrant takes what another session has granted: a reference, and perhaps a loan. sent is from before it was
// asked.
func (s *shard) acceptGrant(sent musiccore.Now, k musiccore.Key, at musiccore.SessionID, a musiccore.Answer) {
	s.mu.Lock()
	defer s.unlock()
	if a.Grant.Ref != 0 && len(k.PK) <= ownerKeyBytes {
		s.owners.Add(refKey{k, a.Grant.Ref}, owner{at, true})
	}
	if a.Ticket.Lent != nil {
		s.takeLoan(sent, a.Ticket)
	}
}
