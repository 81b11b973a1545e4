package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
	"music/integration/wan"
)

// sites is the number of sites, each with a node and a proxy; clients use any proxy.
const sites = 3

// lease is the proxies' session lease, short so that many sessions end during a run.
const lease = 3 * time.Second

// world is three data centres with a proxy each, in an emulated network.
type world struct {
	plan    plan
	dir     string
	binary  string
	network *wan.WAN
	nodes   *cassandra.Cluster
	proxies [sites]*proxy
	counted [sites]int // loans that each proxy told at the last count
	loans   [sites]int // … and has taken in all
}

// plan is the configuration of a world.
type plan struct {
	links   []wan.Link
	oneDC   bool // the sites are of one data centre
	fastJIT bool
	faults  bool          // nodes can be tampered with, and one that is killed forgets no acknowledged write
	lease   time.Duration // of the proxies' sessions
	maxWait time.Duration // how long a LOCK may wait; 0: as the proxy has it
}

// near is sites of one region, so that much happens in a run.
func near() plan {
	return plan{lease: lease, fastJIT: true, faults: true, links: []wan.Link{
		{A: 1, B: 2, RTT: 6 * time.Millisecond}, {A: 1, B: 3, RTT: 8 * time.Millisecond}, {A: 2, B: 3, RTT: 3 * time.Millisecond},
	}}
}

// replication is that of a keyspace with a replica at each site.
func (o plan) replication() string {
	if o.oneDC {
		return fmt.Sprintf("{'class': 'NetworkTopologyStrategy', 'dc1': %d}", sites)
	}
	return "{'class': 'NetworkTopologyStrategy', 'dc1': 1, 'dc2': 1, 'dc3': 1}"
}

// build makes a world, or skips the test if this process may not emulate a network.
func build(t *testing.T, o plan) *world {
	t.Helper()
	if _, err := os.Stat("/dev/net/tun"); err != nil || os.Geteuid() != 0 {
		t.Skip("NO CHAOS: an emulated network needs root and /dev/net/tun")
	}
	w := &world{plan: o, dir: t.TempDir()}
	w.binary = filepath.Join(w.dir, "music")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", w.binary, "music/cmd/music").CombinedOutput()
	require.NoError(t, err, "build: %s", out)
	must(t, os.WriteFile(filepath.Join(w.dir, "secret"), []byte("nobody else is in this network"), 0o600))
	yaml := map[string]string{"write_request_timeout": "1500ms", "cas_contention_timeout": "2s"}
	if o.faults {
		yaml = cassandra.Durable(yaml)
	}
	w.network, err = wan.Start(wan.Options{Name: "chaos", Sites: sites, RTT: o.links})
	must(t, err)
	t.Cleanup(func() { must(t, w.network.Close()) })
	w.nodes, err = cassandra.Start(t.Context(), cassandra.Options{
		Dir: filepath.Join(w.dir, "nodes"), Nodes: sites, MultiDC: !o.oneDC, FastJIT: o.fastJIT, Faults: o.faults, Log: t.Output(),
		Address: func(k int) string { return w.network.Address(k, 1) },
		Network: cassandra.Network{Namespace: w.network.Namespace},
		Yaml:    yaml,
	})
	must(t, err)
	t.Cleanup(func() { must(t, w.nodes.Close()) })
	t.Cleanup(func() { w.keepLogs(t) })
	for k := 1; k <= sites; k++ {
		w.proxies[k-1] = &proxy{world: w, site: k}
		t.Cleanup(w.proxies[k-1].kill)
		must(t, w.proxies[k-1].start(t.Context()))
	}
	return w
}

// keepLogs copies the proxies' logs of a failed test to the run directory.
func (w *world) keepLogs(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	run, err := cassandra.DefaultRunDir()
	must(t, err)
	for _, p := range w.proxies {
		if raw, err := os.ReadFile(p.log()); err == nil {
			kept := filepath.Join(run, "chaos-"+filepath.Base(p.log()))
			must(t, os.WriteFile(kept, raw, 0o600))
			t.Logf("log of proxy %d: %s", p.site, kept)
		}
	}
}

// proxy is one process of the product, which may be killed and started again.
type proxy struct {
	world *world
	site  int

	mu  sync.Mutex
	cmd *exec.Cmd
}

func (p *proxy) host() string { return p.world.network.Address(p.site, 2) }

// metrics returns where the process serves its metrics.
func (p *proxy) metrics() string { return p.host() + ":9044" }

// log returns the path of the process's log.
func (p *proxy) log() string { return filepath.Join(p.world.dir, fmt.Sprintf("proxy%d.log", p.site)) }

