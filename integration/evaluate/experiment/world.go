package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/cassandra"
	"music/integration/evaluate/ensemble"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/transaction"
	"music/integration/wan"
)

// Sites is the number of sites in a world, each with a node and a proxy.
const Sites = 3

// Profile is a choice of round trips between the sites.
type Profile struct {
	Name     string
	RTT      [Sites]time.Duration // between sites 1 and 2, 1 and 3, 2 and 3
	loopback bool                 // there is no network
}

// Profiles are those of the paper (Table II).
func Profiles() []Profile {
	ms := func(v float64) time.Duration { return time.Duration(v * float64(time.Millisecond)) }
	return []Profile{
		{Name: "I1", RTT: [Sites]time.Duration{ms(0.2), ms(15.14), ms(15.14)}},
		{Name: "IUs", RTT: [Sites]time.Duration{ms(53.79), ms(72.14), ms(24.2)}},
		{Name: "IUsEu", RTT: [Sites]time.Duration{ms(53.79), ms(100.56), ms(150.74)}},
	}
}

// Local is the profile for a machine that cannot emulate a network: three nodes on loopback.
func Local() Profile { return Profile{Name: "local", loopback: true} }

// Emulated reports whether the profile has a network of its own.
func (p Profile) Emulated() bool { return !p.loopback }

// Nearest returns the round trip from a site to the nearest other one, which a quorum takes there.
func (p Profile) Nearest(site int) time.Duration {
	if site == 1 {
		return min(p.RTT[0], p.RTT[1])
	}
	return min(p.RTT[site-2], p.RTT[2])
}

// Emulates returns why this machine cannot emulate a network; nil if it can.
func Emulates() error {
	if os.Geteuid() != 0 {
		return errors.New("an emulated network needs root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("an emulated network needs /dev/net/tun: %w", err)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("an emulated network needs iproute2: %w", err)
	}
	return nil
}

// Setup says which world to make.
type Setup struct {
	Profile Profile
	Paxos   string // v1 or v2
	Nodes   int    // of Cassandra, as many at each site; default one at each
	Heap    string // of a node; default 512m
	Release string // of Cassandra, as in Experiment
	Servers map[string]ensemble.Kind
	Sync    bool   // nodes acknowledge what is on disk
	Try     bool   // nodes start fast, and are slow then
	Program string // of the product
	Log     io.Writer
}

// Place is where a client is: at a site, whose node and proxy it uses. This process can connect to
// each of them directly, and so can every client in it.
type Place struct {
	Site     int
	Node     string            // host:port
	Proxy    string            // host; the port is 9042
	Servers  map[string]string // host:port, by the names of Setup.Servers
	Keyspace string
}

// World is three running sites. The caller of Build closes it.
type World struct {
	Setup
	network *wan.WAN // nil: none
	nodes   *cassandra.Cluster
	proxies [Sites]*ours.Proxy
	others  map[string]ensemble.Ensemble // by the names of Setup.Servers
	dir     string                       // "" where it is another's
	secret  string
	admin   *gocql.Session // of the first node
}

// theKeyspace is the keyspace of all systems, with a replica at each site.
const theKeyspace = "evaluate"

// networkName is that of the namespaces.
const networkName = "evaluate"

// Build makes a world. On an error nothing is left.
func Build(ctx context.Context, s Setup) (*World, error) {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return nil, err
	}
	s.Nodes, s.Heap = cmp.Or(s.Nodes, Sites), cmp.Or(s.Heap, "512m")
	w := &World{Setup: s, others: map[string]ensemble.Ensemble{}, dir: filepath.Join(run, "evaluate", "world")}
	if err := w.build(ctx); err != nil {
		w.spare(err)
		return nil, errors.Join(fmt.Errorf("build a world: %w", err), w.Close())
	}
	return w, nil
}

// spare keeps Close from removing the files of another evaluation that runs in this checkout, as an error says.
func (w *World) spare(err error) {
	if errors.Is(err, cassandra.ErrInUse) || errors.Is(err, wan.ErrInUse) {
		w.dir = ""
	}
}

// build starts network, nodes and proxies, and makes the keyspace.
func (w *World) build(ctx context.Context) (err error) {
	if err := os.MkdirAll(w.dir, 0o750); err != nil {
		return err
	}
	w.secret = filepath.Join(w.dir, "secret")
	if err := os.WriteFile(w.secret, []byte("nobody else is in this network"), 0o600); err != nil {
		return err
	}
	if err := w.connectSites(); err != nil {
		return err
	}
	if err := w.startNodes(ctx); err != nil {
		return err
	}
	for site := 1; site <= Sites; site++ {
		if err := w.StartProxy(ctx, site); err != nil {
			return err
		}
	}
	if err := w.startOthers(ctx); err != nil {
		return err
	}
	c := gocql.NewCluster(w.host(1, 1))
	c.HostFilter = gocql.WhiteListHostFilter(w.host(1, 1))
	c.Timeout, c.ConnectTimeout, c.Consistency = 30*time.Second, 30*time.Second, gocql.Quorum
	c.Logger = gocql.NewLogger(gocql.LogLevelNone)
	if w.admin, err = c.CreateSession(); err != nil {
		return err
	}
	return w.admin.Query("CREATE KEYSPACE " + theKeyspace +
		" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 1, 'dc2': 1, 'dc3': 1}").ExecContext(ctx)
}

