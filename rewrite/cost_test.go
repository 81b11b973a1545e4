package rewrite

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is looked at in a term takes memory and time within bounds, whatever a client has written: terms are looked at before it is known
// whether the client may write at all.
func TestTheCostOfATermIsBounded(t *testing.T) {
	const n = 300_000
	for name, c := range map[string]struct {
		term string
		look func(text []byte, term Term)
	}{
		"calls in each other": {strings.Repeat("f(", n/10) + strings.Repeat(")", n/10), func(text []byte, term Term) {
			length := len(Call(text, term))
			assert.Zero(t, length)
		}},
		"many entries": {"[" + strings.Repeat("1,", 2*n) + "1]", func(text []byte, term Term) { assert.False(t, Written(text, term)) }},
		"brackets in each other": {strings.Repeat("(", n) + strings.Repeat("1+", n) + "1" + strings.Repeat(")", n), func(text []byte, term Term) {
			assert.Len(t, Operands(text, term), n+1) // minutes, if each operand looks at each bracket
		}},
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte("DELETE FROM t WHERE k = " + c.term)
			s, err := Parse(text)
			require.NoError(t, err)
			assert.Less(t, allocated(func() { c.look(text, s.Where[0].Value) }), uint64(8*MaxMemory), "with what grows on the way")
		})
	}
	text := []byte("DELETE FROM t WHERE k = [" + strings.Repeat("1,", 10_000) + "1]")
	assert.True(t, Written(text, parsed(t, string(text)).Where[0].Value), "10,001 entries are read")
}
