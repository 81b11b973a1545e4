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

// quietPoll is how often the end of a drain is looked for.
const quietPoll = 20 * time.Millisecond

// Parts of a session lease. A beat is due every third of it. Where one is not acknowledged within a
// sixth, another is sent through another node while the first is still under way; either counts. So
// a lease has room for four tries.
const (
	leasePulses = 12 // between two looks at the cluster's clock
	leaseTries  = 6  // between two tries of a beat
	triesAtOnce = 6  // under way; a cluster that does not answer is not asked for ever more
)

// heartbeat keeps this proxy's session alive: its beats in music.sessions, on which all its terms
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
	trouble  atomic.Pointer[string] // what the last try met
}

// newHeartbeat takes a new session id; nothing has been written yet.
func newHeartbeat(s *gocql.Session, c *clock, o musiccore.Options, config sessionConfig, log zerolog.Logger) *heartbeat {
	l := &heartbeat{session: s, clock: c, options: o, config: config, log: log, seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "music_beat_seconds",
		Help:    "Time of a life sign of this proxy that was acknowledged. It is due each third of session-lease; all locks are lost if none gets through within one.",
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
		Help: "What is left of the session lease: at 0 all locks of this proxy are lost. Between two thirds and all of session-lease when all is well.",
	}, func() float64 { return l.self.Load().Left(l.clock.now()).Seconds() }))
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	gauge("music_session_lease_seconds", "The setting session-lease.", l.options.SessionLease.Seconds)
	gauge("music_proxies_seen", "Other proxies of the cluster whose life signs are seen.", func() float64 { return float64(len(l.others.living(l.id()))) })
	gauge("music_clock_behind_seconds", "How far this machine's clock is behind Cassandra's; at 10 s either way no new lock is given.",
		func() float64 { return time.Duration(l.clock.ahead.Load()).Seconds() })
}

// id returns the id of this proxy's session.
func (l *heartbeat) id() musiccore.SessionID { return l.self.Load().ID() }

// living returns the sessions of other proxies that are alive, with the addresses at which they
// answer.
func (l *heartbeat) living(ctx context.Context) (map[musiccore.SessionID]string, error) {
	if err := l.others.look(ctx); err != nil {
		return nil, err
	}
	return l.others.living(l.id()), nil
}

// rejoin takes a new session id.
func (l *heartbeat) rejoin() *musiccore.Session {
	self := musiccore.NewSession(musiccore.SessionID(uuid.New()), l.options)
	l.self.Store(self)
	return self
}

// appliedSchema is what a proxy has applied: what it has read of the schema, and by which rules.
type appliedSchema struct {
	digest gocql.UUID // equal where names, ids and comments of all tables are
	rules  string     // which tables are critical whatever their comments say
}

// applied notes what this proxy has applied, and tells the others at once.
func (l *heartbeat) applied(ctx context.Context, now appliedSchema) {
	if old := l.schema.Swap(&now); *old != now {
		limited, cancel := context.WithTimeout(ctx, l.options.SessionLease/3)
		defer cancel()
		l.try(limited, true, "")
	}
}

// lagging names the living proxies that have not applied the same schema; where a table is critical
// by the configuration alone (named), also those that have applied other rules.
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

// try beats, or only looks, and looks at the others' beats; what fails is tried again soon.
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
		l.withMargin(l.log.WithLevel(level).Err(err), self, took).Msg("a beat did not get through; it is tried again")
	case total > l.options.SessionLease/leaseTries:
		l.withMargin(l.log.Warn(), self, took).Msg("a beat was slow")
	}
	if err == nil && beats {
		l.seconds.Observe(total.Seconds())
	}
	if !beats {
		return
	}
	if err := errors.Join(l.others.look(ctx), l.others.reap(ctx, gocql.UUID(self.ID()))); err != nil && ctx.Err() == nil {
		l.log.Warn().Err(err).Msg("the other proxies' beats could not be looked at")
	}
}

// noticeDrop logs what it means where err says that keyspace music or a table in it was dropped. It
// is not made anew under running proxies: it may have been dropped on purpose, and what it held is
// lost.
func (l *heartbeat) noticeDrop(err error) {
	if dropped(err) {
		l.config.references.stale.Store(true)
		l.drops.Error().Err(err).Msg("keyspace music, or a table in it, was dropped: no lock is given or served, and writes without a lock go on " +
			"being refused; a proxy that is started makes it anew")
	}
}

// withMargin adds to a line of the log how long each part of a beat took, and what is left of the
// lease.
func (l *heartbeat) withMargin(e *zerolog.Event, self *musiccore.Session, took beatTiming) *zerolog.Event {
	return e.Dur("look_ms", took.look).Dur("write_ms", took.write).Dur("look_again_ms", took.again).
		Dur("lease_left_ms", self.Left(l.clock.now())).Dur("session_lease_ms", l.options.SessionLease)
}

// run beats until ctx ends. A session whose deadline has passed is dead for ever: its terms are
// lost, and another session takes its place, of which the cores and the schema are told.
func (l *heartbeat) run(ctx context.Context, locks *locks, s *schema) {
	var trying sync.WaitGroup
	defer trying.Wait()
	pulse := l.options.SessionLease / leasePulses
	for last := boottime(); pause(ctx, pulse); last = boottime() {
		now := l.clock.now()
		if late := now.Boot - last - pulse; late > l.options.SessionLease/leaseTries {
			l.log.Warn().Dur("late_ms", late).Dur("lease_left_ms", l.self.Load().Left(now)).Msg("this process was not run in time for a beat: the machine is short of processors, or stood still")
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

// tryFor makes one try for run, and gives it up when it is of no use any more.
func (l *heartbeat) tryFor(ctx context.Context, beats bool, via string) {
	defer l.tries.underWay.Add(-1)
	ctx, cancel := context.WithTimeout(ctx, 2*l.options.SessionLease/3)
	defer cancel()
	l.try(ctx, beats, via)
}

// due reports whether a beat is to be sent now: a third of the lease after the last acknowledged
// one began, and again each sixth.
func (l *heartbeat) due(now musiccore.Now) bool {
	if l.self.Load().Left(now) > l.options.SessionLease*2/3 || now.Boot-l.tries.last < l.options.SessionLease/leaseTries {
		return false
	}
	l.tries.last = now.Boot
	return true
}

// otherNode returns the node to ask while n tries are under way: "" for the first, which leaves it
// to the driver; each of the others asks another node, since the driver would ask the same.
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

// replace ends what depends on a session that is dead, and begins another.
func (l *heartbeat) replace(locks *locks, s *schema) {
	line := l.log.Error().Dur("session_lease_ms", l.options.SessionLease)
	if trouble := l.tries.trouble.Swap(nil); trouble != nil {
		line = line.Str("last_trouble", *trouble)
	}
	line.Msg("the session has ended: its beats did not get through in time, or are another's; all its locks are lost")
	next := l.rejoin()
	l.tries.last = 0
	locks.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Rejoin(now, next) })
	s.doubt()
}

// drain waits until the cores have settled what is unsettled; core.Drain has been called. Held
// references stay: their clients go on through another proxy.
func (l *heartbeat) drain(ctx context.Context, locks *locks) {
	for !locks.quiet() && pause(ctx, quietPoll) {
	}
}

// end writes that the session has ended, so that nobody has to wait for it. What fails is tried
// again at another node, until ctx ends or a third of the session lease is over. run has returned
// before.
func (l *heartbeat) end(ctx context.Context) {
	self := l.self.Load()
	self.End()
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
