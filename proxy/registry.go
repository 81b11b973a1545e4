package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"
)

// errMembers means that proxies cannot serve the same drivers. An error that wraps it tells which,
// why, and what to do.
var errMembers = errors.New("proxies of one cluster do not fit together")

// selectProxies is the query whose rows scan reads.
const selectProxies = "SELECT host_id, address, port, session, serving, WRITETIME(serving) FROM music.proxies"

// unsaidVersion is the version in music.proxies. Old proxies, which do not read that in
// music.sessions, refuse to serve beside any other.
const unsaidVersion = "1"

// read reads the proxies of the nodes that are in the ring.
func (m *members) read(ctx context.Context) ([]member, error) {
	return m.scan(ctx, m.session.Query(selectProxies+" WHERE host_id IN ?", m.ring.hosts()))
}

// scan reads rows of music.proxies, and notes when they were written.
func (m *members) scan(ctx context.Context, query *gocql.Query) ([]member, error) {
	iter := query.Consistency(gocql.Quorum).IterContext(ctx)
	var all []member
	var host, session gocql.UUID
	var address net.IP
	var port int
	var serving bool
	var written int64
	for iter.Scan(&host, &address, &port, &session, &serving, &written) {
		m.written[uuid.UUID(host)] = written
		all = append(all, member{
			host: uuid.UUID(host), proxy: advertisedIP(address, port), session: uuid.UUID(session), serving: serving,
		})
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read music.proxies: %w", err)
	}
	return all, nil
}

// readAll reads the proxies of the ring, and their beats.
func (m *members) readAll(ctx context.Context) ([]member, error) {
	limited, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	all, err := m.read(limited)
	if err != nil {
		return nil, err
	}
	sessions := make([]gocql.UUID, 0, len(all))
	for _, o := range all {
		sessions = append(sessions, gocql.UUID(o.session))
	}
	return all, m.heartbeat.others.lookAt(limited, sessions)
}

// readSurely calls readAll until it succeeds or ctx ends.
func (m *members) readSurely(ctx context.Context) ([]member, error) {
	var all []member
	err := newStartLog(m.log).until(ctx, "the rows of the other proxies cannot be read yet; the proxy listens for drivers when they can", anyError, func() (err error) {
		all, err = m.readAll(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look at the other proxies: %w", err)
	}
	return all, nil
}

// write writes this proxy's row, that of the home node, above what was read there: a clock may have been ahead when
// that was written, and what is stamped by one that is right now would be hidden for as long.
func (m *members) write(ctx context.Context, serving bool) error {
	err := m.session.Query("INSERT INTO music.proxies (host_id, address, port, session, version, serving) VALUES (?, ?, ?, ?, ?, ?)",
		gocql.UUID(m.ring.home.host), net.IP(m.advertise.Addr().AsSlice()), int(m.advertise.Port()), m.self(), unsaidVersion, serving).
		WithTimestamp(max(time.Now().UnixMicro(), m.written[m.ring.home.host]+1)).Consistency(gocql.Quorum).ExecContext(ctx)
	if err != nil {
		return fmt.Errorf("write music.proxies: %w", err)
	}
	m.wrote, m.taken = uuid.UUID(m.self()), false
	return nil
}

// remove deletes the row of a proxy whose node has left the ring, or that now stands for another
// node, as it was read: no clock hides what is written there later.
func (m *members) remove(ctx context.Context, o member) error {
	m.log.Info().Stringer("node", o.host).Stringer("proxy", o.proxy).Msg("a proxy is removed from the list: its node has left, or it stands for another one")
	err := m.session.Query("DELETE FROM music.proxies WHERE host_id = ?", gocql.UUID(o.host)).
		WithTimestamp(m.written[o.host]).Consistency(gocql.Quorum).ExecContext(ctx)
	if err != nil {
		return fmt.Errorf("delete from music.proxies: %w", err)
	}
	delete(m.absent, o.host) // nothing asks for it any more
	return nil
}

// self returns the session of this proxy.
func (m *members) self() gocql.UUID { return gocql.UUID(m.heartbeat.id()) }

// correctRows corrects music.proxies: it writes this proxy's row if that is not right, and deletes other
// rows with its address. While the home node is down it writes only its own row.
func (m *members) correctRows(ctx context.Context, all []member, up, open bool) error {
	if err := m.correctOwn(ctx, all, up, open); err != nil || !up {
		return err
	}
	var faults []error
	for _, o := range all {
		if o.host != m.ring.home.host && o.proxy == m.advertise {
			faults = append(faults, m.remove(ctx, o))
		}
	}
	return errors.Join(faults...)
}

// sweep removes the rows of nodes that have left the ring.
func (m *members) sweep(ctx context.Context) error {
	all, err := m.scan(ctx, m.session.Query(selectProxies))
	faults := []error{err}
	for _, o := range all {
		if m.hasLeft(o.host) {
			faults = append(faults, m.remove(ctx, o))
		}
	}
	return errors.Join(faults...)
}

// correctOwn writes the row of the home node if it is not right. If another living proxy stands for
// the same node, the row stays that one's, and drivers of other proxies are not shown this one. That goes
// for one with the same address, too, which has written after this one: the two would take the row from each other
// again and again, and drivers would hear of it each time.
func (m *members) correctOwn(ctx context.Context, all []member, up, open bool) error {
	own := member{host: m.ring.home.host, proxy: m.advertise, session: uuid.UUID(m.self()), serving: up && open}
	for _, o := range all {
		if o.host != own.host {
			continue
		}
		if o == own {
			return nil
		}
		mine := o.session == own.session || o.session == m.wrote || m.wrote == uuid.UUID{} && o.proxy == own.proxy
		if _, alive := m.heartbeat.others.alive(gocql.UUID(o.session)); mine || !alive {
			return m.write(ctx, own.serving)
		}
		if !m.taken {
			m.log.Warn().Stringer("proxy", o.proxy).Msg("another proxy stands for the same node: drivers of other proxies see that one and not this one")
		}
		m.taken = true
		return nil
	}
	if !up {
		return nil // removed by another proxy: perhaps the node has left
	}
	return m.write(ctx, own.serving)
}

// hasLeft reports whether a node has not been in the ring for leftAfter.
func (m *members) hasLeft(host uuid.UUID) bool {
	if m.ring.has(host) {
		delete(m.absent, host)
		return false
	}
	since, noted := m.absent[host]
	if !noted {
		since = time.Now()
		m.absent[host] = since
	}
	return time.Since(since) >= leftAfter
}

// checkOthers returns an error if a living proxy and this one cannot serve the same drivers.
func (m *members) checkOthers(ctx context.Context) error {
	return m.heartbeat.others.refuseLiving(ctx, func() (map[gocql.UUID]error, error) {
		all, err := m.readSurely(ctx)
		found := map[gocql.UUID]error{}
		for _, o := range all {
			if why := m.conflict(o); why != nil {
				found[gocql.UUID(o.session)] = why
			}
		}
		return found, err
	})
}

// conflict returns why this proxy and another one cannot serve the same drivers, nil if they can.
func (m *members) conflict(o member) error {
	switch {
	case o.host == m.ring.home.host:
		return nil // this one takes its place
	case o.proxy.Port() != m.advertise.Port():
		return fmt.Errorf("the one at %v is on port %d, this one on %d; drivers use one port for all nodes: give all proxies the same in listen", o.proxy, o.proxy.Port(), m.advertise.Port())
	case o.proxy == m.advertise:
		return fmt.Errorf("another one says that it is at %v, before node %v; give each an address of its own in listen or advertise", o.proxy, o.host)
	}
	return nil
}
