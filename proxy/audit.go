package proxy

import (
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"music/frontend"
	"music/frontend/catalog"
	"music/musiccore"
)

// audit writes a line for every grant, every end and every fenced-off write of a lock
// (docs/design.md 5), and counts them.
type audit struct {
	log    zerolog.Logger
	tables *criticalTables
	proxy  string // the address that drivers are told

	mu    sync.Mutex
	roles *simplelru.LRU[string, *zerolog.BurstSampler] // how many refusals each has had

	waits, holds prometheus.Histogram
	ends         *prometheus.CounterVec
	preemptions  prometheus.Counter
	takeovers    prometheus.Counter
	synchronises prometheus.Counter
	fencedOff    prometheus.Counter
}

// newAudit registers the metrics of locks.
func newAudit(log zerolog.Logger, proxy string, tables *criticalTables, r prometheus.Registerer) *audit {
	roles, err := simplelru.NewLRU[string, *zerolog.BurstSampler](rolesKept, nil)
	if err != nil {
		panic(err) // the size is a positive constant
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14)})
	}
	a := &audit{
		log: log, tables: tables, proxy: proxy, roles: roles,
		waits:        seconds("music_lock_wait_seconds", "From LOCK to the grant; its count is the number of grants."),
		holds:        seconds("music_lock_hold_seconds", "From the grant to the end of a lock."),
		ends:         prometheus.NewCounterVec(prometheus.CounterOpts{Name: "music_lock_ends_total", Help: "Locks that ended, by how."}, []string{"how"}),
		preemptions:  counter("music_preemptions_total", "Holders of dead sessions that were passed over."),
		takeovers:    counter("music_takeovers_total", "Locks of dead sessions whose client went on here."),
		synchronises: counter("music_synchronises_total", "Keys that were synchronised."),
		fencedOff:    counter("music_fenced_off_total", "Operations under a lock that was lost: corruptions prevented."),
	}
	r.MustRegister(a.waits, a.holds, a.ends, a.preemptions, a.takeovers, a.synchronises, a.fencedOff)
	return a
}

// note writes what happened to a lock. by is the client that has ended it with UNLOCK or FORCE;
// nobody where it has ended otherwise.
func (a *audit) note(n musiccore.Note, by musiccore.Client) {
	switch n.Kind {
	case musiccore.NoteGranted:
		a.waits.Observe(n.Duration.Seconds())
		a.line(n.Key, n.Ref, n.Client).Str("owner", n.Owner).Dur("waited_ms", n.Duration).Msg("lock granted")
	case musiccore.NoteEnded:
		a.holds.Observe(n.Duration.Seconds())
		a.ends.WithLabelValues(n.State.String()).Inc()
		line := a.line(n.Key, n.Ref, n.Client).Str("owner", n.Owner).Stringer("how", n.State).Dur("held_ms", n.Duration)
		if by != (musiccore.Client{}) {
			line = line.Str("ended_by_role", by.Role).Str("ended_by_client", by.Address)
		}
		line.Msg("lock ended")
	case musiccore.NoteOrphaned:
		a.holds.Observe(n.Duration.Seconds())
		a.ends.WithLabelValues("ORPHANED").Inc()
		a.line(n.Key, n.Ref, n.Client).Str("owner", n.Owner).Dur("held_ms", n.Duration).Msg("lock left behind: this proxy's session has ended, and its client may go on with it elsewhere")
	case musiccore.NotePreempted:
		a.preemptions.Inc()
		a.line(n.Key, n.Ref, n.Client).Msg("holder of a dead session passed over")
	case musiccore.NoteTakenOver:
		a.takeovers.Inc()
		a.line(n.Key, n.Ref, n.Client).Msg("lock of a dead session taken over")
	case musiccore.NoteForced:
		a.line(n.Key, n.Ref, n.Client).Str("owner", n.Owner).Str("reason", n.Reason).Msg("lock forced")
	case musiccore.NoteSynchronised:
		a.synchronises.Inc()
	}
}

// refusals is how many refused attempts of a role are told in a minute; rolesKept of how many roles
// at a time.
const (
	refusals  = 20
	rolesKept = 1000
)

// refused tells of an attempt that was refused, unless the role has had too many just now.
func (a *audit) refused(r frontend.Refusal) {
	if r.Lost {
		a.line(r.Key, r.Ref, r.By).Msg("operation fenced off")
		return
	}
	a.mu.Lock()
	sampler, known := a.roles.Get(r.By.Role)
	if !known {
		sampler = &zerolog.BurstSampler{Burst: refusals, Period: time.Minute}
		a.roles.Add(r.By.Role, sampler)
	}
	a.mu.Unlock()
	if sampler.Sample(zerolog.InfoLevel) {
		a.line(r.Key, r.Ref, r.By).Str("why", r.Why).Msg("attempt refused")
	}
}

// line begins a line with what each has: who, where, and on which lock.
func (a *audit) line(k musiccore.Key, r musiccore.LockRef, by musiccore.Client) *zerolog.Event {
	e := a.log.Info().Bool("audit", true).Str("role", by.Role).Str("client", by.Address).Str("proxy", a.proxy).Int64("lock_ref", int64(r))
	t := a.tables.table(k.Table)
	switch {
	case t == nil:
		return e.Hex("key", []byte(k.PK))
	case k.PK == "":
		return e.Stringer("table", t).Str("key", "")
	}
	return e.Stringer("table", t).Str("key", catalog.KeyText(t.Key, k.PK))
}
