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
)

// sighting is what has been seen of another proxy's session.
type sighting struct {
	beat   int64
	schema gocql.UUID    // that it has applied
	since  time.Duration // BOOTTIME at the END of the first read that showed this beat
	before time.Duration // BOOTTIME at the START of the last one
	addr   string        // where it answers other proxies; empty = nowhere
}

// sessions watches the life signs of all proxies, to know who has to follow a schema change. Who is dead is judged as for terms
// (PROTOCOL.md 1, Dead), by beats that stand still and never by clocks of others.
type sessions struct {
	read func(context.Context, []gocql.UUID) (map[gocql.UUID]sighting, error) // these of music.sessions, or all of it, at QUORUM
	dead time.Duration                                                        // that a beat must stand still

	mu   sync.Mutex
	seen map[gocql.UUID]sighting
}

// look reads all sessions once.
func (s *sessions) look(ctx context.Context) error { return s.lookAt(ctx, nil) }

// lookAt reads these sessions once; nil = all that there are. Where a node has just died the few are read where all are not: of single
// rows another replica is asked too.
func (s *sessions) lookAt(ctx context.Context, ids []gocql.UUID) error {
	start := boottime()
	found, err := s.read(ctx, ids)
	if err != nil {
		return fmt.Errorf("read sessions: %w", err)
	}
	end := boottime()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, now := range found {
		now.since, now.before = end, end
		if old, ok := s.seen[id]; ok && old.beat == now.beat {
			now.since, now.before = old.since, start
		}
		found[id] = now
	}
	for id, old := range s.seen {
		if _, again := found[id]; !again && ids != nil && !slices.Contains(ids, id) {
			found[id] = old
		}
	}
	s.seen = found
	return nil
}

// readSessions reads what sessions have last said of themselves; nil = all of them.
func readSessions(ctx context.Context, session *gocql.Session, ids []gocql.UUID) (map[gocql.UUID]sighting, error) {
	const all = "SELECT session, beat, schema_version, addr FROM music.sessions"
	query := session.Query(all)
	if ids != nil {
		query = session.Query(all+" WHERE session IN ?", ids)
	}
	iter := query.Consistency(gocql.Quorum).IterContext(ctx)
	found := map[gocql.UUID]sighting{}
	var id, version gocql.UUID
	var beat int64
	var addr string
	for iter.Scan(&id, &beat, &version, &addr) {
		found[id] = sighting{beat: beat, schema: version, addr: addr}
	}
	return found, iter.Close()
}

// address is where the proxy of a session answers other proxies.
func (s *sessions) address(ctx context.Context, id musiccore.SessionID) (string, error) {
	found, ok := s.sighted(id)
	if !ok {
		if err := s.look(ctx); err != nil {
			return "", fmt.Errorf("%w: %w", errNotAsked, err)
		}
		found, ok = s.sighted(id)
	}
	switch {
	case !ok:
		return "", fmt.Errorf("%w: there is no such session", errNotAsked)
	case found.died(s.dead):
		return "", fmt.Errorf("%w: the session has ended", errNotAsked)
	case found.addr == "":
		return "", errNoAddress
	}
	return found.addr, nil
}

func (s *sessions) sighted(id musiccore.SessionID) (sighting, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.seen[gocql.UUID(id)]
	return found, ok
}

// living are the sessions that were not dead when they were last looked at, but for self, with their addresses.
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

// died tells whether a session has ended, or its beat has stood still for so long.
func (s sighting) died(dead time.Duration) bool {
	return s.beat == musiccore.EndedBeat || s.before-s.since >= dead
}

// lagging names the living sessions, but for self, that have not applied a version of the schema.
func (s *sessions) lagging(self musiccore.SessionID, version gocql.UUID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var late []string
	for id, seen := range s.seen {
		if id != gocql.UUID(self) && !seen.died(s.dead) && seen.schema != version {
			late = append(late, cmp.Or(seen.addr, id.String()))
		}
	}
	return late
}

// alive tells whether a session, by what was last looked at, may still be alive; and its beat. One that is not there is not alive.
func (s *sessions) alive(id gocql.UUID) (beat int64, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[id]
	return seen.beat, ok && !seen.died(s.dead)
}
