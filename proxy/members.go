package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"music/config"
	"music/frontend"
	"music/frontend/topology"
)

const (
	lookEvery   = time.Second      // between two rounds of run
	readLimit   = 2 * time.Second  // for reading about the other proxies
	sweepEvery  = 10 * time.Second // between two calls of sweep
	leftAfter   = 30 * time.Second // a node that is not in the ring for so long has left it
	expectLimit = time.Minute      // for the proxies that are expected at start
)

// members is this proxy's membership in the cluster of proxies. It writes to music.proxies for
// which node this proxy stands, follows the others' rows there, and keeps the gate shut while the
// home node is down (docs/design.md 3). All methods but nodes must be called by one goroutine.
type members struct {
	session   *gocql.Session
	heartbeat *heartbeat
	home      *home
	cassandra config.Cassandra
	advertise netip.AddrPort
	log       zerolog.Logger

	conn    *homeConn // nil while there is no connection to the home node
	ring    ring      // as last seen
	login   *startLog
	private bool      // drivers on other machines cannot reach this proxy: it does not join the others
	taken   bool      // it was logged that another proxy stands for the home node, too
	wrote   uuid.UUID // the session with which this one's row was last written; zero before
	tracker peerTracker
	absent  map[uuid.UUID]time.Time // since when nodes with a proxy are not in the ring
	written map[uuid.UUID]int64     // when the rows of music.proxies were written, as they were last read
	swept   time.Time
	others  atomic.Pointer[[]topology.Node]
}

// newMembers returns the membership of a proxy that has not joined yet.
func newMembers(s *lockService, p *process, advertise netip.AddrPort) *members {
	return &members{
		session: s.heartbeat.session, heartbeat: s.heartbeat, home: p.home, cassandra: p.cfg.Cassandra, advertise: advertise, log: p.log,
		login: newStartLog(p.log), absent: map[uuid.UUID]time.Time{}, written: map[uuid.UUID]int64{},
	}
}

// nodes returns the nodes beside the home node that have a proxy. Any goroutine may call it.
func (m *members) nodes() []topology.Node {
	if all := m.others.Load(); all != nil {
		return *all
	}
	return nil
}

// join writes this proxy's row, before it listens for drivers, and blocks until as many proxies are
// known as are expected. It returns an error if this proxy and another one cannot serve the same
// drivers.
func (m *members) join(ctx context.Context, expected int) error {
	if err := m.reachHome(ctx); err != nil {
		return err
	}
	if err := untilAnswered(ctx, m.log, func() error { return m.heartbeat.checkVersions(ctx) }); err != nil {
		return err
	}
	if m.private = unreachable(m.advertise, m.ring.home.native); m.private {
		m.log.Info().Stringer("advertise", m.advertise).Msg("the proxy does not join others: no other machine can reach it at its advertised address")
		return nil
	}
	if err := m.checkOthers(ctx); err != nil {
		return err
	}
	if err := untilAnswered(ctx, m.log, func() error { return m.write(ctx, false) }); err != nil {
		return err
	}
	return m.expect(ctx, expected)
}

// unreachable reports whether drivers on other machines could not reach this proxy at its
// advertised address: it is a loopback address while the node's is not, or the port is not known.
func unreachable(advertise, node netip.AddrPort) bool {
	return advertise.Port() == 0 || advertise.Addr().IsLoopback() && !node.Addr().IsLoopback()
}

// reachHome blocks until the home node answers, or ctx ends.
func (m *members) reachHome(ctx context.Context) error {
	err := newStartLog(m.log).until(ctx, "the home node does not answer yet; the proxy listens for drivers when it does", anyError, func() error { return m.lookHome(ctx) })
	if err != nil {
		return fmt.Errorf("reach the home node: %w", err)
	}
	return nil
}

// lookHome asks the home node for the ring, over the open connection or a new one.
func (m *members) lookHome(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.home.timeout)
	defer cancel()
	if m.conn != nil && m.conn.at == m.home.current.Load() {
		half, release := context.WithTimeout(ctx, m.home.timeout/2)
		r, err := m.conn.ring(half)
		release()
		if err == nil {
			m.saw(r)
			return nil
		}
	}
	m.leaveHome()
	l, err := dialHome(ctx, m.home, m.cassandra)
	if err != nil {
		return err
	}
	r, err := l.ring(ctx)
	if err != nil {
		l.close()
		return err
	}
	m.conn = l
	m.saw(r)
	return nil
}

