package proxy

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/traffic"
	"music/musiccore"
)

// values returns what a registry shows, by name and the value of the only label, if any.
func values(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}

// Locks held and LOCKs that wait are counted up and down, and answers by their state; each LWT is counted by its outcome.
func TestLocksAreCounted(t *testing.T) {
	s := startStation(t, newCluster())
	k := keyOf("x")
	ref := s.held(k)
	shown := values(t, s.registry)
	assert.InDelta(t, 1, shown["music_locks_held"], 0)
	assert.InDelta(t, 0, shown["music_locks_waiting"], 0)
	assert.InDelta(t, 1, shown["music_lock_answers_total HELD"], 0)
	assert.InDelta(t, 1, shown["music_lwts_total done new_row"], 0)
	assert.Zero(t, shown["music_oldest_waiter_seconds"])

	assert.Equal(t, musiccore.StateBusy, s.lock(k, musiccore.Request{NoWait: true}).Grant.State)
	require.Equal(t, musiccore.StateReleased, s.unlock(k, ref).Grant.State)
	shown = values(t, s.registry)
	assert.InDelta(t, 0, shown["music_locks_held"], 0)
	assert.InDelta(t, 1, shown["music_lock_answers_total BUSY"], 0)

	waiting := prometheus.NewRegistry()
	done := newLockMetrics(waiting, newCriticalTables(), nil).asked(k, boottime())
	assert.InDelta(t, 1, values(t, waiting)["music_locks_waiting"], 0)
	done(musiccore.Answer{Err: musiccore.ErrDraining})
	assert.InDelta(t, 0, values(t, waiting)["music_locks_waiting"], 0)
	assert.InDelta(t, 1, values(t, waiting)["music_lock_answers_total ERROR"], 0)
}

// A table that is named has metrics of its own, also for locks that end after it, and no more than 100 series.
func TestNamedTablesAreCounted(t *testing.T) {
	s := startStation(t, newCluster())
	k := keyOf("x")
	s.tables.set(map[[16]byte]*dataTable{k.Table: {keyspace: "bank", name: "accounts"}})
	ref := s.held(k)
	assert.Equal(t, musiccore.StateBusy, s.lock(k, musiccore.Request{NoWait: true}).Grant.State)
	shown := values(t, s.registry)
	assert.InDelta(t, 1, shown["music_table_locks_held bank.accounts"], 0)
	assert.InDelta(t, 1, shown["music_locks_held"], 0)
	assert.InDelta(t, 1, shown["music_table_lock_answers_total BUSY bank.accounts"], 0)
	s.tables.set(nil)
	require.Equal(t, musiccore.StateReleased, s.unlock(k, ref).Grant.State)
	assert.InDelta(t, 0, values(t, s.registry)["music_table_locks_held bank.accounts"], 0)

	assert.LessOrEqual(t, bytes.Count(scrape(s.registry), []byte("\nmusic_table_")), 100)
}

// scrape returns what Prometheus gets.
func scrape(of prometheus.Gatherer) []byte {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(of, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.Bytes()
}

// The oldest holder and the oldest waiter have an age, and a lock that was waited for has a time of its hand-over.
func TestAgesAndHandOversAreShown(t *testing.T) {
	s := startStation(t, newCluster())
	k := keyOf("x")
	ref := s.held(k)
	told := make(chan musiccore.Answer, 1)
	s.Lock(k, musiccore.Request{Wait: time.Minute}, func(a musiccore.Answer) { told <- a })
	require.Eventually(t, func() bool {
		shown := values(t, s.registry)
		return shown["music_oldest_holder_seconds"] > 0 && shown["music_oldest_waiter_seconds"] > 0
	}, 20*time.Second, 5*time.Millisecond)
	s.unlock(k, ref)
	next := <-told
	require.Equal(t, musiccore.StateHeld, next.Grant.State)
	s.unlock(k, next.Grant.Ref)
	assert.Equal(t, uint64(1), observed(t, s.registry, "music_lock_hand_over_seconds"))
	shown := values(t, s.registry)
	assert.Zero(t, shown["music_oldest_holder_seconds"])
	assert.Zero(t, shown["music_oldest_waiter_seconds"])
}

// observed returns how much a histogram has seen.
func observed(t *testing.T, r *prometheus.Registry, name string) uint64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	return 0
}

// BenchmarkScrape is a scrape while a million locks are held and as many LOCKs wait.
func BenchmarkScrape(b *testing.B) {
	const locks = 1_000_000
	r := newRegistry(new(traffic.Stats))
	m := newLockMetrics(r, newCriticalTables(), nil)
	for i := range locks {
		at := time.Duration(i) * time.Millisecond
		m.asked(keyOf(strconv.Itoa(i)), at)
		m.note(musiccore.Note{Key: keyOf(strconv.Itoa(i)), Kind: musiccore.NoteGranted}, at)
	}
	b.ResetTimer()
	for range b.N {
		scrape(r)
	}
}

// What was done under a loan that came back too late is counted once, where the client is told.
func TestALoanThatCameBackLateIsCountedOnce(t *testing.T) {
	a, b, between := linked(t, func(o *musiccore.Options) { o.OpTimeout = 500 * time.Millisecond })
	k := handingOut(t, a)
	ref := b.held(k)
	put := b.begin(k, ref, musiccore.Put)
	require.NotZero(t, put.Ticket.Loan)
	between.hangUp()
	released := make(chan musiccore.Answer, 1)
	a.Unlock(k, ref, anna(), func(a musiccore.Answer) { released <- a })
	b.of(k).call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		return c.Hear(now, musiccore.Hint{Key: k, To: b.life.id(), Kind: musiccore.HintRecall, Last: ref})
	})
	verdict := make(chan musiccore.Verdict, 1)
	go func() { verdict <- b.verdict(put.Ticket, musiccore.OutcomeAcked) }()
	require.Equal(t, musiccore.StateReleased, (<-released).Grant.State)
	between.mend()
	require.Equal(t, musiccore.VerdictLost, <-verdict)
	const name = "music_fenced_off_total"
	assert.InDelta(t, 1, values(t, a.registry)[name]+values(t, b.registry)[name], 0)
}

// What a client does with a lock that it has released itself is refused, and not counted as fenced off:
// nobody has taken the lock from it.
func TestWhatIsReleasedIsNotFencedOff(t *testing.T) {
	a, _ := two(t)
	k := keyOf("released")
	ref := a.held(k)
	a.put(k, ref)
	require.NoError(t, a.unlock(k, ref).Err)
	for range 3 {
		assert.ErrorIs(t, a.begin(k, ref, musiccore.Put).Err, musiccore.ErrReleased)
	}
	assert.Zero(t, values(t, a.registry)["music_fenced_off_total"])
}
