package proxy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/musiccore"
	"music/proxy/peer"
)

// seenSession is another proxy's session, as its row was read.
type seenSession struct {
	beat   int64
	lease  time.Duration // its session lease; 0 = not known
	schema gocql.UUID    // digest of the tables that it has applied
	rules  string        // the patterns that it has applied
	spoken int           // its version, see [peer.Version]
	since  musiccore.Now // this machine's clocks at the END of the first read that showed this beat
	before musiccore.Now // … at the START of the last one
	addr   string        // where it answers other proxies; empty = nowhere
	asked  time.Duration // BOOTTIME at the start of the read that showed all of this
}

// sessions watches the beats of all proxies, to know which of them must follow a schema change. A
// session is dead by the same rule as for terms (docs/protocol.md 3.3, Dead): by a beat that stands
// still, never by another machine's clock. It is safe for concurrent use.
type sessions struct {
	read func(context.Context, []gocql.UUID) (map[gocql.UUID]seenSession, error) // reads these rows of music.sessions at QUORUM; nil = all
	dead func(lease time.Duration) time.Duration                                 // returns how long the beat of a dead session stands still

	remove func(context.Context, gocql.UUID) error // deletes a row of music.sessions for ever

	mu   sync.Mutex
	seen map[gocql.UUID]seenSession
}

// look reads all sessions once.
func (s *sessions) look(ctx context.Context) error { return s.lookAt(ctx, nil) }

// lookAt reads these sessions once; nil = all. Reading a few is more reliable just after a node has
// died: for single rows another replica is asked, too. Several reads may be under way, of which one that began
// before another takes nothing back of what that one showed.
func (s *sessions) lookAt(ctx context.Context, ids []gocql.UUID) error {
	start := instant()
	found, err := s.read(ctx, ids)
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	end := instant()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, now := range found {
		now.since, now.before, now.asked = end, end, start.Boot
		if old, ok := s.seen[id]; ok && old.beat == now.beat {
			now.since, now.before = old.since, start
		}
		found[id] = now
	}
	for id, old := range s.seen {
		_, again := found[id]
		if old.asked > start.Boot || !again && ids != nil && !slices.Contains(ids, id) {
			found[id] = old
		}
	}
	s.seen = found
	return nil
}

// readSessions reads rows of music.sessions; nil = all.
func readSessions(ctx context.Context, session *gocql.Session, ids []gocql.UUID) (map[gocql.UUID]seenSession, error) {
	const all = "SELECT session, beat, schema_version, addr, lease, rules, version FROM music.sessions"
	query := session.Query(all)
	if ids != nil {
		query = session.Query(all+" WHERE session IN ?", ids)
	}
	iter := query.Consistency(gocql.Quorum).IterContext(ctx)
	found := map[gocql.UUID]seenSession{}
	var id, version gocql.UUID
	var beat, lease int64
	var addr, rules string
	var spoken int
	for iter.Scan(&id, &beat, &version, &addr, &lease, &rules, &spoken) {
		found[id] = seenSession{beat: beat, schema: version, addr: addr, lease: time.Duration(lease) * time.Millisecond, rules: rules, spoken: peer.Spoken(spoken)}
	}
	return found, iter.Close()
}

// Address implements peer.Directory.
func (s *sessions) Address(ctx context.Context, id musiccore.SessionID) (address string, version int, err error) {
	found, ok := s.find(id)
	if !ok {
		if err := s.look(ctx); err != nil {
			return "", 0, fmt.Errorf("%w: %w", peer.ErrNotAsked, err)
		}
		found, ok = s.find(id)
	}
	switch {
	case !ok:
		return "", 0, fmt.Errorf("%w: there is no such session", peer.ErrNotAsked)
	case found.died(s.dead):
		return "", 0, fmt.Errorf("%w: the session has ended", peer.ErrNotAsked)
	case found.addr == "":
		return "", 0, peer.ErrNoAddress
	}
	return found.addr, found.spoken, nil
}

// find returns a session as it was last read.
func (s *sessions) find(id musiccore.SessionID) (seenSession, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.seen[gocql.UUID(id)]
	return found, ok
}

// living returns the sessions that were not dead when they were last read, except self, with their
// addresses.
func (s *sessions) living(self musiccore.SessionID) map[musiccore.SessionID]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	alive := map[musiccore.SessionID]string{}
	for id, seen := range s.seen {
		if id != gocql.UUID(self) && !seen.died(s.dead) {
			alive[musiccore.SessionID(id)] = seen.addr
		}
	}
	return alive
}

// died reports whether a session has ended, or its beat has stood still for long enough.
func (s seenSession) died(dead func(lease time.Duration) time.Duration) bool {
	return s.beat == musiccore.EndedBeat || s.stood() >= dead(s.lease)
}

// stood returns for how long the beat has certainly stood still.
func (s seenSession) stood() time.Duration { return s.before.Since(s.since) }

// reapAfter is how long a beat must stand still before its row is deleted. References of such a
// session may still be in lock rows; for them a missing row means the same as a beat that stands
// still.
const reapAfter = time.Hour

// reap deletes the rows of sessions that have been dead for long, since all proxies read all rows.
func (s *sessions) reap(ctx context.Context, self gocql.UUID) error {
	s.mu.Lock()
	var long []gocql.UUID
	for id, seen := range s.seen {
		if id != self && seen.died(s.dead) && seen.stood() >= max(reapAfter, 10*s.dead(seen.lease)) {
			long = append(long, id)
		}
	}
	s.mu.Unlock()
	for _, id := range long {
		if err := s.remove(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// removeSession deletes a row with the highest stamp there is, so that no late beat can bring it
// back, not even EndedBeat.
func removeSession(ctx context.Context, session *gocql.Session, id gocql.UUID) error {
	err := session.Query("DELETE FROM music.sessions WHERE session = ?", id).WithTimestamp(musiccore.EndedBeat).Consistency(gocql.Quorum).ExecContext(ctx)
	if err != nil {
		return fmt.Errorf("delete a session that is long dead: %w", err)
	}
	return nil
}

// lagging returns the names of the living sessions, except self, that have not applied the tables
// with a digest.
func (s *sessions) lagging(self musiccore.SessionID, digest gocql.UUID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var late []string
	for id, seen := range s.seen {
		if id != gocql.UUID(self) && !seen.died(s.dead) && seen.schema != digest {
			late = append(late, cmp.Or(seen.addr, id.String()))
		}
	}
	return late
}

// ruledOtherwise returns the names of the living sessions, except self, with other patterns of
// critical tables.
func (s *sessions) ruledOtherwise(self musiccore.SessionID, rules string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for id, seen := range s.seen {
		if id != gocql.UUID(self) && !seen.died(s.dead) && seen.rules != rules {
			all = append(all, cmp.Or(seen.addr, id.String())+" (its setting critical is another)")
		}
	}
	return all
}

// alive reports whether a session may still be alive, as it was last read, and returns its beat. A
// session that is not known is not alive.
func (s *sessions) alive(id gocql.UUID) (beat int64, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[id]
	return seen.beat, ok && !seen.died(s.dead)
}
