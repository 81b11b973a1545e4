package rewrite

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
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

// EncodeKey returns the value of a literal as the native protocol sends it,
// never nil without an error. typ is the CQL name of the column's type; read are
// text, varchar, ascii, tinyint, smallint, int, bigint, uuid, timeuuid, blob and
// boolean. ErrNotRead for any other type and for a literal that is not of it.
func EncodeKey(typ string, text []byte, t Term) ([]byte, error) {
	switch typ {
	case "text", "varchar", "ascii":
		return encodeText(typ, text, t)
	case "tinyint":
		return encodeInt(text, t, 8)
	case "smallint":
		return encodeInt(text, t, 16)
	case "int":
		return encodeInt(text, t, 32)
	case "bigint":
		return encodeInt(text, t, 64)
	case "uuid", "timeuuid":
		return encodeUUID(typ, text, t)
	case "blob":
		return encodeBlob(text, t)
	case "boolean":
		return encodeBoolean(text, t)
	}
	return nil, notRead(text, t, typ)
}

// encodeText refuses bytes that Cassandra would replace while it decodes the
// statement: the key would not be the one that is written here.
func encodeText(typ string, text []byte, t Term) ([]byte, error) {
	if t.Kind != TermString || !utf8.Valid(t.Of(text)) {
		return nil, notRead(text, t, typ)
	}
	value := appendString([]byte{}, t.Of(text))
	for _, c := range value {
		if typ == "ascii" && c >= utf8.RuneSelf {
			return nil, notRead(text, t, typ)
		}
	}
	return value, nil
}

// encodeInt gives the wire form of an integer of so many bits.
func encodeInt(text []byte, t Term, bits int) ([]byte, error) {
	n, err := integer(text, t, bits)
	if err != nil {
		return nil, err
	}
	var wire [8]byte
	binary.BigEndian.PutUint64(wire[:], uint64(n))
	return wire[8-bits/8:], nil
}

// encodeUUID takes only version 1 for a timeuuid, as Cassandra does.
func encodeUUID(typ string, text []byte, t Term) ([]byte, error) {
	if t.Kind != TermUUID {
		return nil, notRead(text, t, typ)
	}
	digits := make([]byte, 0, 32)
	for _, c := range t.Of(text) {
		if c != '-' {
			digits = append(digits, c)
		}
	}
	value, err := hex.AppendDecode(nil, digits)
	if err != nil || typ == "timeuuid" && value[6]>>4 != 1 {
		return nil, notRead(text, t, typ)
	}
	return value, nil
}

// encodeBlob gives the bytes of a 0x literal.
func encodeBlob(text []byte, t Term) ([]byte, error) {
	if t.Kind != TermBlob {
		return nil, notRead(text, t, "blob")
	}
	value, err := hex.AppendDecode([]byte{}, t.Of(text)[2:])
	if err != nil {
		return nil, notRead(text, t, "blob")
	}
	return value, nil
}

// encodeBoolean gives the wire form of true or false, in any case.
func encodeBoolean(text []byte, t Term) ([]byte, error) {
	if t.Kind != TermBoolean {
		return nil, notRead(text, t, "boolean")
	}
	if len(t.Of(text)) == len("true") {
		return []byte{1}, nil
	}
	return []byte{0}, nil
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

// Duration returns the value of a duration literal; ErrNotRead for any other
// term, for one with months or years, which have no fixed length, and for what
// time.Duration cannot hold.
func Duration(text []byte, t Term) (time.Duration, error) {
	if t.Kind != TermDuration {
		return 0, notRead(text, t, "duration")
	}
	s := t.Of(text)
	negative := s[0] == '-'
	if negative {
		s = s[1:]
	}
	d, ok := sumUnits(s)
	if !ok {
		return 0, notRead(text, t, "duration without months")
	}
	if negative {
		d = -d
	}
	return d, nil
}

// sumUnits adds up 1h30m and P1DT1H30M alike. In the latter an M before T means
// months; W is a week in both.
func sumUnits(s []byte) (time.Duration, bool) {
	iso, date := s[0] == 'P', s[0] == 'P'
	if iso {
		s = s[1:]
	}
	total := time.Duration(0)
	for len(s) > 0 {
		if iso && s[0] == 'T' {
			s, date = s[1:], false
			continue
		}
		digits := digitsEnd(s, 0)
		n := unitLength(s[digits:])
		if n == 0 || date && s[digits] == 'M' {
			return 0, false
		}
		part, ok := times(s[:digits], unitOf(s[digits:digits+n]))
		if !ok || total > math.MaxInt64-part {
			return 0, false
		}
		total += part
		s = s[digits+n:]
	}
	return total, true
}

// times is so many of a unit; not ok where that is more than a Duration holds.
func times(digits []byte, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || unit == 0 || n > int64(math.MaxInt64/unit) {
		return 0, false
	}
	return time.Duration(n) * unit, true
}

// unitOf returns 0 for years and months.
func unitOf(unit []byte) time.Duration {
	const day = 24 * time.Hour
	switch unit[0] | 0x20 {
	case 'w':
		return 7 * day
	case 'd':
		return day
	case 'h':
		return time.Hour
	case 's':
		return time.Second
	case 'n':
		return time.Nanosecond
	case 'u', 0xC2 | 0x20:
		return time.Microsecond
	case 'm':
		if len(unit) == 1 {
			return time.Minute
		}
		if unit[1]|0x20 == 's' {
			return time.Millisecond
		}
	}
	return 0
}

// notRead says which literal is not one of which type; it is an ErrNotRead.
func notRead(text []byte, t Term, typ string) error {
	return fmt.Errorf("%w: %q as %s", ErrNotRead, t.Of(text), typ)
}
