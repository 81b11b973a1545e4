package integration

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"music/config"
)

// Connections that send nothing are closed after the handshake's time-out, and leave no goroutine
// behind.
func TestSilentConnectionsAreClosed(t *testing.T) {
	p := startProxy(t, func(c *config.Config) {
		c.Music.Locks = false
		c.Limits.HandshakeTimeout = time.Second
	})
	before := goleak.IgnoreCurrent()
	const n = 1000
	conns := make([]net.Conn, 0, n)
	for i := range n {
		conn, err := net.Dial("tcp", p.address)
		require.NoError(t, err)
		conns = append(conns, conn)
		if i%2 == 1 { // half of them send a few bytes
			_, err = conn.Write([]byte{4, 0, 0})
			require.NoError(t, err)
		}
	}
	for i, conn := range conns {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(wireTimeout)))
		_, err := io.Copy(io.Discard, conn)
		if !errors.Is(err, syscall.ECONNRESET) {
			require.NoError(t, err, "connection %d is still open", i)
		}
		require.NoError(t, conn.Close())
	}
	eventually(t, wireTimeout, "no goroutine is left", func() error { return goleak.Find(before) })
}

// A proxy that was stopped has ended all its goroutines.
func TestProxyLeavesNoGoroutineBehind(t *testing.T) {
	c := needEnvironment(t).config()
	before := goleak.IgnoreCurrent()
	for _, locks := range []bool{false, true} {
		c.Music.Locks = locks
		p, err := launch(c)
		require.NoError(t, err)
		w := openWire(t, p.address, primitive.ProtocolVersion5, primitive.CompressionLz4)
		_, err = w.ask(plainQuery("SELECT key FROM system.local"))
		require.NoError(t, err)
		if locks {
			_, err = w.ask(plainQuery("LOCK music.named WHERE name = 'leak'"))
			require.NoError(t, err)
			require.NoError(t, w.send(plainQuery("LOCK music.named WHERE name = 'leak' WAIT 1s"), nil))
		}
		require.NoError(t, p.stop())
		require.NoError(t, w.net.Close())
		eventually(t, wireTimeout, "no goroutine is left", func() error { return goleak.Find(before) })
	}
}
