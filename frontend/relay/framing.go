package relay

import (
	"sync/atomic"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
)

// Framing is the form in which both sockets of a connection carry envelopes: one after another, or
// in the segments of protocol 5.
type Framing struct {
	Compression primitive.Compression // of bodies or of segments; must not change once STARTUP may have been answered
	inSegments  atomic.Bool
}

// SetSegmented sets whether both sockets carry segments from now on.
func (f *Framing) SetSegmented(segmented bool) { f.inSegments.Store(segmented) }

// Segmented reports whether the sockets carry segments. In segments bodies are not compressed,
// whatever their flags say.
func (f *Framing) Segmented() bool { return f.inSegments.Load() }

// Compressed reports whether the body of an envelope is compressed.
func (f *Framing) Compressed(h *wire.Header) bool {
	return h.Flags.Contains(primitive.HeaderFlagCompressed) && !f.Segmented()
}

// codec returns the codec of the connection's segments.
func (f *Framing) codec() wire.SegmentCodec { return wire.SegmentCodec{Compression: f.Compression} }

// appendMade is appendTo for the one envelope that build appends to its argument.
func (f *Framing) appendMade(dst []byte, build func(dst []byte) []byte) []byte {
	if f.Segmented() {
		return f.codec().AppendMade(dst, build)
	}
	return build(dst)
}

// appendTo appends whole envelopes in the present form.
func (f *Framing) appendTo(dst, envelopes []byte) []byte {
	if f.Segmented() {
		return f.codec().AppendTo(dst, envelopes, false)
	}
	return append(dst, envelopes...)
}
