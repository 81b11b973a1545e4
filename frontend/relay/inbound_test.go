package relay

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A wrapped socket is read byte by byte where it gives no more, and its buffer goes back with the
// last of them.
func TestWrappedSocketKeepsNoBuffer(t *testing.T) {
	near, far := net.Pipe()
	in := NewInbound(near, new(Buffers), Account{})
	var wrote sync.WaitGroup
	wrote.Go(func() {
		_, err := far.Write([]byte("abcdef"))
		assert.NoError(t, err)
		_ = far.Close()
	})
	require.NoError(t, in.Fill(6))
	require.Equal(t, "a", string(in.Window()))
	for len(in.Window()) < 6 {
		require.NoError(t, in.Fill(6))
	}
	assert.Equal(t, "abcdef", string(in.Window()))
	in.r = in.w
	assert.ErrorIs(t, in.Fill(6), io.EOF)
	assert.Zero(t, len(in.buf), "while it waited")
	wrote.Wait()
	_ = near.Close()
}
