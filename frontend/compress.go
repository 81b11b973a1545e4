package frontend

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/golang/snappy"
	"github.com/pierrec/lz4/v4"
)

// errTooLarge tells that a body is, or claims to become, larger than the limit.
var errTooLarge = errors.New("message is larger than the limit")

// decompressLz4 decompresses a block of known plain length into scratch, grown where it is too small.
func decompressLz4(block []byte, plain int, scratch []byte) ([]byte, error) {
	if cap(scratch) < plain {
		scratch = make([]byte, plain)
	}
	n, err := lz4.UncompressBlock(block, scratch[:plain])
	if err != nil {
		return nil, fmt.Errorf("decompress lz4: %w", err)
	}
	if n != plain {
		return nil, fmt.Errorf("decompress lz4: %d bytes where %d were declared", n, plain)
	}
	return scratch[:n], nil
}

// decompressBody gives the plain body of a v3 or v4 envelope with the compressed flag (v4 spec section 2.2). The length
// that the body claims is checked against limit before anything is allocated.
func decompressBody(algorithm primitive.Compression, body []byte, limit int) ([]byte, error) {
	switch algorithm {
	case primitive.CompressionLz4:
		if len(body) < 4 {
			return nil, fmt.Errorf("decompress lz4: body of %d bytes", len(body))
		}
		plain := int(binary.BigEndian.Uint32(body))
		if plain > limit {
			return nil, fmt.Errorf("decompress lz4: %d bytes: %w", plain, errTooLarge)
		}
		if plain == 0 {
			return nil, nil
		}
		return decompressLz4(body[4:], plain, nil)
	case primitive.CompressionSnappy:
		plain, err := snappy.DecodedLen(body)
		if err != nil {
			return nil, fmt.Errorf("decompress snappy: %w", err)
		}
		if plain > limit {
			return nil, fmt.Errorf("decompress snappy: %d bytes: %w", plain, errTooLarge)
		}
		b, err := snappy.Decode(nil, body)
		if err != nil {
			return nil, fmt.Errorf("decompress snappy: %w", err)
		}
		return b, nil
	}
	return nil, errors.New("compressed body on a connection without compression")
}
