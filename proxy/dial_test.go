package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/proxy/certs"
	"music/proxy/certs/certstest"
)

var (
	here      = net.IPv4(127, 0, 0, 1)
	elsewhere = net.IPv4(127, 0, 0, 9)
)

// startNode plays a Cassandra with TLS that shows own, and asks for a certificate of an authority
// unless that is empty.
func startNode(t *testing.T, own certstest.Pair, authority string) *certstest.Server {
	t.Helper()
	source, err := certs.Drivers(config.Listen{TLSCert: own.Cert, TLSKey: own.Key, TLSClientCA: authority}, zerolog.Nop())
	require.NoError(t, err)
	return certstest.Serve(t, source.Listener(listen(t)))
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

// visit dials the node and returns what became of it on either side.
func visit(t *testing.T, n *certstest.Server, d *nodeDialer) (dialled, served error) {
	t.Helper()
	conn, dialled := d.dialPoint(t.Context(), n.Address)
	served = <-n.Handshakes
	if dialled == nil {
		_, err := conn.Read(make([]byte, 1)) // TLS 1.3: what the server thinks of our certificate comes behind its handshake
		if !errors.Is(err, io.EOF) {
			dialled = err
		}
		_ = conn.Close()
	}
	return dialled, served
}

// dialerWith is what dials with some settings.
func dialerWith(t *testing.T, c config.Cassandra) *nodeDialer {
	t.Helper()
	c.TLS, c.ConnectTimeout = true, 20*time.Second
	d, err := newNodeDialer(c, zerolog.Nop())
	require.NoError(t, err)
	return d
}

// A node is believed by its certificate: who has signed it, whose it is, and until when.
func TestNodesProveWhoTheyAre(t *testing.T) {
	ours, theirs := certstest.NewAuthority(t), certstest.NewAuthority(t)
	right := startNode(t, ours.Local(), "")
	misplaced := startNode(t, ours.Issue(t.TempDir(), elsewhere, time.Now().Add(time.Minute)), "")
	expired := startNode(t, ours.Issue(t.TempDir(), here, time.Now().Add(-time.Minute)), "")
	for name, tc := range map[string]struct {
		node *certstest.Server
		c    config.Cassandra
		want string
	}{
		"right":                           {right, config.Cassandra{TLSCA: ours.Path, TLSVerifyHost: true}, ""},
		"signed by others":                {right, config.Cassandra{TLSCA: theirs.Path, TLSVerifyHost: true}, "unknown authority"},
		"not known to the system":         {right, config.Cassandra{TLSVerifyHost: true}, "unknown authority"},
		"another host":                    {misplaced, config.Cassandra{TLSCA: ours.Path, TLSVerifyHost: true}, "valid for 127.0.0.9, not 127.0.0.1"},
		"another host, not verified":      {misplaced, config.Cassandra{TLSCA: ours.Path}, ""},
		"signed by others, not verified":  {right, config.Cassandra{TLSCA: theirs.Path}, "unknown authority"},
		"not known to the system, nor is": {right, config.Cassandra{}, "unknown authority"},
		"expired":                         {expired, config.Cassandra{TLSCA: ours.Path, TLSVerifyHost: true}, "expired"},
		"expired, not verified":           {expired, config.Cassandra{TLSCA: ours.Path}, "expired"},
	} {
		dialled, _ := visit(t, tc.node, dialerWith(t, tc.c))
		if tc.want == "" {
			assert.NoError(t, dialled, name)
			continue
		}
		assert.ErrorContains(t, dialled, tc.want, name)
	}
}

// A node that asks for a certificate is shown the one that is configured.
func TestNodesAreShownACertificate(t *testing.T) {
	ours, theirs := certstest.NewAuthority(t), certstest.NewAuthority(t)
	strict := startNode(t, ours.Local(), ours.Path)
	mine, foreign := ours.Local(), theirs.Local()
	base := config.Cassandra{TLSCA: ours.Path, TLSVerifyHost: true}
	dialled, served := visit(t, strict, dialerWith(t, base))
	assert.ErrorContains(t, dialled, "certificate required")
	assert.Error(t, served)
	base.TLSCert, base.TLSKey = foreign.Cert, foreign.Key
	dialled, served = visit(t, strict, dialerWith(t, base))
	assert.Error(t, dialled)
	assert.Error(t, served)
	base.TLSCert, base.TLSKey = mine.Cert, mine.Key
	dialled, served = visit(t, strict, dialerWith(t, base))
	assert.NoError(t, dialled)
	assert.NoError(t, served)
}

// A node that does not speak TLS, or says nothing, costs no more than the time to connect.
func TestNodesWithoutTLS(t *testing.T) {
	ours := certstest.NewAuthority(t)
	silent := listen(t)
	defer func() { _ = silent.Close() }()
	d, err := newNodeDialer(config.Cassandra{TLS: true, TLSCA: ours.Path, ConnectTimeout: 10 * time.Millisecond}, zerolog.Nop())
	require.NoError(t, err)
	_, err = d.dialPoint(t.Context(), silent.Addr().String())
	assert.ErrorIs(t, err, context.DeadlineExceeded)

	plain := listen(t)
	defer func() { _ = plain.Close() }()
	var serving sync.WaitGroup
	serving.Go(func() {
		conn, err := plain.Accept()
		if err == nil {
			_, _ = conn.Write([]byte("\x84\x00\x00\x00\x00\x00\x00\x00\x00"))
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	})
	_, err = dialerWith(t, config.Cassandra{TLSCA: ours.Path}).dialPoint(t.Context(), plain.Addr().String())
	assert.ErrorContains(t, err, "does not look like a TLS handshake")
	serving.Wait()
}
