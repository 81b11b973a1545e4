// Package integration holds the whole against real Cassandra with real drivers: ordinary CQL direct and through a proxy, what
// drivers dial, locks through every layer, and what happens when a process ends or stands still.
//
// One node is shared by all tests, a second one by those that hurt a node, and a cluster of three nodes by those that need several.
// Everything listens on addresses of 127.0.0.0/8 that are not used elsewhere: nodes on 127.0.1.1, 127.0.4.1, 127.0.7.1 to 3 and,
// with TLS, 127.0.8.1, with roles, 127.0.9.1, proxies on 127.0.2.x and, those before the three nodes, on 127.0.6.1 to 3, nobody on 127.0.5.1, what else listens on 127.0.14.x.
package integration

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
)

// release is the Cassandra of the node that most tests share.
var release = flag.String("cassandra", "", "run against another release of Cassandra than the tests are made for")

// startLimit is how long a first run may take, which downloads Cassandra and cqlsh.
const startLimit = 10 * time.Minute

// environment is what all tests share.
type environment struct {
	runDir  string
	node    *cassandra.Cluster // of one node; nothing may hurt it
	last    atomic.Int32       // proxy address given out
	lastOwn atomic.Int32       // address of anything else given out

	proxy      func() (*instance, error)       // the proxy of tests that need none of their own
	binary     func() (string, error)          // path of the built program
	python     func() (cassandra.Venv, error)  // with cqlsh
	disposable func() (*cassandra.Node, error) // a node that tests may kill and pause

	three func() (*cassandra.Cluster, error) // of three nodes: see threeNodes

	closers []func() error
}

// shared is nil with -short. Only TestMain sets it.
var shared *environment

// TestMain starts the shared node.
func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	os.Exit(runShared(m))
}

// runShared runs the tests with everything that they share.
func runShared(m *testing.M) int {
	w, err := newEnvironment()
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	shared = w
	code := m.Run()
	if code != 0 {
		w.keepLog()
	}
	if err := w.close(); err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	return code
}

// newEnvironment starts the shared node; everything else is made when it is first used.
func newEnvironment() (*environment, error) {
	runDir, err := cassandra.DefaultRunDir()
	if err != nil {
		return nil, err
	}
	w := &environment{runDir: runDir}
	if w.node, err = startNode(runDir, "integration", "127.0.1.1", cassandra.Once()); err != nil {
		return nil, err
	}
	w.closers = append(w.closers, w.node.Wipe)
	w.proxy = sync.OnceValues(w.startSharedProxy)
	w.binary = sync.OnceValues(w.build)
	w.python = sync.OnceValues(func() (cassandra.Venv, error) { return cassandra.Python(context.Background(), runDir, os.Stderr) })
	w.disposable = sync.OnceValues(w.startDisposable)
	w.three = sync.OnceValues(w.startThree)
	return w, nil
}

// sharedHeap is the heap of the node that most tests share. With the tables of all tests, 256 MB
// are full before the end, and the node does little but collect garbage.
const sharedHeap = "768m"

// startNode starts a cluster of one node with little memory, a quick start and these properties, with transactions
// where the release has them.
func startNode(runDir, name, address string, properties map[string]string) (*cassandra.Cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	yaml := map[string]string{}
	if strings.HasPrefix(*release, "6") {
		yaml["accord"] = "{enabled: true}"
	}
	return cassandra.Start(ctx, cassandra.Options{
		Yaml: yaml,
		Dir:  filepath.Join(runDir, name), RunDir: runDir, Release: *release, Nodes: 1, Heap: sharedHeap, FastJIT: true, Properties: properties,
		Address: func(int) string { return address }, Log: os.Stderr,
	})
}

// startDisposable starts the node that tests may kill and pause.
func (w *environment) startDisposable() (*cassandra.Node, error) {
	c, err := startNode(w.runDir, "integration-disposable", "127.0.4.1", nil)
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, c.Wipe)
	return c.Nodes()[0], nil
}

// startSharedProxy starts a proxy with locks in front of the shared node.
func (w *environment) startSharedProxy() (*instance, error) {
	p, err := launch(w.config())
	if err != nil {
		return nil, err
	}
	w.closers = append(w.closers, p.stop)
	return p, nil
}

// keepLog writes the log of the shared proxy to a file of the run directory.
func (w *environment) keepLog() {
	p, err := w.proxy()
	if err != nil {
		return
	}
	path := filepath.Join(w.runDir, "integration-proxy.log")
	if err := os.WriteFile(path, []byte(p.log.String()), 0o644); err == nil {
		fmt.Fprintln(os.Stderr, "integration: the shared proxy's log is in", path)
	}
}

// close ends what was started, in reverse order.
func (w *environment) close() error {
	var first error
	for i := len(w.closers) - 1; i >= 0; i-- {
		if err := w.closers[i](); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// address returns a proxy address that no other test has.
func (w *environment) address() string { return fmt.Sprintf("127.0.2.%d:9042", w.last.Add(1)) }

// direct returns the address of the shared node.
func (w *environment) direct() string { return w.node.Nodes()[0].Addr() }

// needEnvironment skips the test with -short.
func needEnvironment(t testing.TB) *environment {
	t.Helper()
	if shared == nil {
		t.Skip("needs Cassandra; not with -short")
	}
	return shared
}

// needProxy returns the address of the shared proxy.
func needProxy(t testing.TB) string {
	t.Helper()
	p, err := needEnvironment(t).proxy()
	require.NoError(t, err)
	return p.address
}

// needDisposableNode returns the node that tests may kill and pause.
func needDisposableNode(t testing.TB) *cassandra.Node {
	t.Helper()
	n, err := needEnvironment(t).disposable()
	require.NoError(t, err)
	return n
}

// needPython returns the Python environment.
func needPython(t testing.TB) cassandra.Venv {
	t.Helper()
	v, err := needEnvironment(t).python()
	require.NoError(t, err)
	return v
}
