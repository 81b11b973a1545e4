package proxy

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"music/frontend"
	"music/frontend/topology"
)

// member is a row of music.proxies: a proxy and the node that it stands for.
type member struct {
	host    uuid.UUID
	proxy   netip.AddrPort
	session uuid.UUID
	serving bool // its node answers, and it listens for drivers
}

// downAfter is how long a proxy must not serve before drivers are told. A restart takes less.
const downAfter = 5 * time.Second

// peerTracker tracks what drivers have been told about the other proxies. It is not safe for
// concurrent use.
type peerTracker struct {
	known map[uuid.UUID]*trackedPeer
	begun bool
}

// trackedPeer is what drivers have been told about the proxy of one node.
type trackedPeer struct {
	member
	down bool      // drivers have been told that it is down
	lost time.Time // since when it does not serve; zero = it serves
}

// peerEvent is a change to tell drivers.
type peerEvent struct {
	change frontend.Change
	proxy  netip.AddrPort
}

// update compares the present members with what drivers know, and returns the events to tell them.
// serves reports whether drivers can use a member. The members of the first call need no event,
// since drivers connect later.
func (c *peerTracker) update(now time.Time, members []member, serves func(member) bool) []peerEvent {
	var all []peerEvent
	if c.known == nil {
		c.known = map[uuid.UUID]*trackedPeer{}
	}
	for host, s := range c.known {
		same := func(m member) bool { return m.host == host && m.proxy == s.proxy }
		if !slices.ContainsFunc(members, same) {
			all = append(all, peerEvent{frontend.ChangeRemoved, s.proxy})
			delete(c.known, host)
		}
	}
	for _, m := range members {
		all = append(all, c.updateOne(now, m, serves(m))...)
	}
	c.begun = true
	return all
}

// updateOne is update for one member. Drivers assume that a proxy that they are shown serves, until
// they are told otherwise.
func (c *peerTracker) updateOne(now time.Time, m member, serves bool) []peerEvent {
	s, known := c.known[m.host]
	switch {
	case !known && !serves && c.begun:
		return nil // drivers could not connect yet
	case !known:
		s = &trackedPeer{member: m}
		c.known[m.host] = s
		if c.begun {
			return []peerEvent{{frontend.ChangeNew, m.proxy}, {frontend.ChangeUp, m.proxy}}
		}
	}
	return s.update(now, m, serves)
}

// update returns the events for a proxy that drivers know.
func (s *trackedPeer) update(now time.Time, m member, serves bool) []peerEvent {
	switch {
	case serves:
		back := !s.lost.IsZero() || s.session != m.session
		*s = trackedPeer{member: m}
		if back {
			return []peerEvent{{frontend.ChangeUp, m.proxy}}
		}
	case s.lost.IsZero():
		s.lost = now
	case !s.down && now.Sub(s.lost) >= downAfter:
		s.down = true
		return []peerEvent{{frontend.ChangeDown, m.proxy}}
	}
	return nil
}

// visibleNodes returns the nodes that drivers are shown beside the home node: every node of the
// ring that has a proxy, alive or not, ordered by host id.
func visibleNodes(members []member, r ring) []topology.Node {
	var nodes []topology.Node
	for _, m := range members {
		if p, ok := r.others[m.host]; ok {
			nodes = append(nodes, topology.Node{HostID: m.host, Proxy: m.proxy, Internal: p.internal, Native: p.native})
		}
	}
	slices.SortFunc(nodes, func(a, b topology.Node) int { return bytes.Compare(a.HostID[:], b.HostID[:]) })
	return nodes
}
