package rewrite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
)

// ErrNotRead says that this package does not read such a literal as such a type:
// Cassandra would refuse it, convert it, or read it in a way that is not
// repeated here. To guess would lock another key than the one that is written.
var ErrNotRead = errors.New("literal is not read")

// Int returns the value of an integer literal; ErrNotRead for any other term
// and beyond 64 bits.
func Int(text []byte, t Term) (int64, error) { return integer(text, t, 64) }

// integer reads an integer literal that fits so many bits.
func integer(text []byte, t Term, bits int) (int64, error) {
	if t.Kind != TermInteger {
		return 0, notRead(text, t, "integer")
	}
	n, err := strconv.ParseInt(string(t.Of(text)), 10, bits)
	if err != nil {
		return 0, notRead(text, t, fmt.Sprintf("%d-bit integer", bits))
	}
	return n, nil
}

// String returns the value of a string literal, '…' or $$…$$; ErrNotRead for any
// other term.
func String(text []byte, t Term) (string, error) {
	if t.Kind != TermString {
		return "", notRead(text, t, "string")
	}
	return string(appendString(nil, t.Of(text))), nil
}

// appendString appends the value of a string literal, quotes and escapes taken off, to dst.
func appendString(dst, literal []byte) []byte {
	if literal[0] == '$' {
		return append(dst, literal[2:len(literal)-2]...)
	}
	return appendUnquoted(dst, literal[1:len(literal)-1], '\'')
}

// RoutingKey returns the key of a partition from the values of its columns: the
// one value as it is (the same memory), several each as a length of two bytes,
// the value, and a zero. A value of several is at most 65535 bytes, as Cassandra
// demands of any key; a longer one gives a key that no partition has.
func RoutingKey(parts [][]byte) []byte {
	if len(parts) == 1 {
		return parts[0]
	}
	var key []byte
	for _, part := range parts {
		key = binary.BigEndian.AppendUint16(key, uint16(min(len(part), math.MaxUint16)))
		key = append(key, part...)
		key = append(key, 0)
	}
	return key
}

// SplitRoutingKey takes the key of a partition apart: the value of each of n
// columns, which share its memory. It is false of bytes that are no such key.
func SplitRoutingKey(key string, n int) ([]string, bool) {
	if n == 1 {
		return []string{key}, true
	}
	parts := make([]string, n)
	for i := range parts {
		if len(key) < 3 {
			return nil, false
		}
		end := 2 + int(key[0])<<8 + int(key[1])
		if len(key) <= end {
			return nil, false
		}
		parts[i], key = key[2:end], key[end+1:]
	}
	return parts, key == ""
}

// notRead returns the ErrNotRead that names a literal and the type that it is not read as.
func notRead(text []byte, t Term, typ string) error {
	return fmt.Errorf("%w: %q as %s", ErrNotRead, t.Of(text), typ)
}
