package frontend

import (
	"bytes"
	"net/netip"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/wire"
)

// judgeFailure holds back an error that names replicas. From protocol 5 on READ_FAILURE and WRITE_FAILURE tell for each replica that has
// failed where it is and why (v5 spec, error codes 0x1300 and 0x1500); before that they tell how many.
func (c *conn) judgeFailure(e wire.Envelope) relay.Decision {
	switch {
	case e.OpCode != primitive.OpCodeError || !c.framing.Segmented():
		return relay.Forward
	case !e.Whole():
		return relay.NeedWhole
	}
	if _, named := replicasOf(e); named {
		return relay.Hold
	}
	return relay.Forward
}

// replicasOf stands before the replicas that a whole error names; not named where it names none, or cannot be read.
func replicasOf(e wire.Envelope) (cur wire.Cursor, named bool) {
	cur = wire.Cursor{Body: e.Body()}
	wire.ReadPreamble(&cur, e.Flags)
	code := primitive.ErrorCode(cur.Int())
	cur.ShortBytes()    // the text
	cur.Take(2 + 4 + 4) // consistency, received, required
	return cur, !cur.Bad && (code == primitive.ErrorCodeReadFailure || code == primitive.ErrorCodeWriteFailure)
}

// showReplicas puts proxies in the place of the replicas that an error names. Every other answer, and one that cannot be read, stays as
// it is.
func (c *conn) showReplicas(e wire.Envelope) wire.Envelope {
	if c.judgeFailure(e) != relay.Hold {
		return e
	}
	var nodes []Node
	if c.server.Nodes != nil {
		nodes = c.server.Nodes()
	}
	cur, _ := replicasOf(e)
	n := cur.Int()
	body := bytes.Clone(cur.Body[:cur.At])
	for strangers := 0; n > 0 && !cur.Bad; n-- {
		shown, known := proxyAt(nodes, cur.Take(int(cur.Byte())))
		if !known {
			shown = c.standIn(strangers)
			strangers++
		}
		address := wireAddress(shown)
		body = append(append(body, byte(len(address))), address...)
		body = append(body, cur.Take(2)...) // why
	}
	if cur.Bad {
		return e
	}
	raw := wire.ResponseEnvelope(c.version, e.Stream, e.OpCode, append(body, cur.Body[cur.At:]...))
	raw[1] = byte(e.Flags)
	return wire.EnvelopeOf(raw)
}

// proxyAt is where the proxy of a node is that its own kind finds at an address; not known where that node has none, or is the home node.
func proxyAt(nodes []Node, wire []byte) (proxy netip.Addr, known bool) {
	address, _ := netip.AddrFromSlice(wire)
	for i := range nodes {
		if nodes[i].Internal.Addr() == address.Unmap() {
			return nodes[i].Proxy.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// standIn is what is told of the nodes behind this proxy alone: of the first the proxy's own address, of each further one an address that
// nobody has. Drivers make a map of them (the Java driver fails at an address that comes twice) and count what is in it.
func (c *conn) standIn(n int) netip.Addr {
	if n == 0 {
		return c.server.Advertise.Addr()
	}
	return netip.AddrFrom4([4]byte{0, 0, byte(n >> 8), byte(n)})
}
