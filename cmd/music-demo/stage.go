package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"music/integration/cassandra"
)

// The patience of the stage.
const (
	listenLimit = 30 * time.Second      // for the proxy to serve drivers
	listenPoll  = 20 * time.Millisecond // between two tries to reach it
	lastWords   = 5                     // lines of the log that are told of a proxy that ended
)

// errProxyEnded says that the proxy did not live as long as the story.
var errProxyEnded = errors.New("the proxy has ended")

// stage is what the story is played on: a real Cassandra, and the proxy in front of it. Whoever has it calls close.
type stage struct {
	cluster *cassandra.Cluster
	proxy   *server
	log     string // file that the proxy's log goes to
}

// raise starts all and returns when drivers are served. On an error nothing runs.
func raise(ctx context.Context, o options, s *screen) (*stage, error) {
	if err := checkFree(ctx, o.listen); err != nil {
		return nil, err
	}
	st := &stage{log: filepath.Join(o.dir, "proxy.log")}
	if err := st.start(ctx, o, s); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

// start starts the cluster, then the proxy.
func (st *stage) start(ctx context.Context, o options, s *screen) (err error) {
	st.cluster, err = cassandra.Start(ctx, cassandra.Options{
		Dir: o.dir, RunDir: o.runDir, Address: func(int) string { return o.node }, FastJIT: true, Log: s,
	})
	if errors.Is(err, cassandra.ErrInUse) {
		return fmt.Errorf("%w\nend what is in the way, or choose another address with --node, or another directory with --dir", err)
	}
	if err != nil {
		return err
	}
	l := launch{contactPoint: o.node, listen: o.listen, binary: binary(), log: st.log}
	s.note("%s", s.paint(dim, "starting the proxy: "+l.String()))
	if st.proxy, err = l.start(); err != nil {
		return fmt.Errorf("start the proxy: %w", err)
	}
	return st.waitForProxy(ctx, o.listen)
}

// checkFree tells who is in the way of the proxy. Cassandra's own ports are checked by its launcher.
func checkFree(ctx context.Context, addr string) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %s is in use: end the program that listens there, or choose another with --listen", addr)
	}
	if err != nil {
		return fmt.Errorf("listen for drivers: %w", err)
	}
	return l.Close()
}

// waitForProxy returns when the proxy listens, which it does only once it can serve.
func (st *stage) waitForProxy(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listenLimit, fmt.Errorf("the proxy does not listen on %s after %v; its log is %s", addr, listenLimit, st.log))
	defer cancel()
	tick := time.NewTicker(listenPoll)
	defer tick.Stop()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-tick.C:
		case <-st.proxy.ended:
			return st.obituary()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// guard returns a context that ends when the proxy does, with the reason as its cause.
func (st *stage) guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, fail := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-st.proxy.ended:
			fail(st.obituary())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { fail(nil) }
}

// obituary says what the proxy's log said last.
func (st *stage) obituary() error {
	text, err := os.ReadFile(st.log)
	if err != nil {
		return fmt.Errorf("%w: %w", errProxyEnded, err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%w; the end of %s:\n%s", errProxyEnded, st.log, strings.Join(lines[max(0, len(lines)-lastWords):], "\n"))
}

// close ends the proxy in good order, then Cassandra.
func (st *stage) close() error {
	if st.proxy != nil {
		st.proxy.close()
	}
	if st.cluster == nil {
		return nil
	}
	return st.cluster.Close()
}