// connectSites starts the network.
func (w *World) connectSites() (err error) {
	if !w.Profile.Emulated() {
		return nil
	}
	r := w.Profile.RTT
	w.network, err = wan.Start(wan.Options{
		Name: networkName, Sites: Sites, Off: machineDelay,
		RTT: []wan.Link{{A: 1, B: 2, RTT: r[0]}, {A: 1, B: 3, RTT: r[1]}, {A: 2, B: 3, RTT: r[2]}},
	})
	return err
}

// machineDelay is what an idle machine adds to a one-way delay.
const machineDelay = 50 * time.Microsecond

// startNodes starts Cassandra.
func (w *World) startNodes(ctx context.Context) (err error) {
	o := cassandra.Options{
		Dir: filepath.Join(w.dir, "nodes"), Nodes: w.Nodes, MultiDC: true, Heap: w.Heap, FastJIT: w.Try, Log: w.Log,
		Address: w.node,
		Yaml:    map[string]string{"paxos_variant": cmp.Or(w.Paxos, "v2"), "cas_contention_timeout": "3s"},
	}
	if w.Sync {
		o.Yaml = cassandra.Durable(o.Yaml)
	}
	if w.Release != "" {
		o.Release = w.Release
		maps.Copy(o.Yaml, transaction.Enabled())
	}
	if w.network != nil {
		o.Namespace = func(k int) string { return w.network.Namespace(siteOf(k)) }
	}
	w.nodes, err = cassandra.Start(ctx, o)
	return err
}

// siteOf returns the site of the k-th node.
func siteOf(k int) int { return 1 + (k-1)%Sites }

// node returns the address of the k-th node.
func (w *World) node(k int) string { return w.host(siteOf(k), 1+further*((k-1)/Sites)) }

// further is how far the addresses of the nodes of a site are apart: a proxy and the network's test are in between.
const further = 3

// startOthers starts the servers of ZooKeeper and etcd, beside the first node of each site.
func (w *World) startOthers(ctx context.Context) (err error) {
	var members []string
	for site := 1; site <= Sites; site++ {
		members = append(members, w.host(site, 1))
	}
	for name, kind := range w.Servers {
		w.others[name], err = kind.StartAll(ctx, Sites, func(i int) ensemble.Member {
			m := ensemble.Member{Members: members, Index: i, Dir: filepath.Join(w.dir, fmt.Sprint(name, i+1)), Fast: w.Try}
			if w.network != nil {
				m.Namespace = w.network.Namespace(i + 1)
			}
			return m
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// leaders says at which sites the leaders of ZooKeeper and etcd are.
func (w *World) leaders(ctx context.Context) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(w.others)) {
		if i, err := w.others[name].Leader(ctx); err == nil {
			all = append(all, fmt.Sprintf("%s's leader is at site %d.", name, i+1))
		}
	}
	return all
}

// StartProxy starts the proxy of a site, for the first time or after KillProxy.
func (w *World) StartProxy(ctx context.Context, site int) (err error) {
	o := ours.ProxyOptions{
		Program: w.Program, Node: w.host(site, 1), Listen: w.host(site, 2), Secret: w.secret,
		Settings: []string{"--max-wait", "6s", "--log-level", "error"},
	}
	if w.network != nil {
		o.Namespace = w.network.Namespace(site)
	}
	w.proxies[site-1], err = ours.StartProxy(ctx, o)
	return err
}

// KillProxy kills the proxy of a site.
func (w *World) KillProxy(site int) {
	if p := w.proxies[site-1]; p != nil {
		p.Kill()
	}
	w.proxies[site-1] = nil
}

// host returns the n-th address of a site: 1 is its node's, 2 its proxy's.
func (w *World) host(site, n int) string {
	if w.network == nil {
		return fmt.Sprintf("127.0.%d.%d", 21+n, site)
	}
	return w.network.Address(site, n)
}

// Place returns the place of clients at a site.
func (w *World) Place(site int) Place {
	p := Place{Site: site, Node: w.host(site, 1) + ":9042", Proxy: w.host(site, 2), Servers: map[string]string{}, Keyspace: theKeyspace}
	for name, all := range w.others {
		p.Servers[name] = all[site-1].Endpoint
	}
	return p
}

// Version returns the version of Cassandra.
func (w *World) Version(ctx context.Context) string {
	version := "unknown"
	_ = w.admin.Query("SELECT release_version FROM system.local").ScanContext(ctx, &version) // it stays unknown, then
	return version
}

// Close ends everything, and removes it.
func (w *World) Close() error {
	if w.admin != nil {
		w.admin.Close()
	}
	for site := 1; site <= Sites; site++ {
		w.KillProxy(site)
	}
	for _, all := range w.others {
		all.Kill()
	}
	var faults []error
	if w.nodes != nil {
		faults = append(faults, w.nodes.Wipe())
	}
	if w.network != nil {
		faults = append(faults, w.network.Close())
	}
	return errors.Join(append(faults, os.RemoveAll(w.dir))...) // nothing where it is ""
}
