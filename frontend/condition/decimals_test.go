package condition

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A decimal is its value, however many digits stand behind its point: nothing is nothing.
func TestCompareDecimals(t *testing.T) {
	decimal := func(unscaled, scale int8) []byte {
		b := []byte{0, 0, 0, byte(scale), byte(unscaled)}
		if scale < 0 {
			b[0], b[1], b[2] = 0xff, 0xff, 0xff
		}
		return b
	}
	for _, c := range []struct {
		a, b []byte
		want int
	}{
		{decimal(0, 0), decimal(0, 5), 0},
		{decimal(0, -5), decimal(0, 5), 0},
		{decimal(0, 9), decimal(1, 9), -1},
		{decimal(0, 9), decimal(-1, 0), 1},
		{decimal(1, 0), decimal(10, 1), 0},
		{decimal(-1, 0), decimal(-10, 1), 0},
		{decimal(1, -1), decimal(10, 0), 0},
		{decimal(11, 1), decimal(1, 0), 1},
		{decimal(-11, 1), decimal(-1, 0), -1},
		{decimal(99, 1), decimal(100, 1), -1},
	} {
		assert.Equal(t, c.want, compareDecimals(c.a, c.b), "%x %x", c.a, c.b)
		assert.Equal(t, -c.want, compareDecimals(c.b, c.a), "%x %x", c.b, c.a)
	}
}
