package wire

import (
	"encoding/binary"
	"errors"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// ErrShort means that a body ends before the field that was to be read, or has a flag that
// Cassandra 5.0 does not know.
var ErrShort = errors.New("body is too short, or has an unknown flag")

// Cursor reads the primitive types of the protocol (v4 spec section 3) from a body. It does not
// copy: the slices that it returns lie in the body. The first read beyond the end sets Bad, and all
// later reads return zero values, so callers check Bad once, at the end.
type Cursor struct {
	Body []byte
	At   int // where the next read begins
	Bad  bool
}

// Take returns the next n bytes, or nil if fewer are left.
func (c *Cursor) Take(n int) []byte {
	if c.Bad || n < 0 || n > len(c.Body)-c.At {
		c.Bad = true
		return nil
	}
	c.At += n
	return c.Body[c.At-n : c.At]
}

// Byte reads a [byte].
func (c *Cursor) Byte() byte {
	if b := c.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Short reads a [short].
func (c *Cursor) Short() int {
	if b := c.Take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

// Int reads an [int].
func (c *Cursor) Int() int {
	if b := c.Take(4); b != nil {
		return int(int32(binary.BigEndian.Uint32(b)))
	}
	return 0
}

// ShortBytes reads a [string] or [short bytes].
func (c *Cursor) ShortBytes() []byte { return c.Take(c.Short()) }

// LongString reads a [long string].
func (c *Cursor) LongString() []byte { return c.Take(c.Int()) }

// Value reads a [value] or [bytes]. It returns nil for null (length -1) and for not set (-2).
func (c *Cursor) Value() []byte {
	n := c.Int()
	if n < 0 {
		return nil
	}
	return c.Take(n)
}

// Bound reads a bound value, with its length before it, as Cassandra does (CBUtil.readBoundValue):
// before protocol 4 every negative length is null, and from then on one below -2 is an error.
func (c *Cursor) Bound(version byte) []byte {
	start := c.At
	n := c.Int()
	switch {
	case n >= 0:
		c.Take(n)
	case version < byte(primitive.ProtocolVersion4) && n != -1:
		return []byte{0xff, 0xff, 0xff, 0xff}
	case n < -2:
		c.Bad = true
	}
	return c.Body[start:c.At]
}

// BytesMap skips a [bytes map].
func (c *Cursor) BytesMap() {
	for n := c.Short(); n > 0 && !c.Bad; n-- {
		c.ShortBytes()
		c.Value()
	}
}
