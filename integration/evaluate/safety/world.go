package safety

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/cassandra"
	"music/integration/evaluate/curator"
	"music/integration/evaluate/ensemble"
	"music/integration/evaluate/ours"
	"music/integration/evaluate/section"
	"music/integration/evaluate/shedlock"
	"music/integration/evaluate/store"
	"music/integration/wan"
)

// sites is the number of sites with a node and a proxy. Client k is alone at site sites+k, which
// has no distance to site k: so its packets can be held back without those of others.
const sites = 3

// keyspace is the keyspace of all systems, with a replica at each site.
const keyspace = "safety"

// world is three sites in an emulated network.
type world struct {
	dir     string
	mine    bool   // dir: the network is, which there is once
	program string // of the product
	log     io.Writer
	network *wan.WAN
	nodes   *cassandra.Cluster
	proxies [sites]*ours.Proxy
	others  map[string]*servers // by name
	keeper  func()              // ends the housekeeping service; nil: there is none yet
}

// servers are those of ZooKeeper or etcd, and the program of their clients.
type servers struct {
	all     ensemble.Ensemble
	program []string
}

// build makes a world. On an error nothing is left.
func build(ctx context.Context, log io.Writer) (*world, error) {
	run, err := cassandra.DefaultRunDir()
	if err != nil {
		return nil, err
	}
	w := &world{dir: filepath.Join(run, "evaluate-safety"), log: log}
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("build a world: %w", err), w.close())
	}
	return w, nil
}

// start starts everything, and makes the keyspace with every system's tables.
func (w *world) start(ctx context.Context) (err error) {
	if w.program, err = ours.Build(ctx); err != nil {
		return err
	}
	if w.network, err = wan.Start(wan.Options{Name: "safety", Sites: 2 * sites}); err != nil {
		return err
	}
	w.mine = true
	if err := os.MkdirAll(w.dir, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(w.dir, "secret"), []byte("nobody else is in this network"), 0o600); err != nil {
		return err
	}
	w.nodes, err = cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(w.dir, "nodes"), Nodes: sites, FastJIT: true, Faults: true, Log: w.log,
		Address: func(k int) string { return w.network.Address(k, 1) }, Network: cassandra.Network{Namespace: w.network.Namespace},
		Yaml: cassandra.Durable(map[string]string{"write_request_timeout": "1500ms", "cas_contention_timeout": "2s"}),
	})
	if err != nil {
		return err
	}
	for site := 1; site <= sites; site++ {
		if err := patiently(ctx, func() error { return w.startProxy(ctx, site) }); err != nil {
			return err
		}
	}
	w.startOthers(ctx)
	return w.prepare(ctx)
}

// startOthers starts ZooKeeper and etcd, a server at each site. What cannot be had is left out, and its systems are not tried.
func (w *world) startOthers(ctx context.Context) {
	w.others = map[string]*servers{}
	for name, fetch := range map[string]func() (ensemble.Kind, []string, error){
		zooKeeper: func() (ensemble.Kind, []string, error) {
			kind, err := ensemble.ZooKeeper(ctx, w.log)
			if err != nil {
				return kind, nil, err
			}
			program, err := curator.Program().Build(ctx, w.log)
			return kind, program, err
		},
		etcd: func() (ensemble.Kind, []string, error) {
			kind, err := ensemble.Etcd(ctx)
			if err != nil {
				return kind, nil, err
			}
			program, err := ensemble.EtcdClient(ctx)
			return kind, []string{program}, err
		},
	} {
		kind, program, err := fetch()
		var all ensemble.Ensemble
		if err == nil {
			all, err = kind.StartAll(ctx, sites, func(i int) ensemble.Member { return w.member(name, i) })
		}
		if err != nil {
			_, _ = fmt.Fprintf(w.log, "no %s: %v\n", name, err)
			continue
		}
		w.others[name] = &servers{all, program}
	}
	if program, err := shedlock.Program().Build(ctx, w.log); err == nil {
		w.others[shedLock] = &servers{program: program}
	} else {
		_, _ = fmt.Fprintf(w.log, "no %s: %v\n", shedLock, err)
	}
}

// member is a server beside the node of a site.
func (w *world) member(name string, i int) ensemble.Member {
	m := ensemble.Member{Index: i, Namespace: w.network.Namespace(i + 1), Dir: filepath.Join(w.dir, fmt.Sprint(name, i+1)), Fast: true}
	for site := 1; site <= sites; site++ {
		m.Members = append(m.Members, w.network.Address(site, 1))
	}
	return m
}

