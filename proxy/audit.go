package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"music/musiccore"
)

// audit writes a line for every grant, every end and every fenced-off write of a lock (DESIGN.md 5), and counts them.
type audit struct {
	log    zerolog.Logger
	schema *schema

	waits, holds prometheus.Histogram
	ends         *prometheus.CounterVec
	preemptions  prometheus.Counter
	takeovers    prometheus.Counter
	synchronises prometheus.Counter
	fencedOff    prometheus.Counter
}

// newAudit registers the metrics of locks.
func newAudit(log zerolog.Logger, s *schema, r prometheus.Registerer) *audit {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14)})
	}
	a := &audit{
		log: log, schema: s,
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

// note tells what happened to a lock.
func (a *audit) note(n musiccore.Note) {
	switch n.What {
	case musiccore.Granted:
		a.waits.Observe(n.For.Seconds())
		a.line(n.Key, n.Ref).Str("owner", n.Owner).Dur("waited_ms", n.For).Msg("lock granted")
	case musiccore.Ended:
		a.holds.Observe(n.For.Seconds())
		a.ends.WithLabelValues(n.How.String()).Inc()
		a.line(n.Key, n.Ref).Str("owner", n.Owner).Stringer("how", n.How).Dur("held_ms", n.For).Msg("lock ended")
	case musiccore.Orphaned:
		a.holds.Observe(n.For.Seconds())
		a.ends.WithLabelValues("ORPHANED").Inc()
		a.line(n.Key, n.Ref).Str("owner", n.Owner).Dur("held_ms", n.For).Msg("lock left behind: this proxy's session has ended, and its client may go on with it elsewhere")
	case musiccore.Preempted:
		a.preemptions.Inc()
		a.line(n.Key, n.Ref).Msg("holder of a dead session passed over")
	case musiccore.TakenOver:
		a.takeovers.Inc()
		a.line(n.Key, n.Ref).Msg("lock of a dead session taken over")
	case musiccore.Forced:
		a.line(n.Key, n.Ref).Str("owner", n.Owner).Str("reason", n.Why).Msg("lock forced")
	case musiccore.Synchronised:
		a.synchronises.Inc()
	}
}

// fenced tells of an operation under a lock that is lost.
func (a *audit) fenced(k musiccore.Key, r musiccore.LockRef) {
	a.fencedOff.Inc()
	a.line(k, r).Msg("operation fenced off")
}

func (a *audit) line(k musiccore.Key, r musiccore.LockRef) *zerolog.Event {
	e := a.log.Info().Bool("audit", true).Hex("key", []byte(k.PK)).Int64("lock_ref", int64(r))
	if t := a.schema.table(k.Table); t != nil {
		e = e.Stringer("table", t)
	}
	return e
}
