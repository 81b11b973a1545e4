package proxy

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"music/frontend"
)

// member is a row of music.proxies: a proxy and the node that it stands for.
type member struct {
	host    uuid.UUID
	proxy   netip.AddrPort
	session uuid.UUID
	version string
	serving bool // its node answers, and it listens for drivers
}

// downAfter is how long a proxy must not serve before drivers are told: one that restarts is back before.
const downAfter = 5 * time.Second

// census is what drivers have been told of the other proxies. It belongs to one goroutine.
type census struct {
	told  map[uuid.UUID]*standing
	begun bool
}

// standing is what drivers have been told of the proxy of one node.
type standing struct {
	member
	down bool      // they have been told so
	lost time.Time // since when it has been seen not to serve; zero = it serves
}

// news is one thing to be told.
type news struct {
	change frontend.Change
	proxy  netip.AddrPort
}

// take compares the members that there are now with what drivers know, and returns what to tell them. serves tells which of them
// can be used. What there is at the first call is known to every driver that will ever ask.
func (c *census) take(now time.Time, members []member, serves func(member) bool) []news {
	var all []news
	if c.told == nil {
		c.told = map[uuid.UUID]*standing{}
	}
	for host, s := range c.told {
		same := func(m member) bool { return m.host == host && m.proxy == s.proxy }
		if !slices.ContainsFunc(members, same) {
			all = append(all, news{frontend.Removed, s.proxy})
			delete(c.told, host)
		}
	}
	for _, m := range members {
		all = append(all, c.see(now, m, serves(m))...)
	}
	c.begun = true
	return all
}

// see is take for one member. Drivers take whoever they are shown to serve until they are told otherwise.
func (c *census) see(now time.Time, m member, serves bool) []news {
	s, known := c.told[m.host]
	switch {
	case !known && !serves && c.begun:
		return nil // drivers would only find out that nobody listens
	case !known:
		s = &standing{member: m}
		c.told[m.host] = s
		if c.begun {
			return []news{{frontend.New, m.proxy}, {frontend.Up, m.proxy}}
		}
	}
	return s.see(now, m, serves)
}

// see tells what is new of a proxy that drivers know.
func (s *standing) see(now time.Time, m member, serves bool) []news {
	switch {
	case serves:
		back := !s.lost.IsZero() || s.session != m.session
		*s = standing{member: m}
		if back {
			return []news{{frontend.Up, m.proxy}}
		}
	case s.lost.IsZero():
		s.lost = now
	case !s.down && now.Sub(s.lost) >= downAfter:
		s.down = true
		return []news{{frontend.Down, m.proxy}}
	}
	return nil
}

// shown is what drivers are shown beside the home node: every node of the ring that has a proxy, alive or not, in a steady order.
func shown(members []member, r ring) []frontend.Node {
	var nodes []frontend.Node
	for _, m := range members {
		if p, ok := r.others[m.host]; ok {
			nodes = append(nodes, frontend.Node{HostID: m.host, Proxy: m.proxy, Internal: p.internal, Native: p.native})
		}
	}
	slices.SortFunc(nodes, func(a, b frontend.Node) int { return bytes.Compare(a.HostID[:], b.HostID[:]) })
	return nodes
}
