package proxy

import (
	"cmp"
	"errors"
	"hash/maphash"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"music/musiccore"
)

// sectionMetrics are the metrics of the locks of the whole proxy, or of one table.
type sectionMetrics struct {
	waits, holds, handOvers prometheus.Histogram

	ends          [musiccore.StateReleased + 1]prometheus.Counter // by the state that a lock ended in; 0: its session has
	held, waiting prometheus.Gauge
	answers       [musiccore.StateReleased + 1]prometheus.Counter // by the state; 0: an error

	seed         maphash.Seed
	holdersSince [shardCount]ages // of keys spread as over the shards, so that clients share no lock
	waitersSince [shardCount]ages
}

// newSectionMetrics registers the metrics. Their names begin with prefix, and their help ends with
// of.
func newSectionMetrics(r prometheus.Registerer, prefix, of string) *sectionMetrics {
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: prefix + name, Help: help + of, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 14)})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + name, Help: help + of})
	}
	m := &sectionMetrics{
		seed:      maphash.MakeSeed(),
		waits:     seconds("lock_wait_seconds", "From LOCK to the grant; its count is the number of grants."),
		holds:     seconds("lock_hold_seconds", "From the grant to the end of a lock."),
		handOvers: seconds("lock_hand_over_seconds", "From the end of a lock, as far as it was seen here, to the next grant of its key, where somebody waited for it here."),
		held:      gauge("locks_held", "Locks that this proxy has given and that have not ended."),
		waiting:   gauge("locks_waiting", "LOCKs that wait for their answer here."),
	}
	answers := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "lock_answers_total", Help: "LOCKs, by the state that was answered, or ERROR." + of}, []string{"answer"})
	for state := range m.answers {
		m.answers[state] = answers.WithLabelValues(cmp.Or(musiccore.State(state).String(), "ERROR"))
	}
	ends := prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "lock_ends_total", Help: "Locks that ended, by how; RELEASED: by UNLOCK, LOST: by their lease or FORCE, ORPHANED: this proxy's session has ended, and their clients may go on elsewhere." + of}, []string{"how"})
	for _, state := range []musiccore.State{0, musiccore.StateLost, musiccore.StateReleased} { // at once: an increase from nothing to 1 is none for Prometheus
		m.ends[state] = ends.WithLabelValues(cmp.Or(state.String(), orphaned))
	}
	age := func(name, help string, all *[shardCount]ages) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + name, Help: help + of}, func() float64 { return oldest(all).Seconds() })
	}
	r.MustRegister(m.waits, m.holds, m.handOvers, ends, m.held, m.waiting, answers,
		age("oldest_holder_seconds", "How long the lock is held that was given here before all others; 0 where none is held.", &m.holdersSince),
		age("oldest_waiter_seconds", "How long the LOCK waits that waits here longest; 0 where none waits.", &m.waitersSince))
	return m
}

// oldest returns the age of the oldest item of all.
func oldest(all *[shardCount]ages) time.Duration {
	now, most := boottime(), time.Duration(0)
	for i := range all {
		most = max(most, all[i].oldest(now))
	}
	return most
}

// of returns the index of the ages in which a key is counted.
func (m *sectionMetrics) of(k musiccore.Key) int {
	return int(maphash.Comparable(m.seed, k) % shardCount)
}

// asked counts a LOCK that begins to wait.
func (m *sectionMetrics) asked(k musiccore.Key, at time.Duration) {
	m.waiting.Inc()
	m.waitersSince[m.of(k)].add(at)
}

// answered counts the answer to a LOCK that began to wait at a moment of BOOTTIME.
func (m *sectionMetrics) answered(k musiccore.Key, at time.Duration, a musiccore.Answer) {
	m.waiting.Dec()
	m.waitersSince[m.of(k)].remove(at)
	m.told(a)
}

// told counts the answer to a LOCK; one that goes on waiting at another proxy has none yet.
func (m *sectionMetrics) told(a musiccore.Answer) {
	if errors.Is(a.Err, musiccore.ErrElsewhere) {
		return
	}
	state := a.Grant.State
	if a.Err != nil {
		state = 0
	}
	m.answers[state].Inc()
}

// begun counts a lock that is held from a moment of BOOTTIME on.
func (m *sectionMetrics) begun(k musiccore.Key, at time.Duration) {
	m.held.Inc()
	m.holdersSince[m.of(k)].add(at)
}

// ended counts a lock that was held and ended at a moment of BOOTTIME; how is 0 if its session has
// ended.
func (m *sectionMetrics) ended(n musiccore.Note, at time.Duration, how musiccore.State) {
	m.held.Dec()
	m.holdersSince[m.of(n.Key)].remove(at - n.Duration)
	m.holds.Observe(n.Duration.Seconds())
	m.ends[how].Inc()
}

// note counts a note of the core that came at a moment of BOOTTIME.
func (m *sectionMetrics) note(n musiccore.Note, at time.Duration) {
	switch n.Kind {
	case musiccore.NoteGranted:
		m.waits.Observe(n.Duration.Seconds())
		if n.HandedOver {
			m.handOvers.Observe(n.HandOver.Seconds())
		}
		m.begun(n.Key, at)
	case musiccore.NoteTakenOver:
		m.begun(n.Key, at)
	case musiccore.NoteEnded:
		m.ended(n, at, n.State)
	case musiccore.NoteOrphaned:
		m.ended(n, at, 0)
	}
}
