package frontend

import (
	"encoding/binary"
	"net/netip"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
)

// Change is what has become of a proxy, in the protocol's words for nodes (v4 spec section 4.2.6).
type Change string

// Changes of proxies. New and Removed are about which there are, Up and Down about which serve.
const (
	New     Change = "NEW_NODE"
	Removed Change = "REMOVED_NODE"
	Up      Change = "UP"
	Down    Change = "DOWN"
)

// event is the type of event that tells of such a change.
func (c Change) event() primitive.EventType {
	if c == Up || c == Down {
		return primitive.EventTypeStatusChange
	}
	return primitive.EventTypeTopologyChange
}

// What a client can register for of what the proxy tells by itself.
const (
	registeredStatus = 1 << iota
	registeredTopology
)

// registrationFor is the bit of a type of event; 0 of those that Cassandra tells.
func registrationFor(t primitive.EventType) uint32 {
	switch t {
	case primitive.EventTypeStatusChange:
		return registeredStatus
	case primitive.EventTypeTopologyChange:
		return registeredTopology
	}
	return 0
}

// Tell tells every client that has registered for such events what has become of a proxy. It does not wait for any of them.
func (s *Server) Tell(change Change, proxy netip.AddrPort) {
	event := change.event()
	var body []byte
	for _, word := range []string{string(event), string(change)} {
		body = binary.BigEndian.AppendUint16(body, uint16(len(word)))
		body = append(body, word...)
	}
	address := wireAddress(proxy.Addr())
	body = append(append(body, byte(len(address))), address...)
	body = append(body, wirePort(proxy.Port())...)
	s.each(func(c *conn) {
		if c.registered.Load()&registrationFor(event) != 0 {
			c.post(wire.ResponseEnvelope(c.version, eventStream, primitive.OpCodeEvent, body))
		}
	})
}

// eventStream is the stream of what nobody has asked for (v4 spec section 2.3).
const eventStream = -1
