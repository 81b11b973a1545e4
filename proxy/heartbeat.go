package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"music/musiccore"
)

// quietPoll is the time between two checks of whether a drain is complete.
const quietPoll = 20 * time.Millisecond

// Divisors of the session lease. A beat is due every third of it. If one is not acknowledged within
// a sixth, another is sent through another node while the first may still be acknowledged; either
// counts. So a lease has room for four tries.
const (
	leasePulses = 12 // between two looks at the cluster's clock
	leaseTries  = 6  // between two tries of a beat
	triesAtOnce = 6  // the most concurrent tries
)

// heartbeat keeps this proxy's session alive by its beats in music.sessions, on which all its terms
// depend (docs/protocol.md 3.2, Session). It also watches the other proxies' beats.
type heartbeat struct {
	session *gocql.Session
	clock   *clock
	options musiccore.Options
	config  sessionConfig
	log     zerolog.Logger
	drops   zerolog.Logger // that keyspace music was dropped: at most a line a minute
	others  sessions

	self    atomic.Pointer[musiccore.Session]
	schema  atomic.Pointer[appliedSchema]
	tries   tries
	seconds prometheus.Histogram
}

// sessionConfig is what a session says of its proxy, and what was read of keyspace music at start.
type sessionConfig struct {
	address    string // where the proxy answers others; empty = nowhere
	references *references
}

// tries are the tries of a beat.
type tries struct {
	underWay atomic.Int32
	last     time.Duration          // BOOTTIME when the last beat began
	trouble  atomic.Pointer[string] // what the last try met; nil since a beat was acknowledged
}

// newHeartbeat takes a new session id; nothing has been written yet.
func newHeartbeat(s *gocql.Session, c *clock, o musiccore.Options, config sessionConfig, log zerolog.Logger) *heartbeat {
	l := &heartbeat{session: s, clock: c, options: o, config: config, log: log, seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "music_beat_seconds",
		Help:    "Time of an acknowledged beat of this proxy. One is due each third of session-lease; the session ends if none is acknowledged within session-lease.",
		Buckets: prometheus.ExponentialBuckets(1e-3, 3, 10),
	})}
	l.drops = log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute})
	l.others.dead = o.DeadAfter
	l.others.read = func(ctx context.Context, ids []gocql.UUID) (map[gocql.UUID]seenSession, error) {
		return readSessions(ctx, s, ids)
	}
	l.others.remove = func(ctx context.Context, id gocql.UUID) error { return removeSession(ctx, s, id) }
	l.schema.Store(&appliedSchema{})
	l.rejoin()
	return l
}

// register registers the metrics of the beats.
func (l *heartbeat) register(r prometheus.Registerer) {
	r.MustRegister(l.seconds, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "music_session_lease_left_seconds",
		Help: "Time left of the session lease: at 0 the session ends, and clients can go on with its locks only where these are taken over. Normally between two thirds of session-lease and all of it.",
	}, func() float64 { return l.self.Load().Left(l.clock.now()).Seconds() }))
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("music_session_lease_seconds", "The setting session-lease.", l.options.SessionLease.Seconds)
	gauge("music_proxies_seen", "Other proxies of the cluster whose beats are seen.", func() float64 { return float64(len(l.others.living(l.id()))) })
	gauge("music_clock_behind_seconds", "How far this machine's clock is behind Cassandra's; at 10 s either way no new lock is given.",
		func() float64 { return l.clock.ahead(time.Now(), boottime()).Seconds() })
}

// id returns the id of this proxy's session.
func (l *heartbeat) id() musiccore.SessionID { return l.self.Load().ID() }

// knownSession returns the id of this proxy's session if others know it, by a beat that was acknowledged,
// and it is valid; else zero.
func (l *heartbeat) knownSession() musiccore.SessionID {
	if self := l.self.Load(); self.Left(l.clock.now()) > 0 {
		return self.ID()
	}
	return musiccore.SessionID{}
}

// living reads the other proxies' beats, and returns the living sessions with the addresses at
// which they answer.
func (l *heartbeat) living(ctx context.Context) (map[musiccore.SessionID]string, error) {
	if err := l.others.look(ctx); err != nil {
		return nil, err
	}
	return l.others.living(l.id()), nil
}

