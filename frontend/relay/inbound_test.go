package relay

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
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

// pipeEnd is a socket whose bytes come from a pipe: all that was written can be read at once.
type pipeEnd struct {
	net.Conn
	file *os.File
}

// SyscallConn implements syscall.Conn.
func (p pipeEnd) SyscallConn() (syscall.RawConn, error) { return p.file.SyscallConn() }

// While a read fills the buffer the next one has a large buffer, and a small one again when there is less to read.
func TestFullBufferIsFollowedByALargeOne(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer func() { _, _ = r.Close(), w.Close() }()
	in := NewInbound(pipeEnd{file: r}, new(Buffers), Account{})
	defer in.close()
	fill := func(size int) {
		t.Helper()
		require.NoError(t, in.Fill(1))
		assert.Len(t, in.buf, size)
		in.r = in.w
	}
	_, err = w.Write(make([]byte, smallSize+100))
	require.NoError(t, err)
	fill(smallSize)
	fill(largeSize)
	_, err = w.Write(make([]byte, 100))
	require.NoError(t, err)
	fill(smallSize)
}
