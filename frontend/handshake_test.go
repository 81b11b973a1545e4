package frontend

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
)

// The login goes through the proxy as it is; in version 5 in segments from the first challenge on.
func TestLoginPassesThrough(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client := r.dial(d)
		client.send(0, startup(d))
		backend := r.accept(d)
		backend.answer(0)
		backend.write(dialect{version: d.version}.envelope(t, 0, &message.Authenticate{Authenticator: "PasswordAuthenticator"}))
		client.answer(0)
		client.segmented, backend.segmented = d.version == v5, d.version == v5
		for range 2 {
			token := []byte("\x00cassandra\x00cassandra")
			assert.Equal(t, &message.AuthChallenge{Token: []byte("more")}, relayed(client, backend, 0, &message.AuthResponse{Token: token}, &message.AuthChallenge{Token: []byte("more")}))
		}
		// Nobody is in yet.
		client.send(1, query("SELECT a FROM b.c"))
		assert.Equal(t, "Unexpected message QUERY, expecting SASL_RESPONSE", client.failure(0).GetErrorMessage())
		relayed(client, backend, 0, &message.AuthResponse{Token: []byte("right")}, &message.AuthSuccess{})
		relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(nil))
	})
}

// A wrong password may be followed by a right one, but not by another STARTUP.
func TestLoginThatFails(t *testing.T) {
	r := newRig(t)
	d := dialect{version: v4}
	client := r.dial(d)
	client.send(0, startup(d))
	backend := r.accept(d)
	backend.answer(0)
	backend.send(0, &message.Authenticate{Authenticator: "PasswordAuthenticator"})
	client.answer(0)
	relayed(client, backend, 0, &message.AuthResponse{Token: []byte("wrong")}, &message.AuthenticationError{ErrorMessage: "no"})
	client.send(0, startup(d))
	assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(0).GetErrorCode())
	relayed(client, backend, 0, &message.AuthResponse{Token: []byte("right")}, &message.AuthSuccess{})
	relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(nil))
}

// The role that is audited is the one that Cassandra has accepted: of two AUTH_RESPONSEs that come together the second is refused,
// as is one after the login, and one that is no PLAIN leaves no name of an earlier one behind.
func TestLoginIsAsOneRole(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		core := forceLocks{forced: make(chan Force, 9)}
		r := newRig(t, func(o *Options) { o.Locks = core })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		client := r.dial(d)
		client.send(0, startup(d))
		backend := r.accept(d)
		backend.answer(0)
		backend.write(dialect{version: d.version}.envelope(t, 0, &message.Authenticate{Authenticator: "PasswordAuthenticator"}))
		client.answer(0)
		client.segmented, backend.segmented = d.version == v5, d.version == v5

		as := func(role string) message.Message {
			return &message.AuthResponse{Token: []byte("\x00" + role + "\x00secret")}
		}
		relayed(client, backend, 0, as("carla"), &message.AuthenticationError{ErrorMessage: "no"})
		client.send(1, as("anna"))
		client.send(2, as("ben"))
		client.send(3, as("ben"))
		for _, stream := range []int16{2, 3} {
			assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(stream).GetErrorCode())
		}
		assert.Equal(t, as("anna"), backend.answer(1))
		backend.send(1, &message.AuthSuccess{})
		client.answer(1)
		client.send(1, as("ben"))
		assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(1).GetErrorCode())
		backend.silent()

		client.send(1, query("UNLOCK bank.accounts WHERE id = 'x' FORCE"))
		name := strings.TrimSuffix(strings.SplitAfterN(backend.answer(1).(*message.Query).Query, ` FROM "`, 2)[1], `"`)
		backend.send(1, &message.Invalid{ErrorMessage: "Role " + name + " doesn't exist"})
		client.answer(1)
		assert.Regexp(t, "^anna at ", (<-core.forced).String())
	})
}

