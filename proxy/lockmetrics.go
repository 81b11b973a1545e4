package proxy

import (
	"cmp"
	"time"

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

	held     prometheus.Gauge
	waiting  prometheus.Gauge
	answers  [musiccore.StateReleased + 1]prometheus.Counter // by the state; 0: an error
	alarms   prometheus.Counter
	commands commandMetrics
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
		held:         prometheus.NewGauge(prometheus.GaugeOpts{Name: "music_locks_held", Help: "Locks that this proxy has given and that have not ended."}),
		waiting:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "music_locks_waiting", Help: "LOCKs that wait for their answer here."}),
		alarms:       counter("music_alarms_total", "Broken invariants, each of them an error in the log."),
		commands:     newCommandMetrics(r),
	}
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "music_lock_answers_total", Help: "LOCKs, by the state that was answered."}, []string{"answer"})
	for state := range m.answers {
		m.answers[state] = answers.WithLabelValues(cmp.Or(musiccore.State(state).String(), "ERROR"))
	}
	for _, how := range []string{musiccore.StateReleased.String(), musiccore.StateLost.String(), orphaned} {
		m.ends.WithLabelValues(how) // an increase from nothing to 1 is none for Prometheus
	}
	r.MustRegister(m.waits, m.holds, m.ends, m.preemptions, m.takeovers, m.synchronises, m.fencedOff, m.held, m.waiting, m.alarms, answers)
	return m
}

// asked counts a LOCK and, once done is called, its answer.
func (m *lockMetrics) asked(done func(musiccore.Answer)) func(musiccore.Answer) {
	m.waiting.Inc()
	return func(a musiccore.Answer) {
		m.waiting.Dec()
		state := a.Grant.State
		if a.Err != nil {
			state = 0
		}
		m.answers[state].Inc()
		done(a)
	}
}

// note counts what happened to a lock.
func (m *lockMetrics) note(n musiccore.Note) {
	switch n.Kind {
	case musiccore.NoteGranted:
		m.waits.Observe(n.Duration.Seconds())
		m.held.Inc()
	case musiccore.NoteEnded:
		m.holds.Observe(n.Duration.Seconds())
		m.held.Dec()
		m.ends.WithLabelValues(n.State.String()).Inc()
	case musiccore.NoteOrphaned:
		m.holds.Observe(n.Duration.Seconds())
		m.held.Dec()
		m.ends.WithLabelValues(orphaned).Inc()
	case musiccore.NotePreempted:
		m.preemptions.Inc()
	case musiccore.NoteTakenOver:
		m.takeovers.Inc()
		m.held.Inc()
	case musiccore.NoteSynchronised:
		m.synchronises.Inc()
	}
}

// commandMetrics count what Cassandra is asked for locks.
type commandMetrics struct {
	lwts         *prometheus.CounterVec
	lwt          prometheus.Histogram
	synchronises *prometheus.CounterVec
	synchronise  prometheus.Histogram
}

// newCommandMetrics registers them, each with all its labels.
func newCommandMetrics(r prometheus.Registerer) commandMetrics {
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12)})
	}
	m := commandMetrics{
		lwts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "music_lwts_total", Help: "LWTs on lock rows, by what they write and how they ended; unknown: Cassandra did not say.",
		}, []string{"writes", "outcome"}),
		lwt: seconds("music_lwt_seconds", "Time of an LWT on a lock row, however it ended."),
		synchronises: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "music_synchronise_attempts_total", Help: "Attempts to settle what the holder before has left of a key, by how they ended.",
		}, []string{"outcome"}),
		synchronise: seconds("music_synchronise_seconds", "Time of an attempt to synchronise a key, however it ended."),
	}
	for status := musiccore.StatusUnknown; status <= musiccore.StatusUnavailable; status++ {
		if status != musiccore.StatusRefused {
			m.synchronises.WithLabelValues(outcomeName(status))
		}
	}
	for what := musiccore.IfAbsent; what <= musiccore.IfEpoch; what++ {
		for status := musiccore.StatusUnknown; status <= musiccore.StatusRefused; status++ {
			m.lwts.WithLabelValues(writesName(what), outcomeName(status))
		}
	}
	r.MustRegister(m.lwts, m.lwt, m.synchronises, m.synchronise)
	return m
}

// done counts a command that has ended.
func (m commandMetrics) done(a musiccore.Action, s musiccore.Status, took time.Duration) {
	switch a := a.(type) {
	case musiccore.Apply:
		m.lwts.WithLabelValues(writesName(a.Swap.If.What), outcomeName(s)).Inc()
		m.lwt.Observe(took.Seconds())
	case musiccore.Synch:
		m.synchronises.WithLabelValues(outcomeName(s)).Inc()
		m.synchronise.Observe(took.Seconds())
	}
}

// outcomeName is the label of how a command ended.
func outcomeName(s musiccore.Status) string {
	return [...]string{"unknown", "done", "refused", "above", "too_large", "unavailable"}[s]
}

// writesName is the label of what an LWT writes.
func writesName(c musiccore.Condition) string {
	return [...]string{musiccore.IfAbsent: "new_row", musiccore.IfGuard: "queue", musiccore.IfGuardEpoch: "queue_and_term", musiccore.IfEpoch: "term"}[c]
}
