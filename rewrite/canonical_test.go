package rewrite

import (
	"encoding/binary"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// decimalBytes is unscaled × 10^-scale in wire form.
func decimalBytes(unscaled int64, scale int32, pad int) []byte {
	digits := twosComplement(unscaled)
	for range pad {
		digits = append([]byte{byte(unscaled >> 63)}, digits...)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(scale)), digits...)
}

func twosComplement(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// Two encodings of one value of a type have the same canonical form, and different values have
// different ones.
func TestCanonicalValues(t *testing.T) {
	nan := math.Float64bits(math.NaN())
	double := func(bits uint64) []byte { return binary.BigEndian.AppendUint64(nil, bits) }
	for _, tc := range []struct {
		typ  string
		a, b []byte
		same bool
	}{
		{"text", []byte("a"), []byte("a"), true},
		{"text", []byte("a"), []byte("a "), false},
		{"int", []byte{0, 0, 0, 1}, []byte{}, false},
		{"boolean", []byte{1}, []byte{7}, true},
		{"boolean", []byte{0}, []byte{1}, false},
		{"boolean", []byte{0}, []byte{}, false},
		{"double", double(nan), double(nan | 1<<63), true},
		{"double", double(nan), double(nan + 1), true},
		{"double", double(nan), double(math.Float64bits(math.Inf(1))), false},
		{"double", double(math.Float64bits(math.Copysign(0, -1))), double(0), false},
		{"float", []byte{0x7f, 0xc0, 0, 0}, []byte{0xff, 0x80, 0, 1}, true},
		{"float", []byte{0x7f, 0x80, 0, 0}, []byte{0xff, 0x80, 0, 0}, false},
		{"varint", []byte{0, 1}, []byte{1}, true},
		{"varint", []byte{0xff, 0xff, 0x80}, []byte{0x80}, true},
		{"varint", []byte{0, 0x80}, []byte{0x80}, false},
		{"varint", []byte{0}, []byte{}, false},
		{"decimal", decimalBytes(10, 1, 0), decimalBytes(100, 2, 3), true},
		{"decimal", decimalBytes(-10, 1, 2), decimalBytes(-1, 0, 0), true},
		{"decimal", decimalBytes(10, 1, 0), decimalBytes(-1, 0, 0), false},
		{"decimal", decimalBytes(0, 7, 0), decimalBytes(0, -7, 1), true},
		{"decimal", decimalBytes(1, math.MaxInt32, 0), decimalBytes(1, math.MinInt32, 0), false},
		{"decimal", decimalBytes(0, 0, 0), []byte{}, false},
	} {
		a, ok := Canonical(tc.typ, tc.a)
		assert.True(t, ok, tc.typ)
		b, _ := Canonical(tc.typ, tc.b)
		assert.Equal(t, tc.same, string(a) == string(b), "%s %x %x", tc.typ, tc.a, tc.b)
	}
	for _, typ := range []string{"frozen<tuple<int, int>>", "frozen<list<int>>", "ty", "'org.example.Custom'", "vector<float, 3>", "duration"} {
		_, ok := Canonical(typ, nil)
		assert.False(t, ok, typ)
	}
}

// Two decimals and two varints are the same spelling if and only if they are the same number.
func TestCanonicalNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int64{0, 1, -1, 10, -10, 100, 127, 128, -128, -129, 1000, 1280}).Draw(t, "n")
		m := rapid.SampledFrom([]int64{0, 1, -1, 10, -10, 100, 127, 128, -128, -129, 1000, 1280}).Draw(t, "m")
		scale := rapid.Int32Range(-3, 3)
		r, s := scale.Draw(t, "r"), scale.Draw(t, "s")
		a, _ := Canonical("decimal", decimalBytes(n, r, rapid.IntRange(0, 2).Draw(t, "pad")))
		b, _ := Canonical("decimal", decimalBytes(m, s, 0))
		x := new(big.Rat).Mul(big.NewRat(n, 1), pow10(-r))
		y := new(big.Rat).Mul(big.NewRat(m, 1), pow10(-s))
		assert.Equal(t, x.Cmp(y) == 0, string(a) == string(b), "%v %v", x, y)
		a, _ = Canonical("varint", twosComplement(n))
		b, _ = Canonical("varint", twosComplement(m))
		assert.Equal(t, n == m, string(a) == string(b))
	})
}

// pow10 is a power of ten.
func pow10(n int32) *big.Rat {
	p := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(n, -n))), nil))
	if n < 0 {
		p.Inv(p)
	}
	return p
}
