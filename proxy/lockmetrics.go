package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"music/musiccore"
)

// lockMetrics count what happens to locks.
type lockMetrics struct {
	waits, holds prometheus.Histogram
	ends         *prometheus.CounterVec
	preemptions  prometheus.Counter
	takeovers    prometheus.Counter
	synchronises prometheus.Counter
	fencedOff    prometheus.Counter
}

// orphaned is how a lock ends whose session has ended: its client may go on with it at another proxy.
const orphaned = "ORPHANED"

// newLockMetrics registers the metrics of locks.
func newLockMetrics(r prometheus.Registerer) *lockMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14)})
	}
	m := &lockMetrics{
		waits:        seconds("music_lock_wait_seconds", "From LOCK to the grant; its count is the number of grants."),
		holds:        seconds("music_lock_hold_seconds", "From the grant to the end of a lock."),
		ends:         prometheus.NewCounterVec(prometheus.CounterOpts{Name: "music_lock_ends_total", Help: "Locks that ended, by how."}, []string{"how"}),
		preemptions:  counter("music_preemptions_total", "Holders of dead sessions that were passed over."),
		takeovers:    counter("music_takeovers_total", "Locks of dead sessions whose client went on here."),
		synchronises: counter("music_synchronises_total", "Keys that were synchronised."),
		fencedOff:    counter("music_fenced_off_total", "Operations under a lock that was lost: corruptions prevented."),
	}
	for _, how := range []string{musiccore.StateReleased.String(), musiccore.StateLost.String(), orphaned} {
		m.ends.WithLabelValues(how) // an increase from nothing to 1 is none for Prometheus
	}
	r.MustRegister(m.waits, m.holds, m.ends, m.preemptions, m.takeovers, m.synchronises, m.fencedOff)
	return m
}

// note counts what happened to a lock.
func (m *lockMetrics) note(n musiccore.Note) {
	switch n.Kind {
	case musiccore.NoteGranted:
		m.waits.Observe(n.Duration.Seconds())
	case musiccore.NoteEnded:
		m.holds.Observe(n.Duration.Seconds())
		m.ends.WithLabelValues(n.State.String()).Inc()
	case musiccore.NoteOrphaned:
		m.holds.Observe(n.Duration.Seconds())
		m.ends.WithLabelValues(orphaned).Inc()
	case musiccore.NotePreempted:
		m.preemptions.Inc()
	case musiccore.NoteTakenOver:
		m.takeovers.Inc()
	case musiccore.NoteSynchronised:
		m.synchronises.Inc()
	}
}
