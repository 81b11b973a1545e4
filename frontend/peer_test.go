package frontend

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/compression/lz4"
	"github.com/datastax/go-cassandra-native-protocol/compression/snappy"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/datastax/go-cassandra-native-protocol/segment"
	"github.com/stretchr/testify/require"

	"music/frontend/wire"
)

const (
	v3 = primitive.ProtocolVersion3
	v4 = primitive.ProtocolVersion4
	v5 = primitive.ProtocolVersion5
)

// patience is how long a test waits for what must come. No test waits it out.
const patience = 20 * time.Second

// tester is a test of any kind.
type tester interface {
	require.TestingT
	Helper()
}

// dialect is how a connection speaks.
type dialect struct {
	version     primitive.ProtocolVersion
	compression primitive.Compression
}

// dialects are all that the proxy speaks.
func dialects() map[string]dialect {
	return map[string]dialect{
		"v3":        {v3, ""},
		"v4":        {v4, ""},
		"v5":        {v5, ""},
		"v3 lz4":    {v3, primitive.CompressionLz4},
		"v4 lz4":    {v4, primitive.CompressionLz4},
		"v4 snappy": {v4, primitive.CompressionSnappy},
		"v5 lz4":    {v5, primitive.CompressionLz4},
	}
}

// everyDialect runs a test in each of them.
func everyDialect(t *testing.T, test func(t *testing.T, d dialect)) {
	t.Helper()
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) { test(t, d) })
	}
}

// bothFramings runs a test, one that has to wait, in one dialect of each.
func bothFramings(t *testing.T, test func(t *testing.T, d dialect)) {
	t.Helper()
	t.Run("v4", func(t *testing.T) { test(t, dialect{v4, ""}) })
	t.Run("v5", func(t *testing.T) { test(t, dialect{v5, ""}) })
}

// codec encodes and decodes envelopes; it is not the proxy's own.
func (d dialect) codec() frame.Codec {
	switch d.compression {
	case primitive.CompressionLz4:
		return frame.NewCodecWithCompression(lz4.Compressor{})
	case primitive.CompressionSnappy:
		return frame.NewCodecWithCompression(snappy.Compressor{})
	}
	return frame.NewCodec()
}

// segments encodes and decodes segments; it is not the proxy's own.
func (d dialect) segments() segment.Codec {
	if d.compression == primitive.CompressionLz4 {
		return segment.NewCodecWithCompression(lz4.Compressor{})
	}
	return segment.NewCodec()
}

// envelope encodes one message. In version 3 and 4 it is compressed where the dialect is.
func (d dialect) envelope(t tester, stream int16, m message.Message, change ...func(*frame.Frame)) []byte {
	t.Helper()
	f := frame.NewFrame(d.version, stream, m)
	for _, c := range change {
		c(f)
	}
	_, startup := m.(*message.Startup)
	f.SetCompress(d.compression != "" && d.version < v5 && !startup)
	var b bytes.Buffer
	require.NoError(t, d.codec().EncodeFrame(f, &b))
	return b.Bytes()
}

// segment encodes one segment.
func (d dialect) segment(t tester, payload []byte, selfContained bool) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, d.segments().EncodeSegment(&segment.Segment{
		Header: &segment.Header{IsSelfContained: selfContained}, Payload: &segment.Payload{UncompressedData: payload},
	}, &b))
	return b.Bytes()
}

// parts cuts one large envelope into segments of at most size bytes.
func (d dialect) parts(t tester, envelope []byte, size int) []byte {
	t.Helper()
	var b []byte
	for len(envelope) > 0 {
		n := min(size, len(envelope))
		b = append(b, d.segment(t, envelope[:n], false)...)
		envelope = envelope[n:]
	}
	return b
}

// peer is a far end of the proxy: a client, or a node of Cassandra.
type peer struct {
	dialect
	net.Conn
	t         testing.TB
	segmented bool
	payload   bytes.Buffer // of segments, not yet decoded
}

func newPeer(t testing.TB, conn net.Conn, d dialect) *peer {
	t.Helper()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	t.Cleanup(func() { _ = conn.Close() })
	return &peer{dialect: d, Conn: conn, t: t}
}

// write writes bytes as they are.
func (p *peer) write(b []byte) {
	p.t.Helper()
	_, err := p.Write(b)
	require.NoError(p.t, err)
}

// framed puts envelopes into the framing that the connection uses now.
func (p *peer) framed(envelopes ...[]byte) []byte {
	p.t.Helper()
	b := bytes.Join(envelopes, nil)
	switch {
	case !p.segmented:
		return b
	case len(b) > segment.MaxPayloadLength:
		require.Len(p.t, envelopes, 1)
		return p.parts(p.t, b, segment.MaxPayloadLength)
	}
	return p.segment(p.t, b, true)
}

// send encodes and writes one message.
func (p *peer) send(stream int16, m message.Message, change ...func(*frame.Frame)) {
	p.t.Helper()
	p.write(p.framed(p.envelope(p.t, stream, m, change...)))
}

// exactly reads so many bytes as they are.
func (p *peer) exactly(n int) []byte {
	p.t.Helper()
	b := make([]byte, n)
	got, err := io.ReadFull(p.Conn, b)
	require.NoError(p.t, err, "after %d of %d bytes", got, n)
	return b
}

// expect reads exactly these bytes.
func (p *peer) expect(want []byte) {
	p.t.Helper()
	if got := p.exactly(len(want)); !bytes.Equal(want, got) {
		require.FailNow(p.t, "other bytes arrived", "want %.200x\ngot  %.200x", want, got)
	}
}

// next reads and decodes one envelope.
func (p *peer) next() *frame.Frame {
	p.t.Helper()
	f, err := p.tryNext()
	require.NoError(p.t, err)
	return f
}

func (p *peer) tryNext() (*frame.Frame, error) {
	if !p.segmented {
		return p.codec().DecodeFrame(p.Conn)
	}
	for !p.decodable() {
		s, err := p.segments().DecodeSegment(p.Conn)
		if err != nil {
			return nil, err
		}
		p.payload.Write(s.Payload.UncompressedData)
	}
	return frame.NewCodec().DecodeFrame(&p.payload)
}

// decodable reports whether a whole envelope has been taken out of segments.
func (p *peer) decodable() bool {
	b := p.payload.Bytes()
	if len(b) < wire.HeaderSize {
		return false
	}
	h := wire.ReadHeader(b)
	return len(b) >= h.Size()
}

// answer reads the next envelope, which must be on this stream, and returns its message.
func (p *peer) answer(stream int16) message.Message {
	p.t.Helper()
	f := p.next()
	require.Equal(p.t, stream, f.Header.StreamId, "%v", f)
	return f.Body.Message
}

// failure reads an ERROR on this stream.
func (p *peer) failure(stream int16) message.Error {
	p.t.Helper()
	m := p.answer(stream)
	e, ok := m.(message.Error)
	require.True(p.t, ok, "%v", m)
	return e
}

// ended tells that the other side has closed, after nothing more.
func (p *peer) ended() {
	p.t.Helper()
	rest, err := io.ReadAll(p.Conn)
	require.Empty(p.t, rest)
	if err != nil {
		require.ErrorContains(p.t, err, "connection reset")
	}
}

// moment is how long a test waits for what must not come.
const moment = 20 * time.Millisecond

// silent tells that nothing arrives.
func (p *peer) silent() {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(moment)))
	n, err := p.Read(make([]byte, 1))
	require.Zero(p.t, n)
	require.Error(p.t, err)
	require.True(p.t, isTimeout(err), "%v", err)
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(patience)))
}
