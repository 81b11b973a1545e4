package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"music/config"
	"music/integration/child"
	"music/proxy"
)

// endLimit is how long the proxy may take to end in good order.
const endLimit = 5 * time.Second

// launch is how the proxy is started.
type launch struct {
	binary       string // empty = inside this process
	contactPoint string
	listen       string
	several      bool   // there are others, that it must find and talk to
	log          string // file
}

// server is a proxy that has been started.
type server struct {
	stop  func()          // asks it to end
	kill  func()          // ends it at once
	ended <-chan struct{} // closed when it has ended
	gone  atomic.Bool     // it was killed on the stage
	log   string          // file
}

// binary returns the path of the proxy's program, which is built beside this one; "" if it is not
// there.
func binary() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(self), "music")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// args are those of the proxy's command line. Metrics are off: their port may be somebody else's,
// and the story has no use for them. No key is kept at its proxy: the story shows lock rows whose
// head is the holder. Several proxies have a short session lease: nobody wants to wait long for the
// end of one that was killed.
func (l launch) args() []string {
	args := []string{"proxy", "--contact-points", l.contactPoint, "--listen", l.listen, "--metrics-listen=", "--retain", "0s"}
	if l.several {
		args = append(args, "--peer-listen", l.peerListen(), "--expect-proxies", "3", "--session-lease", shortLease.String())
	}
	return args
}

// shortLease is the session lease of proxies of which one will be killed.
const shortLease = 3 * time.Second

// peerListen returns the address for the other proxies.
func (l launch) peerListen() string {
	host, _, _ := net.SplitHostPort(l.listen) // checked with the options
	return net.JoinHostPort(host, "9043")
}

// String returns the line that a user would type.
func (l launch) String() string {
	if l.binary == "" {
		return "(inside the demo) music " + strings.Join(l.args(), " ")
	}
	return shortPath(l.binary) + " " + strings.Join(l.args(), " ")
}

// shortPath returns a path relative to the working directory, if it is below that.
func shortPath(path string) string {
	wd, err := os.Getwd()
	if err != nil {
		return path
	}
	short, err := filepath.Rel(wd, path)
	if err != nil || strings.HasPrefix(short, "..") {
		return path
	}
	return short
}

// start starts the proxy. It may not be ready yet.
func (l launch) start() (*server, error) {
	log, err := os.Create(l.log)
	if err != nil {
		return nil, err
	}
	if l.binary == "" {
		return l.serveHere(log), nil
	}
	defer func() { _ = log.Close() }() // the child has its own
	// No context: it is to end after all that uses it, in close. gosec: it is the program that was
	// built beside this one.
	cmd := exec.CommandContext(context.Background(), l.binary, l.args()...) //nolint:gosec
	cmd.Stdout, cmd.Stderr = log, log
	p, err := child.Start(cmd)
	if err != nil {
		return nil, err
	}
	return &server{
		stop:  func() { _ = p.Signal(syscall.SIGTERM) }, // an error: it has ended
		kill:  p.Kill,
		ended: p.Gone(),
		log:   l.log,
	}, nil
}

// serveHere runs the proxy inside this process.
func (l launch) serveHere(log *os.File) *server {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	cfg := config.Default()
	cfg.Cassandra.ContactPoints = []string{l.contactPoint}
	cfg.Listen.Address, cfg.Listen.Metrics = l.listen, ""
	if l.several {
		cfg.Peers.Listen, cfg.Music.ExpectProxies, cfg.Music.SessionLease = l.peerListen(), 3, shortLease
	}
	go func() {
		defer close(ended)
		if err := proxy.Run(ctx, cfg, proxy.Logs{Log: zerolog.New(log), Audit: zerolog.New(log)}, nil); err != nil {
			_, _ = fmt.Fprintln(log, err)
		}
		_ = log.Close()
	}()
	return &server{stop: cancel, kill: cancel, ended: ended, log: l.log}
}

// close ends the proxy and returns when it has ended.
func (s *server) close() {
	s.stop()
	select {
	case <-s.ended:
		return
	case <-time.After(endLimit):
	}
	s.kill()
	<-s.ended
}
