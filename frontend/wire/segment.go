package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/datastax/go-cassandra-native-protocol/crc"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/datastax/go-cassandra-native-protocol/segment"
)

const (
	plainSegmentHeader = segment.UncompressedHeaderLength + segment.Crc24Length
	lz4SegmentHeader   = segment.CompressedHeaderLength + segment.Crc24Length
)

// ErrCorrupt means that bytes do not match their checksum. Nothing that follows on the socket can
// be trusted.
var ErrCorrupt = errors.New("segment checksum does not match")

// SegmentHeader is the fixed part of a v5 segment (v5 spec section 2.2).
type SegmentHeader struct {
	Size          int  // of header, payload and checksum on the wire
	Payload       int  // length of the payload on the wire
	Plain         int  // length of the decompressed payload; 0 = it is not compressed
	SelfContained bool // the payload holds whole envelopes; otherwise a part of one
}

// SegmentCodec is how a v5 connection cuts its bytes into segments after the handshake.
type SegmentCodec struct{ Compression primitive.Compression }

// HeaderSize returns the length of a segment's header.
func (s SegmentCodec) HeaderSize() int {
	if s.Compression == primitive.CompressionLz4 {
		return lz4SegmentHeader
	}
	return plainSegmentHeader
}

// ReadHeader reads the header at the start of b, which must hold HeaderSize bytes. It returns
// ErrCorrupt if the checksum does not match; no length is used before that is checked.
func (s SegmentCodec) ReadHeader(b []byte) (SegmentHeader, error) {
	n := s.HeaderSize()
	fields := n - segment.Crc24Length
	var data uint64
	for i := fields - 1; i >= 0; i-- {
		data = data<<8 | uint64(b[i])
	}
	sum := uint32(b[fields]) | uint32(b[fields+1])<<8 | uint32(b[fields+2])<<16
	if crc.ChecksumKoopman(data, fields) != sum {
		return SegmentHeader{}, fmt.Errorf("header: %w", ErrCorrupt)
	}
	h := SegmentHeader{Payload: int(data & segment.MaxPayloadLength), SelfContained: data>>17&1 == 1}
	if s.Compression == primitive.CompressionLz4 {
		h.Plain = int(data >> 17 & segment.MaxPayloadLength)
		h.SelfContained = data>>34&1 == 1
	}
	h.Size = n + h.Payload + segment.Crc32Length
	return h, nil
}

// Payload checks and decompresses the payload of the segment at the start of b. scratch is the
// memory to decompress into; it must have room for the largest payload if h.Plain is not 0. The
// result lies in b or scratch and is valid until they change.
func (s SegmentCodec) Payload(h SegmentHeader, b, scratch []byte) ([]byte, error) {
	payload := b[s.HeaderSize() : h.Size-segment.Crc32Length]
	sum := binary.LittleEndian.Uint32(b[h.Size-segment.Crc32Length:])
	if crc.ChecksumIEEE(payload) != sum {
		return nil, fmt.Errorf("payload: %w", ErrCorrupt)
	}
	if h.Plain == 0 {
		return payload, nil
	}
	plain := scratch[:h.Plain]
	return plain, decompressLz4(payload, plain)
}

// AppendTo appends envelopes in as few segments as possible. part means that the last envelope goes
// on in later segments. The payload is never compressed: any segment of a connection with
// compression may be uncompressed (v5 spec section 2.2: uncompressed length 0).
func (s SegmentCodec) AppendTo(dst, envelopes []byte, part bool) []byte {
	selfContained := !part && len(envelopes) <= segment.MaxPayloadLength
	for len(envelopes) > 0 {
		n := min(len(envelopes), segment.MaxPayloadLength)
		dst = s.appendOne(dst, envelopes[:n], selfContained)
		envelopes = envelopes[n:]
	}
	return dst
}

// AppendMade is AppendTo for the one envelope that build appends to its argument. An envelope that
// fits into one segment is built in place, without a copy.
func (s SegmentCodec) AppendMade(dst []byte, build func(dst []byte) []byte) []byte {
	var room [lz4SegmentHeader]byte
	at, start := len(dst), len(dst)+s.HeaderSize()
	dst = build(append(dst, room[:s.HeaderSize()]...))
	envelope := dst[start:]
	if len(envelope) > segment.MaxPayloadLength {
		return s.AppendTo(dst[:at], bytes.Clone(envelope), false)
	}
	s.appendHeader(dst[:at], len(envelope), true)
	return binary.LittleEndian.AppendUint32(dst, crc.ChecksumIEEE(envelope))
}

// appendOne appends one segment.
func (s SegmentCodec) appendOne(dst, payload []byte, selfContained bool) []byte {
	dst = append(s.appendHeader(dst, len(payload), selfContained), payload...)
	return binary.LittleEndian.AppendUint32(dst, crc.ChecksumIEEE(payload))
}

// appendHeader appends the header of a segment whose payload is size bytes long.
func (s SegmentCodec) appendHeader(dst []byte, size int, selfContained bool) []byte {
	fields := s.HeaderSize() - segment.Crc24Length
	data, flag := uint64(size), uint64(1)<<17
	if s.Compression == primitive.CompressionLz4 {
		flag = 1 << 34
	}
	if selfContained {
		data |= flag
	}
	sum := crc.ChecksumKoopman(data, fields)
	for range fields {
		dst = append(dst, byte(data))
		data >>= 8
	}
	return append(dst, byte(sum), byte(sum>>8), byte(sum>>16))
}