// start starts the process and returns when it listens.
func (p *proxy) start(ctx context.Context) error {
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the child has its own
	cmd := exec.Command("ip", "netns", "exec", p.world.network.Namespace(p.site), p.world.binary, "proxy",
		"--contact-points", p.world.network.Address(p.site, 1), "--listen", p.host()+":9042", "--metrics-listen", p.metrics(),
		"--session-lease", p.world.plan.lease.String(),
		"--peer-listen", p.host()+":9043", "--peer-secret-file", filepath.Join(p.world.dir, "secret"))
	if w := p.world.plan.maxWait; w != 0 {
		cmd.Args = append(cmd.Args, "--max-wait", w.String())
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.mu.Lock()
	p.cmd = cmd
	p.mu.Unlock()
	return eventually(ctx, 40*time.Second, func(ctx context.Context) error {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", p.host()+":9042")
		if err != nil {
			return fmt.Errorf("proxy %d: %w", p.site, err)
		}
		return c.Close()
	})
}

// signal sends one; a process that is gone hears nothing.
func (p *proxy) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		_ = p.cmd.Process.Signal(sig)
	}
}

// wait waits until the process has ended.
func (p *proxy) wait() {
	p.mu.Lock()
	cmd := p.cmd
	p.cmd = nil
	p.mu.Unlock()
	if cmd != nil {
		_ = cmd.Wait() // killed, or told to end
	}
}

func (p *proxy) kill() {
	p.signal(syscall.SIGKILL)
	p.wait()
}

// eventually repeats try until it succeeds, within a limit.
func eventually(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("not within %v", limit), err)
		}
	}
}

// session opens a driver's session that uses one server and no other.
func session(host string, timeout time.Duration) (*gocql.Session, error) {
	return cluster(host, timeout).CreateSession()
}

// cluster returns the driver's configuration.
func cluster(host string, timeout time.Duration) *gocql.ClusterConfig {
	c := gocql.NewCluster(host)
	c.ProtoVersion, c.NumConns, c.Timeout, c.ConnectTimeout = 4, 2, timeout, 2*time.Second
	c.HostFilter = gocql.WhiteListHostFilter(host)
	c.ReconnectInterval = 500 * time.Millisecond
	c.Consistency = gocql.Quorum
	c.Logger = gocql.NewLogger(gocql.LogLevelNone)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	require.NoError(t, err)
}

// staysAtHome has a proxy serve locks, and checks that it sends its requests to the node of its own
// site.
func (w *world) staysAtHome(t *testing.T, proxy *gocql.Session) {
	t.Helper()
	node, err := session(w.network.Address(2, 1), patience)
	must(t, err)
	defer node.Close()
	site := strings.TrimSuffix(w.network.Address(1, 1), "1")
	before := asked(t, node, site)
	const sections = 50
	for i := range sections {
		row := map[string]any{}
		must(t, proxy.Query(fmt.Sprintf("LOCK chaos.t WHERE k = 'home%d'", i)).MapScan(row))
		must(t, proxy.Query(fmt.Sprintf("UPDATE chaos.t USING LOCK %v SET v = 1 WHERE k = 'home%d'", row["lock_ref"], i)).Exec())
		must(t, proxy.Query(fmt.Sprintf("UNLOCK chaos.t WHERE k = 'home%d' USING LOCK %v", i, row["lock_ref"])).Exec())
	}
	n := asked(t, node, site) - before
	assert.Less(t, n, int64(sections/2), "for %d sections at site 1 the node of site 2 was asked %d times", sections, n)
}

// asked returns how many requests a node has had from clients at a site, whose addresses have this
// prefix.
func asked(t *testing.T, node *gocql.Session, site string) (n int64) {
	t.Helper()
	all := node.Query("SELECT address, request_count FROM system_views.clients").Iter()
	var address string
	for requests := int64(0); all.Scan(&address, &requests); {
		if strings.HasPrefix(address, site) {
			n += requests
		}
	}
	must(t, all.Close())
	return n
}

// countLoans adds the loans that each proxy has taken since it was asked before, if it answers. A proxy
// that was started anew has counted from nothing.
func (w *world) countLoans() {
	for i, p := range w.proxies {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		n, err := p.loans(ctx)
		cancel()
		if err != nil {
			continue
		}
		if n < w.counted[i] {
			w.counted[i] = 0
		}
		w.loans[i], w.counted[i] = w.loans[i]+n-w.counted[i], n
	}
}

// loans returns how many loans a proxy has taken since it was started.
func (p *proxy) loans(ctx context.Context) (int, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.metrics()+"/metrics", http.NoBody)
	if err != nil {
		return 0, err
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nmusic_loans_total ")
	n, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(n)
}
