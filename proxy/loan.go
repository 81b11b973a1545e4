package proxy

import (
	"cmp"
	"context"
	"time"

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
	s.takeLoan(sent, a.Ticket)
	a.Ticket = s.borrowed(l.nextOp(), refKey{k, r}, kind)
	if !a.Ticket.OK() {
		return musiccore.Answer{Err: &musiccore.ElsewhereError{Session: at}}, nil // it could not be used: ask again
	}
	return a, nil
}

// turnPause is after how long another proxy hears again of a reference that does not wait there. It must not be silent
// there for musiccore.Options.QueuedLease.
const turnPause = 2 * time.Second

// lockThere waits at another proxy for a reference that it has given. Where turnsAsked wait already it asks there how
// the reference stands, now and then, until it can wait there, too.
func (l *locks) lockThere(ctx context.Context, at musiccore.SessionID, k musiccore.Key, q musiccore.Request) (musiccore.Answer, error) {
	if q.AtOnce || q.NoWait {
		return l.askLock(ctx, at, k, q)
	}
	now := q
	now.AtOnce, now.Wait = true, 0
	limited, cancel := context.WithTimeout(ctx, cmp.Or(q.Wait, l.wait))
	defer cancel()
	for pause := time.Duration(0); !l.mayAsk(limited, pause); pause = turnPause {
		if a, err := l.askLock(ctx, at, k, now); err != nil || a.Grant.State != musiccore.StateQueued || limited.Err() != nil {
			return a, err
		}
	}
	defer func() { <-l.turns }()
	end, _ := limited.Deadline()
	q.Wait = max(time.Until(end), time.Millisecond)
	return l.askLock(ctx, at, k, q)
}

// mayAsk takes one of turns, which the caller gives back. It returns false if there is none in time.
func (l *locks) mayAsk(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case l.turns <- struct{}{}:
		return true
	default:
	}
	select {
	case l.turns <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// askLock asks another proxy for LOCK with a reference that it has given; the answer may come with a loan, which
// is taken.
func (l *locks) askLock(ctx context.Context, at musiccore.SessionID, k musiccore.Key, q musiccore.Request) (musiccore.Answer, error) {
	s := l.of(k)
	sent, self := s.borrower(refKey{k, q.Ref})
	a, err := l.peers.Lock(ctx, at, k, q, peer.Asker{Session: self})
	if err == nil && a.Ticket.Lent != nil {
		s.mu.Lock()
		defer s.unlock()
		s.takeLoan(sent, a.Ticket)
	}
	return a, err
}

// giveBackTo gives a loan back to its lender, and passes its verdict to the operations that wait for
// it. It blocks.
func (l *locks) giveBackTo(r musiccore.Return) {
	ctx, cancel := l.newContext()
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

// takeLoan takes a loan. It is called with the mutex held.
func (s *shard) takeLoan(sent musiccore.Now, t musiccore.Ticket) {
	now := s.now()
	s.metrics.loans.Inc()
	s.carryOut(now, s.core.Borrow(now, sent, t))
}

// borrowed returns a ticket of a loan, if there is one that can be used. It is called with the mutex
// held.
func (s *shard) borrowed(op musiccore.OpID, p refKey, kind musiccore.Kind) musiccore.Ticket {
	now := s.now()
	t, effects := s.core.BorrowedTicket(now, op, p.key, p.ref, kind)
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
