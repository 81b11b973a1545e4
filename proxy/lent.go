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

// lendAtOnce returns a loan for the holder of a reference of this proxy, whose client is at another one.
// It returns none if that is not possible without waiting.
func (l *locks) lendAtOnce(k musiccore.Key, r musiccore.LockRef, to musiccore.SessionID) musiccore.Ticket {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	t := await(ctx, func(done func(musiccore.Answer)) (musiccore.Answer, func()) {
		return l.beginHere(k, r, musiccore.Put, to, done)
	}).Ticket
	if t.OK() && t.Lent == nil { // a ticket for one operation, which nobody has asked for
		l.End(t, musiccore.OutcomeRefused)
		return musiccore.Ticket{}
	}
	return t
}

// borrow borrows a ticket from the proxy of a session. If it is a loan, the answer has a ticket of
// that loan.
func (l *locks) borrow(ctx context.Context, at musiccore.SessionID, k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind) (musiccore.Answer, error) {
	s := l.of(k)
	sent, self := s.borrower(refKey{k, r})
	a, err := l.peers.Begin(ctx, peer.Reference{At: at, Key: k, Ref: r}, kind, self)
	if err != nil || a.Ticket.Lent == nil {
		return a, err
	}
	s.mu.Lock()
	defer s.unlock()
	s.take(sent, a.Ticket)
	a.Ticket = s.borrowed(l.nextOp(), refKey{k, r}, kind)
	if !a.Ticket.OK() {
		return musiccore.Answer{Err: &musiccore.ElsewhereError{Session: at}}, nil // it could not be used: ask again
	}
	return a, nil
}

// lockThere waits at another proxy for a reference that it has given; the answer may come with a loan,
// which is taken.
func (l *locks) lockThere(ctx context.Context, at musiccore.SessionID, k musiccore.Key, q musiccore.Request) (musiccore.Answer, error) {
	s := l.of(k)
	sent, self := s.borrower(refKey{k, q.Ref})
	a, err := l.peers.Lock(ctx, at, k, q, peer.Asker{Session: self})
	if err == nil && a.Ticket.Lent != nil {
		s.mu.Lock()
		defer s.unlock()
		s.take(sent, a.Ticket)
	}
	return a, err
}

// placesAsked is how many LOCKs of this proxy wait elsewhere at once. Each takes a connection, of which other
// questions need some, too.
const placesAsked = 128

// waiting is a LOCK for a new reference while it waits, here or at another proxy.
type waiting struct {
	l      *locks
	key    musiccore.Key
	ask    musiccore.Request
	begun  time.Duration // when LOCK came, BOOTTIME
	done   func(musiccore.Answer)
	ctx    context.Context //nolint:containedctx // it ends with the operation, as gone does
	cancel context.CancelFunc
}

// waits returns a LOCK that waits. Its answer is passed to done.
func (l *locks) waits(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) *waiting {
	w := &waiting{l: l, key: k, ask: q, begun: boottime(), done: done}
	w.ctx, w.cancel = l.scope()
	return w
}

// answered takes the answer of this proxy's core. If that names another session, the LOCK waits there
// for a place, and, if it gets none, here. It blocks.
func (w *waiting) answered(a musiccore.Answer) {
	defer w.cancel()
	var elsewhere *musiccore.ElsewhereError
	if errors.As(a.Err, &elsewhere) {
		w.there(elsewhere.Session)
		return
	}
	w.done(a)
}

// left returns what is left of the LOCK's time.
func (w *waiting) left() time.Duration {
	return max(cmp.Or(w.ask.Wait, w.l.wait)-(boottime()-w.begun), time.Millisecond)
}

// hasToken reports whether the client gave a token: it may come back with that, here or elsewhere, for a
// grant of which it did not hear.
func (w *waiting) hasToken() bool { return w.ask.Token != [16]byte{} }

