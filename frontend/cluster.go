package frontend

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/topology"
	"music/frontend/wire"
)

// nodes returns the other nodes that have a proxy now.
func (s *Server) nodes() []topology.Node {
	if s.Nodes == nil {
		return nil
	}
	return s.Nodes()
}

// askTopology asks Cassandra for the rows of system.local, peers or peers_v2 in the client's place.
type askTopology struct{ *topology.Request }

// decideTopology has such a SELECT asked with the nodes that there are now.
func (c *conn) decideTopology(t *topology.Select) decision {
	return held(askTopology{topology.NewRequest(t, c.server.nodes(), c.server.Advertise)})
}

// String implements action.
func (a askTopology) String() string { return "ask for the topology in system." + a.Table }

// perform implements action: it sends the translated SELECT as a QUERY, whatever it came as: the
// text of a prepared one holds the nodes of the time when it is executed, and Cassandra's columns
// for it are those of the client's own.
func (a askTopology) perform(c *conn, e wire.Envelope) error {
	w := &watch{kind: watchTopology, topology: a.Request}
	if !a.Readable() {
		return c.forwardHeld(e, w)
	}
	body, err := c.plainBody(&e)
	if err != nil {
		return c.answerUnreadable(e, err)
	}
	cur := wire.Cursor{Body: body}
	var metadata []byte
	if e.OpCode == primitive.OpCodeExecute {
		metadata = c.skipIDs(&cur)
	} else {
		cur.LongString()
	}
	p := wire.ReadParameters(&cur, c.version)
	if cur.Bad {
		return c.answerUnreadable(e, wire.ErrShort)
	}
	text := a.Query(&p, metadata)
	edited := append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	return c.forwardAs(e, primitive.OpCodeQuery, w, p.AppendTo(edited, c.version))
}

// translateRows makes the answer to such a SELECT that of a cluster of proxies.
func (c *conn) translateRows(e wire.Envelope, q *topology.Request) (wire.Envelope, error) {
	if e.OpCode != primitive.OpCodeResult {
		return e, nil
	}
	f, err := c.decode(e)
	if err != nil {
		return e, err
	}
	rows, ok := f.Body.Message.(*message.RowsResult)
	switch {
	case !ok:
		return e, nil
	case !q.Readable():
		f := wire.Invalid("MUSIC_SYNTAX: the statement cannot be read, and it shows addresses of nodes")
		return c.errorInstead(e, f), nil
	}
	q.Translate(f.Body, rows)
	return wire.Encode(f)
}

// decideFailure holds back an error that names replicas. From protocol 5 on READ_FAILURE and
// WRITE_FAILURE tell for each replica that has failed where it is and why (v5 spec, error codes
// 0x1300 and 0x1500); before that they tell how many.
func (c *conn) decideFailure(e *wire.Envelope) relay.Decision {
	switch {
	case e.OpCode != primitive.OpCodeError || !c.framing.Segmented():
		return relay.Forward
	case !e.Whole():
		return relay.NeedWhole
	}
	if _, named := replicasOf(*e); named {
		return relay.Hold
	}
	return relay.Forward
}

// replicasOf returns a cursor before the replicas that a whole error names; named is false where it
// names none, or cannot be read.
func replicasOf(e wire.Envelope) (cur wire.Cursor, named bool) {
	cur = wire.Cursor{Body: e.Body()}
	wire.ReadPreamble(&cur, e.Flags)
	code := primitive.ErrorCode(cur.Int())
	cur.ShortBytes()    // the text
	cur.Take(2 + 4 + 4) // consistency, received, required
	return cur, !cur.Bad && (code == primitive.ErrorCodeReadFailure || code == primitive.ErrorCodeWriteFailure)
}

// showReplicas puts proxies in the place of the replicas that an error names. Every other answer,
// and one that cannot be read, stays as it is.
func (c *conn) showReplicas(e wire.Envelope) wire.Envelope {
	if c.decideFailure(&e) != relay.Hold {
		return e
	}
	nodes := c.server.nodes()
	cur, _ := replicasOf(e)
	n := cur.Int()
	body := bytes.Clone(cur.Body[:cur.At])
	for unknown := 0; n > 0 && !cur.Bad; n-- {
		shown, known := topology.ProxyAt(nodes, cur.Take(int(cur.Byte())))
		if !known {
			shown = c.standIn(unknown)
			unknown++
		}
		address := wire.Address(shown)
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

// standIn returns the address that is told of a node which has no proxy but this one: of the first
// such node the proxy's own address, of each further one an address that nobody has. Drivers make a
// map of them (the Java driver fails at an address that comes twice) and count what is in it.
func (c *conn) standIn(n int) netip.Addr {
	if n == 0 {
		return c.server.Advertise.Addr()
	}
	return netip.AddrFrom4([4]byte{0, 0, byte(n >> 8), byte(n)})
}

// Change is what has become of a proxy, in the protocol's words for nodes (v4 spec section 4.2.6).
type Change string

// Changes of proxies. ChangeNew and ChangeRemoved are about which there are, ChangeUp and
// ChangeDown about which serve.
const (
	ChangeNew     Change = "NEW_NODE"
	ChangeRemoved Change = "REMOVED_NODE"
	ChangeUp      Change = "UP"
	ChangeDown    Change = "DOWN"
)

// event returns the type of event that tells of such a change.
func (c Change) event() primitive.EventType {
	if c == ChangeUp || c == ChangeDown {
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

// Tell tells every client that has registered for such events what has become of a proxy. It does
// not wait for any of them.
func (s *Server) Tell(change Change, proxy netip.AddrPort) {
	event := change.event()
	var body []byte
	for _, word := range []string{string(event), string(change)} {
		body = binary.BigEndian.AppendUint16(body, uint16(len(word)))
		body = append(body, word...)
	}
	address := wire.Address(proxy.Addr())
	body = append(append(body, byte(len(address))), address...)
	body = append(body, wire.Port(proxy.Port())...)
	s.each(func(c *conn) {
		if c.registered.Load()&registrationFor(event) != 0 {
			c.post(wire.ResponseEnvelope(c.version, eventStream, primitive.OpCodeEvent, body))
		}
	})
}

// eventStream is the stream of what nobody has asked for (v4 spec section 2.3).
const eventStream = -1
