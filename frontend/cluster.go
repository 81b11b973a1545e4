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

// nodes returns the nodes beside the home node that have a proxy now.
func (s *Server) nodes() []topology.Node {
	if s.Nodes == nil {
		return nil
	}
	return s.Nodes()
}

// askTopology is the action that asks Cassandra for rows of system.local, peers or peers_v2,
// translated from proxies to nodes.
type askTopology struct{ *topology.Request }

// decideTopology decides about a SELECT on these tables: it is asked with the nodes as they are
// now.
func (c *conn) decideTopology(t *topology.Select) decision {
	return intercepted(askTopology{topology.NewRequest(t, c.server.nodes(), c.server.Advertise)})
}

// String implements action.
func (a askTopology) String() string { return "ask for the topology in system." + a.Table }

// perform implements action: it sends the translated SELECT as a QUERY, even if it was prepared,
// since its text contains the nodes of this moment.
func (a askTopology) perform(c *conn, e wire.Envelope) error {
	w := &watch{kind: watchTopology, topology: a.Request}
	if !a.Readable() {
		return c.forwardHeld(e, w)
	}
	body, err := c.requestBody(&e)
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
	return c.forwardAs(e, primitive.OpCodeQuery, w, p.AppendTo(longString(text), c.version))
}

// translateRows replaces nodes by proxies in the answer to a SELECT on these tables.
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
		f := wire.Invalid("MUSIC_SYNTAX: the proxy cannot parse this statement, whose rows would show addresses of nodes: correct it")
		return c.errorInstead(e, f), nil
	}
	q.Translate(f.Body, rows)
	return wire.Encode(f)
}

// decideFailure holds back an error that names replicas. From protocol 5 on READ_FAILURE and
// WRITE_FAILURE contain the address of each replica that has failed (v5 spec, error codes 0x1300
// and 0x1500); before that only their number.
func (c *conn) decideFailure(e *wire.Envelope) relay.Decision {
	switch {
	case e.OpCode != primitive.OpCodeError || !c.framing.Segmented():
		return relay.Forward
	case !e.Whole():
		return relay.NeedWhole
	}
	if _, named := replicasOf(*e); named {
		return relay.Intercept
	}
	return relay.Forward
}

// replicasOf returns a cursor that stands before the replicas in an error. named is false if the
// error names none, or is malformed.
func replicasOf(e wire.Envelope) (cur wire.Cursor, named bool) {
	cur = wire.Cursor{Body: e.Body()}
	wire.ReadPreamble(&cur, e.Flags)
	code := primitive.ErrorCode(cur.Int())
	cur.ShortBytes()    // the text
	cur.Take(2 + 4 + 4) // consistency, received, required
	return cur, !cur.Bad && (code == primitive.ErrorCodeReadFailure || code == primitive.ErrorCodeWriteFailure)
}

// showReplicas replaces the addresses of replicas in an error by those of their proxies. It returns
// any other answer, and a malformed one, unchanged.
func (c *conn) showReplicas(e wire.Envelope) wire.Envelope {
	if c.decideFailure(&e) != relay.Intercept {
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
		body = append(body, cur.Take(2)...) // the reason
	}
	if cur.Bad {
		return e
	}
	raw := wire.ResponseEnvelope(c.version, e.Stream, e.OpCode, append(body, cur.Body[cur.At:]...))
	raw[1] = byte(e.Flags)
	return wire.EnvelopeOf(raw)
}

// standIn returns the address to show for the n-th node that has no other proxy: for the first one
// this proxy's address, for each further one an address that no host has. The addresses must
// differ, since drivers count them in a map (the Java driver fails if one comes twice).
func (c *conn) standIn(n int) netip.Addr {
	if n == 0 {
		return c.server.Advertise.Addr()
	}
	return netip.AddrFrom4([4]byte{0, 0, byte(n >> 8), byte(n)})
}

// Change is a change of a proxy, in the protocol's words for nodes (v4 spec section 4.2.6).
type Change string

// The changes of proxies. ChangeNew and ChangeRemoved say that a proxy has joined or left, ChangeUp
// and ChangeDown that it serves clients or no longer does.
const (
	ChangeNew     Change = "NEW_NODE"
	ChangeRemoved Change = "REMOVED_NODE"
	ChangeUp      Change = "UP"
	ChangeDown    Change = "DOWN"
)

// event returns the type of the event that announces the change.
func (c Change) event() primitive.EventType {
	if c == ChangeUp || c == ChangeDown {
		return primitive.EventTypeStatusChange
	}
	return primitive.EventTypeTopologyChange
}

// Bits of conn.registered: the types of events that the proxy itself sends.
const (
	registeredStatus = 1 << iota
	registeredTopology
)

// registrationFor returns the bit of a type of event; 0 for those that Cassandra sends.
func registrationFor(t primitive.EventType) uint32 {
	switch t {
	case primitive.EventTypeStatusChange:
		return registeredStatus
	case primitive.EventTypeTopologyChange:
		return registeredTopology
	}
	return 0
}

// Tell sends the event of a proxy's change to every client that has registered for its type. It
// does not block.
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
			start := func(write func()) { s.whilePresent(c, write) }
			c.down.PostIn(start, wire.ResponseEnvelope(c.version, eventStream, primitive.OpCodeEvent, body))
		}
	})
}

// eventStream is the stream id of events (v4 spec section 2.3).
const eventStream = -1