// there waits for a place at another session. The LOCK may be answered meanwhile: the lock was passed on to
// it under a loan, its client is gone, or this proxy shuts down. The other session need not know yet, so
// its answer is waited for all the same: it may be a grant on its way.
func (w *waiting) there(at musiccore.SessionID) {
	s := w.l.of(w.key)
	begun, _ := s.borrowing()
	told := w.l.metrics.asked(w.key, begun.Boot)
	select {
	case w.l.places <- struct{}{}:
		defer func() { <-w.l.places }()
	default:
		a := w.here(at, false)
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
	here := s.waitElsewhere(w.l.nextOp(), w.key, asked.Token, func(a musiccore.Answer) {
		s.lent(begun, w.key, at, a)
		told(a)
		w.done(a)
		meanwhile <- a
	})
	defer context.AfterFunc(w.ctx, func() {
		if done := s.waitedElsewhere(here, w.key, asked.Token); done != nil {
			done(musiccore.Answer{Err: errGone})
		}
	})()
	a, sent, err := w.askThere(at, asked, here)
	granted := err == nil && a.Err == nil
	waited := s.waitedElsewhere(here, w.key, asked.Token) != nil
	if granted {
		s.lent(sent, w.key, at, a)
	}
	switch {
	case !waited && granted && (<-meanwhile).Err != nil && !w.hasToken():
		w.leave(at, a.Grant.Ref)
	case waited:
		if !granted {
			a = w.here(at, err != nil)
		}
		told(a)
		w.done(a)
	}
}

// askThere asks another session for a place until it gives the lock or says that it gives none. Each
// question waits for no longer than a LOCK does that says nothing, so that a proxy which has stopped is
// noticed; one whose answer is lost is repeated once. here is the LOCK's operation at this proxy. sent is
// from before the last question.
func (w *waiting) askThere(at musiccore.SessionID, asked musiccore.Request, here musiccore.OpID) (a musiccore.Answer, sent musiccore.Now, err error) {
	s := w.l.of(w.key)
	ctx, cancel := w.l.scope() // not w.ctx: of a question that is cancelled nobody knows what it was answered
	defer cancel()
	for broken := false; ; {
		var self musiccore.SessionID
		sent, self = s.borrowing()
		asked.Wait = min(w.left(), w.l.wait)
		a, err = w.l.peers.Lock(ctx, at, w.key, asked, peer.Asker{Session: self, OwnToken: !w.hasToken()})
		now, _ := s.borrowing()
		late := now.Boot-sent.Boot >= asked.Wait
		switch {
		case err != nil && !late && !broken && ctx.Err() == nil:
			broken = true // the token still finds the place
		case err == nil && a.Err == nil && a.Grant.State == musiccore.StateQueued && late && w.left() > time.Millisecond && s.waits(here):
			asked.Ref, broken = a.Grant.Ref, false // one that is answered sooner has been replaced by another LOCK with its token
		default:
			return a, sent, err
		}
	}
}

// leave releases a reference that another session has given to a client which no longer waits for it.
func (w *waiting) leave(at musiccore.SessionID, r musiccore.LockRef) {
	if r != 0 {
		w.l.unlockThere(w.key, r, w.ask.By, musiccore.Answer{Err: &musiccore.ElsewhereError{Session: at}})
	}
}

// waitElsewhere registers a LOCK with a token that waits at another proxy. If the lock is passed on to it
// here, the answer is passed to done.
func (s *shard) waitElsewhere(op musiccore.OpID, k musiccore.Key, token [16]byte, done func(musiccore.Answer)) musiccore.OpID {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[op] = done
	s.core.WaitsElsewhere(op, k, token)
	return op
}

// waits reports whether an operation has no answer yet.
func (s *shard) waits(op musiccore.OpID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting[op] != nil
}

// waitedElsewhere removes a LOCK that has waited at another proxy, and returns what takes its answer; nil
// if it has been answered.
func (s *shard) waitedElsewhere(op musiccore.OpID, k musiccore.Key, token [16]byte) (done func(musiccore.Answer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	done = s.waiting[op]
	delete(s.waiting, op)
	s.core.WaitedElsewhere(op, k, token)
	return done
}

// here waits at this proxy for what is left of the LOCK's time, unless its client is gone. silent means
// that the other one has not answered.
func (w *waiting) here(at musiccore.SessionID, silent bool) musiccore.Answer {
	s, q := w.l.of(w.key), w.ask
	if silent {
		s.call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Silent(now, at) })
	}
	if w.ctx.Err() != nil {
		return musiccore.Answer{Err: errGone}
	}
	q.Place, q.Wait = musiccore.PlaceHere, w.left()
	return await(w.ctx, func(done func(musiccore.Answer)) (musiccore.Answer, func()) { return w.l.lockHere(w.key, q, done) })
}

// lent takes what another session has given: a reference, and perhaps a loan. sent is from before it was
// asked.
func (s *shard) lent(sent musiccore.Now, k musiccore.Key, at musiccore.SessionID, a musiccore.Answer) {
	s.mu.Lock()
	defer s.unlock()
	if a.Grant.Ref != 0 && len(k.PK) <= ownerKeyBytes {
		s.owners.Add(refKey{k, a.Grant.Ref}, owner{at, true})
	}
	if a.Ticket.Lent != nil {
		s.take(sent, a.Ticket)
	}
}

// giveBackTo gives a loan back to its lender, and passes its verdict to the operations that wait for
// it. It blocks.
func (l *locks) giveBackTo(r musiccore.Return) {
	ctx, cancel := l.scope()
	defer cancel()
	v := l.peers.End(ctx, r.Ticket, r.Outcome)
	l.of(r.Ticket.Key).call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Returned(now, r.Loan, v) })
}

// borrowing reads the clocks, and returns this proxy's own session.
func (s *shard) borrowing() (musiccore.Now, musiccore.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	return now, s.core.Borrower(now)
}

// borrower reads the clocks, and returns this proxy's session if it takes a loan for the reference.
func (s *shard) borrower(p refKey) (musiccore.Now, musiccore.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.owners.Peek(p); !known || !at.borrows {
		return s.now(), musiccore.SessionID{}
	}
	now := s.now()
	return now, s.core.Borrower(now)
}

// take takes a loan. It is called with the mutex held.
func (s *shard) take(sent musiccore.Now, t musiccore.Ticket) {
	now := s.now()
	s.metrics.loans.Inc()
	s.carryOut(now, s.core.Borrow(now, sent, t))
}

// borrowed returns a ticket of a loan, if there is one that can be used. It is called with the mutex
// held.
func (s *shard) borrowed(op musiccore.OpID, p refKey, kind musiccore.Kind) musiccore.Ticket {
	now := s.now()
	t, effects := s.core.Borrowed(now, op, p.key, p.ref, kind)
	s.carryOut(now, effects)
	return t
}

// endLoan is Core.GiveBack, for a reference that is being unlocked.
func (s *shard) endLoan(k musiccore.Key, r musiccore.LockRef) (back musiccore.Return, passed bool) {
	s.mu.Lock()
	defer s.unlock()
	now := s.now()
	back, passed, effects := s.core.GiveBack(now, k, r)
	s.carryOut(now, effects)
	return back, passed
}
