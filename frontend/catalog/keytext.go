package catalog

import (
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"

	"music/rewrite"
)

// KeyText returns a key of a table for people to read: text and integers as CQL literals, other
// values as blobs. key are the columns of the table's key; it may be empty if they are not known.
func KeyText(key []Column, pk string) string {
	parts := []string{pk}
	if split, ok := rewrite.SplitRoutingKey(pk, len(key)); ok && len(key) > 0 {
		parts = split
	}
	shown := make([]string, len(parts))
	for i, part := range parts {
		cqlType := ""
		if i < len(key) {
			cqlType = key[i].Type
		}
		shown[i] = keyPart(cqlType, part)
	}
	return strings.Join(shown, ", ")
}

// keyPart returns the value of one column of a key for people to read.
func keyPart(cqlType, value string) string {
	if value == "" {
		cqlType = ""
	}
	switch cqlType {
	case "text", "varchar", "ascii":
		if utf8.ValidString(value) {
			return rewrite.QuoteString(value)
		}
	case "bigint", "int", "smallint", "tinyint":
		n := int64(int8(value[0]))
		for _, b := range []byte(value[1:]) {
			n = n<<8 | int64(b)
		}
		return strconv.FormatInt(n, 10)
	}
	return "0x" + hex.EncodeToString([]byte(value))
}
