package struck

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/service"
)

var (
	strikes = flag.Int("service.strikes", 3, "faults that strike each service over each system")
	seed    = flag.Uint64("service.seed", uint64(time.Now().UnixNano()), "chooses the faults")
)

const (
	theNode  = "127.0.31.1"
	theProxy = "127.0.31.2"
	// child is the variable that makes this program one of the services.
	child = "MUSIC_SERVICE"
)

func TestMain(m *testing.M) {
	switch os.Getenv(child) {
	case "homing":
		end(service.Homing(os.Args[1:], os.Stdout))
	case "portal":
		end(service.Portal(os.Args[1:], os.Stdout))
	}
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	os.Exit(func() int {
		stop, err := serve()
		defer stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, "service:", err)
			return 1
		}
		return m.Run()
	}())
}

// end ends a service's process.
func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serve starts a node and a proxy for all tests.
func serve() (stop func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return func() {}, err
	}
	node, err := cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(run, "evaluate-service"), FastJIT: true, Address: func(int) string { return theNode }, Log: os.Stderr,
	})
	if err != nil {
		return func() {}, err
	}
	stop = func() { _ = node.Wipe() }
	program, err := ours.Build(ctx)
	if err != nil {
		return stop, err
	}
	p, err := ours.StartProxy(ctx, ours.ProxyOptions{Program: program, Node: node.Nodes()[0].Addr(), Listen: theProxy})
	if err != nil {
		return stop, err
	}
	return func() { p.Kill(); _ = node.Wipe() }, nil
}

// limit is how long a run may take, and brief that of one that may not come to an end.
const limit, brief = 3 * time.Minute, 30 * time.Second

// struckRun runs a service over a system in a keyspace of its own. n tells its relays from those of others.
func struckRun(t *testing.T, portal bool, over string, n, strikes int, kinds ...string) *Result {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Cassandra; not with -short")
	}
	name, host, bound := "homing", theNode, brief
	if portal {
		name = "portal"
	}
	if over == service.OverOurs {
		host, bound = theProxy, limit
	}
	keyspace := fmt.Sprintf("%s_%s_%d", name, over, time.Now().UnixNano())
	cluster := gocql.NewCluster(theNode)
	cluster.Timeout = time.Minute
	s, err := cluster.CreateSession()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, s.Query("CREATE KEYSPACE "+keyspace+" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1}").Exec())
	ctx, cancel := context.WithTimeout(t.Context(), bound+time.Duration(strikes)*6*time.Second)
	defer cancel()
	result, err := Run(ctx, Options{
		Portal: portal, Strikes: strikes, Kinds: kinds, Seed: *seed, Settle: 300 * time.Millisecond, Dir: t.TempDir(),
		System:  service.Options{Over: over, Hosts: []string{host}, Keyspace: keyspace, Lease: time.Second, Timeout: 3 * time.Second},
		Relay:   func(k int) string { return fmt.Sprintf("127.0.31.%d", 10*n+k) },
		Program: func(string) []string { return []string{os.Args[0]} }, Env: []string{child + "=" + name},
	})
	if over == service.OverMusic && result != nil && err != nil {
		t.Logf("%s over %s has not come to an end: %v", name, over, err)
	} else {
		require.NoError(t, err, "%s over %s", name, over)
	}
	struck, overtaken := result.Struck()
	t.Logf("%s over %s, seed %d: struck %v, of these overtaken %d; %.1f a second", name, over, *seed, struck, overtaken, result.Rate())
	return result
}

// Over the product no fault breaks either service.
func TestHomingOverOurs(t *testing.T) {
	t.Parallel()
	assert.Empty(t, struckRun(t, false, service.OverOurs, 1, *strikes).Faults())
}

func TestPortalOverOurs(t *testing.T) {
	t.Parallel()
	assert.Empty(t, struckRun(t, true, service.OverOurs, 2, *strikes).Faults())
}

// What breaks over the paper's MUSIC is told: it is not for us to mend.
func TestHomingOverMusic(t *testing.T) {
	t.Parallel()
	tell(t, struckRun(t, false, service.OverMusic, 3, *strikes))
}

func TestPortalOverMusic(t *testing.T) {
	t.Parallel()
	tell(t, struckRun(t, true, service.OverMusic, 4, *strikes))
}

// tell logs how often each fault was found, with the first of them.
func tell(t *testing.T, r *Result) {
	t.Helper()
	found, first := map[string]int{}, map[string]string{}
	for _, f := range r.Faults() {
		name, _, _ := strings.Cut(f, "\n")
		name, _, _ = strings.Cut(name, ":")
		if found[name]++; found[name] == 1 {
			first[name] = f
		}
	}
	for name, n := range found {
		t.Logf("%d times: %s", n, first[name])
	}
}

// Without locks the faults of both services are found.
func TestHomingOverNothing(t *testing.T) {
	t.Parallel()
	r := struckRun(t, false, service.OverNothing, 5, 0)
	tell(t, r)
	assert.NotEmpty(t, r.Faults())
}

// Here it takes a put that arrives late, and a read before the next put.
func TestPortalOverNothing(t *testing.T) {
	t.Parallel()
	for range 10 {
		r := struckRun(t, true, service.OverNothing, 6, 1, Cut)
		if tell(t, r); len(r.Faults()) > 0 {
			return
		}
	}
	t.Error("no fault was found")
}
