package integration

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// quiet is how long a server must send nothing before its answer counts as complete.
const quiet = 300 * time.Millisecond

// exchange sends each part on one new connection, each after the answer to the part before, and
// returns all answers.
func exchange(address string, parts [][]byte) (answer []byte, err error) {
	conn, err := net.DialTimeout("tcp", address, wireTimeout)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	for _, part := range parts {
		if _, err := conn.Write(part); err != nil {
			return answer, err
		}
		more, err := hear(conn)
		answer = append(answer, more...)
		if err != nil {
			return answer, err
		}
	}
	return answer, nil
}

// hear reads until the server has been quiet for a while or closes.
func hear(conn net.Conn) ([]byte, error) {
	buffer := make([]byte, 64<<10)
	var answer []byte
	for wait := wireTimeout; ; wait = quiet {
		_ = conn.SetReadDeadline(time.Now().Add(wait))
		n, err := conn.Read(buffer)
		answer = append(answer, buffer[:n]...)
		switch {
		case err == nil:
		case len(answer) > 0, errors.Is(err, io.EOF):
			return answer, nil
		default:
			return answer, err
		}
	}
}

// raw returns the bytes of a request in a version, whether or not the library could encode it.
func raw(version, flags byte, stream int16, opcode primitive.OpCode, body []byte) []byte {
	b := []byte{version, flags, byte(uint16(stream) >> 8), byte(stream), byte(opcode), byte(len(body) >> 24), byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}
	return append(b, body...)
}

// bodyOf returns the body of a message in protocol 4.
func bodyOf(t testing.TB, m message.Message) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, frame.NewCodec().EncodeFrame(frame.NewFrame(primitive.ProtocolVersion4, 1, m), &b))
	return b.Bytes()[9:]
}

// greeting is what a client may send first.
type greeting struct {
	name    string
	sent    [][]byte
	differs string // why the proxy does not answer it as Cassandra does
}

// once returns a greeting of one part.
func once(part []byte) [][]byte { return [][]byte{part} }

// ownWords explains why answers to truncated bodies differ: Cassandra shows a Java exception, the
// proxy does not.
const ownWords = "what cannot be read is told in other words"