// rejoin begins a new session and returns it.
func (l *heartbeat) rejoin() *musiccore.Session {
	self := musiccore.NewSession(musiccore.SessionID(uuid.New()), l.options)
	l.self.Store(self)
	return self
}

// appliedSchema identifies the schema that a proxy has applied.
type appliedSchema struct {
	digest gocql.UUID // equal for equal names, ids and comments of all tables
	rules  string     // the patterns of tables that are critical whatever their comments say
}

// applied stores the schema that this proxy has applied. If it has changed it writes a beat, so
// that the others see it at once.
func (l *heartbeat) applied(ctx context.Context, now appliedSchema) {
	if old := l.schema.Swap(&now); *old != now {
		limited, cancel := context.WithTimeout(ctx, l.options.SessionLease/3)
		defer cancel()
		l.try(limited, true, "")
	}
}

// lagging returns the names of the living proxies that have not applied the same schema; if named,
// also of those that have applied other rules.
func (l *heartbeat) lagging(ctx context.Context, as appliedSchema, named bool) ([]string, error) {
	if err := l.others.look(ctx); err != nil {
		return nil, err
	}
	late := l.others.lagging(l.id(), as.digest)
	if named {
		late = append(late, l.others.ruledOtherwise(l.id(), as.rules)...)
	}
	return late, nil
}

// try makes one try of a beat and then reads the others' beats; if not beats, it only looks at the
// session's row. Errors are logged: run tries again soon.
func (l *heartbeat) try(ctx context.Context, beats bool, via string) {
	self := l.self.Load()
	var took beatTiming
	var err error
	begun := time.Now()
	if !beats {
		err = l.look(ctx)
		took.look = time.Since(begun)
	} else if err = l.config.references.renew(ctx, l.session); err == nil { // locks may be given as soon as a beat is acknowledged
		took, err = l.timedBeat(ctx, self, via)
	}
	total := time.Since(begun)
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled):
		return
	case err != nil:
		text := err.Error()
		l.tries.trouble.Store(&text)
		l.noticeDrop(err)
		level := map[bool]zerolog.Level{true: zerolog.WarnLevel, false: zerolog.DebugLevel}[beats]
		l.withMargin(l.log.WithLevel(level).Err(err), self, took).Msg("a beat was not acknowledged; it is tried again")
	case total > l.options.SessionLease/leaseTries:
		l.withMargin(l.log.Warn(), self, took).Msg("a beat was slow")
	}
	if err == nil && took.write > 0 { // a session that is dead sends none
		l.seconds.Observe(total.Seconds())
		l.tries.trouble.Store(nil) // it is over: what ends the session later is something else
	}
	if !beats {
		return
	}
	if err := errors.Join(l.others.look(ctx), l.others.reap(ctx, gocql.UUID(self.ID()))); err != nil && ctx.Err() == nil {
		l.log.Warn().Err(err).Msg("the other proxies' beats could not be read")
	}
}

// noticeDrop logs the consequences if err shows that keyspace music, or a table in it, was dropped.
// A running proxy does not create it again: it may have been dropped on purpose, and its data is
// lost.
func (l *heartbeat) noticeDrop(err error) {
	if dropped(err) {
		l.config.references.stale.Store(true)
		l.drops.Error().Err(err).Msg("keyspace music, or a table in it, was dropped: no lock is given or served, and plain writes on critical tables are " +
			"still refused; a proxy that is started creates it again")
	}
}

// withMargin adds the times of a beat's parts and the rest of the lease to a log line.
func (l *heartbeat) withMargin(e *zerolog.Event, self *musiccore.Session, took beatTiming) *zerolog.Event {
	return e.Dur("look_ms", took.look).Dur("write_ms", took.write).Dur("look_again_ms", took.again).
		Dur("lease_left_ms", self.Left(l.clock.now())).Dur("session_lease_ms", l.options.SessionLease)
}

