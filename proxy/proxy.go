// Package proxy connects the parts of the product: it dials Cassandra, follows its schema, carries
// out the commands of the lock protocol, and serves drivers through package frontend.
package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"music/config"
	"music/frontend"
	"music/frontend/traffic"
	"music/proxy/certs"
)

// shutdownGrace is what each step of a proxy's end may take beside the setting shutdown-timeout.
const shutdownGrace = 300 * time.Millisecond

// Logs are where a proxy writes to. Neither may block for long.
type Logs struct {
	Log   zerolog.Logger
	Audit zerolog.Logger // docs/audit.md
}

// Run serves until ctx ends, then drains and returns nil. It returns an error if the proxy cannot
// start or cannot go on. From each configuration that comes from reloads, which may be nil, it
// applies the settings that a running proxy can change (see [config.Reload]). /metrics also shows
// the collectors beside.
//
// The parts are started in this order: health; the session with Cassandra, the shards of the locks
// and the schema (startLockService); the membership among other proxies; the listener for drivers
// (serve).
func Run(ctx context.Context, cfg config.Config, logs Logs, reloads <-chan config.Config, beside ...prometheus.Collector) error {
	stats, log := &traffic.Stats{}, logs.Log
	p := &process{cfg: cfg, log: log, auditLog: logs.Audit, registry: newRegistry(stats)}
	p.registry.MustRegister(beside...)
	p.applySettings(cfg)
	checkFiles(cfg.Limits.MaxConnections, log)
	var err error
	if p.drivers, err = certs.Drivers(cfg.Listen, sampled(log)); err != nil {
		return err
	}
	health, err := listenHealth(ctx, cfg.Listen, log)
	if err != nil {
		return err
	}
	if health != nil {
		defer func() { _ = health.Close() }() // a second Close if it was served
		p.health = health.Addr().String()
	}
	if p.home, err = newHome(cfg.Cassandra, log); err != nil {
		return err
	}
	advertise, err := advertised(ctx, cfg.Listen)
	if err != nil {
		return err
	}
	work, fail := context.WithCancelCause(ctx)
	healthCtx, endHealth := context.WithCancel(context.WithoutCancel(ctx)) // health is served to the very end
	p.running.Go(func() {
		if err := serveHealth(healthCtx, health, p.registry, func() (bool, string) { return p.readiness(work) }); err != nil {
			fail(err)
		}
	})
	p.running.Go(func() { p.follow(work, reloads) })
	p.running.Go(func() {
		if err := p.watchIdentity(work); err != nil {
			fail(err)
		}
	})
	err = p.work(work, p.options(advertise, stats))
	fail(err)
	endHealth()
	p.running.Wait()
	if ctx.Err() != nil {
		return nil // the end was requested: errors that it caused do not count
	}
	return context.Cause(work)
}

// work serves drivers until ctx ends, with locks if the configuration has them.
func (p *process) work(ctx context.Context, o frontend.Options) error {
	if !p.cfg.Music.Locks {
		p.running.Go(func() { p.introduce(ctx, "") })
		return p.serve(ctx, frontend.NewServer(o), nil)
	}
	s, err := p.startLockService(ctx, o.Advertise.String())
	if err != nil {
		return err
	}
	p.stalled.Store(&s.watchdog.tripped)
	end := newDeadline(ctx, p.cfg.Limits.ShutdownTimeout)
	defer func() { s.stop(end.get()) }()
	stopDraining := context.AfterFunc(ctx, s.drain)
	defer stopDraining()
	m := newMembers(s, p, o.Advertise)
	if err := m.join(ctx, p.cfg.Music.ExpectProxies); err != nil {
		return err
	}
	server := frontend.NewServer(p.withLocks(o, s, m))
	s.schema.serving(server)
	return p.serve(ctx, server, m)
}

// withLocks returns the options of a server that gives locks.
func (p *process) withLocks(o frontend.Options, s *lockService, m *members) frontend.Options {
	o.Tables, o.Locks, o.Nodes = s.tables, s.locks, m.nodes
	o.DDL, o.CatchUp, o.SchemaIsCurrent = s.schema.follow, s.schema.catchUp, s.schema.isCurrent
	o.References, o.Audit = s.references, s.audit.refused
	o.CriticalByName, o.Hindrance = p.critical.names, s.schema.hindrance
	return o
}

