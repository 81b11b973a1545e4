package frontend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// decideLogin is for the requests of a client that Cassandra has not accepted yet: those of the handshake, and nothing else is even
// looked at.
func (c *conn) decideLogin(e envelope) verdict {
	switch e.opcode {
	case primitive.OpCodeOptions:
		return forward
	case primitive.OpCodeStartup:
		return c.decideStartup(e)
	case primitive.OpCodeAuthResponse:
		switch {
		case !c.authenticated.Load():
		case c.watches.expects(watchLogin), c.loggedIn.Load(): // in this order: what is expected ends when the login is known
			return c.refuse(loginOver())
		default:
			return c.decideAuthResponse(e)
		}
	}
	return c.holdFor((*conn).answerUnexpected)
}

// loginOver is told of an AUTH_RESPONSE that nobody has asked for. Cassandra would take it, and the client be another role than that
// which is audited: before the answer to the one that is under way, or after the login.
func loginOver() *Failure {
	return protocolError("Unexpected message AUTH_RESPONSE: there is one at a time, and none after the login")
}

// decideAuthResponse notes who the client says it is, for the audit: whether it is right is for Cassandra to say, before anything else
// of the client is listened to. So the name is that of the AUTH_RESPONSE which AUTH_SUCCESS answers.
func (c *conn) decideAuthResponse(e envelope) verdict {
	if !e.whole() {
		return more
	}
	body, err := c.plainBody(e)
	if err != nil {
		return c.unreadable(e, err)
	}
	c.claimed = ""
	cur := cursor{b: body}
	if plain := bytes.Split(cur.value(), []byte{0}); len(plain) == 3 { // SASL PLAIN: role to act as, role, password
		c.claimed = string(plain[1])
	}
	return c.watch(watch{kind: watchLogin})
}

// answerUnexpected answers a request that came before its time as Cassandra does, on stream 0.
func (c *conn) answerUnexpected(e envelope) error {
	e.stream = 0
	expected := "STARTUP or OPTIONS"
	if c.authenticated.Load() {
		expected = "SASL_RESPONSE"
	}
	return c.answer(e, protocolError("Unexpected message %s, expecting %s", OpcodeName(e.opcode), expected))
}

// decideStartup notes the compression that the client asks for; whether it gets it is for Cassandra to say. The answer
// ends the handshake, or begins the login. There is one STARTUP at a time, so that both sides know which one holds.
func (c *conn) decideStartup(e envelope) verdict {
	if !e.whole() {
		return more
	}
	if c.started.Load() {
		return c.refuse(protocolError("Unexpected message STARTUP, the connection is already initialized"))
	}
	options, err := readOptions(e.body())
	if err != nil {
		return c.unreadable(e, err)
	}
	c.started.Store(true)
	c.compression = primitive.Compression(strings.ToUpper(options["COMPRESSION"]))
	c.patience = patienceOf(options["DRIVER_NAME"])
	return c.watch(watch{kind: watchLogin})
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

// register asks Cassandra for no more than schema changes: the state of nodes that clients never see is not theirs to know, and that
// of the proxies is told by Tell. What Cassandra gets is never the list that was received: it reads names in more ways than one.
func (c *conn) register(e envelope) error {
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
			return c.answer(e, protocolError("Invalid value '%s' for Type", t))
		}
		asked = asked || event == primitive.EventTypeSchemaChange
		hears |= hearing(event)
	}
	c.hears.Or(hears)
	if !asked {
		c.server.Stats.count(c, e.opcode, Answered)
		c.post(responseEnvelope(c.version, e.stream, primitive.OpCodeReady, nil))
		return nil
	}
	name := string(primitive.EventTypeSchemaChange)
	list := binary.BigEndian.AppendUint16([]byte{0, 1}, uint16(len(name)))
	return c.forwardEdited(e, append(list, name...))
}

// forwardHeld sends a request that was kept back as it is.
func (c *conn) forwardHeld(e envelope) error {
	if err := c.expect(e); err != nil {
		return err
	}
	c.up.emit(e.raw)
	return nil
}

// forwardEdited sends a request that was kept back with another body, uncompressed and behind its custom payload.
func (c *conn) forwardEdited(e envelope, body []byte) error { return c.forwardAs(e, e.opcode, body) }

// forwardAs is forwardEdited that makes another kind of request of it. It counts as what the client has sent.
func (c *conn) forwardAs(e envelope, opcode primitive.OpCode, body []byte) error {
	if err := c.expect(e); err != nil {
		return err
	}
	h := e.rewritten()
	h.opcode = opcode
	h.length = uint32(len(h.payload) + len(body))
	raw := h.appendTo(make([]byte, 0, headerSize+h.length))
	c.up.emit(append(append(raw, h.payload...), body...))
	return nil
}

// loggedInNow lifts the limits that hold until Cassandra has accepted the client.
func (c *conn) loggedInNow() {
	c.loggedIn.Store(true)
	c.readUntil(time.Time{})
}