// prepare makes the keyspace, and the tables by opening each system once.
func (w *world) prepare(ctx context.Context) error {
	c := gocql.NewCluster(w.network.Address(1, 1))
	c.HostFilter = gocql.WhiteListHostFilter(w.network.Address(1, 1))
	c.Timeout, c.ConnectTimeout = 2*storeTimeout, 2*storeTimeout
	c.Logger = gocql.NewLogger(gocql.LogLevelNone)
	admin, err := c.CreateSession()
	if err != nil {
		return err
	}
	defer admin.Close()
	err = admin.Query("CREATE KEYSPACE IF NOT EXISTS " + keyspace + " WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}").ExecContext(ctx)
	if err != nil {
		return err
	}
	for _, s := range Systems() {
		if err := patiently(ctx, func() error { return w.makeTables(s) }); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	if err := w.nodes.Wait(ctx); err != nil {
		return err
	}
	return patiently(ctx, func() (err error) {
		w.keeper, err = keepHouse(store.Options{Hosts: w.place(1).Nodes, Keyspace: keyspace, Timeout: storeTimeout})
		return err
	})
}

// makeTables has a client of a system make its tables.
func (w *world) makeTables(s System) error {
	client, err := s.open(w.place(1))
	if errors.Is(err, errNoServer) {
		return nil
	}
	if err == nil {
		client.Close()
	}
	return err
}

// patiently tries something until it succeeds, for some minutes: on a busy machine, what waits for nodes gives up.
func patiently(ctx context.Context, do func() error) error {
	const limit = 3 * time.Minute
	ctx, end := context.WithTimeout(ctx, limit)
	defer end()
	for {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		section.Rest(ctx, time.Second)
	}
}

// place returns the place of client k.
func (w *world) place(k int) Place {
	p := Place{Proxy: w.network.Address(k, 2), Servers: map[string]beside{}, Keyspace: keyspace}
	for name, o := range w.others {
		b := beside{Program: o.program}
		if len(o.all) > 0 {
			b.Endpoint = o.all[k-1].Endpoint
		}
		p.Servers[name] = b
	}
	for i := range sites {
		p.Nodes = append(p.Nodes, w.network.Address(1+(k-1+i)%sites, 1)+":9042")
	}
	return p
}

// startProxy starts the proxy of a site.
func (w *world) startProxy(ctx context.Context, site int) (err error) {
	log, err := os.OpenFile(filepath.Join(w.dir, fmt.Sprintf("proxy%d.log", site)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	w.proxies[site-1], err = ours.StartProxy(ctx, ours.ProxyOptions{
		Program: w.program, Node: w.network.Address(site, 1), Listen: w.network.Address(site, 2),
		Secret: filepath.Join(w.dir, "secret"), Namespace: w.network.Namespace(site), Log: log,
		Settings: []string{"--session-lease", "3s", "--max-wait", "6s"},
	})
	return err
}

// signal signals the proxy of a site.
func (w *world) signal(site int, s syscall.Signal) {
	if p := w.proxies[site-1]; p != nil {
		_ = p.Signal(s) // one that has ended hears nothing
	}
}

// each sends a command to the nodes of some sites (see cassandra.Node.Fault).
func (w *world) each(ctx context.Context, command string, at ...int) error {
	for _, site := range at {
		if _, err := w.nodes.Nodes()[site-1].Fault(ctx, command); err != nil {
			return err
		}
	}
	return nil
}

// has implements stage.
func (w *world) has(need string) bool { return need == "" || w.others[need] != nil }

// close ends everything and removes it.
func (w *world) close() error {
	if w.keeper != nil {
		w.keeper()
	}
	for _, p := range w.proxies {
		if p != nil {
			_ = p.Signal(syscall.SIGCONT)
			p.Kill()
		}
	}
	for _, o := range w.others {
		o.all.Kill()
	}
	var faults []error
	if w.nodes != nil {
		faults = append(faults, w.nodes.Wipe())
	}
	if w.network != nil {
		faults = append(faults, w.network.Close())
	}
	if w.mine {
		faults = append(faults, os.RemoveAll(w.dir))
	}
	return errors.Join(faults...)
}
