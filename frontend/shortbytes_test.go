package frontend

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Of an id that has not arrived in full nothing is known yet.
func TestShortBytes(t *testing.T) {
	for n := range 6 {
		got, ok := shortBytes([]byte("\x00\x03abcd")[:n])
		assert.Equal(t, n >= 5, ok, n)
		if ok {
			assert.Equal(t, "abc", string(got))
		}
	}
}
