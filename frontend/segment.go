package frontend

import (
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

// errCorrupt ends a connection whose bytes do not match their checksum: after it nothing on the socket can be trusted.
var errCorrupt = errors.New("segment checksum does not match")

// segmentHeader is the fixed part of a v5 segment (v5 spec section 2.2).
type segmentHeader struct {
	size          int  // of header, payload and checksum on the wire
	payload       int  // length of the payload on the wire
	plain         int  // length of the payload once decompressed; 0 = it is not compressed
	selfContained bool // the payload is whole envelopes; otherwise a part of one
}

// segmentCodec is how a v5 connection cuts its bytes into segments after the handshake.
type segmentCodec struct{ compression primitive.Compression }

// headerSize is the length of a segment's header.
func (s segmentCodec) headerSize() int {
	if s.compression == primitive.CompressionLz4 {
		return lz4SegmentHeader
	}
	return plainSegmentHeader
}

// readHeader reads the header at the start of b, which must hold headerSize bytes. It returns errCorrupt before it
// believes any length.
func (s segmentCodec) readHeader(b []byte) (segmentHeader, error) {
	n := s.headerSize()
	fields := n - segment.Crc24Length
	var data uint64
	for i := fields - 1; i >= 0; i-- {
		data = data<<8 | uint64(b[i])
	}
	sum := uint32(b[fields]) | uint32(b[fields+1])<<8 | uint32(b[fields+2])<<16
	if crc.ChecksumKoopman(data, fields) != sum {
		return segmentHeader{}, fmt.Errorf("header: %w", errCorrupt)
	}
	h := segmentHeader{payload: int(data & segment.MaxPayloadLength), selfContained: data>>17&1 == 1}
	if s.compression == primitive.CompressionLz4 {
		h.plain = int(data >> 17 & segment.MaxPayloadLength)
		h.selfContained = data>>34&1 == 1
	}
	h.size = n + h.payload + segment.Crc32Length
	return h, nil
}

// payload checks and, where need be, decompresses the payload of the segment at the start of b into scratch, which must have
// room for any segment's. The result is valid until b or scratch changes.
func (s segmentCodec) payload(h segmentHeader, b, scratch []byte) ([]byte, error) {
	payload := b[s.headerSize() : h.size-segment.Crc32Length]
	sum := binary.LittleEndian.Uint32(b[h.size-segment.Crc32Length:])
	if crc.ChecksumIEEE(payload) != sum {
		return nil, fmt.Errorf("payload: %w", errCorrupt)
	}
	if h.plain == 0 {
		return payload, nil
	}
	plain := scratch[:h.plain]
	return plain, decompressLz4(payload, plain)
}

// appendTo appends envelopes cut into as few segments as hold them; part tells that the last one goes on in segments to come.
// The payload is never compressed: a connection with compression allows that for any segment (v5 spec section 2.2:
// uncompressed length 0).
func (s segmentCodec) appendTo(dst, envelopes []byte, part bool) []byte {
	selfContained := !part && len(envelopes) <= segment.MaxPayloadLength
	for len(envelopes) > 0 {
		n := min(len(envelopes), segment.MaxPayloadLength)
		dst = s.appendOne(dst, envelopes[:n], selfContained)
		envelopes = envelopes[n:]
	}
	return dst
}

func (s segmentCodec) appendOne(dst, payload []byte, selfContained bool) []byte {
	fields := s.headerSize() - segment.Crc24Length
	data, flag := uint64(len(payload)), uint64(1)<<17
	if s.compression == primitive.CompressionLz4 {
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
	dst = append(dst, byte(sum), byte(sum>>8), byte(sum>>16))
	dst = append(dst, payload...)
	return binary.LittleEndian.AppendUint32(dst, crc.ChecksumIEEE(payload))
}