// run beats until ctx ends. A session whose lease has ended is dead for ever: its terms are lost,
// and run begins another session, with which the cores and the schema go on.
func (l *heartbeat) run(ctx context.Context, locks *locks, s *schema) {
	var trying sync.WaitGroup
	defer trying.Wait()
	pulse := l.options.SessionLease / leasePulses
	for last := boottime(); pause(ctx, pulse); last = boottime() {
		now := l.clock.now()
		if late := now.Boot - last - pulse; late > l.options.SessionLease/leaseTries {
			l.log.Warn().Dur("late_ms", late).Dur("lease_left_ms", l.self.Load().Left(now)).Msg("this process was not scheduled in time for a beat: the machine is overloaded, or stood still")
		}
		if self := l.self.Load(); self.Left(now) == 0 && self.Dead() {
			l.replace(locks, s)
		}
		if beats, n := l.due(now), int(l.tries.underWay.Load()); n == 0 || beats && n < triesAtOnce {
			l.tries.underWay.Add(1)
			via := l.otherNode(n)
			trying.Go(func() { l.tryFor(ctx, beats, via) })
		}
	}
}

// tryFor makes one try, and gives up when it would come too late.
func (l *heartbeat) tryFor(ctx context.Context, beats bool, via string) {
	defer l.tries.underWay.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, 2*l.options.SessionLease/3)
	defer cancel()
	l.try(ctx, beats, via)
}

// due reports whether a try of a beat is due: a third of the lease after the last acknowledged one
// began, and then every sixth of the lease.
func (l *heartbeat) due(now musiccore.Now) bool {
	if l.self.Load().Left(now) > l.options.SessionLease*2/3 || now.Boot-l.tries.last < l.options.SessionLease/leaseTries {
		return false
	}
	l.tries.last = now.Boot
	return true
}

// otherNode returns the id of the node to ask if n tries have not ended yet. It is "" for the
// first, which leaves the choice to the driver. The others ask other nodes, since the driver could
// choose the same again.
func (l *heartbeat) otherNode(n int) string {
	if n == 0 {
		return ""
	}
	var up []string
	for _, h := range l.session.GetHosts() {
		if h.IsUp() {
			up = append(up, h.HostID())
		}
	}
	if len(up) < 2 {
		return ""
	}
	return up[n%len(up)]
}

// replace begins another session in the place of one that is dead.
func (l *heartbeat) replace(locks *locks, s *schema) {
	line := l.log.Error().Dur("session_lease_ms", l.options.SessionLease)
	if trouble := l.tries.trouble.Swap(nil); trouble != nil {
		line = line.Str("last_trouble", *trouble)
	}
	line.Msg("the session has ended: its beats were not acknowledged in time, or another process has written them; clients that do not go on elsewhere lose their locks")
	next := l.rejoin()
	l.tries.last = 0
	locks.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Rejoin(now, next) })
	s.rereadSchema()
}

// drain blocks until the cores have settled everything, or ctx ends. Core.Drain must have been
// called. Held references stay held: their clients continue at another proxy.
func (l *heartbeat) drain(ctx context.Context, locks *locks) {
	for !locks.quiet() && pause(ctx, quietPoll) {
	}
}

// end ends the session and writes that, so that nobody has to wait for it. Nothing that it has lent may
// be in use any more (Core.HasLoansOut). run has returned before.
func (l *heartbeat) end(ctx context.Context) {
	self := l.self.Load()
	self.End()
	l.writeEnd(ctx, self)
}

// resign ends the session, and writes that once nothing that it has lent can be in use any more. Whether
// something is cannot be asked, since a shard is stalled. It blocks for longer than an operation takes.
func (l *heartbeat) resign(ctx context.Context) {
	self := l.self.Load()
	self.End()
	if pause(ctx, l.options.OpTimeout) {
		l.writeEnd(ctx, self)
	}
}

// writeEnd writes that a session has ended. What fails is tried again at another node, until ctx ends or
// a third of the session lease is over.
func (l *heartbeat) writeEnd(ctx context.Context, self *musiccore.Session) {
	ctx, cancel := context.WithTimeout(ctx, l.options.SessionLease/3)
	defer cancel()
	for n := 0; ; n++ {
		err := l.tryEnd(ctx, self, l.otherNode(n))
		if err == nil {
			return
		}
		if dropped(err) || !pause(ctx, l.options.SessionLease/100) {
			l.log.Warn().Err(err).Msg("the end of the session could not be written; its locks are free after the session lease")
			return
		}
	}
}

// tryEnd writes the end of a session through one node.
func (l *heartbeat) tryEnd(ctx context.Context, self *musiccore.Session, via string) error {
	ctx, cancel := context.WithTimeout(ctx, l.options.SessionLease/leasePulses)
	defer cancel()
	return l.write(ctx, self, musiccore.EndedBeat, via)
}
