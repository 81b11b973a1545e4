package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"music/musiccore"
)

// quietPoll is how often the end of a drain is looked for.
const quietPoll = 20 * time.Millisecond

// life keeps this proxy's session alive: its beats in music.sessions, on which all its terms hang (PROTOCOL.md 1, Session). It
// also watches the other proxies' life signs.
type life struct {
	session *gocql.Session
	clock   *clock
	options musiccore.Options
	address string // where this proxy answers others; empty = nowhere
	log     zerolog.Logger
	others  sessions

	self    atomic.Pointer[musiccore.Session]
	beating sync.Mutex                 // one beat at a time: their numbers are their stamps
	schema  atomic.Pointer[gocql.UUID] // version of the schema that this proxy has applied
}

// newLife takes a new session id; nothing has been written yet.
func newLife(s *gocql.Session, c *clock, o musiccore.Options, address string, log zerolog.Logger) *life {
	l := &life{session: s, clock: c, options: o, address: address, log: log}
	l.others.dead = o.DeadAfter()
	l.others.read = func(ctx context.Context, ids []gocql.UUID) (map[gocql.UUID]sighting, error) {
		return readSessions(ctx, s, ids)
	}
	l.schema.Store(&gocql.UUID{})
	l.rejoin()
	return l
}

// rejoin takes a new session id.
func (l *life) rejoin() *musiccore.Session {
	self := musiccore.NewSession(musiccore.SessionID(uuid.New()), l.options)
	l.self.Store(self)
	return self
}

// applied notes the version of the schema that this proxy has applied, and tells the others at once.
func (l *life) applied(ctx context.Context, version gocql.UUID) {
	if old := l.schema.Swap(&version); *old != version {
		l.tryBeat(ctx)
	}
}

// lagging names the living proxies that have not applied a version of the schema.
func (l *life) lagging(ctx context.Context, version gocql.UUID) ([]string, error) {
	if err := l.others.look(ctx); err != nil {
		return nil, err
	}
	return l.others.lagging(l.self.Load().ID(), version), nil
}

// beat writes one life sign and reads the cluster's clock beside it. The lease counts from before it was sent.
func (l *life) beat(ctx context.Context) error {
	l.beating.Lock()
	defer l.beating.Unlock()
	before := time.Now()
	var cluster time.Time
	if err := l.session.Query("SELECT toTimestamp(now()) FROM system.local").Consistency(gocql.One).ScanContext(ctx, &cluster); err != nil {
		return fmt.Errorf("read the cluster's clock: %w", err)
	}
	l.clock.observe(before, time.Now(), cluster)
	start, self := l.clock.now(), l.self.Load()
	n, ok := self.Beat(start)
	if !ok {
		return nil // dead: run takes a new session
	}
	if err := l.write(ctx, n); err != nil {
		return err
	}
	self.Acked(l.clock.now(), start, n)
	return nil
}

// write puts a beat into music.sessions, stamped by its own number: a clock that steps back must not hide it (C5).
func (l *life) write(ctx context.Context, n int64) error {
	err := l.session.Query("INSERT INTO music.sessions (session, beat, schema_version, addr) VALUES (?, ?, ?, ?)",
		gocql.UUID(l.self.Load().ID()), n, *l.schema.Load(), l.address).
		WithTimestamp(n).Consistency(gocql.Quorum).ExecContext(ctx)
	if err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	return nil
}

// tryBeat beats, and looks at the others' beats; what fails is tried again next time.
func (l *life) tryBeat(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, l.options.SessionLease/3)
	defer cancel()
	if err := errors.Join(l.beat(limited), l.others.look(limited)); err != nil && ctx.Err() == nil {
		l.log.Warn().Err(err).Msg("a beat did not get through")
	}
}

// run beats until ctx ends. A session whose deadline has passed is dead for ever: its terms are lost and another takes its place.
func (l *life) run(ctx context.Context, locks *locks) {
	for pause(ctx, l.options.SessionLease/3) {
		if self := l.self.Load(); self.Dead() || !self.Valid(l.clock.now()) {
			l.log.Error().Msg("the session has ended: its beats did not get through in time; all its locks are lost")
			next := l.rejoin()
			locks.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Rejoin(now, next) })
		}
		l.tryBeat(ctx)
	}
}

// drain waits until the cores have settled what is unsettled; they have been told to. Held references stay: their clients go on through
// another proxy.
func (l *life) drain(ctx context.Context, locks *locks) {
	for !locks.quiet() && pause(ctx, quietPoll) {
	}
}

// end writes that the session has ended, so that nobody has to wait for it. run has returned before.
func (l *life) end(ctx context.Context) {
	l.self.Load().End()
	if err := l.write(ctx, musiccore.EndedBeat); err != nil {
		l.log.Warn().Err(err).Msg("the end of the session could not be written; its locks are free after the session lease")
	}
}
