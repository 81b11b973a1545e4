package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/golang/snappy"
	"github.com/pierrec/lz4/v4"
)

// errTooLarge means that a body is, or claims to become, larger than the limit.
var errTooLarge = errors.New("message is larger than the limit")

// maxLz4Ratio and maxSnappyRatio bound how much larger a body may claim to become: neither format
// can grow more, since a byte of lz4 stands for at most 255 and three bytes of snappy for 64. A
// body that claims more is refused before memory is allocated for it.
const (
	maxLz4Ratio    = 256
	maxSnappyRatio = 32
)

// decompressLz4 decompresses a block into plain, which must have the declared length.
func decompressLz4(block, plain []byte) error {
	n, err := lz4.UncompressBlock(block, plain)
	if err != nil {
		return fmt.Errorf("decompress lz4: %w", err)
	}
	if n != len(plain) {
		return fmt.Errorf("decompress lz4: %d bytes where %d were declared", n, len(plain))
	}
	return nil
}

// sized returns a slice of n bytes: the beginning of scratch if that is large enough, else a new
// one.
func sized(scratch []byte, n int) []byte {
	if n > cap(scratch) {
		return make([]byte, n)
	}
	return scratch[:n]
}

// UncompressedPrefix returns the beginning of a body, as far as it can be read without
// decompressing it: both algorithms begin with a run of literal bytes. It may be empty.
func UncompressedPrefix(algorithm primitive.Compression, body []byte) []byte {
	switch {
	case algorithm == primitive.CompressionLz4 && len(body) > 4:
		return unmatched(body[5:], int(body[4]>>4), 15, 255)
	case algorithm == primitive.CompressionSnappy:
		_, n := binary.Uvarint(body)
		// The tag of a literal ends in two zero bits. From 60 on the length follows the tag: a
		// literal that long is not looked for.
		if n < 1 || len(body) <= n || body[n]&3 != 0 || body[n]>>2 >= 60 {
			return nil
		}
		return unmatched(body[n+1:], int(body[n]>>2)+1, 61, 0)
	}
	return nil
}

// unmatched returns the n literal bytes that a block begins with. If n is long or more, length
// bytes stand before the literals: each is added to n, and the first that is not most ends them.
func unmatched(block []byte, n, long int, most byte) []byte {
	for n >= long && len(block) > 0 {
		next := block[0]
		n, block = n+int(next), block[1:]
		if next != most {
			break
		}
	}
	return block[:min(n, len(block))]
}

// Decompress decompresses the body of a v3 or v4 envelope with the compressed flag (v4 spec section
// 2.2), into scratch if that is large enough. The length that the body claims is checked against
// limit before anything is allocated; errTooLarge means that it is beyond.
func Decompress(algorithm primitive.Compression, body, scratch []byte, limit int) ([]byte, error) {
	switch algorithm {
	case primitive.CompressionLz4:
		if len(body) < 4 {
			return nil, fmt.Errorf("decompress lz4: body of %d bytes", len(body))
		}
		n := int(binary.BigEndian.Uint32(body))
		if n > limit || n > maxLz4Ratio*len(body) {
			return nil, fmt.Errorf("decompress lz4: %d bytes: %w", n, errTooLarge)
		}
		if n == 0 {
			return nil, nil
		}
		plain := sized(scratch, n)
		return plain, decompressLz4(body[4:], plain)
	case primitive.CompressionSnappy:
		n, err := snappy.DecodedLen(body)
		if err != nil {
			return nil, fmt.Errorf("decompress snappy: %w", err)
		}
		if n > limit || n > maxSnappyRatio*len(body) {
			return nil, fmt.Errorf("decompress snappy: %d bytes: %w", n, errTooLarge)
		}
		b, err := snappy.Decode(sized(scratch, n), body)
		if err != nil {
			return nil, fmt.Errorf("decompress snappy: %w", err)
		}
		return b, nil
	}
	return nil, errors.New("compressed body on a connection without compression")
}
