package proxy

import (
	"context"

	"music/frontend"
	"music/musiccore"
)

// serving must be called with the server before it serves clients.
func (s *schema) serving(server *frontend.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outstanding = server.Outstanding
}

// answered reports whether Cassandra has answered the requests that were on their way when a table
// was closed to plain writes, or when its keys got other names, and what was lent of a table before it changed
// has been given back. It blocks for at most answerLimit. Until then this proxy has not followed: Cassandra stamps a
// write without a timestamp when it carries it out, which after a long wait in a queue may be above closed, and reads
// a text by the columns of then; and a borrower tells success by what this proxy knew when it lent (docs/protocol.md 3.21).
func (s *schema) answered(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	for s.owed != nil && s.owed() || s.lentBefore() {
		if !pause(ctx, answerPoll) {
			return false
		}
	}
	s.owed = nil
	return true
}

// owes notes what this proxy has to wait for before it has followed: the requests of clients that are under way, if a
// table was closed to plain writes or has other keys than before; with other keys also what reads and writes keys for the core. What
// an earlier change waits for is still waited for.
func (s *schema) owes(closed, otherKeys bool) {
	if s.outstanding == nil || !closed && !otherKeys {
		return
	}
	rest := s.owed
	if otherKeys {
		rest = s.critical.keyed.mark()
	}
	requests := s.outstanding()
	s.owed = func() bool { return requests() || rest != nil && rest() }
}

// behind reports whether this proxy has not followed: see answered.
func (s *schema) behind() bool { return s.owed != nil || s.lentBefore() }

// lentBefore reports whether something may be in use that was lent of a table before it changed.
func (s *schema) lentBefore() (lent bool) {
	s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		lent = c.LentBefore(now) || lent
		return musiccore.Effects{}
	})
	return lent
}
