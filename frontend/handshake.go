package frontend

import (
	"bytes"
	"encoding/binary"
	"strings"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// decideStartup notes the compression that the client asks for; whether it gets it is for Cassandra to say. The answer
// ends the handshake, or begins the login.
func (c *conn) decideStartup(e envelope) verdict {
	if !e.whole() {
		return more
	}
	options, err := primitive.ReadStringMap(bytes.NewReader(e.body()))
	if err != nil {
		return c.unreadable(e, err)
	}
	c.compression = primitive.Compression(strings.ToUpper(options["COMPRESSION"]))
	c.patience = patienceOf(options["DRIVER_NAME"])
	return c.watch(watch{kind: watchLogin})
}

// register asks Cassandra for no more than schema changes: the state of nodes that clients never see is not theirs to know.
func (c *conn) register(e envelope) error {
	body, err := c.plainBody(e)
	if err != nil {
		return c.answerUnreadable(e, err)
	}
	types, err := primitive.ReadStringList(bytes.NewReader(body))
	if err != nil {
		return c.answerUnreadable(e, err)
	}
	asked := false
	for _, t := range types {
		asked = asked || t == string(primitive.EventTypeSchemaChange)
		if !primitive.EventType(t).IsValid() {
			return c.forwardHeld(e)
		}
	}
	if !asked {
		c.server.Stats.count(c, e.opcode, Answered)
		c.post(responseEnvelope(c.version, e.stream, primitive.OpCodeReady, nil))
		return nil
	}
	name := string(primitive.EventTypeSchemaChange)
	list := binary.BigEndian.AppendUint16([]byte{0, 1}, uint16(len(name)))
	return c.forwardEdited(e, append(list, name...))
}

// forwardHeld sends a request that was kept back as it was received.
func (c *conn) forwardHeld(e envelope) error {
	c.expect(e)
	c.up.emit(e.raw)
	return nil
}

// forwardEdited sends a request that was kept back with another body, uncompressed and without its custom payload.
func (c *conn) forwardEdited(e envelope, body []byte) error {
	e.header.flags &^= primitive.HeaderFlagCompressed | primitive.HeaderFlagCustomPayload
	e.header.length = uint32(len(body))
	e.raw = append(e.header.appendTo(make([]byte, 0, headerSize+len(body))), body...)
	return c.forwardHeld(e)
}

// loggedInNow lifts the limits that hold until Cassandra has accepted the client.
func (c *conn) loggedInNow() {
	c.loggedIn.Store(true)
	if c.limit.Load() == 0 {
		_ = c.client.SetReadDeadline(time.Time{})
	}
}
