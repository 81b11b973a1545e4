package frontend

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"time"
	"unicode"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/relay"
	"music/frontend/traffic"
	"music/frontend/wire"
)

// decideLogin decides about a request of a client that has not logged in yet: only those of the
// handshake are allowed.
func (c *conn) decideLogin(e wire.Envelope) decision {
	switch e.OpCode {
	case primitive.OpCodeOptions:
		return decideOptions(e)
	case primitive.OpCodeStartup:
		return c.decideStartup(e)
	case primitive.OpCodeAuthResponse:
		switch {
		case !c.authenticated.Load():
		case c.watches.expects(watchLogin), c.loggedIn.Load(): // in this order: the watch is removed after loggedIn is set
			return refused(loginOver())
		default:
			return c.decideAuthResponse(e)
		}
	}
	return intercepted(answerUnexpected{})
}

// greetingFlags are the flags that an OPTIONS before the login, and a STARTUP, may have: they change
// nothing in how the body is read.
const greetingFlags = primitive.HeaderFlagTracing | primitive.HeaderFlagUseBeta

// decideOptions decides about an OPTIONS before the login. What it must not have could mean something to
// a reader that takes the bytes for other than an envelope.
func decideOptions(e wire.Envelope) decision {
	if e.Length > 0 || e.Flags&^greetingFlags != 0 {
		return refused(wire.ProtocolError("OPTIONS has no body, and before the login no flags but those of tracing and of beta versions"))
	}
	return decision{}
}

// loginOver returns the error for an AUTH_RESPONSE that Cassandra has not asked for: while another
// has no answer yet, or after the login. Cassandra would accept it, and the client would then have
// another role than the one in the audit.
func loginOver() *wire.Failure {
	return wire.ProtocolError("Unexpected message AUTH_RESPONSE: there is one at a time, and none after the login")
}

// decideAuthResponse stores the role that the client claims, for the audit. No other request is
// allowed before Cassandra has accepted it, so the stored role is the one that has logged in.
func (c *conn) decideAuthResponse(e wire.Envelope) decision {
	if !e.Whole() {
		return decision{route: relay.NeedWhole}
	}
	body, err := c.requestBody(&e)
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

// answerUnexpected is the action for a request that is not allowed before the login. It is answered
// as by Cassandra, on stream 0.
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
	return c.answer(e, wire.ProtocolError("Unexpected message %s, expecting %s", traffic.OpcodeName(e.OpCode), expected))
}

// decideStartup stores the compression that the client asks for. Cassandra may refuse it, after
// which the client can send another STARTUP; until the answer no second one is allowed, so that the
// stored compression is the one that is answered. In protocol 5 there is one STARTUP: Cassandra reads
// segments as soon as it has sent the answer, also if that is an error. So conn.segmentsOnly ends a
// connection whose client goes on without segments, be it that it did not wait for the answer. Behind
// a custom payload Cassandra would find other options, and then read other statements, than the proxy.
func (c *conn) decideStartup(e wire.Envelope) decision {
	if !e.Whole() {
		return decision{route: relay.NeedWhole}
	}
	if e.Flags&^greetingFlags != 0 {
		return refused(wire.ProtocolError("STARTUP has no flags but those of tracing and of beta versions"))
	}
	if c.started.Load() {
		return refused(wire.ProtocolError("Unexpected message STARTUP, the connection is already initialized"))
	}
	options, err := readOptions(e.Body())
	if err != nil {
		return c.unreadable(e, err)
	}
	c.framing.Compression = primitive.Compression(strings.ToUpper(options["COMPRESSION"]))
	c.driverTimeout = patienceOf(options["DRIVER_NAME"])
	return watched(&watch{kind: watchLogin})
}

// pythonPatience is how long an answer to the Python driver may take: it gives up after ten
// seconds.
const pythonPatience = 8 * time.Second

// patienceOf returns how long the driver of that name waits for an answer, less a margin; 0 if that
// is not known.
func patienceOf(driver string) time.Duration {
	if strings.Contains(strings.ToLower(driver), "python") {
		return pythonPatience
	}
	return 0
}

// readOptions reads the options of STARTUP, with names in upper case: Cassandra ignores their case.
func readOptions(body []byte) (map[string]string, error) {
	written, err := primitive.ReadStringMap(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	options := make(map[string]string, len(written))
	for name, value := range written {
		if !isASCII(name) || !isASCII(value) && strings.EqualFold(name, "COMPRESSION") {
			return nil, errors.New("the name of an option, or of a compression, has other letters than ASCII's") // whose upper case differs between languages
		}
		options[strings.ToUpper(name)] = value
	}
	if len(options) < len(written) {
		return nil, errors.New("an option is given twice")
	}
	return options, nil
}

// isASCII reports whether all letters of a name are ASCII's.
func isASCII(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool { return r > unicode.MaxASCII }) < 0
}

// registerEvents is the action for REGISTER. It registers with Cassandra for schema changes only:
// clients do not see the nodes, and events of proxies come from Server.Tell. The client's list is
// never forwarded, since Cassandra accepts several spellings of the names.
type registerEvents struct{}

// String implements action.
func (registerEvents) String() string { return "register for events" }

// perform implements action.
func (registerEvents) perform(c *conn, e wire.Envelope) error {
	body, err := c.requestBody(&e)
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
		c.server.Stats.Count(c.id, e.OpCode, traffic.Answered)
		c.post(wire.ResponseEnvelope(c.version, e.Stream, primitive.OpCodeReady, nil))
		return nil
	}
	name := string(primitive.EventTypeSchemaChange)
	list := binary.BigEndian.AppendUint16([]byte{0, 1}, uint16(len(name)))
	return c.forwardEdited(e, nil, append(list, name...))
}

// loggedInNow notes that Cassandra has accepted the client, and removes the deadline of the
// handshake.
func (c *conn) loggedInNow() {
	c.loggedIn.Store(true)
	c.readUntil(time.Time{})
}
