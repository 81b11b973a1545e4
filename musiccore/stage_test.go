package musiccore

import (
	"fmt"
	"testing"
	"time"
)

// The stage: a few proxies with real cores, a store that does what it is told, and a clock that moves only when it is
// told to. Nothing is drawn: the same lines always play the same way. What is sent arrives at once; a delay is a line.

// stage is one play. Its time is the BOOTTIME of all proxies, and the cluster's clock.
type stage struct {
	t        *testing.T
	opts     Options
	now      time.Duration
	proxies  []*stageProxy
	clients  map[string]*stageClient
	closed   Stamp  // of the table
	hints    []Hint // between proxies, on their way
	hintsOff bool   // they get lost
	lives    byte   // sessions given
	store    stageStore
	out      []string
	began    time.Duration // when the line under way began
}

// stageStart is when every play begins.
const stageStart = time.Hour

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, opts: Defaults(), now: stageStart, clients: map[string]*stageClient{}}
	s.opts.Retain = 0
	s.store = stageStore{
		s: s, keys: map[string]*stageKey{}, beats: map[SessionID]int64{}, order: []int{0, 1, 2},
		hanging: map[string]func(){},
	}
	return s
}

// tell adds a line to what is recorded, with the time if it has moved since the line began.
func (s *stage) tell(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if s.now != s.began {
		line = fmt.Sprintf("at %v: %s", (s.now - stageStart).Round(time.Millisecond), line)
	}
	s.out = append(s.out, line)
}

// stamp is a stamp as people read it: the time since the beginning, to the microsecond.
func (s *stage) stamp(x Stamp) string {
	return (time.Duration(x-t0)*time.Microsecond - stageStart).String()
}

// stageProxy is one process: a harness whose commands go to the stage's store. Between a pause and its end nothing of it
// runs, and what reaches it waits.
type stageProxy struct {
	*harness
	s         *stage
	name      string
	skew      time.Duration // its wall clock, ahead of the cluster's
	cut       bool          // no request reaches the store
	paused    bool
	down      bool
	inbox     []func() // what came during a pause
	beatAt    time.Duration
	beatsHang bool
	acks      []func() // of beats that hang
	waits     map[OpID]func(Answer)
	lagging   int // LOCAL_ONE shows the lock row as it was so many changes ago
}

// boot starts the process anew: no memory, a new session.
func (p *stageProxy) boot() {
	p.harness = &harness{t: p.s.t, opts: p.s.opts, answers: map[OpID]Answer{}, table: [16]byte{1}}
	p.inbox, p.acks, p.waits, p.down, p.paused = nil, nil, map[OpID]func(Answer){}, false, false
	p.session = p.s.newSession()
	p.core = New(p.session, p.s.opts)
	p.beat()
}

func (s *stage) newSession() *Session {
	s.lives++
	return NewSession(session(s.lives), s.opts)
}

// time is what the proxy reads from its clocks: clk() as in docs/protocol.md 2.4.
func (p *stageProxy) time() Now {
	p.now = p.s.now
	n := p.harness.time()
	n.Wall += Stamp(p.skew.Microseconds())
	n.Clk += Stamp(min(p.skew, time.Second).Microseconds())
	if p.skew.Abs() > 10*time.Second {
		n.Clk = 0
	}
	return n
}

// when does something in this life of the process, after its pause.
func (p *stageProxy) when(do func()) {
	life := p.harness
	run := func() {
		if p.harness == life && !p.down {
			do()
		}
	}
	if p.paused {
		p.inbox = append(p.inbox, run)
		return
	}
	run()
}

// resume ends a pause.
func (p *stageProxy) resume() {
	p.paused = false
	inbox := p.inbox
	p.inbox = nil
	for _, do := range inbox {
		do()
	}
}

func (p *stageProxy) runs() bool { return !p.paused && !p.down }

// beat writes the session's life sign; a session that is dead is followed by another.
func (p *stageProxy) beat() {
	start := p.time()
	p.beatAt = p.s.now + p.opts.SessionLease/3
	n, ok := p.session.Beat(start)
	if !ok {
		old := p.session.ID()
		p.session = p.s.newSession()
		p.take(p.core.Rejoin(p.time(), p.session))
		p.s.tell("%s: session s%d is dead, s%d follows", p.name, old[0], p.session.ID()[0])
		n, _ = p.session.Beat(start)
	}
	if p.cut || !p.s.store.reachable() {
		return
	}
	p.s.store.beats[p.session.ID()] = n
	mine := p.session
	ack := func() { mine.Acked(p.time(), start, n) }
	if p.beatsHang {
		p.acks = append(p.acks, ack)
		return
	}
	ack()
}

// take collects what the core wants and gives the answers to those who wait.
func (p *stageProxy) take(fx Effects) {
	p.harness.collect(fx)
	p.s.hints = append(p.s.hints, fx.Hints...)
	for _, a := range fx.Alarms {
		p.s.tell("%s alarm %s: %s", p.name, a.Rule, a.Text)
	}
	for _, n := range fx.Notes {
		switch {
		case n.Kind == NoteEnded && n.State == StateLost:
			p.s.tell("%s: reference %d is lost", p.name, n.Ref)
		case n.Kind == NoteOrphaned:
			p.s.tell("%s: reference %d is left behind", p.name, n.Ref)
		}
	}
	for _, a := range fx.Answers {
		if wait := p.waits[a.Op]; wait != nil {
			delete(p.waits, a.Op)
			wait(a)
		}
	}
}

// settle carries out all that the proxies want of the store and of each other, until they want nothing.
func (s *stage) settle() {
	for again := true; again; {
		again = s.hint()
		for _, p := range s.proxies {
			for p.runs() && len(p.open) > 0 {
				c := p.open[0]
				p.open = p.open[1:]
				s.store.serve(p, c)
				again = true
			}
		}
	}
}

// hint delivers the hints.
func (s *stage) hint() bool {
	hints := s.hints
	s.hints = nil
	for _, hint := range hints {
		for _, p := range s.proxies {
			if p.session.ID() == hint.To && !s.hintsOff && !p.cut {
				p.when(func() { p.take(p.core.Hear(p.time(), hint)) })
			}
		}
	}
	return len(hints) > 0
}

// advance lets time go by: beats, and ticks when a core wants one.
func (s *stage) advance(by time.Duration) {
	for end := s.now + by; s.now < end; {
		next := end
		for _, p := range s.proxies {
			if p.runs() {
				next = min(next, p.next())
			}
		}
		s.now = max(next, s.now+time.Microsecond)
		s.tick()
	}
}

func (s *stage) tick() {
	for _, p := range s.proxies {
		if p.runs() && p.beatAt <= s.now {
			p.beat()
		}
		if p.runs() && p.wake != 0 && p.wake <= s.now {
			p.take(p.core.Tick(p.time()))
		}
	}
	s.settle()
}

// next is when the proxy has something to do by itself.
func (p *stageProxy) next() time.Duration {
	if p.wake == 0 {
		return p.beatAt
	}
	return min(p.beatAt, p.wake)
}