// Before the login nothing that could have an effect is looked at or forwarded: not even a verb of the proxy's own.
func TestRequestsBeforeLogin(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		client := r.dial(dialect{version: d.version})
		for i, m := range []message.Message{
			query("LOCK bank.accounts WHERE id = 'x'"), query("SELECT a FROM b.c"), execute([]byte("sixteen bytes!!!"), nil),
			&message.Prepare{Query: "LOCK bank.accounts WHERE id = ?"}, &message.Batch{}, &message.AuthResponse{Token: []byte("x")},
			&message.Register{EventTypes: []primitive.EventType{primitive.EventTypeSchemaChange}},
		} {
			client.send(int16(i), m)
			assert.Contains(t, client.failure(0).GetErrorMessage(), "expecting STARTUP or OPTIONS", "%v", m)
		}
		backend := r.accept(dialect{version: d.version})
		client.send(0, startup(d))
		backend.answer(0)
		backend.silent()
	})
}

// Which STARTUP holds must be the same for both sides: there is one at a time, and none after it has been accepted.
func TestSecondStartup(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		if d.version == v5 {
			t.Skip("there is one STARTUP: TestSegmentsAfterStartup")
		}
		r := newRig(t)
		other := message.NewStartup()
		other.SetCompression(primitive.CompressionSnappy)
		client := r.dial(dialect{version: d.version})
		backend := func() *peer {
			client.send(0, other) // Cassandra will refuse this one
			backend := r.accept(dialect{version: d.version})
			backend.answer(0)
			backend.send(0, &message.ProtocolError{ErrorMessage: "Unknown compression algorithm"})
			client.answer(0)
			return backend
		}()
		client.send(0, startup(d))
		client.send(1, other)
		assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(1).GetErrorCode())
		backend.answer(0)
		backend.send(0, &message.Ready{})
		client.answer(0)
		client.dialect, backend.dialect = d, d
		client.send(1, other)
		assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(1).GetErrorCode())
		// The first one still holds.
		client.send(2, query("SELECT rpc_address FROM system.local"))
		backend.answer(2)
		backend.send(2, systemLocal("rpc_address"))
		assert.Equal(t, []byte{192, 0, 2, 7}, client.answer(2).(*message.RowsResult).Data[0][0])
	})
}

// In protocol 5 Cassandra reads segments once it has answered STARTUP, be it with an error. What the client sends outside of
// segments from then on, also before it has the answer, would be read by Cassandra as something else: it is not forwarded, and
// ends the connection.
func TestSegmentsAfterStartup(t *testing.T) {
	for name, answer := range map[string]message.Message{
		"not answered": nil, "refused": &message.ProtocolError{ErrorMessage: "Missing value CQL_VERSION in STARTUP message"},
		"accepted": &message.Ready{}, "asked for a login": &message.Authenticate{Authenticator: "PasswordAuthenticator"},
	} {
		for _, m := range []message.Message{&message.Options{}, startup(dialect{version: v5}), query("SELECT a FROM b.c"), &message.AuthResponse{Token: []byte("x")}} {
			t.Run(fmt.Sprint(name, "/", m.GetOpCode()), func(t *testing.T) {
				r := newRig(t)
				client := r.dial(dialect{version: v5})
				client.send(0, startup(dialect{version: v5}))
				backend := r.accept(dialect{version: v5})
				backend.answer(0)
				if answer == nil {
					client.send(1, m)
					assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(1).GetErrorCode())
				} else {
					backend.send(0, answer)
					client.answer(0)
					client.send(1, m)
				}
				backend.ended()
			})
		}
	}
}

// An OPTIONS before the login has nothing that would mean something to a reader of segments.
func TestOptionsBeforeLogin(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client := r.dial(dialect{version: d.version})
		for stream, raw := range [][]byte{
			{byte(d.version), byte(primitive.HeaderFlagWarning), 0, 0, byte(primitive.OpCodeOptions), 0, 0, 0, 0},
			{byte(d.version), byte(primitive.HeaderFlagCompressed), 0, 1, byte(primitive.OpCodeOptions), 0, 0, 0, 0},
			{byte(d.version), 0, 0, 2, byte(primitive.OpCodeOptions), 0, 0, 0, 1, 7},
		} {
			client.write(raw)
			assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(int16(stream)).GetErrorCode())
		}
		client.send(3, &message.Options{})
		backend := r.accept(dialect{version: d.version})
		backend.answer(3)
		backend.silent()
	})
}

