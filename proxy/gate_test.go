package proxy

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// accepted is what Accept has returned.
type accepted struct {
	conn net.Conn
	err  error
}

// A gate that is shut and opened again is one listener to whoever accepts from it; its connections
// outlive it.
func TestDoor(t *testing.T) {
	var ready atomic.Bool
	d := newListenerGate("127.0.0.1:0", &ready)
	require.NoError(t, d.open(context.Background()))
	address := d.Addr().String()
	comes := make(chan accepted)
	go func() {
		for {
			conn, err := d.Accept()
			comes <- accepted{conn, err}
			if err != nil {
				return
			}
		}
	}()
	var inside []net.Conn
	for range 3 {
		assert.True(t, ready.Load())
		require.NoError(t, d.open(context.Background()), "it is open")
		out, err := net.Dial("tcp", address)
		require.NoError(t, err)
		in := <-comes
		require.NoError(t, in.err)
		inside = append(inside, out, in.conn)

		d.shut()
		d.shut()
		assert.False(t, ready.Load())
		_, err = net.Dial("tcp", address)
		require.Error(t, err, "nobody listens")
		require.NoError(t, d.open(context.Background()))
	}
	for i := 0; i < len(inside); i += 2 {
		_, err := inside[i].Write([]byte("x"))
		require.NoError(t, err)
		_, err = inside[i+1].Read(make([]byte, 1))
		require.NoError(t, err)
		_, _ = inside[i].Close(), inside[i+1].Close()
	}
	require.NoError(t, d.Close())
	assert.ErrorIs(t, (<-comes).err, net.ErrClosed)
	require.NoError(t, d.open(context.Background()), "it stays closed")
	assert.False(t, ready.Load())
}

// Close ends an Accept that waits at a shut gate.
func TestDoorClosedWhileShut(t *testing.T) {
	d := newListenerGate("127.0.0.1:0", new(atomic.Bool))
	done := make(chan error)
	go func() {
		_, err := d.Accept()
		done <- err
	}()
	require.NoError(t, d.Close())
	assert.ErrorIs(t, <-done, net.ErrClosed)
}

// A home that others count upon is not left; one that nobody knows of is.
func TestHomeIsLeftOnlyAlone(t *testing.T) {
	second, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = second.Close() }()
	first, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := homeAt(10*time.Second, []string{first.Addr().String(), second.Addr().String()})
	dial := func() string {
		conn, err := h.dial(context.Background())
		if err != nil {
			return ""
		}
		defer func() { _ = conn.Close() }()
		return conn.RemoteAddr().String()
	}
	assert.Equal(t, first.Addr().String(), dial())
	require.NoError(t, first.Close())
	h.bound.Store(true)
	assert.Empty(t, dial())
	h.bound.Store(false)
	assert.Equal(t, second.Addr().String(), dial())
	h.bound.Store(true)
	assert.Equal(t, second.Addr().String(), dial())
}
