package service

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"music/integration/evaluate/section"
)

// program is a process of one of the services.
type program struct {
	options Options
	id      int
	role    string
	name    string
	dir     string
	list    string
	users   string
	number  int
	work    time.Duration
	pause   time.Duration
	limit   time.Duration
	tell    Tell
}

// Homing is the program of the homing service: `-role api` or `-role worker`. It ends in order at SIGTERM: the API, when all jobs
// that it submitted are DONE. What it does is told to out, as Lines.
func Homing(args []string, out io.Writer) error {
	p := &program{tell: writing(out)}
	f := p.flags("homing")
	f.StringVar(&p.role, "role", "worker", "api or worker")
	f.IntVar(&p.number, "pending", 8, "api: jobs that are not done at a time")
	f.DurationVar(&p.work, "work", 100*time.Millisecond, "worker: how long each state takes")
	f.DurationVar(&p.pause, "pause", 20*time.Millisecond, "between two looks at the pool")
	if err := f.Parse(args); err != nil {
		return err
	}
	p.options.Pool = true
	return p.run(map[string]func(context.Context, System) error{
		"api": func(ctx context.Context, s System) error {
			NewAPI(s, p.id, p.tell, p.number, p.pause).Run(ctx)
			return nil
		},
		"worker": func(ctx context.Context, s System) error {
			NewWorker(s, p.id, p.tell, p.work, p.pause).Run(ctx)
			return nil
		},
	})
}

// Portal is the program of the portal: `-role frontend` or `-role backend`. It ends in order at SIGTERM.
func Portal(args []string, out io.Writer) error {
	p := &program{tell: writing(out)}
	f := p.flags("portal")
	f.StringVar(&p.role, "role", "backend", "frontend or backend")
	f.StringVar(&p.name, "name", "", "backend: its name")
	f.StringVar(&p.dir, "dir", "", "where back ends are served")
	f.StringVar(&p.list, "replicas", "", "frontend: names of the back ends, the closest first, with commas")
	f.StringVar(&p.users, "users", "", "frontend: whose roles it changes, with commas")
	f.IntVar(&p.number, "reads", 1, "frontend: after so many changes of a user its role is read; 0: never")
	f.DurationVar(&p.pause, "pause", 0, "frontend: between a change and what follows it")
	f.DurationVar(&p.limit, "patience", time.Second, "how long a front end waits for an answer; a back end waits five times as long to become an owner")
	if err := f.Parse(args); err != nil {
		return err
	}
	return p.run(map[string]func(context.Context, System) error{"frontend": p.frontEnd, "backend": p.backEnd})
}

// flags are those that all programs have.
func (p *program) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.StringVar(&p.options.Over, "over", OverOurs, "the system")
	f.Func("hosts", "addresses of the system, with commas", func(s string) error {
		p.options.Hosts = strings.Split(s, ",")
		return nil
	})
	f.StringVar(&p.options.Keyspace, "keyspace", "service", "which exists")
	f.DurationVar(&p.options.Lease, "lease", time.Second, "after which a silent process is taken for dead")
	f.DurationVar(&p.options.Timeout, "timeout", time.Second, "of one statement")
	f.IntVar(&p.id, "id", 1, "a number that no other process has")
	return f
}

// run plays the role until SIGTERM.
func (p *program) run(roles map[string]func(context.Context, System) error) error {
	play := roles[p.role]
	if play == nil {
		return fmt.Errorf("no role %q", p.role)
	}
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer end()
	s, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	return play(ctx, s)
}

// open tries to connect for some minutes: a process that is started on a busy machine is none that has failed.
func (p *program) open(ctx context.Context) (System, error) {
	const limit = 3 * time.Minute
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	for {
		s, err := Open(p.options)
		if err == nil || ctx.Err() != nil {
			return s, err
		}
		section.Rest(ctx, p.options.Timeout/10)
	}
}

// frontEnd changes roles.
func (p *program) frontEnd(ctx context.Context, s System) error {
	e := NewFrontEnd(s, p.id, p.tell, p.dir)
	e.Replicas, e.Users = strings.Split(p.list, ","), strings.Split(p.users, ",")
	e.Reads, e.Pause, e.Patience = p.number, p.pause, p.limit
	e.Run(ctx)
	return nil
}

// backEnd serves front ends.
func (p *program) backEnd(ctx context.Context, s System) error {
	b := NewBackEnd(s, p.id, p.tell, p.name, 5*p.limit)
	if err := os.Remove(Socket(p.dir, p.name)); err != nil && !errors.Is(err, os.ErrNotExist) { // of one that was killed
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "unix", Socket(p.dir, p.name))
	if err != nil {
		return err
	}
	handler := http.NewServeMux()
	handler.Handle("/{user}", b)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: p.limit}
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		b.Keep(ctx)
		_ = server.Close()
	}()
	p.tell.event(Event{What: Ready, Client: p.id, Key: p.name})
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-kept
	return nil
}
