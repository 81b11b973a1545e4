package struck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/cassandra"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/service"
)

// Addresses that nothing else uses. The relays are behind those of Stage, in 127.0.32.0/24.
const (
	theNode  = "127.0.31.1"
	theProxy = "127.0.31.2"
)

// serviceVariable is the environment variable that makes a program one of the services.
const serviceVariable = "MUSIC_EVALUATE_SERVICE"

// Child does not return if this process was started to be one of a service. Every program that starts a Stage calls it first.
func Child() {
	program := map[string]func([]string, io.Writer) error{homing: service.Homing, portal: service.Portal}[os.Getenv(serviceVariable)]
	if program == nil {
		return
	}
	if err := program(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Stage is a Cassandra node and a proxy of the product, for runs that may go on at the same time. Whoever starts it closes it.
type Stage struct {
	node  *cassandra.Cluster
	proxy *ours.Proxy
	admin *gocql.Session
	runs  atomic.Int32
}

// Start starts them.
func Start(ctx context.Context, log io.Writer) (*Stage, error) {
	s := new(Stage)
	if err := s.start(ctx, log); err != nil {
		return nil, errors.Join(fmt.Errorf("start a stage: %w", err), s.Close())
	}
	return s, nil
}

func (s *Stage) start(ctx context.Context, log io.Writer) error {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return err
	}
	program, err := ours.Build(ctx)
	if err != nil {
		return err
	}
	s.node, err = cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(run, "evaluate-service"), FastJIT: true, Properties: cassandra.Once(), Address: func(int) string { return theNode }, Log: log,
	})
	if err != nil {
		return err
	}
	s.proxy, err = ours.StartProxy(ctx, ours.ProxyOptions{Program: program, Node: s.node.Nodes()[0].Addr(), Listen: theProxy})
	if err != nil {
		return err
	}
	d := gocql.NewCluster(theNode)
	d.Timeout, d.ConnectTimeout = time.Minute, time.Minute
	s.admin, err = d.CreateSession()
	return err
}

// Close ends them.
func (s *Stage) Close() error {
	if s.admin != nil {
		s.admin.Close()
	}
	if s.proxy != nil {
		s.proxy.Kill()
	}
	if s.node != nil {
		return s.node.Wipe()
	}
	return nil
}

// host is where a system is.
func host(over string) string {
	if over == service.OverOurs {
		return theProxy
	}
	return theNode
}

// prepare completes the options of a run: a keyspace, and a directory, which the caller removes.
func (s *Stage) prepare(ctx context.Context, o Options) (setup, error) {
	n := int(s.runs.Add(1))
	x := setup{Options: o, system: service.Options{
		Over: o.Over, Hosts: []string{host(o.Over)}, Keyspace: fmt.Sprintf("%s_%s_%d", o.Service, o.Over, time.Now().UnixNano()),
		Pool: o.Service == homing, Lease: lease, Timeout: 3 * lease,
	}}
	x.relay = func(k int) string { return fmt.Sprintf("127.0.32.%d", 1+(n*victims+k)%250) }
	err := s.admin.Query("CREATE KEYSPACE " + x.system.Keyspace + " WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1}").ExecContext(ctx)
	if err == nil {
		err = service.Create(x.system)
	}
	if err == nil {
		x.dir, err = os.MkdirTemp("", portal)
	}
	if err != nil {
		return x, fmt.Errorf("prepare %s over %s: %w", o.Service, o.Over, err)
	}
	return x, nil
}

// address is that of a host's CQL.
func address(host string) string { return net.JoinHostPort(host, "9042") }
