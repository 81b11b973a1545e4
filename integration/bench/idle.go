package main

import (
	"fmt"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// idleClients measures the proxy's memory for a client that has logged in and sends nothing.
func (s settings) idleClients(r *report, server *child) error {
	if s.idle == 0 {
		return nil
	}
	for _, role := range []string{"relay", "proxy"} {
		each, err := s.idleAt(role, server)
		if err != nil {
			return fmt.Errorf("idle clients at the %s: %w", role, err)
		}
		r.Facts = append(r.Facts, fact{fmt.Sprintf("memory of an idle client, %s, of %d", role, s.idle), samples{each / 1024}, "KiB"})
	}
	return nil
}

// idleAt connects all of them through a process of their own, and returns by how much each has
// enlarged it.
func (s settings) idleAt(role string, server *child) (float64, error) {
	c, err := startChild(role, server.address)
	if err != nil {
		return 0, err
	}
	defer c.stop()
	w := work{name: "idle", dialect: dialect{version: primitive.ProtocolVersion4}, depth: 1}
	dial := func(int) (*client, error) { return dialClient(c.address, w) }
	first, err := gather(1, dial)
	if err != nil {
		return 0, err
	}
	defer first.leave()
	before := c.resident()
	all, err := gather(s.idle, dial)
	if err != nil {
		return 0, err
	}
	defer all.leave()
	return float64(c.resident()-before) / float64(s.idle), nil
}
