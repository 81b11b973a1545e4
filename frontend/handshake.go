package frontend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/wire"
)

// decideLogin is for the requests of a client that Cassandra has not accepted yet: those of the handshake, and nothing else is even
// looked at.
func (c *conn) decideLogin(e wire.Envelope) decision {
	switch e.OpCode {
	case primitive.OpCodeOptions:
		return decision{}
	case primitive.OpCodeStartup:
		return c.decideStartup(e)
	case primitive.OpCodeAuthResponse:
		switch {
		case !c.authenticated.Load():
		case c.watches.expects(watchLogin), c.loggedIn.Load(): // in this order: what is expected ends when the login is known
			return refused(loginOver())
		default:
			return c.decideAuthResponse(e)
		}
	}
	return held(answerUnexpected{})
}

// loginOver is told of an AUTH_RESPONSE that nobody has asked for. Cassandra would take it, and the client be another role than that
// which is audited: before the answer to the one that is under way, or after the login.
func loginOver() *wire.Failure {
	return wire.ProtocolError("Unexpected message AUTH_RESPONSE: there is one at a time, and none after the login")
}

// decideAuthResponse notes who the client says it is, for the audit: whether it is right is for Cassandra to say, before anything else
// of the client is listened to. So the name is that of the AUTH_RESPONSE which AUTH_SUCCESS answers.
func (c *conn) decideAuthResponse(e wire.Envelope) decision {
	if !e.Whole() {
		return decision{verdict: relay.NeedWhole}
	}
	body, err := c.plainBody(e)
	if err != nil {
		return c.unreadable(e, err)
	}
	c.claimedRole = ""
	cur := wire.Cursor{Body: body}
	if plain := bytes.Split(cur.Value(), []byte{0}); len(plain) == 3 { // SASL PLAIN: role to act as, role, password
		c.claimedRole = string(plain[1])
	}
	return watched(&watch{kind: watchLogin})
}

// answerUnexpected answers a request that came before its time as Cassandra does, on stream 0.
type answerUnexpected struct{}

// String implements action.
func (answerUnexpected) String() string { return "unexpected before the login" }

// perform implements action.
func (answerUnexpected) perform(c *conn, e wire.Envelope) error {
	e.Stream = 0
	expected := "STARTUP or OPTIONS"
	if c.authenticated.Load() {
		expected = "SASL_RESPONSE"
	}
	return c.answer(e, wire.ProtocolError("Unexpected message %s, expecting %s", OpcodeName(e.OpCode), expected))
}

// decideStartup notes the compression that the client asks for; whether it gets it is for Cassandra to say. The answer
// ends the handshake, or begins the login. There is one STARTUP at a time, so that both sides know which one holds.
func (c *conn) decideStartup(e wire.Envelope) decision {
	if !e.Whole() {
		return decision{verdict: relay.NeedWhole}
	}
	if c.started.Load() {
		return refused(wire.ProtocolError("Unexpected message STARTUP, the connection is already initialized"))
	}
	options, err := readOptions(e.Body())
	if err != nil {
		return c.unreadable(e, err)
	}
	c.started.Store(true)
	c.framing.Compression = primitive.Compression(strings.ToUpper(options["COMPRESSION"]))
	c.patience = patienceOf(options["DRIVER_NAME"])
	return watched(&watch{kind: watchLogin})
}

// readOptions reads the options of STARTUP as Cassandra does, which ignores the case of their names.
func readOptions(body []byte) (map[string]string, error) {
	written, err := primitive.ReadStringMap(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	options := make(map[string]string, len(written))
	for name, value := range written {
		options[strings.ToUpper(name)] = value
	}
	if len(options) < len(written) {
		return nil, errors.New("an option stands twice")
	}
	return options, nil
}

// registerEvents asks Cassandra for no more than schema changes: the state of nodes that clients never see is not theirs to know, and that
// of the proxies is told by Tell. What Cassandra gets is never the list that was received: it reads names in more ways than one.
type registerEvents struct{}

// String implements action.
func (registerEvents) String() string { return "register for events" }

// perform implements action.
func (registerEvents) perform(c *conn, e wire.Envelope) error {
	body, err := c.plainBody(e)
	if err != nil {
		return c.answerUnreadable(e, err)
	}
	types, err := primitive.ReadStringList(bytes.NewReader(body))
	if err != nil {
		return c.answerUnreadable(e, err)
	}
	asked, hears := false, uint32(0)
	for _, t := range types {
		event := primitive.EventType(strings.ToUpper(t))
		if !event.IsValid() {
			return c.answer(e, wire.ProtocolError("Invalid value '%s' for Type", t))
		}
		asked = asked || event == primitive.EventTypeSchemaChange
		hears |= registrationFor(event)
	}
	c.registered.Or(hears)
	if !asked {
		c.server.Stats.count(c, e.OpCode, Answered)
		c.post(wire.ResponseEnvelope(c.version, e.Stream, primitive.OpCodeReady, nil))
		return nil
	}
	name := string(primitive.EventTypeSchemaChange)
	list := binary.BigEndian.AppendUint16([]byte{0, 1}, uint16(len(name)))
	return c.forwardEdited(e, nil, append(list, name...))
}

// forwardHeld sends a request that was held back as it is; w is what the proxy wants to know of its answer.
func (c *conn) forwardHeld(e wire.Envelope, w *watch) error {
	if err := c.expect(e, w); err != nil {
		return err
	}
	c.up.Emit(e.Raw)
	return nil
}

// forwardEdited sends a request that was held back with another body, uncompressed and behind its custom payload; w is what the proxy wants
// to know of its answer.
func (c *conn) forwardEdited(e wire.Envelope, w *watch, body []byte) error {
	return c.forwardAs(e, e.OpCode, w, body)
}

// forwardAs is forwardEdited that makes another kind of request of it. It counts as what the client has sent.
func (c *conn) forwardAs(e wire.Envelope, opcode primitive.OpCode, w *watch, body []byte) error {
	if err := c.expect(e, w); err != nil {
		return err
	}
	h := e.Rewritten()
	h.OpCode = opcode
	h.Length = uint32(len(h.Payload) + len(body))
	raw := h.AppendTo(make([]byte, 0, wire.HeaderSize+h.Length))
	c.up.Emit(append(append(raw, h.Payload...), body...))
	return nil
}

// loggedInNow lifts the limits that hold until Cassandra has accepted the client.
func (c *conn) loggedInNow() {
	c.loggedIn.Store(true)
	c.readUntil(time.Time{})
}
