package proxy

import (
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
	addr   string
}

// sessions watches the life signs of all proxies, to know who has to follow a schema change. Who is dead is judged as for terms
// (PROTOCOL.md 1, Dead), by beats that stand still and never by clocks of others.
type sessions struct {
	session *gocql.Session
	dead    time.Duration // that a beat must stand still

	mu   sync.Mutex
	seen map[gocql.UUID]sighting
}

// selectSessions reads what take takes.
const selectSessions = "SELECT session, beat, schema_version, addr FROM music.sessions"

// look reads all sessions once.
func (s *sessions) look(ctx context.Context) error {
	return s.take(ctx, nil, s.session.Query(selectSessions))
}

// lookAt reads these sessions once. Where a node has just died it fails less than look: of single rows another replica is asked too.
func (s *sessions) lookAt(ctx context.Context, ids []gocql.UUID) error {
	return s.take(ctx, ids, s.session.Query(selectSessions+" WHERE session IN ?", ids))
}

// take notes what a query tells of these sessions; nil = of all that there are.
func (s *sessions) take(ctx context.Context, ids []gocql.UUID, query *gocql.Query) error {
	start := boottime()
	iter := query.Consistency(gocql.Quorum).IterContext(ctx)
	found := map[gocql.UUID]sighting{}
	var id, version gocql.UUID
	var beat int64
	var addr string
	for iter.Scan(&id, &beat, &version, &addr) {
		found[id] = sighting{beat: beat, schema: version, addr: addr}
	}
	if err := iter.Close(); err != nil {
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

// lagging names the living sessions, but for self, that have not applied a version of the schema.
func (s *sessions) lagging(self musiccore.SessionID, version gocql.UUID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var late []string
	for id, seen := range s.seen {
		if id != gocql.UUID(self) && !s.over(seen) && seen.schema != version {
			late = append(late, seen.addr)
		}
	}
	return late
}

// over tells whether a session has ended, in good order or by silence.
func (s *sessions) over(seen sighting) bool {
	return seen.beat == musiccore.EndedBeat || seen.before-seen.since >= s.dead
}

// alive tells whether a session, by what was last looked at, may still be alive; and its beat. One that is not there is not alive.
func (s *sessions) alive(id gocql.UUID) (beat int64, alive bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.seen[id]
	return seen.beat, ok && !s.over(seen)
}