// A STARTUP with a custom payload has two readings: one of its options from the beginning, Cassandra's from behind the payload. With
// another compression than the node's, the proxy would read other statements than the node does.
func TestStartupHasOneReading(t *testing.T) {
	text := func(s string) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(s))), s...) }
	body := bytes.Join([][]byte{
		{0, 2}, text("DRIVER_NAME"), {0, 0}, text("COMPRESSION"), text("lz4"), // options; or a payload of DRIVER_NAME and lz4 …
		{0, 0, 0, 0}, {0, 1}, text("CQL_VERSION"), text("3.0.0"), // … and options without compression behind it
	}, nil)
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client := r.dial(dialect{version: d.version})
		for stream, flag := range []primitive.HeaderFlag{primitive.HeaderFlagCustomPayload, primitive.HeaderFlagCompressed, primitive.HeaderFlagWarning, 0x40} {
			raw := rawEnvelope(d, int16(stream), byte(primitive.OpCodeStartup), body)
			raw[1] = byte(flag)
			client.write(raw)
			assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(int16(stream)).GetErrorCode(), "%v", flag)
		}
		backend := r.accept(dialect{version: d.version})
		hello := client.envelope(t, 0, startup(d))
		hello[1] = byte(primitive.HeaderFlagTracing)
		client.write(hello)
		backend.expect(hello)
		backend.silent()
	})
}

// Java's upper case of a name may be another one than Go's: then Cassandra would find an option that the proxy does not.
func TestStartupWithOtherLetters(t *testing.T) {
	for name, options := range map[string]map[string]string{
		"name":  {"CQL_VERSION": "3.0.0", "COMPREßION": "lz4"},
		"value": {"CQL_VERSION": "3.0.0", "COMPRESSION": "ſnappy"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			client := r.dial(dialect{version: v4})
			client.send(0, &message.Startup{Options: options})
			assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(0).GetErrorCode())
			r.accept(dialect{version: v4}).silent()
		})
	}
}

// Cassandra ignores the case of option names and of the algorithm.
func TestStartupInOtherSpellings(t *testing.T) {
	r := newRig(t)
	d := dialect{v4, primitive.CompressionLz4}
	client := r.dial(d)
	client.send(0, &message.Startup{Options: map[string]string{"CQL_VERSION": "3.0.0", "Compression": "Lz4"}})
	backend := r.accept(d)
	backend.answer(0)
	backend.write(dialect{version: v4}.envelope(t, 0, &message.Ready{}))
	client.answer(0)
	client.send(2, query("SELECT rpc_address FROM system.local"))
	backend.answer(2)
	backend.send(2, systemLocal("rpc_address"))
	assert.Equal(t, []byte{192, 0, 2, 7}, client.answer(2).(*message.RowsResult).Data[0][0])
}

// Of two spellings of one option Cassandra takes either.
func TestStartupWithAnOptionTwice(t *testing.T) {
	r := newRig(t)
	client := r.dial(dialect{version: v4})
	client.send(0, &message.Startup{Options: map[string]string{"CQL_VERSION": "3.0.0", "compression": "lz4", "COMPRESSION": "snappy"}})
	assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(0).GetErrorCode())
	r.accept(dialect{version: v4}).silent()
}

// The handshake has one deadline, whatever the client sends meanwhile; after the login there is none.
func TestHandshakeTimeout(t *testing.T) {
	r := newRig(t, func(o *Options) { o.HandshakeTimeout = 300 * time.Millisecond })
	d := dialect{version: v4}
	in, backend := r.login(d)

	silent, half, asking := r.dial(d), r.dial(d), r.dial(d)
	half.write([]byte{4, 0, 0})
	asking.send(1, &message.Options{})
	node := r.accept(d)
	node.answer(1)
	node.send(1, supportedAnswer())
	asking.answer(1)
	for _, p := range []*peer{silent, half, asking, node} {
		p.ended()
	}
	relayed(in, backend, 1, query("SELECT a FROM b.c"), rows(nil))
}
