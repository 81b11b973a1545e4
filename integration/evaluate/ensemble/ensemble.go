// Package ensemble starts the servers of ZooKeeper and etcd: one alone, or one at each site.
package ensemble

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"time"

	"music/integration/child"
	"music/integration/evaluate/section"
)

// Member says which server of an ensemble to start. All have the same Members.
type Member struct {
	Members   []string  // addresses, without port, that can be reached from here
	Index     int       // of this one among them
	Namespace string    // of the network that it lives in; none: that of this process
	Dir       string    // of this member alone; removed first, unless Keep
	Keep      bool      // it goes on with what an earlier process has left
	Fast      bool      // it starts fast, and is slow then; for tests
	Log       io.Writer // of what it says; none: nowhere. To be written from several goroutines where it is not a file
}

// address is that of the member.
func (m Member) address() string { return m.Members[m.Index] }

// prepare makes the directory.
func (m Member) prepare() error {
	if !m.Keep {
		if err := os.RemoveAll(m.Dir); err != nil {
			return err
		}
	}
	return os.MkdirAll(m.Dir, 0o700)
}

// start starts a command in the member's namespace.
func (m Member) start(words ...string) (*child.Process, error) {
	if m.Namespace != "" {
		words = append([]string{"ip", "netns", "exec", m.Namespace}, words...)
	}
	cmd := exec.Command(words[0], words[1:]...) //nolint:gosec,noctx // our own words; it ends by Kill
	cmd.Stdout, cmd.Stderr = m.Log, m.Log
	return child.Start(cmd)
}

// Server is a member under way. The caller ends it by Kill.
type Server struct {
	*child.Process
	Endpoint string // host:port, for clients
	m        Member
	kind     kind
}

// kind is what the two have in different ways.
type kind interface {
	answers(ctx context.Context, endpoint string) error
	leads(ctx context.Context, endpoint string) (bool, error)
	start(Member) (*Server, error)
	version(ctx context.Context) string
}

// Ready returns when the ensemble answers this member's clients.
func (s *Server) Ready(ctx context.Context) error {
	return s.Process.Ready(ctx, func(ctx context.Context) error { return s.kind.answers(ctx, s.Endpoint) })
}

// Revive starts a member again that has ended, with what it had, and returns the new one when it answers. Of a member that runs it
// returns nil.
func (s *Server) Revive(ctx context.Context) (*Server, error) {
	select {
	case <-s.Process.Gone():
	default:
		return nil, nil
	}
	m := s.m
	m.Keep = true
	again, err := s.kind.start(m)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithTimeout(ctx, readiness)
	defer end()
	return again, again.Ready(ctx)
}

// Ensemble is a server at each of several sites.
type Ensemble []*Server

// Kind is ZooKeeper or etcd, as [ZooKeeper] and [Etcd] return it.
type Kind struct{ kind kind }

// Version returns the version, "unknown" where it cannot be told.
func (k Kind) Version(ctx context.Context) string { return cmp.Or(k.kind.version(ctx), "unknown") }

// Start starts one member, which Ready says to be ready.
func (k Kind) Start(m Member) (*Server, error) { return k.kind.start(m) }

// readiness is how long an ensemble may take to answer.
const readiness = 2 * time.Minute

// StartAll starts all members, and returns when each answers. member says where each lives; it gets the index from 0.
func (k Kind) StartAll(ctx context.Context, n int, member func(i int) Member) (all Ensemble, err error) {
	for i := range n {
		s, err := k.Start(member(i))
		if err != nil {
			all.Kill()
			return nil, err
		}
		all = append(all, s)
	}
	ctx, end := context.WithTimeout(ctx, readiness)
	defer end()
	for _, s := range all {
		if err := s.Ready(ctx); err != nil {
			all.Kill()
			return nil, fmt.Errorf("%s: %w", s.Endpoint, err)
		}
	}
	return all, nil
}

// Kill kills all.
func (e Ensemble) Kill() {
	for _, s := range e {
		s.Process.Kill()
	}
}

// errNoLeader is returned where no member leads.
var errNoLeader = errors.New("no member leads")

// Leader returns the index of the member that leads.
func (e Ensemble) Leader(ctx context.Context) (int, error) {
	for i, s := range e {
		leads, err := s.kind.leads(ctx, s.Endpoint)
		if err != nil {
			return 0, err
		}
		if leads {
			return i, nil
		}
	}
	return 0, errNoLeader
}

// Lead makes a member of three the leader, unless it leads already: the other two are killed one after the other, each while the
// other one runs, and write, which is called until it succeeds, writes something in between: so the one that is started again first
// has missed it and cannot be elected. Clients of the two lose their connections.
func (e Ensemble) Lead(ctx context.Context, member int, write func(context.Context) error) error {
	if at, err := e.Leader(ctx); err != nil || at == member {
		return err
	}
	behind, ahead := (member+1)%len(e), (member+2)%len(e)
	e[behind].Process.Kill()
	for err := write(ctx); err != nil; err = write(ctx) {
		if ctx.Err() != nil {
			return fmt.Errorf("with two members: %w", err)
		}
		section.Rest(ctx, time.Second)
	}
	e[ahead].Process.Kill()
	for _, i := range []int{behind, ahead} {
		again, err := e[i].Revive(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", e[i].Endpoint, err)
		}
		e[i] = again
	}
	if at, err := e.Leader(ctx); err != nil || at != member {
		return errors.Join(fmt.Errorf("%w: member %d is to, and %d does", errNoLeader, member, at), err)
	}
	return nil
}

// join returns an address with a port.
func join(address, port string) string { return net.JoinHostPort(address, port) }
