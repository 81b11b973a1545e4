package proxy

import (
	"context"
	"net"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/config"
	"music/frontend/catalog"
	"music/musiccore"
	"music/proxy/certs"
	"music/proxy/peer"
)

// connections are the sockets of the lock service: the proxy's own session with Cassandra, and the
// port for other proxies.
type connections struct {
	session  *gocql.Session
	release  string    // Cassandra's release
	locality *locality // the sessions within one data centre
	certs    *certs.Source
	peers    net.Listener // nil if other proxies cannot ask this one
	address  string       // the address that other proxies dial
}

// connect blocks until Cassandra answers, and opens the port for other proxies, on which no
// question is answered yet.
func (p *process) connect(ctx context.Context) (*connections, error) {
	source, err := certs.Proxies(p.cfg.Peers, sampled(p.log))
	if err != nil {
		return nil, err
	}
	session, err := openService(ctx, p.cfg.Cassandra, p.home, p.log)
	if err != nil {
		return nil, err
	}
	c := &connections{session: session, locality: newLocality(p.cfg.Cassandra, p.home.nodes), certs: source}
	if c.peers, c.address, err = peer.Listen(ctx, p.cfg.Peers, source); err == nil {
		p.introduce(ctx, c.address)
		err = untilAnswered(ctx, p.log, func() (err error) {
			c.release, err = checkRelease(ctx, session)
			return err
		})
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// close closes the sessions, and the port for other proxies. It blocks for at most shutdownGrace: gocql 2.1.2
// blocks for ever if its control connection is just being reopened.
func (c *connections) close() {
	if c.peers != nil {
		_ = c.peers.Close()
	}
	within(shutdownGrace, func() {
		c.locality.close()
		c.session.Close()
	})
}

// lockService is the part of the proxy that gives locks.
type lockService struct {
	connections *connections
	heartbeat   *heartbeat
	references  *references
	locks       *locks
	audit       *audit
	tables      *catalog.Tables
	schema      *schema
	watchdog    *watchdog
	near        *nearCommits // nil if the configuration turns it off
	peers       *peer.Server

	abandon    context.CancelFunc // cancels commands, and questions of other proxies
	answering  sync.WaitGroup     // the goroutine that answers other proxies
	cancel     context.CancelFunc // ends background
	background sync.WaitGroup
}

// startLockService blocks until Cassandra answers, creates what is missing there, and begins to
// beat and to answer other proxies. stop must be called in the end.
func (p *process) startLockService(ctx context.Context, advertise string) (*lockService, error) {
	c, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	commands, abandon := context.WithCancel(context.Background())
	s := p.newLockService(commands, c, advertise)
	s.abandon = abandon
	if err := s.begin(ctx, p.cfg.Music.Replication); err != nil {
		abandon()
		s.locks.close()
		c.close()
		return nil, err
	}
	background, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.background.Go(func() { s.heartbeat.run(background, s.locks, s.schema) })
	s.background.Go(func() { s.watchdog.run(background) })
	s.background.Go(func() { s.audit.run(background) })
	s.background.Go(func() { s.schema.watch(background) })
	if s.near != nil {
		s.background.Go(func() { s.near.run(background) })
	}
	if c.peers == nil {
		s.background.Go(func() { p.watchUnasked(background, s.heartbeat) })
		return s, nil
	}
	s.answering.Go(func() { s.peers.Serve(commands, c.peers) })
	return s, nil
}

// newLockService makes the parts of the lock service and connects them. It neither reads nor writes
// anything in Cassandra. commands is the context of the core's commands.
func (p *process) newLockService(commands context.Context, c *connections, advertise string) *lockService {
	s := &lockService{connections: c, references: new(references), tables: catalog.NewTables()}
	options, clocks := coreOptions(p.cfg.Music, p.cfg.Limits), new(clock)
	s.heartbeat = newHeartbeat(c.session, clocks, options, sessionConfig{
		address: c.address, references: s.references,
	}, p.log)
	s.heartbeat.register(p.registry)
	critical := newCriticalTables()
	if p.cfg.Music.LockCommit == "auto" {
		s.near = &nearCommits{session: c.session, log: p.log}
	}
	executor := &executor{session: c.session, tables: critical, near: s.near}
	channel := peer.Channel{Secret: string(p.cfg.Peers.Secret), Certs: c.certs, Wait: options.Wait, OpTimeout: options.OpTimeout}
	s.audit = newAudit(p.auditLog, p.cfg.Log.Audit, advertise, critical)
	s.locks = newLocks(commands, s.heartbeat.self.Load(), options, lockDeps{
		clock: clocks, tables: critical, do: bounded(executor.do, commandsAtOnce), log: p.log, reports: reports{s.audit, newLockMetrics(p.registry, critical, p.cfg.Music.NamedTables())},
		peers: peer.NewClient(channel, &s.heartbeat.others, sampled(p.log), p.registry), living: s.heartbeat.living,
	})
	reader := schemaReader{session: c.session, clock: clocks, release: c.release, locality: c.locality, home: p.home.id, rules: &p.critical}
	s.schema = newSchema(reader, s.tables, critical, s.heartbeat, s.locks.each)
	s.watchdog = newWatchdog(options.SessionLease, s.heartbeat.resign, s.locks.shards, p.log)
	s.peers = peer.NewServer(channel.Secret, s.heartbeat.id, local{s.locks}, local{s.locks}, sampled(p.log))
	return s
}

// coreOptions returns the core's options by the settings.
func coreOptions(m config.Music, l config.Limits) musiccore.Options {
	o := musiccore.Defaults()
	o.Waiters = l.Waiters
	o.SessionLease, o.ClientLease, o.Wait, o.Retain = m.SessionLease, m.ClientLease, m.MaxWait, m.Retain
	return o
}

// begin creates what is missing in Cassandra, begins to beat, and reads what must be known before the first lock.
func (s *lockService) begin(ctx context.Context, replication string) error {
	session := s.connections.session
	for _, step := range []func() error{
		func() error { return ensureKeyspace(ctx, session, replication) },
		func() error { return s.references.begin(ctx, session) },
		func() error { return s.heartbeat.checkVersions(ctx) },
	} {
		if err := untilAnswered(ctx, s.heartbeat.log, step); err != nil {
			return err
		}
	}
	return s.beginSession(ctx)
}

// beginSession writes the first beat, and reads the schema. If it fails it ends the session: who changes the
// schema would wait for it until its lease is over.
func (s *lockService) beginSession(ctx context.Context) error {
	for _, step := range []func() error{
		func() error { return s.heartbeat.beat(ctx) },
		func() error { return s.schema.begin(ctx) },
	} {
		if err := untilAnswered(ctx, s.heartbeat.log, step); err != nil {
			ending, ended := context.WithTimeout(context.Background(), shutdownGrace)
			defer ended()
			s.heartbeat.end(ending)
			return err
		}
	}
	return nil
}

// drain ends granting. Clients that wait for a lock are answered at once, and continue at another
// proxy.
func (s *lockService) drain() {
	s.peers.Drain()
	s.locks.each(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Drain(now) })
}

// stop ends the session in good order: until deadline what is unsettled is settled, and the other
// proxies are told, so that none has to wait for the session lease. What has to end before takes
// nothing of the time for that.
func (s *lockService) stop(deadline time.Time) {
	s.drain()
	settling, settled := context.WithDeadline(context.Background(), deadline)
	defer settled()
	s.heartbeat.drain(settling, s.locks)
	s.cancel()
	within(shutdownGrace, s.background.Wait)
	ending, ended := context.WithTimeout(context.Background(), max(shutdownGrace, time.Until(deadline)))
	defer ended()
	if !s.locks.hasLoansOut() { // else others wait for the session lease: what was lent rests on it
		s.heartbeat.end(ending)
	}
	s.abandon()
	s.answering.Wait()
	s.locks.close()
	s.audit.flush()
	s.connections.close()
}
