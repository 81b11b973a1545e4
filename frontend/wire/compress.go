package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/golang/snappy"
	"github.com/pierrec/lz4/v4"
)

// ErrTooLarge means that a body is, or claims to become, larger than the limit.
var ErrTooLarge = errors.New("message is larger than the limit")

// maxLz4Ratio and maxSnappyRatio are more than a body can grow: what claims more is not worth the
// memory. A byte of lz4 stands for 255 at most, three of snappy for 64.
const (
	maxLz4Ratio    = 256
	maxSnappyRatio = 32
)

// decompressLz4 decompresses a block into plain, whose length is the one that was declared.
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

// sized returns a slice of n bytes, of scratch where that is large enough.
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
		// A tag of a literal ends in two zero bits; from 60 on its length stands behind it, which
		// is more than we look for.
		if n < 1 || len(body) <= n || body[n]&3 != 0 || body[n]>>2 >= 60 {
			return nil
		}
		return unmatched(body[n+1:], int(body[n]>>2)+1, 61, 0)
	}
	return nil
}

// unmatched returns the n literal bytes that a block begins with. From long on, bytes that are
// added to the length stand before them; one below most is the last.
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

// Decompress returns the body of a v3 or v4 envelope with the compressed flag (v4 spec section 2.2)
// without compression, in scratch where that is large enough. The length that the body claims is
// checked against limit before anything is allocated.
func Decompress(algorithm primitive.Compression, body, scratch []byte, limit int) ([]byte, error) {
	switch algorithm {
	case primitive.CompressionLz4:
		if len(body) < 4 {
			return nil, fmt.Errorf("decompress lz4: body of %d bytes", len(body))
		}
		n := int(binary.BigEndian.Uint32(body))
		if n > limit || n > maxLz4Ratio*len(body) {
			return nil, fmt.Errorf("decompress lz4: %d bytes: %w", n, ErrTooLarge)
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
			return nil, fmt.Errorf("decompress snappy: %d bytes: %w", n, ErrTooLarge)
		}
		b, err := snappy.Decode(sized(scratch, n), body)
		if err != nil {
			return nil, fmt.Errorf("decompress snappy: %w", err)
		}
		return b, nil
	}
	return nil, errors.New("compressed body on a connection without compression")
}
