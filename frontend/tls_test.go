package frontend

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// encrypted has the server of a rig serve over TLS, at an address of its own, until the test ends.
func (r *rig) encrypted(t *testing.T, config *tls.Config) {
	t.Helper()
	ln := tls.NewListener(listen(t), config)
	r.address = ln.Addr().String()
	ctx, stop := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { assert.NoError(t, r.server.Serve(ctx, ln)) })
	t.Cleanup(func() {
		stop()
		serving.Wait()
	})
}

// loginOverTLS is login over TLS on both sides.
func (r *rig) loginOverTLS(config *tls.Config, d dialect) (client, backend *peer) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.address)
	require.NoError(r.t, err)
	client = newPeer(r.t, tls.Client(conn, config), d)
	var hello sync.WaitGroup
	hello.Go(func() { client.send(0, startup(d)) })
	backend = r.accept(d)
	backend.Conn = tls.Server(backend.Conn, config)
	backend.answer(0)
	hello.Wait()
	backend.write(dialect{version: d.version}.envelope(r.t, 0, &message.Ready{}))
	client.answer(0)
	client.segmented, backend.segmented = d.version == v5, d.version == v5
	return client, backend
}

// dialsOverTLS has a rig reach Cassandra over TLS.
func (r *rig) dialsOverTLS(config *tls.Config) {
	plain := r.server.Dial
	r.server.Dial = func(ctx context.Context) (net.Conn, error) {
		conn, err := plain(ctx)
		return tls.Client(conn, config), err
	}
}

// Plain text where TLS is expected is shut before Cassandra hears of it, and told in one line.
func TestPlainTextWhereTLSIsExpected(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		r.encrypted(t, certificate(t))
		client := r.dial(d)
		client.send(0, startup(d))
		client.ended()
		_ = client.Close()
		line := r.end()
		assert.Equal(t, "info", line["level"])
		assert.Equal(t, "TLS handshake failed: tls: first record does not look like a TLS handshake", line["error"])
		r.notDialed()
	})
}

// Who does not do the handshake of TLS holds up nobody, and has as long as for a login.
func TestSilenceWhereTLSIsExpected(t *testing.T) {
	config := certificate(t)
	r := newRig(t, func(o *Options) { o.HandshakeTimeout = 2 * time.Second })
	r.encrypted(t, config)
	r.dialsOverTLS(config)
	d := dialect{v4, ""}
	silent := r.dial(d)
	client, backend := r.loginOverTLS(config, d)
	relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(nil))
	silent.ended()
	_ = silent.Close()
	line := r.end()
	assert.Equal(t, "info", line["level"])
	assert.Contains(t, line["error"], "TLS handshake failed")
	relayed(client, backend, 1, query("SELECT a FROM b.c"), rows(nil))
	_ = client.Close()
}

// A look whether the port is open is not worth a line.
func TestProbeOfTLS(t *testing.T) {
	r := newRig(t)
	r.encrypted(t, certificate(t))
	_ = r.dial(dialect{v4, ""}).Close()
	assert.Equal(t, "debug", r.end()["level"])
}

// An idle connection over TLS holds no buffer of the proxy's.
func TestIdleConnectionsOverTLSHoldNoBuffer(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		config := certificate(t)
		r := newRig(t)
		r.encrypted(t, config)
		r.dialsOverTLS(config)
		var peers [2][]*peer
		const n = 50
		before := footprint()
		for range n {
			client, backend := r.loginOverTLS(config, d)
			relayed(client, backend, 1, query("SELECT * FROM system.local"), systemLocal("rpc_address"))
			client.payload, backend.payload = bytes.Buffer{}, bytes.Buffer{}
			peers[0], peers[1] = append(peers[0], client), append(peers[1], backend)
		}
		each := (footprint() - before) / n
		t.Logf("%d bytes", each)
		assert.Less(t, each, int64(96<<10), "with the test's own two ends, and the race detector")
		for i := range n {
			_ = peers[0][i].Close()
			_ = peers[1][i].Close()
		}
		runtime.KeepAlive(peers)
	})
}
