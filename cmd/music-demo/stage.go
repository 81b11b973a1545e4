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
	listenLimit = 60 * time.Second      // for a proxy to serve drivers
	listenPoll  = 20 * time.Millisecond // between two tries to reach it
	lastWords   = 5                     // lines of the log that are told of a proxy that ended
)

// errProxyEnded says that a proxy ended before the story did.
var errProxyEnded = errors.New("the proxy has ended")

// stage is a real Cassandra, and a proxy in front of each node. The caller of raise calls close.
type stage struct {
	cluster *cassandra.Cluster
	proxies []*server
}

// raise starts everything and returns when drivers are served. After an error nothing runs.
func raise(ctx context.Context, o options, s *screen) (*stage, error) {
	for k := 1; k <= o.count(); k++ {
		if err := checkFree(ctx, o.listenAt(k)); err != nil {
			return nil, err
		}
	}
	st := &stage{}
	if err := st.start(ctx, o, s); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

// start starts the cluster, then the proxies.
func (st *stage) start(ctx context.Context, o options, s *screen) (err error) {
	st.cluster, err = cassandra.Start(ctx, cassandra.Options{
		Dir: o.dir, RunDir: o.runDir, Nodes: o.count(), Address: o.nodeAt, FastJIT: true, Log: s,
	})
	if errors.Is(err, cassandra.ErrInUse) {
		return fmt.Errorf("%w\nend what is in the way, or choose another address with --node, or another directory with --dir", err)
	}
	if err != nil {
		return err
	}
	for k := 1; k <= o.count(); k++ {
		l := launch{contactPoint: o.nodeAt(k), listen: o.listenAt(k), several: o.count() > 1, binary: binary(), log: filepath.Join(o.dir, logName(k))}
		s.note("%s", s.paint(dim, "starting the proxy: "+l.String()))
		proxy, err := l.start()
		if err != nil {
			return fmt.Errorf("start the proxy: %w", err)
		}
		st.proxies = append(st.proxies, proxy)
	}
	for i, proxy := range st.proxies {
		if err := proxy.listens(ctx, o.listenAt(i+1)); err != nil {
			return err
		}
	}
	return nil
}

// logName returns the name of a proxy's log file.
func logName(k int) string {
	if k == 1 {
		return "proxy.log"
	}
	return fmt.Sprintf("proxy%d.log", k)
}

// checkFree returns an error if the proxy's address is in use. Cassandra's own ports are checked by
// its launcher.
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

// listens returns when the proxy listens, which it does only once it can serve.
func (s *server) listens(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, listenLimit, fmt.Errorf("the proxy does not listen on %s after %v; its log is %s", addr, listenLimit, s.log))
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
		case <-s.ended:
			return s.logError()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// guard returns a context that ends when a proxy ends that was not killed, with the reason as its
// cause.
func (st *stage) guard(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, fail := context.WithCancelCause(ctx)
	for _, proxy := range st.proxies {
		go func() {
			select {
			case <-proxy.ended:
				if !proxy.gone.Load() {
					fail(proxy.logError())
				}
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { fail(nil) }
}

// killProxy kills proxy k, from 1.
func (st *stage) killProxy(k int) {
	proxy := st.proxies[k-1]
	proxy.gone.Store(true)
	proxy.kill()
	<-proxy.ended
}

// logError returns the last lines of the proxy's log as an error.
func (s *server) logError() error {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return fmt.Errorf("%w: %w", errProxyEnded, err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%w; the end of %s:\n%s", errProxyEnded, s.log, strings.Join(lines[max(0, len(lines)-lastWords):], "\n"))
}

// close ends the proxies in good order, then Cassandra.
func (st *stage) close() error {
	for _, proxy := range st.proxies {
		proxy.close()
	}
	if st.cluster == nil {
		return nil
	}
	return st.cluster.Close()
}