// process holds what the parts of a proxy share.
type process struct {
	cfg      config.Config
	log      zerolog.Logger
	auditLog zerolog.Logger
	registry *prometheus.Registry
	home     *home
	drivers  *certs.Source                   // TLS towards drivers; nil without
	limits   atomic.Pointer[frontend.Limits] // the present limits of clients
	critical criticalRules
	health   string                      // the address of metrics and health; empty = none
	ready    atomic.Bool                 // drivers are served
	unasked  atomic.Bool                 // other proxies serve the cluster, but cannot ask this one for its locks
	stalled  atomic.Pointer[atomic.Bool] // whether a shard is stalled; nil without locks
	running  sync.WaitGroup
}

// readiness reports whether drivers are served, with their locks, and what to tell people beside that.
// work ends with the shutdown.
func (p *process) readiness(work context.Context) (good bool, remark string) {
	standing := p.stalled.Load()
	switch {
	case work.Err() != nil:
		return false, "the proxy is shutting down"
	case !p.ready.Load():
		return false, "the node is not reached, or the start is not done yet: the log says why"
	case standing != nil && standing.Load():
		return false, "the locks of some keys stand still: the log says why"
	}
	return true, p.remark()
}

// options returns the options of a server without locks.
func (p *process) options(advertise netip.AddrPort, stats *traffic.Stats) frontend.Options {
	return frontend.Options{
		Cluster: frontend.Cluster{
			Dial: p.home.dial, Advertise: advertise,
			Roles: p.cfg.Cassandra.TLSClientsRole != "", RoleByCertificate: p.home.roleOfClients,
		},
		Timeouts: frontend.Timeouts{
			HandshakeTimeout: p.cfg.Limits.HandshakeTimeout, MessageTimeout: p.cfg.Limits.MessageTimeout, BackendTimeout: p.cfg.Limits.BackendTimeout,
			DrainTimeout: p.cfg.Limits.ShutdownTimeout, MaxWait: p.cfg.Music.MaxWait,
		},
		Limits: p.limits.Load,
		Log:    p.log, Stats: stats,
	}
}

// serve listens for drivers and serves them until ctx ends. If m is not nil it listens only while
// the home node answers.
func (p *process) serve(ctx context.Context, server *frontend.Server, m *members) error {
	if err := p.awaitIdentity(ctx); err != nil {
		return err
	}
	d := newListenerGate(p.cfg.Listen.Address, &p.ready)
	if err := d.open(ctx); err != nil {
		return err
	}
	p.log.Info().Stringer("listen", d.Addr()).Stringer("advertise", server.Advertise).Strs("contact_points", p.cfg.Cassandra.Addresses()).
		Bool("tls", p.cfg.Listen.Encrypted()).Bool("cassandra_tls", p.cfg.Cassandra.TLS).
		Bool("locks", server.Locks != nil).Msg("the proxy serves drivers")
	following, stop := context.WithCancel(ctx)
	var followers sync.WaitGroup
	if m != nil {
		followers.Go(func() { m.run(following, d, server.Tell) })
	}
	err := server.Serve(ctx, p.drivers.Listener(d))
	stop()
	followers.Wait()
	p.log.Info().Msg("the proxy no longer serves drivers")
	return err
}

// advertised returns the address that drivers are shown.
func advertised(ctx context.Context, l config.Listen) (netip.AddrPort, error) {
	_, port, err := net.SplitHostPort(l.Address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("listen: %w", err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("listen: port %q: %w", port, err)
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", l.AdvertiseHost())
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("advertise: %w", err)
	}
	return netip.AddrPortFrom(addresses[0].Unmap(), uint16(n)), nil
}

// within waits for f no longer than a limit; the end of the process takes what hangs along.
func within(limit time.Duration, f func()) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// deadline is a moment some time after the end of a context.
type deadline struct {
	after time.Duration
	ended atomic.Pointer[time.Time]
}

// newDeadline returns the deadline that comes after the end of ctx.
func newDeadline(ctx context.Context, after time.Duration) *deadline {
	d := &deadline{after: after}
	context.AfterFunc(ctx, func() {
		now := time.Now()
		d.ended.Store(&now)
	})
	return d
}

// get returns the deadline. If the context has not ended it is counted from now.
func (d *deadline) get() time.Time {
	if ended := d.ended.Load(); ended != nil {
		return ended.Add(d.after)
	}
	return time.Now().Add(d.after)
}
