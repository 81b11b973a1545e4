package rewrite

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Fits reports whether the bytes are a value of the type: their length, and for text their
// encoding.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		typ, value string
		want       bool
	}{
		{"text", "zürich", true},
		{"text", "z\xfcrich", false},
		{"varchar", "\xff", false},
		{"ascii", "zurich", true},
		{"ascii", "zürich", false},
		{"boolean", "\x01", true},
		{"boolean", "\x01\x00", false},
		{"int", "\x00\x00\x00\x01", true},
		{"int", "\x00\x00\x00\x00\x00\x00\x00\x01", false},
		{"bigint", "\x00\x00\x00\x01", false},
		{"uuid", "0123456789abcdef", true},
		{"uuid", "0123456789abcde", false},
		{"inet", "\x7f\x00\x00\x01", true},
		{"inet", "\x7f\x00\x00", false},
		{"varint", "\x00\x01\x02", true},
		{"blob", "\xff\xfe", true},
		{"int", "", true},
		{"vector<float, 3>", "\xff", true},
	} {
		assert.Equal(t, c.want, Fits(c.typ, []byte(c.value)), "%q as %s", c.value, c.typ)
	}
}
