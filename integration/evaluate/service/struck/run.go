package struck

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
	"music/integration/evaluate/service"
)

// The services.
const (
	homing = "homing"
	portal = "portal"
)

// lease is that of sections, and the time after which MUSIC takes a silent holder for dead.
const lease = time.Second

// Options say which service runs, over what, and how often it is struck.
type Options struct {
	Service string   // homing or portal
	Over    string   // a system, as package service has them
	Strikes int      // faults that strike a process in a section
	Kinds   []string // of faults, in turns; default all
	Seed    uint64
	Settle  time.Duration // how long it runs before the faults, and after each
	Bare    bool          // the states of a job take no time, and roles are not read: what is done is the system's part
}

// setup is a run with what Stage has given it.
type setup struct {
	Options
	system service.Options
	relay  func(k int) string // address without port of the relay of the k-th worker or back end
	dir    string             // of sockets
}

// The numbers of processes, and of what they work on.
const (
	victims   = 3 // workers, or back ends
	frontEnds = 2
	users     = 4 // of each front end
	pending   = 6 // jobs at a time
)

// Strike is a fault that a process was struck by, from and to a time of judge.Now.
type Strike struct {
	Kind     string
	Client   int // the process, by the number that it had
	From, To time.Duration
}

// The faults.
const (
	Killed = "killed"
	Paused = "paused"
	Cut    = "cut off"
)

// run is a service that runs.
type run struct {
	o       setup
	random  *rand.Rand
	clients int // numbers given out
	victims []*process
	drivers []*process // API, or front ends
	result  *Result

	mu     sync.Mutex
	inside map[int]map[int]bool // sections of a client that it is in
}

// Run runs a service, strikes it, ends it in order, and returns what it did, also beside an error. It waits for every job to be
// done, or every change, until ctx ends.
func (s *Stage) Run(ctx context.Context, o Options) (*Result, error) {
	result := &Result{portal: o.Service == portal, History: new(judge.History)}
	if o.Kinds == nil {
		o.Kinds = []string{Killed, Paused, Cut}
	}
	x, err := s.prepare(ctx, o)
	if err != nil {
		return result, err
	}
	r := &run{o: x, random: rand.New(rand.NewPCG(o.Seed, 0)), inside: map[int]map[int]bool{}, result: result} //nolint:gosec // to be repeated
	defer r.close()
	if err := r.start(); err != nil {
		return result, err
	}
	section.Rest(ctx, o.Settle)
	for n := 0; n < o.Strikes; {
		s, err := r.strike(ctx)
		if err != nil {
			return result, err
		}
		section.Rest(ctx, o.Settle) // in which what was said before the fault is heard
		if len(s.inside(result.History.Ops())) > 0 {
			n++
		}
	}
	if err := r.finish(ctx); err != nil {
		return result, err
	}
	return result, r.look(ctx)
}

// start starts all processes: those that are struck behind relays.
func (r *run) start() error {
	for k := range victims {
		relay, err := newRelay(address(r.o.relay(k)), address(r.o.system.Hosts[0]))
		if err != nil {
			return err
		}
		p := &process{name: fmt.Sprintf("b%d", k), env: r.env(), relay: relay}
		if r.o.Service == portal {
			p.words = r.words(r.o.relay(k), "-role", "backend", "-name", p.name, "-dir", r.o.dir)
		} else {
			p.words = r.words(r.o.relay(k), "-role", "worker", "-work", r.unlessBare("100ms", "0s"))
		}
		r.victims = append(r.victims, p)
	}
	r.drive()
	for _, p := range slices.Concat(r.victims, r.drivers) {
		if err := r.begin(p); err != nil {
			return err
		}
	}
	return nil
}

// drive says which processes give the others work.
func (r *run) drive() {
	host := r.o.system.Hosts[0]
	if r.o.Service == homing {
		jobs := r.unlessBare(fmt.Sprint(pending), fmt.Sprint(5*pending))
		r.drivers = []*process{{name: "api", env: r.env(), words: r.words(host, "-role", "api", "-pending", jobs)}}
		return
	}
	for f := range frontEnds {
		var mine, replicas []string
		for u := range users {
			mine = append(mine, fmt.Sprintf("u%d-%d", f, u))
		}
		for b := range victims {
			replicas = append(replicas, fmt.Sprintf("b%d", (b+f)%victims))
		}
		r.drivers = append(r.drivers, &process{name: fmt.Sprintf("f%d", f), env: r.env(), words: r.words(host, "-role", "frontend", "-dir", r.o.dir,
			"-users", strings.Join(mine, ","), "-replicas", strings.Join(replicas, ","), "-reads", r.unlessBare("1", "0"), "-pause", r.unlessBare("50ms", "0s"))})
	}
}

