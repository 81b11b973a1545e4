package frontend

import "encoding/binary"

// cursor reads the primitive types of the protocol (v4 spec section 3) from a body where it lies. The first read that
// does not fit sets bad, and everything after it reads as zero: callers look once, at the end.
type cursor struct {
	b   []byte
	at  int
	bad bool
}

// take returns the next n bytes, or nil.
func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b)-c.at {
		c.bad = true
		return nil
	}
	c.at += n
	return c.b[c.at-n : c.at]
}

func (c *cursor) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) short() int {
	if b := c.take(2); b != nil {
		return int(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (c *cursor) int() int {
	if b := c.take(4); b != nil {
		return int(int32(binary.BigEndian.Uint32(b)))
	}
	return 0
}

// string reads a [string] or [short bytes].
func (c *cursor) string() []byte { return c.take(c.short()) }

// longString reads a [long string].
func (c *cursor) longString() []byte { return c.take(c.int()) }

// value skips a [value] or [bytes]: length -1 is null, -2 is not set.
func (c *cursor) value() []byte {
	n := c.int()
	if n < 0 {
		return nil
	}
	return c.take(n)
}

// bytesMap skips a [bytes map].
func (c *cursor) bytesMap() {
	for n := c.short(); n > 0 && !c.bad; n-- {
		c.string()
		c.value()
	}
}
