package wire

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Warnings stand between the tracing id and the payload (v4 spec section 2.2). The bytes are
// written by hand: the library that the other tests decode with reads the payload first.
func TestWarningsStandBeforeThePayload(t *testing.T) {
	const id, payload, rest = "0123456789abcdef", "\x00\x01\x00\x01k\x00\x00\x00\x01v", "\x00\x00\x00\x01"
	got, ok := AppendWarnings([]byte(id+"\x00\x01\x00\x03old"+payload+rest), 0x02|0x04|0x08, []string{"new", "x"})
	assert.True(t, ok)
	assert.Equal(t, id+"\x00\x03\x00\x03old\x00\x03new\x00\x01x"+payload+rest, string(got))
	got, ok = AppendWarnings([]byte(payload+rest), 0x04, []string{"new"})
	assert.True(t, ok)
	assert.Equal(t, "\x00\x01\x00\x03new"+payload+rest, string(got))
	for _, short := range []string{"", id[:5], id + "\x00\x02\x00\x03old"} {
		_, ok := AppendWarnings([]byte(short), 0x02|0x08, []string{"new"})
		assert.False(t, ok)
	}
}
