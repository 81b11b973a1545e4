package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"github.com/datastax/go-cassandra-native-protocol/compression/lz4"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/datastax/go-cassandra-native-protocol/segment"
	block "github.com/pierrec/lz4/v4"
)

// dialect is how a connection speaks: a version of the native protocol, compressed or not, encrypted or not.
type dialect struct {
	version primitive.ProtocolVersion
	lz4     bool
	tls     bool
}

// String returns the dialect as reports name it: v4, v5+lz4, v5+TLS.
func (d dialect) String() string {
	name := fmt.Sprintf("v%d", d.version)
	if d.lz4 {
		name += "+lz4"
	}
	if d.tls {
		name += "+TLS"
	}
	return name
}

// startup returns the first request of a connection, with name as DRIVER_NAME.
func (d dialect) startup(name string) *message.Startup {
	m := message.NewStartup(message.StartupOptionDriverName, name)
	if d.lz4 {
		m.SetCompression(primitive.CompressionLz4)
	}
	return m
}

// envelope encodes one message. In versions 3 and 4 its body is compressed if the dialect is,
// except for STARTUP.
func (d dialect) envelope(stream int16, m message.Message) []byte {
	codec := frame.NewCodec()
	f := frame.NewFrame(d.version, stream, m)
	if _, first := m.(*message.Startup); d.lz4 && d.version < primitive.ProtocolVersion5 && !first {
		codec = frame.NewCodecWithCompression(lz4.Compressor{})
		f.SetCompress(true)
	}
	var b bytes.Buffer
	if err := codec.EncodeFrame(f, &b); err != nil {
		panic(err) // our own messages
	}
	return b.Bytes()
}

// maxPayload is how many bytes go into one segment of version 5.
const maxPayload = 100 << 10

// framed puts envelopes into the framing that follows the handshake.
func (d dialect) framed(envelopes []byte) []byte {
	if d.version < primitive.ProtocolVersion5 {
		return envelopes
	}
	codec := segment.NewCodec()
	if d.lz4 {
		codec = segment.NewCodecWithCompression(blocks{})
	}
	var out bytes.Buffer
	for rest := envelopes; len(rest) > 0; {
		n := 0
		for n < len(rest) && (n == 0 || n+envelopeLength(rest[n:]) <= maxPayload) {
			n += envelopeLength(rest[n:])
		}
		s := &segment.Segment{Header: &segment.Header{IsSelfContained: true}, Payload: &segment.Payload{UncompressedData: rest[:n]}}
		if err := codec.EncodeSegment(s, &out); err != nil {
			panic(err) // our own bytes
		}
		rest = rest[n:]
	}
	return out.Bytes()
}

// headerLength is the length of an envelope's header in all versions from 3 on.
const headerLength = 9

// envelopeLength returns the length of the envelope that b begins with.
func envelopeLength(b []byte) int {
	return headerLength + int(binary.BigEndian.Uint32(b[5:]))
}

// line reads envelopes from a connection, whose framing changes after the handshake in version 5.
type line struct {
	net.Conn
	dialect
	in       *bufio.Reader
	segments segment.Codec // nil before the handshake is over, and in versions that have none
	payload  []byte        // of the last segment, not yet read
	large    []byte        // the envelope last read from the plain stream
}

// newLine returns the line of a new connection.
func newLine(c net.Conn, d dialect) *line {
	return &line{Conn: c, dialect: d, in: bufio.NewReaderSize(c, 64<<10)}
}

// begin changes to the framing that follows the handshake.
func (l *line) begin() {
	if l.version < primitive.ProtocolVersion5 {
		return
	}
	l.segments = segment.NewCodec()
	if l.lz4 {
		l.segments = segment.NewCodecWithCompression(blocks{})
	}
}

// next reads one envelope, which is valid until the next call.
func (l *line) next() ([]byte, error) {
	if l.segments == nil {
		return l.plain()
	}
	if len(l.payload) == 0 {
		s, err := l.segments.DecodeSegment(l.in)
		if err != nil {
			return nil, err
		}
		if !s.Header.IsSelfContained {
			return nil, fmt.Errorf("a part of an envelope, which nothing here sends")
		}
		l.payload = s.Payload.UncompressedData
	}
	n := envelopeLength(l.payload)
	envelope := l.payload[:n]
	l.payload = l.payload[n:]
	return envelope, nil
}

// plain reads an envelope that is not in a segment.
func (l *line) plain() ([]byte, error) {
	header, err := l.in.Peek(headerLength)
	if err != nil {
		return nil, err
	}
	n := envelopeLength(header)
	if cap(l.large) < n {
		l.large = make([]byte, n)
	}
	l.large = l.large[:n]
	_, err = io.ReadFull(l.in, l.large)
	return l.large, err
}

// dry reports whether the next envelope has not arrived yet, as far as is known.
func (l *line) dry() bool { return len(l.payload) == 0 && l.in.Buffered() == 0 }

// decoded returns the message of an envelope, compressed or not.
func decoded(envelope []byte) (message.Message, error) {
	f, err := frame.NewCodecWithCompression(lz4.Compressor{}).DecodeFrame(bytes.NewReader(envelope))
	if err != nil {
		return nil, err
	}
	return f.Body.Message, nil
}

// blocks is lz4 as segments use it. The protocol library guesses the decompressed length of a
// block, and fails if the block shrank a lot.
type blocks struct{}

// Compress implements segment.PayloadCompressor.
func (blocks) Compress(from io.Reader, to io.Writer) error {
	return lz4.Compressor{}.Compress(from, to)
}

// Decompress implements segment.PayloadCompressor.
func (blocks) Decompress(from io.Reader, to io.Writer) error {
	compressed, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	plain := make([]byte, segment.MaxPayloadLength)
	n, err := block.UncompressBlock(compressed, plain)
	if err != nil {
		return err
	}
	_, err = to.Write(plain[:n])
	return err
}