// env makes this program one of the service.
func (r *run) env() []string { return []string{serviceVariable + "=" + r.o.Service} }

// unlessBare is one of two settings.
func (r *run) unlessBare(usual, bare string) string {
	if r.o.Bare {
		return bare
	}
	return usual
}

// words are those of a program that uses a host.
func (r *run) words(host string, more ...string) []string {
	o := r.o.system
	words := []string{os.Args[0], "-over", o.Over, "-hosts", host, "-keyspace", o.Keyspace, "-lease", o.Lease.String(), "-timeout", o.Timeout.String()}
	return append(words, more...)
}

// begin starts a process, for the first time or again.
func (r *run) begin(p *process) error {
	r.clients++
	return p.start(r.clients, r.hear)
}

// hear notes what a process tells.
func (r *run) hear(l service.Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Event != nil {
		r.result.Events = append(r.result.Events, *l.Event)
		return
	}
	o := *l.Op
	r.result.History.Add(o)
	if r.inside[o.Client] == nil {
		r.inside[o.Client] = map[int]bool{}
	}
	switch {
	case o.Kind == judge.Enter && o.Outcome == judge.Done:
		r.inside[o.Client][o.Section] = true
	case o.Kind == judge.Leave, o.Outcome == judge.Refused:
		delete(r.inside[o.Client], o.Section)
	}
}

// victim waits until a process is in a section, and returns one that is.
func (r *run) victim(ctx context.Context) (*process, error) {
	for ; ctx.Err() == nil; section.Rest(ctx, time.Millisecond) {
		p := r.victims[r.random.IntN(len(r.victims))]
		r.mu.Lock()
		n := len(r.inside[p.id])
		r.mu.Unlock()
		if n > 0 {
			return p, nil
		}
	}
	return nil, fmt.Errorf("nobody is in a section: %w", ctx.Err())
}

// strike strikes one process, for longer than its lease, and mends it.
func (r *run) strike(ctx context.Context) (s Strike, err error) {
	p, err := r.victim(ctx)
	if err != nil {
		return s, err
	}
	s = Strike{Kind: r.o.Kinds[len(r.result.Strikes)%len(r.o.Kinds)], Client: p.id, From: judge.Now()}
	span := lease + time.Duration(r.random.IntN(1500)+100)*time.Millisecond
	switch s.Kind {
	case Killed:
		p.kill()
		s.From = judge.Now()
		section.Rest(ctx, span)
		err = r.begin(p)
	case Paused:
		p.signal(syscall.SIGSTOP)
		section.Rest(ctx, span)
		p.signal(syscall.SIGCONT)
	case Cut:
		p.relay.cut()
		section.Rest(ctx, span)
		p.relay.heal()
	}
	s.To = judge.Now()
	r.result.Strikes = append(r.result.Strikes, s)
	return s, err
}

// finish ends all processes in order, first those that give the others work; whoever has not ended with ctx is killed.
func (r *run) finish(ctx context.Context) error {
	defer context.AfterFunc(ctx, r.killAll)()
	for _, p := range slices.Concat(r.drivers, r.victims) {
		if err := p.finish(); err != nil {
			return err
		}
	}
	return nil
}

// look reads in the end what is left: every user's role in a section of its own, or the pool.
func (r *run) look(ctx context.Context) error {
	s, err := service.Open(r.o.system)
	if err != nil {
		return err
	}
	defer s.Close()
	if r.o.Service == homing {
		return r.left(ctx, s.Plain)
	}
	for f := range frontEnds {
		for u := range users {
			if err := r.read(ctx, s, fmt.Sprintf("u%d-%d", f, u)); err != nil {
				return err
			}
		}
	}
	return nil
}

// left notes the jobs that are still there.
func (r *run) left(ctx context.Context, pool service.Plain) error {
	keys, err := pool.Keys(ctx)
	if err != nil {
		return err
	}
	for _, key := range keys {
		switch _, err := pool.Get(ctx, key); {
		case err == nil:
			r.result.Left = append(r.result.Left, key)
		case !errors.Is(err, section.ErrNoValue):
			return err
		}
	}
	return nil
}

// read reads a role as its next owner would.
func (r *run) read(ctx context.Context, s service.System, user string) error {
	r.clients++
	b := service.NewBackEnd(s, r.clients, r.hear, "last", time.Minute)
	return b.Read(ctx, user)
}

// killAll kills what runs.
func (r *run) killAll() {
	for _, p := range slices.Concat(r.drivers, r.victims) {
		if p.child != nil {
			p.kill()
		}
	}
}

// close ends what is left of a run.
func (r *run) close() {
	r.killAll()
	for _, p := range r.victims {
		p.relay.close()
	}
	_ = os.RemoveAll(r.o.dir) // it is empty, but for sockets
}
