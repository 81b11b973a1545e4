package frontend

import (
	"encoding/binary"
	"io"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unsupported is the ERROR with which Cassandra 5.0.8 refuses a protocol version, as recorded.
func unsupported(header, text string) []byte {
	body := []byte{0, 0, 0, 10}
	body = binary.BigEndian.AppendUint16(body, uint16(len(text)))
	body = append(body, text...)
	return append(binary.BigEndian.AppendUint32([]byte(header), uint32(len(body))), body...)
}

// First bytes of an unknown protocol version are answered as Cassandra answers them.
func TestVersionsThatNobodySpeaks(t *testing.T) {
	const rest = "; supported versions are (3/v3, 4/v4, 5/v5, 6/v6-beta)"
	cases := []struct {
		name  string
		hello string
		want  []byte
	}{
		{"DSE 1", "\x41\x00\x00\x07\x05\x00\x00\x00\x00", unsupported("\x85\x00\x00\x00\x00", "Invalid or unsupported protocol version (65)"+rest)},
		{"DSE 2", "\x42\x00\x00\x07\x05\x00\x00\x00\x00", unsupported("\x85\x00\x00\x00\x00", "Invalid or unsupported protocol version (66)"+rest)},
		{"7", "\x07\x00\x00\x07\x05\x00\x00\x00\x00", unsupported("\x85\x00\x00\x00\x00", "Invalid or unsupported protocol version (7)"+rest)},
		{"0", "\x00\x00\x00\x07\x05\x00\x00\x00\x00", unsupported("\x85\x00\x00\x00\x00", "Invalid or unsupported protocol version (0)"+rest)},
		{"2", "\x02\x00\x07\x05\x00\x00\x00\x00", unsupported("\x82\x00\x00\x00", "Invalid or unsupported protocol version (2)"+rest)},
		{"1", "\x01\x00\x07\x05\x00\x00\x00\x00", unsupported("\x81\x00\x00\x00", "Invalid or unsupported protocol version (1)"+rest)},
		{"6", "\x06\x00\x00\x07\x05\x00\x00\x00\x00", unsupported("\x86\x10\x00\x00\x00", "Beta version of the protocol used (6/v6-beta), but USE_BETA flag is unset")},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", unsupported("\x85\x00\x00\x00\x00", "Invalid or unsupported protocol version (22)"+rest)},
		{"HTTP", "GET / HTTP/1.1\r\n\r\n", unsupported("\x85\x00\x00\x00\x00", "Invalid or unsupported protocol version (71)"+rest)},
		{"one byte", "\x42", unsupported("\x85\x00\x00\x00\x00", "Invalid or unsupported protocol version (66)"+rest)},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			client := r.dial(dialect{})
			client.write([]byte(tc.hello))
			client.expect(tc.want)
			client.ended()
			_ = client.Close()
			assert.Equal(t, "debug", r.end()["level"], "it is no error: every driver tries")
			r.notDialed()
		})
	}
}

// The client can read the answer also where the proxy has not read all that it sent: the end is an EOF and no reset.
func TestRefusalIsNotLost(t *testing.T) {
	r := newRig(t)
	client := r.dial(dialect{})
	client.write(append([]byte{0x42}, noise(200_000)...))
	rest, err := io.ReadAll(client.Conn)
	require.NoError(t, err)
	assert.Equal(t, byte(0x85), rest[0])
}

// A header in the wrong direction is refused in a version that the client can read.
func TestResponseFromAClient(t *testing.T) {
	r := newRig(t)
	client := r.dial(dialect{version: v4})
	client.write([]byte("\x84\x00\x00\x07\x08\x00\x00\x00\x00"))
	assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(0).GetErrorCode())
	client.ended()
	r.notDialed()
}

// The version that a connection begins with holds to its end.
func TestVersionChangesInMidConnection(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, _ := r.login(d)
		other := v3 + v5 - d.version
		if d.version == v4 {
			other = v5
		}
		client.write(client.framed(dialect{version: other}.envelope(t, 3, &message.Options{})))
		assert.Equal(t, primitive.ErrorCodeProtocolError, client.failure(3).GetErrorCode())
		client.ended()
	})
}
