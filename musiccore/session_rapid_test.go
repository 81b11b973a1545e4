package musiccore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// observer is a session and another proxy that watches it, each with a clock of its own. Nobody knows the true time.
type observer struct {
	real    time.Duration
	own     drawnClock
	theirs  drawnClock
	session *Session
	beats   []sentBeat
	stored  int64
	watcher *harness
	reads   []readBeat
	watch   *watch
}

// drawnClock is a BOOTTIME and a raw clock: they begin anywhere and run at their own rate; the BOOTTIME is slewed besides.
type drawnClock struct {
	start time.Duration
	rate  float64
	slew  float64
}

func (c drawnClock) at(real time.Duration) Now {
	raw := float64(real) * c.rate
	return Now{Boot: c.start + time.Duration(raw*c.slew), Raw: c.start/2 + time.Duration(raw), Wall: t0}
}

// sentBeat is a beat between its start and its acknowledgement; it reaches the store in between, or never.
type sentBeat struct {
	n       int64
	start   Now
	written bool
}

// readBeat is a read of the beat between its start and its end; it sees the store at one moment in between.
type readBeat struct {
	id     CommandID
	seen   int64
	served bool
}

func newWitness(t *rapid.T, tt *testing.T) *observer {
	o := Defaults()
	o.Margin = time.Microsecond // for the rounding of this test
	rate := rapid.Float64Range(0.9, 1.1).Draw(t, "rate")
	w := &observer{
		own: drawnClock{time.Hour, rate, rapid.SampledFrom([]float64{0.9, 1, 1.1}).Draw(t, "slew")},
		theirs: drawnClock{
			2 * time.Hour, rate * rapid.SampledFrom([]float64{1 - o.Drift, 1, 1 + o.Drift}).Draw(t, "drift"),
			rapid.SampledFrom([]float64{0.9, 1, 1.1}).Draw(t, "slewed there"),
		},
		session: NewSession(session(9), o),
		watcher: &harness{t: tt, opts: o, answers: map[OpID]Answer{}},
	}
	w.watcher.session = NewSession(session(1), o)
	w.watcher.core = New(w.watcher.session, o)
	w.beat(t) // nobody meets the name of a session before its first acknowledged beat
	return w
}

// now is what the session's proxy reads. Its wall clock stands still: the worst that it can do.
func (w *observer) now() Now { return w.own.at(w.real) }

func (w *observer) pass(t *rapid.T) {
	w.real += rapid.SampledFrom([]time.Duration{
		time.Nanosecond, time.Millisecond, 300 * time.Millisecond, time.Second, 3 * time.Second, 9 * time.Second, 10 * time.Second,
	}).Draw(t, "pass")
}

// edge is the last moment at which the lease of a beat runs.
func (w *observer) edge(t *rapid.T) {
	b := w.aBeat(t)
	last := b.start.Raw + w.watcher.opts.SessionLease - time.Microsecond
	w.real = max(w.real, time.Duration(float64(last-w.own.start/2)/w.own.rate))
}

func (w *observer) start(*rapid.T) {
	now := w.now()
	if n, ok := w.session.Beat(now); ok {
		w.beats = append(w.beats, sentBeat{n: n, start: now})
	}
}

// aBeat draws one on its way.
func (w *observer) aBeat(t *rapid.T) *sentBeat {
	return &w.beats[rapid.IntRange(max(0, len(w.beats)-3), len(w.beats)-1).Draw(t, "beat")]
}

func (w *observer) write(t *rapid.T) {
	b := w.aBeat(t)
	b.written = true
	w.stored = max(w.stored, b.n)
}

func (w *observer) ack(t *rapid.T) {
	if b := w.aBeat(t); b.written {
		w.session.Acked(w.now(), b.start, b.n)
	}
}

// beat is one that goes well.
func (w *observer) beat(t *rapid.T) {
	w.start(t)
	b := &w.beats[len(w.beats)-1]
	b.written = true
	w.stored = max(w.stored, b.n)
	w.session.Acked(w.now(), b.start, b.n)
}

// setTheirs moves the watcher's clocks.
func (w *observer) setTheirs() {
	now := w.theirs.at(w.real)
	w.watcher.now, w.watcher.rawOff = now.Boot, now.Raw-now.Boot
}

