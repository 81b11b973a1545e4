package rewrite

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/big"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Encode returns the value of a literal in wire form, never
// nil without an error. typ is the CQL name of a native type. It returns ErrNotRead for a
// literal whose meaning depends on where and when it is read (the timestamp 'now' or one without
// a time zone, the name of a host), for any other type, and for a literal that is not of the type.
func Encode(typ string, text []byte, t Term) ([]byte, error) {
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
	case "varint", "decimal", "float", "double":
		return encodeNumber(typ, text, t)
	case "inet":
		return encodeAddress(text, t)
	case "date", "time", "timestamp", "duration":
		return encodeTime(typ, text, t)
	}
	return nil, notRead(text, t, typ)
}

// encodeText refuses bytes that Cassandra would replace when it decodes the statement: the key
// would differ from the one in the text.
func encodeText(typ string, text []byte, t Term) ([]byte, error) {
	if t.Kind != TermString || !utf8.Valid(t.Of(text)) {
		return nil, notRead(text, t, typ)
	}
	value := appendString([]byte{}, t.Of(text))
	if typ == "ascii" && !isASCII(value) {
		return nil, notRead(text, t, typ)
	}
	return value, nil
}

// encodeInt returns the wire form of an integer with the given number of bits.
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

// encodeBlob returns the bytes of a 0x literal.
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

// encodeBoolean returns the wire form of true or false, in any case.
func encodeBoolean(text []byte, t Term) ([]byte, error) {
	if t.Kind != TermBoolean {
		return nil, notRead(text, t, "boolean")
	}
	if len(t.Of(text)) == len("true") {
		return []byte{1}, nil
	}
	return []byte{0}, nil
}

// maxDigits bounds the text of a number: the time to read it grows with the square of its length.
const maxDigits = 1024

// encodeNumber encodes integers, and, for types other than varint, numbers with a point or an
// exponent.
func encodeNumber(typ string, text []byte, t Term) ([]byte, error) {
	literal := string(t.Of(text))
	if t.Kind != TermInteger && (t.Kind != TermFloat || typ == "varint") || len(literal) > maxDigits {
		return nil, notRead(text, t, typ)
	}
	value, ok := []byte(nil), false
	switch typ {
	case "float":
		value, ok = float(literal, 32)
	case "double":
		value, ok = float(literal, 64)
	case "varint":
		n, _ := new(big.Int).SetString(literal, 10)
		value, ok = IntegerBytes(n), true
	case "decimal":
		value, ok = decimal(literal)
	}
	if !ok {
		return nil, notRead(text, t, typ)
	}
	return value, nil
}

// float returns the nearest number with the given number of bits; ok is false if the literal is too
// large. -NaN is NaN, as in Cassandra.
func float(literal string, bits int) ([]byte, bool) {
	if strings.EqualFold(literal, "-NaN") {
		literal = literal[1:]
	}
	f, err := strconv.ParseFloat(literal, bits)
	switch {
	case bits == 32 && math.IsNaN(f):
		return []byte{0x7f, 0xc0, 0, 0}, true
	case bits == 32:
		return binary.BigEndian.AppendUint32(nil, math.Float32bits(float32(f))), err == nil
	case math.IsNaN(f):
		return []byte{0x7f, 0xf8, 0, 0, 0, 0, 0, 0}, true
	}
	return binary.BigEndian.AppendUint64(nil, math.Float64bits(f)), err == nil
}

// maxExponent bounds the exponent of a decimal: Cassandra refuses some literals out of the range of a double.
const maxExponent = 300

// decimal returns the wire form of a number, with its scale as written: 1.50 and 150e-2 are 150
// with scale 2.
func decimal(literal string) ([]byte, bool) {
	mantissa, exponent, scientific := strings.Cut(strings.ToLower(literal), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	scale := int64(len(fraction))
	if scientific {
		e, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil || e > maxExponent || e < -maxExponent {
			return nil, false
		}
		scale -= e
	}
	n, ok := new(big.Int).SetString(whole+fraction, 10)
	if !ok {
		return nil, false
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(scale)), IntegerBytes(n)...), true
}

// IntegerBytes returns an integer in big-endian two's complement, in as few bytes as possible: a
// CQL varint.
func IntegerBytes(n *big.Int) []byte {
	if n.Sign() >= 0 {
		return append(make([]byte, 1-min(1, n.BitLen()%8), 9), n.Bytes()...)
	}
	size := uint(new(big.Int).Not(n).BitLen()/8 + 1)
	return new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), 8*size)).FillBytes(make([]byte, size))
}

// encodeAddress encodes addresses, and no host names, whose meaning depends on a resolver. An IPv4
// address that is written as IPv6 has four bytes, as in Cassandra.
func encodeAddress(text []byte, t Term) ([]byte, error) {
	literal, err := String(text, t)
	if err != nil {
		return nil, err
	}
	address, err := netip.ParseAddr(literal)
	if err != nil || address.Zone() != "" {
		return nil, notRead(text, t, "inet")
	}
	return address.Unmap().AsSlice(), nil
}
