package proxy

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"music/config"
	"music/musiccore"
)

// lockMetrics are the metrics of locks.
type lockMetrics struct {
	sections     *sectionMetrics
	tables       tableMetrics
	preemptions  prometheus.Counter
	takeovers    prometheus.Counter
	loans        prometheus.Counter
	synchronises prometheus.Counter
	fencedOff    prometheus.Counter
	alarms       prometheus.Counter
	commands     commandMetrics
}

// orphaned is the label for the end of a lock whose session has ended: its client may continue with
// it at another proxy.
const orphaned = "ORPHANED"

// newLockMetrics registers the metrics of locks, and also those of each named table.
func newLockMetrics(r prometheus.Registerer, critical *criticalTables, named []config.TableName) *lockMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &lockMetrics{
		sections:     newSectionMetrics(r, "music_", ""),
		tables:       newTableMetrics(r, critical, named),
		preemptions:  counter("music_preemptions_total", "Holders of dead sessions that were passed over."),
		takeovers:    counter("music_takeovers_total", "Locks of dead sessions whose client went on here."),
		loans:        counter("music_loans_total", "Loans that this proxy took from others, under which its clients' operations ask nobody."),
		synchronises: counter("music_synchronises_total", "Keys that were synchronised."),
		fencedOff:    counter("music_fenced_off_total", "Operations that were refused, since their client had lost the lock."),
		alarms:       counter("music_alarms_total", "Broken invariants, each of them an error in the log."),
		commands:     newCommandMetrics(r),
	}
	r.MustRegister(m.preemptions, m.takeovers, m.loans, m.synchronises, m.fencedOff, m.alarms)
	return m
}

// asked counts a LOCK that waits for its answer since a moment of BOOTTIME. told must be called
// with the answer, and counts that.
func (m *lockMetrics) asked(k musiccore.Key, at time.Duration) (told func(musiccore.Answer)) {
	table := m.tables.of(k)
	m.sections.asked(k, at)
	if table != nil {
		table.asked(k, at)
	}
	return func(a musiccore.Answer) {
		m.sections.answered(k, at, a)
		if table != nil {
			table.answered(k, at, a)
		}
	}
}

// answeredAtOnce counts a LOCK that did not wait, and its answer.
func (m *lockMetrics) answeredAtOnce(k musiccore.Key, a musiccore.Answer) {
	m.sections.told(a)
	if table := m.tables.of(k); table != nil {
		table.told(a)
	}
}

// note counts a note of the core that came at a moment of BOOTTIME.
func (m *lockMetrics) note(n musiccore.Note, at time.Duration) {
	m.sections.note(n, at)
	if table := m.tables.of(n.Key); table != nil {
		table.note(n, at)
	}
	switch n.Kind {
	case musiccore.NotePreempted:
		m.preemptions.Inc()
	case musiccore.NoteTakenOver:
		m.takeovers.Inc()
	case musiccore.NoteSynchronised:
		m.synchronises.Inc()
	}
}

// tableMetrics are the metrics of the tables that the setting metrics-tables names.
type tableMetrics struct {
	critical *criticalTables
	named    map[config.TableName]*sectionMetrics
	byID     *sync.Map // from a table's id to its *sectionMetrics: a lock may end after its table
}

// newTableMetrics registers the metrics of the named tables, with the label table.
func newTableMetrics(r prometheus.Registerer, critical *criticalTables, named []config.TableName) tableMetrics {
	m := tableMetrics{critical: critical, named: map[config.TableName]*sectionMetrics{}, byID: new(sync.Map)}
	for _, t := range named {
		if m.named[t] == nil {
			m.named[t] = newSectionMetrics(prometheus.WrapRegistererWith(prometheus.Labels{"table": t.String()}, r), "music_table_", " Of a table of metrics-tables.")
		}
	}
	return m
}

// of returns the metrics of the table of a key; nil if it has none of its own.
func (m tableMetrics) of(k musiccore.Key) *sectionMetrics {
	if len(m.named) == 0 {
		return nil
	}
	if found, known := m.byID.Load(k.Table); known {
		return found.(*sectionMetrics)
	}
	t := m.critical.table(k.Table)
	if t == nil {
		return nil
	}
	found := m.named[config.TableName{Keyspace: t.keyspace, Table: t.name}]
	if found != nil {
		m.byID.Store(k.Table, found)
	}
	return found
}

// commandMetrics are the metrics of the core's commands.
type commandMetrics struct {
	lwts         *prometheus.CounterVec
	lwt          prometheus.Histogram
	synchronises *prometheus.CounterVec
	synchronise  prometheus.Histogram
}

// newCommandMetrics registers the metrics of commands, each with all values of its labels.
func newCommandMetrics(r prometheus.Registerer) commandMetrics {
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2.5, 12)})
	}
	m := commandMetrics{
		lwts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "music_lwts_total", Help: "LWTs on lock rows, by what they write and how they ended; unknown: Cassandra has not answered for sure, refused: another proxy was first.",
		}, []string{"writes", "outcome"}),
		lwt: seconds("music_lwt_seconds", "Time of an LWT on a lock row, however it ended."),
		synchronises: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "music_synchronise_attempts_total", Help: "Attempts to settle writes that an earlier holder of a key has left unfinished, by how they ended; unknown: Cassandra has not answered for sure, unavailable: too few replicas are up, too_large: a row is, above: a write time was ahead of the lock's.",
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

// outcomeName returns the label for how a command ended.
func outcomeName(s musiccore.Status) string {
	return [...]string{"unknown", "done", "refused", "above", "too_large", "unavailable"}[s]
}

// writesName returns the label for what an LWT writes.
func writesName(c musiccore.Condition) string {
	return [...]string{musiccore.IfAbsent: "new_row", musiccore.IfGuard: "queue", musiccore.IfGuardEpoch: "queue_and_term", musiccore.IfEpoch: "term"}[c]
}