// look lets the watcher go on watching and send its reads.
func (w *observer) look(*rapid.T) {
	h := w.watcher
	w.setTheirs()
	w.watch = h.core.watch(h.time(), w.session.ID())
	h.collect(h.core.Tick(h.time()))
	for _, c := range h.open {
		w.reads = append(w.reads, readBeat{id: c.ID})
	}
	h.open = nil
}

func (w *observer) serve(*rapid.T) {
	for i := range w.reads {
		if !w.reads[i].served {
			w.reads[i].seen, w.reads[i].served = w.stored, true
		}
	}
}

func (w *observer) reply(*rapid.T) {
	h := w.watcher
	w.setTheirs()
	for _, r := range w.reads {
		if r.served {
			h.reply(r.id, Result{Status: StatusDone, Beat: r.seen})
		}
	}
	w.reads = nil
}

// lookAndSee is a read that takes no time.
func (w *observer) lookAndSee(t *rapid.T) {
	w.look(t)
	w.serve(t)
	w.reply(t)
}

// ask is I9: when Dead(x) holds anywhere, valid() of x is false for ever. Nobody asks at every moment: who asks ends the
// session if its time is over.
func (w *observer) ask(t *rapid.T) {
	if w.dead() && w.session.Valid(w.now()) {
		require.Fail(t, "dead for another proxy, and valid", "at %v", w.real)
	}
}

func (w *observer) dead() bool { return w.watch != nil && w.watch.dead }

// With any delays, and clocks whose rates differ by at most eps, a session that is valid for itself
// is never found dead (I9, C5, C12).
func TestDeadIsNeverValid(t *testing.T) {
	found := 0
	often(t, 20, func(rt *rapid.T) {
		w := newWitness(rt, t)
		rt.Repeat(map[string]func(*rapid.T){
			"pass": w.pass, "passes": w.pass, "edge": w.edge, "beat": w.beat, "start": w.start, "write": w.write, "ack": w.ack,
			"look": w.look, "serve": w.serve, "reply": w.reply, "look and see": w.lookAndSee, "see again": w.lookAndSee, "ask": w.ask,
		})
		w.ask(rt)
		if w.dead() {
			found++
		}
	})
	require.NotZero(t, found, "no session was ever found dead")
}

// Whether a session is valid depends only on the latest start of an acknowledged beat, by either
// clock: it is valid before start+L, never after that, and never again.
func TestLeaseArithmetic(t *testing.T) {
	often(t, 20, func(t *rapid.T) {
		o := Defaults()
		s := NewSession(session(1), o)
		now, deadline, dead := Now{Boot: time.Hour, Wall: t0}, Now{}, false
		starts, numbers, latest := []Now{now}, []int64{0}, 0
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			step := rapid.SampledFrom([]time.Duration{0, 1000, time.Second, 4 * time.Second, 10*time.Second - 1000, 10 * time.Second}).Draw(t, "step")
			jump := rapid.SampledFrom([]Stamp{0, 0, 0, 0, -5_000_000, 5_000_000, 3_600_000_000}).Draw(t, "jump")
			now.Boot, now.Wall = now.Boot+step, now.Wall+Stamp(step.Microseconds())+jump
			over := func() bool {
				return dead || deadline.Boot != 0 && (now.Boot >= deadline.Boot || now.Wall >= deadline.Wall)
			}
			dead = over()
			if rapid.Bool().Draw(t, "beats") {
				n, ok := s.Beat(now)
				if ok == dead {
					require.Fail(t, "a dead session beats, or a live one does not", "a beat is %v, and dead is %v", ok, dead)
				}
				if !dead {
					starts, numbers = append(starts, now), append(numbers, n)
				}
			}
			if n := rapid.IntRange(0, len(starts)-1).Draw(t, "acknowledged"); n > 0 {
				s.Acked(now, starts[n], numbers[n])
				if end := starts[n].Boot + o.SessionLease; n >= latest && !dead {
					latest = n
					deadline = Now{Boot: end, Wall: starts[n].Wall + Stamp(o.SessionLease.Microseconds())}
				}
				dead = over()
			}
			if got, want := s.Valid(now), deadline.Boot != 0 && !dead; got != want || s.Dead() != dead {
				require.Fail(t, "another lease", "valid %v, want %v; dead %v, want %v", got, want, s.Dead(), dead)
			}
		}
	})
}
