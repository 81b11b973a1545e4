package catalog

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"music/rewrite"
)

// Texts and integers are shown as people write them, whatever is no value of its type, and all
// other types, as blobs.
func TestKeyText(t *testing.T) {
	for _, c := range []struct{ cqlType, value, shown string }{
		{"text", "it's", "'it''s'"},
		{"varchar", "x", "'x'"},
		{"ascii", "x", "'x'"},
		{"text", "\xff", "0xff"},
		{"text", "", "0x"},
		{"bigint", "\xff\xff\xff\xff\xff\xff\xff\xfe", "-2"},
		{"bigint", "\x00\x00\x00\x01\x00\x00\x00\x00", "4294967296"},
		{"int", "\x00\x00\x01\x02", "258"},
		{"smallint", "\xff\x00", "-256"},
		{"tinyint", "\x80", "-128"},
		{"boolean", "\x01", "0x01"},
		{"", "x", "0x78"},
	} {
		assert.Equal(t, c.shown, KeyText([]Column{{Type: c.cqlType}}, c.value), c.cqlType)
	}
	two := rewrite.RoutingKey([][]byte{[]byte("x"), {5}})
	assert.Equal(t, "'x', 5", KeyText([]Column{{Type: "text"}, {Type: "tinyint"}}, string(two)))
	assert.Equal(t, "0x78", KeyText(nil, "x"), "the columns of a table that is not critical any more are not known")
}