// greetings returns first messages of every kind: past and future versions, and clients that
// violate the protocol.
func greetings(t testing.TB) []greeting {
	startup := bodyOf(t, message.NewStartup(message.StartupOptionCqlVersion, "3.0.0"))
	query := bodyOf(t, plainQuery("SELECT key FROM system.local"))
	var all []greeting
	for _, version := range []byte{0, 1, 2, 6, 7, 0x41, 0x42, 0x7f} {
		all = append(all,
			greeting{name: fmt.Sprintf("OPTIONS in version %#x", version), sent: once(raw(version, 0, 5, primitive.OpCodeOptions, nil))},
			greeting{name: fmt.Sprintf("STARTUP in version %#x", version), sent: once(raw(version, 0, 5, primitive.OpCodeStartup, startup))},
		)
	}
	ready := raw(4, 0, 0, primitive.OpCodeStartup, startup)
	then := func(second []byte) [][]byte { return [][]byte{ready, second} }
	start := func(options ...string) [][]byte {
		m := &message.Startup{Options: map[string]string{}} // the library's constructor adds what is to be missing
		for pair := range slices.Chunk(options, 2) {
			m.Options[pair[0]] = pair[1]
		}
		return once(raw(4, 0, 3, primitive.OpCodeStartup, bodyOf(t, m)))
	}
	return append(all,
		greeting{name: "OPTIONS in version 5 with the beta flag", sent: once(raw(5, 0x10, 1, primitive.OpCodeOptions, nil))},
		greeting{name: "OPTIONS in version 6 with the beta flag", differs: "version 6 is not served", sent: once(raw(6, 0x10, 1, primitive.OpCodeOptions, nil))},
		greeting{name: "OPTIONS", sent: once(raw(4, 0, 7, primitive.OpCodeOptions, nil))},
		greeting{name: "OPTIONS twice", sent: [][]byte{raw(4, 0, 7, primitive.OpCodeOptions, nil), raw(4, 0, 8, primitive.OpCodeOptions, nil)}},
		greeting{name: "STARTUP", sent: once(ready)},
		greeting{name: "STARTUP, then OPTIONS", sent: then(raw(4, 0, 2, primitive.OpCodeOptions, nil))},
		greeting{name: "STARTUP twice", sent: then(ready)},
		greeting{name: "a stream id of the server", differs: "the proxy refuses what Cassandra answers", sent: once(raw(4, 0, -2, primitive.OpCodeOptions, nil))},
		greeting{name: "QUERY first", sent: once(raw(4, 0, 1, primitive.OpCodeQuery, query))},
		greeting{name: "AUTH_RESPONSE first", sent: once(raw(4, 0, 1, primitive.OpCodeAuthResponse, []byte{0, 0, 0, 0}))},
		greeting{name: "AUTH_RESPONSE unasked", differs: "Cassandra lets a client log in as another", sent: then(raw(4, 0, 1, primitive.OpCodeAuthResponse, []byte{0, 0, 0, 0}))},
		greeting{name: "an unknown opcode", sent: then(raw(4, 0, 1, 0x55, nil))},
		greeting{name: "a response's opcode", differs: "Cassandra tells a wrong direction from an unknown opcode", sent: then(raw(4, 0, 1, primitive.OpCodeReady, nil))},
		greeting{name: "a response", differs: "Cassandra names the message", sent: once(raw(0x84, 0, 1, primitive.OpCodeReady, nil))},
		greeting{name: "another version later", sent: then(raw(3, 0, 1, primitive.OpCodeOptions, nil))},
		greeting{name: "no CQL_VERSION", sent: start("DRIVER_NAME", "x")},
		greeting{name: "bad CQL_VERSION", sent: start("CQL_VERSION", "9.9.9")},
		greeting{name: "unknown compression", sent: start("CQL_VERSION", "3.0.0", "COMPRESSION", "zstd")},
		greeting{name: "snappy in version 5", sent: once(raw(5, 0, 3, primitive.OpCodeStartup, bodyOf(t, message.NewStartup("CQL_VERSION", "3.0.0", "COMPRESSION", "snappy"))))},
		greeting{name: "odd case", sent: start("cql_version", "3.0.0", "compression", "LZ4")},
		greeting{name: "unknown options", sent: start("CQL_VERSION", "4.0.0", "NO_COMPACT", "true", "SOMETHING", "else")},
		greeting{name: "STARTUP cut short", differs: ownWords, sent: once(raw(4, 0, 3, primitive.OpCodeStartup, startup[:5]))},
		greeting{name: "QUERY cut short", differs: ownWords, sent: then(raw(4, 0, 3, primitive.OpCodeQuery, query[:6]))},
		greeting{name: "QUERY without a body", differs: ownWords, sent: then(raw(4, 0, 3, primitive.OpCodeQuery, nil))},
		greeting{name: "PREPARE of nothing", sent: then(raw(4, 0, 3, primitive.OpCodePrepare, []byte{0, 0, 0, 0}))},
		greeting{name: "EXECUTE without a body", differs: ownWords, sent: then(raw(4, 0, 3, primitive.OpCodeExecute, nil))},
		greeting{name: "BATCH without a body", differs: ownWords, sent: then(raw(4, 0, 3, primitive.OpCodeBatch, nil))},
		greeting{name: "REGISTER for nothing known", sent: then(raw(4, 0, 3, primitive.OpCodeRegister, []byte{0, 1, 0, 1, 'x'}))},
		greeting{name: "REGISTER without a body", differs: ownWords, sent: then(raw(4, 0, 3, primitive.OpCodeRegister, nil))},
		greeting{name: "compressed without compression", differs: "Cassandra overlooks the flag", sent: then(raw(4, 1, 3, primitive.OpCodeQuery, query))},
		greeting{name: "unknown flags", differs: "Cassandra overlooks them", sent: then(raw(4, 0xe0, 3, primitive.OpCodeQuery, query))},
	)
}

// Every first message, however malformed, is answered as the node answers it.
func TestGreetingsAreAnsweredAlike(t *testing.T) {
	direct, proxy := needEnvironment(t).direct(), needProxy(t)
	for _, g := range greetings(t) {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel() // it mostly waits for silence
			want, err := exchange(direct, g.sent)
			require.NoError(t, err)
			got, err := exchange(proxy, g.sent)
			require.NoError(t, err)
			assert.Equal(t, g.differs == "", bytes.Equal(want, got), "known to differ: %q\ndirect\n%sproxied\n%s", g.differs, hex.Dump(want), hex.Dump(got))
		})
	}
}
