package proxy

import (
	"context"
	"fmt"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"music/musiccore"
)

// quietPoll is how often the end of a drain is looked for.
const quietPoll = 20 * time.Millisecond

// life keeps this proxy's session alive: its beats in music.sessions, on which all its terms hang (PROTOCOL.md 1, Session).
type life struct {
	session *gocql.Session
	clock   *clock
	options musiccore.Options
	address string // told to people who look into music.sessions
	log     zerolog.Logger

	self *musiccore.Session
}

// newLife takes a new session id; nothing has been written yet.
func newLife(s *gocql.Session, c *clock, o musiccore.Options, address string, log zerolog.Logger) *life {
	return &life{session: s, clock: c, options: o, address: address, log: log, self: musiccore.NewSession(musiccore.SessionID(uuid.New()), o)}
}

// beat writes one life sign and reads the cluster's clock beside it. The lease counts from before it was sent.
func (l *life) beat(ctx context.Context) error {
	before := time.Now()
	var cluster time.Time
	if err := l.session.Query("SELECT toTimestamp(now()) FROM system.local").Consistency(gocql.One).ScanContext(ctx, &cluster); err != nil {
		return fmt.Errorf("read the cluster's clock: %w", err)
	}
	l.clock.observe(before, time.Now(), cluster)
	start := l.clock.now()
	n, ok := l.self.Beat(start)
	if !ok {
		return nil // dead: run takes a new session
	}
	if err := l.write(ctx, n); err != nil {
		return err
	}
	l.self.Acked(l.clock.now(), start, n)
	return nil
}

// write puts a beat into music.sessions, stamped by its own number: a clock that steps back must not hide it (C5).
func (l *life) write(ctx context.Context, n int64) error {
	err := l.session.Query("INSERT INTO music.sessions (session, beat, addr) VALUES (?, ?, ?)", gocql.UUID(l.self.ID()), n, l.address).
		WithTimestamp(n).Consistency(gocql.Quorum).ExecContext(ctx)
	if err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	return nil
}

// run beats until ctx ends. A session whose deadline has passed is dead for ever: its terms are lost and another takes its place.
func (l *life) run(ctx context.Context, locks *locks) {
	every := l.options.SessionLease / 3
	for pause(ctx, every) {
		if l.self.Dead() || !l.self.Valid(l.clock.now()) {
			l.log.Error().Msg("the session has ended: its beats did not get through in time; all its locks are lost")
			l.self = musiccore.NewSession(musiccore.SessionID(uuid.New()), l.options)
			next := l.self
			locks.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Rejoin(now, next) })
		}
		limited, cancel := context.WithTimeout(ctx, every)
		if err := l.beat(limited); err != nil && ctx.Err() == nil {
			l.log.Warn().Err(err).Msg("a beat did not get through")
		}
		cancel()
	}
}

// drain lets the cores settle what is unsettled; nothing new is granted. Held references stay: their clients go on through
// another proxy.
func (l *life) drain(ctx context.Context, locks *locks) {
	locks.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Drain(now) })
	for !locks.quiet() && pause(ctx, quietPoll) {
	}
}

// end writes that the session has ended, so that nobody has to wait for it. run has returned before.
func (l *life) end(ctx context.Context) {
	l.self.End()
	if err := l.write(ctx, musiccore.EndedBeat); err != nil {
		l.log.Warn().Err(err).Msg("the end of the session could not be written; its locks are free after the session lease")
	}
}