// saw stores the ring that the home node has reported.
func (m *members) saw(r ring) {
	m.ring = r
	id := r.home.host.String()
	m.home.host.Store(&id)
}

// leaveHome ends the connection to the home node.
func (m *members) leaveHome() {
	if m.conn != nil {
		m.conn.close()
		m.conn = nil
	}
}

// expect blocks until n proxies are known, including this one, but for at most expectLimit.
func (m *members) expect(ctx context.Context, n int) error {
	limited, cancel := context.WithTimeout(ctx, expectLimit)
	defer cancel()
	for told := false; ; told = true {
		all, err := m.readSurely(ctx)
		if err != nil {
			return err
		}
		m.follow(all)
		switch {
		case len(all) >= n:
			return nil
		case !told:
			m.log.Info().Int("known", len(all)).Int("expected", n).Msg("the proxy waits for the others before it listens")
		}
		if !pause(limited, lookEvery) {
			if ctx.Err() != nil {
				return fmt.Errorf("wait for the other proxies: %w", ctx.Err())
			}
			m.log.Warn().Int("known", len(all)).Int("expected", n).Msg("not all expected proxies have joined: drivers will be told of the others when they do")
			return nil
		}
	}
}

// run follows the home node and the other proxies until ctx ends: it opens and shuts the gate, and
// calls tell for changes of the other proxies.
func (m *members) run(ctx context.Context, g *listenerGate, tell func(frontend.Change, netip.AddrPort)) {
	defer m.leaveHome()
	for {
		m.look(ctx, g, tell)
		if !pause(ctx, lookEvery) {
			return
		}
	}
}

// look does one round of run. What fails is tried again in the next round.
func (m *members) look(ctx context.Context, g *listenerGate, tell func(frontend.Change, netip.AddrPort)) {
	at := m.ring.home.host
	down := m.lookHome(ctx)
	if ctx.Err() != nil {
		return
	}
	if at != m.ring.home.host {
		m.log.Warn().Stringer("node", m.ring.home.host).Stringer("address", m.ring.home.native).Msg("the proxy stands for another node now")
	}
	m.setGate(ctx, g, down)
	if m.private {
		return
	}
	all, err := m.readAll(ctx)
	if err != nil {
		m.log.Debug().Err(err).Msg("the rows of the other proxies could not be read")
		return
	}
	limited, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	err = m.correctRows(limited, all, down == nil, g.isOpen())
	if down == nil && time.Since(m.swept) >= sweepEvery {
		m.swept = time.Now()
		err = errors.Join(err, m.sweep(limited))
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn().Err(err).Msg("music.proxies could not be brought up to date")
	}
	m.follow(all)
	for _, n := range m.tracker.update(time.Now(), m.known(all), m.serves) {
		m.log.Info().Str("change", string(n.change)).Stringer("proxy", n.proxy).Msg("drivers are told of another proxy")
		tell(n.change, n.proxy)
	}
}

// setGate keeps the gate open while the home node answers.
func (m *members) setGate(ctx context.Context, g *listenerGate, down error) {
	if refused(down, primitive.ErrorCodeAuthenticationError) {
		m.login.say(down, "")
	}
	switch {
	case down != nil && g.isOpen():
		m.log.Warn().Err(down).Msg("the home node is down: the proxy does not listen until it is back")
		g.shut()
	case down == nil && !g.isOpen():
		if err := g.open(ctx); err != nil {
			m.log.Warn().Err(err).Msg("the proxy cannot listen")
			return
		}
		m.log.Info().Stringer("listen", g.Addr()).Msg("the home node is back: the proxy listens again")
	}
}

// follow stores which proxies there are now. A proxy that is not alone must stay with its node.
func (m *members) follow(all []member) {
	m.home.bound.Store(slices.ContainsFunc(all, func(o member) bool { return o.host != m.ring.home.host && o.proxy != m.advertise }))
	nodes := visibleNodes(m.known(all), m.ring)
	m.others.Store(&nodes)
}

// known returns the other proxies whose node is in the ring.
func (m *members) known(all []member) []member {
	return slices.DeleteFunc(slices.Clone(all), func(o member) bool {
		_, in := m.ring.others[o.host]
		return !in || o.proxy == m.advertise
	})
}

// serves reports whether drivers can use another proxy.
func (m *members) serves(o member) bool {
	_, alive := m.heartbeat.others.alive(gocql.UUID(o.session))
	return o.serving && alive
}

// advertisedIP returns an address in the form of music.proxies.
func advertisedIP(ip net.IP, port int) netip.AddrPort {
	address, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(address.Unmap(), uint16(port))
}
