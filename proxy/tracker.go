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

// downAfter is how long a proxy must not serve before drivers are told: a proxy that restarts is
// back sooner.
const downAfter = 5 * time.Second

// peerTracker is what drivers have been told of the other proxies. It may be used by one goroutine
// only.
type peerTracker struct {
	known map[uuid.UUID]*trackedPeer
	begun bool
}

// trackedPeer is what drivers have been told of the proxy of one node.
type trackedPeer struct {
	member
	down bool      // they have been told so
	lost time.Time // since when it has been seen not to serve; zero = it serves
}

// peerEvent is one thing to tell drivers.
type peerEvent struct {
	change frontend.Change
	proxy  netip.AddrPort
}

// update compares the members that there are now with what drivers know, and returns what to tell
// them. serves reports which of them can be used. The members of the first call are known to every
// driver that will ever ask.
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

// updateOne is update for one member. Drivers take every proxy that they are shown for one that
// serves, until they are told otherwise.
func (c *peerTracker) updateOne(now time.Time, m member, serves bool) []peerEvent {
	s, known := c.known[m.host]
	switch {
	case !known && !serves && c.begun:
		return nil // drivers would only find out that nobody listens
	case !known:
		s = &trackedPeer{member: m}
		c.known[m.host] = s
		if c.begun {
			return []peerEvent{{frontend.ChangeNew, m.proxy}, {frontend.ChangeUp, m.proxy}}
		}
	}
	return s.update(now, m, serves)
}

// update returns what is new of a proxy that drivers know.
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

// visibleNodes returns what drivers are shown beside the home node: every node of the ring that has
// a proxy, alive or not, in a steady order.
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
