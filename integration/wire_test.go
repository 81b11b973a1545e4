package integration

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	cql "github.com/datastax/go-cassandra-native-protocol/client"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/datastax/go-cassandra-native-protocol/segment"
	"github.com/stretchr/testify/require"
)

// wireTimeout is how long an answer may take.
const wireTimeout = 20 * time.Second

// envelope is one answer as received: nine bytes of header and the body, compressed or not.
type envelope struct {
	header []byte
	body   []byte
}

func (e envelope) stream() int16 { return int16(binary.BigEndian.Uint16(e.header[2:])) }

func (e envelope) opcode() primitive.OpCode { return primitive.OpCode(e.header[4]) }

// wire is a connection of the native protocol with access to the bytes.
type wire struct {
	net      net.Conn
	read     io.Reader
	version  primitive.ProtocolVersion
	codec    frame.RawCodec
	compress bool
	segments segment.Codec // v5 after the handshake; nil before
	payload  *bytes.Buffer // of segments, not yet read
	stream   int16
}

// dialWire connects without a handshake.
func dialWire(address string, version primitive.ProtocolVersion, compression primitive.Compression) (*wire, error) {
	conn, err := net.DialTimeout("tcp", address, wireTimeout)
	if err != nil {
		return nil, err
	}
	w := &wire{net: conn, read: bufio.NewReader(conn), version: version, payload: new(bytes.Buffer)}
	w.codec = frame.NewRawCodec()
	w.compress = compression != primitive.CompressionNone
	if w.compress && version < primitive.ProtocolVersion5 {
		w.codec = frame.NewRawCodecWithCompression(cql.NewBodyCompressor(compression))
	}
	return w, nil
}

// openWire connects and does the handshake; the connection is closed at the end of the test at the
// latest.
func openWire(t testing.TB, address string, version primitive.ProtocolVersion, compression primitive.Compression) *wire {
	t.Helper()
	w, err := greetWire(address, version, compression)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.net.Close() })
	return w
}

// greetWire connects and does the handshake.
func greetWire(address string, version primitive.ProtocolVersion, compression primitive.Compression) (*wire, error) {
	w, err := dialWire(address, version, compression)
	if err != nil {
		return nil, err
	}
	options := []string{message.StartupOptionCqlVersion, "3.0.0"}
	if compression != primitive.CompressionNone {
		options = append(options, message.StartupOptionCompression, string(compression))
	}
	compress := w.compress
	w.compress = false
	e, err := w.ask(message.NewStartup(options...))
	w.compress = compress
	if err != nil || e.opcode() != primitive.OpCodeReady {
		_ = w.net.Close()
		return nil, fmt.Errorf("handshake at %s: %v, %w", address, e, errors.Join(errAnswered, err))
	}
	if version >= primitive.ProtocolVersion5 {
		w.segments = segment.NewCodecWithCompression(cql.NewPayloadCompressor(compression))
	}
	return w, nil
}

// ask sends a message and returns its answer; no other request may be open.
func (w *wire) ask(m message.Message) (envelope, error) {
	if err := w.send(m, nil); err != nil {
		return envelope{}, err
	}
	return w.receive()
}

// send sends a message on the next stream; change, unless nil, can set other fields of the frame.
func (w *wire) send(m message.Message, change func(*frame.Frame)) error {
	w.stream = (w.stream + 1) % 1000
	f := frame.NewFrame(w.version, w.stream, m)
	f.SetCompress(w.compress && w.version < primitive.ProtocolVersion5)
	if change != nil {
		change(f)
	}
	var b bytes.Buffer
	if err := w.codec.EncodeFrame(f, &b); err != nil {
		return fmt.Errorf("encode %v: %w", m, err)
	}
	raw := b.Bytes()
	// The library adds the length of a tracing id, which requests do not have.
	binary.BigEndian.PutUint32(raw[5:], uint32(len(raw)-primitive.FrameHeaderLengthV3AndHigher))
	return w.sendRaw(raw)
}

// sendRaw sends an envelope in the connection's framing.
func (w *wire) sendRaw(raw []byte) error {
	if w.segments == nil {
		_, err := w.net.Write(raw)
		return err
	}
	const most = 128<<10 - 1
	whole := len(raw) <= most
	for len(raw) > 0 {
		n := min(len(raw), most)
		s := &segment.Segment{Header: &segment.Header{IsSelfContained: whole}, Payload: &segment.Payload{UncompressedData: raw[:n]}}
		if err := w.segments.EncodeSegment(s, w.net); err != nil {
			return err
		}
		raw = raw[n:]
	}
	return nil
}

// receive returns the next envelope.
func (w *wire) receive() (envelope, error) { return w.receiveWithin(wireTimeout) }

// receiveWithin returns the next envelope, and fails if none arrives in time.
func (w *wire) receiveWithin(limit time.Duration) (envelope, error) {
	if err := w.net.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return envelope{}, err
	}
	e := envelope{header: make([]byte, primitive.FrameHeaderLengthV3AndHigher)}
	if err := w.fill(e.header); err != nil {
		return e, err
	}
	e.body = make([]byte, binary.BigEndian.Uint32(e.header[5:]))
	return e, w.fill(e.body)
}

// fill reads len(b) bytes of envelopes, out of as many segments as it takes.
func (w *wire) fill(b []byte) error {
	if w.segments == nil {
		_, err := io.ReadFull(w.read, b)
		return err
	}
	for w.payload.Len() < len(b) {
		s, err := w.segments.DecodeSegment(w.read)
		if err != nil {
			return err
		}
		w.payload.Write(s.Payload.UncompressedData)
	}
	_, err := io.ReadFull(w.payload, b)
	return err
}

// decode decodes an answer; the message is nil if the library cannot.
func (w *wire) decode(e envelope) (*frame.Frame, error) {
	return w.codec.DecodeFrame(bytes.NewReader(append(bytes.Clone(e.header), e.body...)))
}

// String returns the envelope as text.
func (e envelope) String() string {
	if len(e.header) < 9 {
		return "nothing"
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '.'
		}
		return r
	}, string(e.body[:min(len(e.body), 300)]))
	return fmt.Sprintf("header % x body %d bytes %s", e.header, len(e.body), text)
}
