package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

var (
	here      = net.IPv4(127, 0, 0, 1)
	elsewhere = net.IPv4(127, 0, 0, 9)
)

// here30 issues a certificate for 127.0.0.1.
func (s *signer) here30() config.Peers {
	return s.issue(s.t.TempDir(), here, time.Now().Add(30*time.Minute))
}

// playedNode plays a Cassandra with TLS: it tells of each connection what became of the handshake, and shuts it.
type playedNode struct {
	address  string
	outcomes chan error
}

// startNode plays one that shows own, and asks for a certificate of signers unless that is empty.
func startNode(t *testing.T, own config.Peers, signers string) *playedNode {
	t.Helper()
	ln, err := secured(listen(t), config.Listen{TLSCert: own.TLSCert, TLSKey: own.TLSKey, TLSClientCA: signers}, zerolog.Nop())
	require.NoError(t, err)
	n := &playedNode{address: ln.Addr().String(), outcomes: make(chan error, 100)}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			n.outcomes <- conn.(*tls.Conn).HandshakeContext(t.Context())
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
	return n
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return ln
}

// visit dials the node and tells what became of it on either side.
func (n *playedNode) visit(t *testing.T, d *nodeDialer) (dialled, served error) {
	t.Helper()
	conn, dialled := d.dialPoint(t.Context(), n.address)
	served = <-n.outcomes
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

func TestNodesProveWhoTheyAre(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	right := startNode(t, ours.here30(), "")
	misplaced := startNode(t, ours.issue(t.TempDir(), elsewhere, time.Now().Add(time.Minute)), "")
	expired := startNode(t, ours.issue(t.TempDir(), here, time.Now().Add(-time.Minute)), "")
	for name, tc := range map[string]struct {
		node *playedNode
		c    config.Cassandra
		want string
	}{
		"right":                           {right, config.Cassandra{TLSCA: ours.path, TLSVerifyHost: true}, ""},
		"signed by others":                {right, config.Cassandra{TLSCA: theirs.path, TLSVerifyHost: true}, "unknown authority"},
		"not known to the system":         {right, config.Cassandra{TLSVerifyHost: true}, "unknown authority"},
		"another host":                    {misplaced, config.Cassandra{TLSCA: ours.path, TLSVerifyHost: true}, "valid for 127.0.0.9, not 127.0.0.1"},
		"another host, not verified":      {misplaced, config.Cassandra{TLSCA: ours.path}, ""},
		"signed by others, not verified":  {right, config.Cassandra{TLSCA: theirs.path}, "unknown authority"},
		"not known to the system, nor is": {right, config.Cassandra{}, "unknown authority"},
		"expired":                         {expired, config.Cassandra{TLSCA: ours.path, TLSVerifyHost: true}, "expired"},
		"expired, not verified":           {expired, config.Cassandra{TLSCA: ours.path}, "expired"},
	} {
		dialled, _ := tc.node.visit(t, dialerWith(t, tc.c))
		if tc.want == "" {
			assert.NoError(t, dialled, name)
			continue
		}
		assert.ErrorContains(t, dialled, tc.want, name)
	}
}

func TestNodesAreShownACertificate(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	strict := startNode(t, ours.here30(), ours.path)
	mine, foreign := ours.here30(), theirs.here30()
	base := config.Cassandra{TLSCA: ours.path, TLSVerifyHost: true}
	dialled, served := strict.visit(t, dialerWith(t, base))
	assert.ErrorContains(t, dialled, "certificate required")
	assert.Error(t, served)
	base.TLSCert, base.TLSKey = foreign.TLSCert, foreign.TLSKey
	dialled, served = strict.visit(t, dialerWith(t, base))
	assert.Error(t, dialled)
	assert.Error(t, served)
	base.TLSCert, base.TLSKey = mine.TLSCert, mine.TLSKey
	dialled, served = strict.visit(t, dialerWith(t, base))
	assert.NoError(t, dialled)
	assert.NoError(t, served)
}

// A node that does not speak TLS, or says nothing, costs no more than the time to connect.
func TestNodesWithoutTLS(t *testing.T) {
	ours := newSigner(t)
	silent := listen(t)
	defer func() { _ = silent.Close() }()
	d, err := newNodeDialer(config.Cassandra{TLS: true, TLSCA: ours.path, ConnectTimeout: 10 * time.Millisecond}, zerolog.Nop())
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
	_, err = dialerWith(t, config.Cassandra{TLSCA: ours.path}).dialPoint(t.Context(), plain.Addr().String())
	assert.ErrorContains(t, err, "does not look like a TLS handshake")
	serving.Wait()
}

// Files are replaced under a running proxy, in two steps: what does not fit together meanwhile is told of, and changes nothing.
func TestFilesOfTLSAreReadAgain(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	dir := t.TempDir()
	own := ours.issue(dir, here, time.Now().Add(time.Minute))
	next := theirs.here30()
	var said bytes.Buffer
	l := config.Listen{TLSCert: own.TLSCert, TLSKey: own.TLSKey, TLSClientCA: ours.path}
	keys, err := newKeyring(func() (*tls.Config, error) { return driverTLS(l) }, zerolog.New(&said), l.TLSCert, l.TLSKey, l.TLSClientCA)
	require.NoError(t, err)
	first := keys.config()
	require.Same(t, first, keys.config(), "nothing has changed")

	require.NoError(t, os.Rename(next.TLSCert, own.TLSCert))
	require.Same(t, first, keys.config(), "the key is not there yet")
	assert.Contains(t, said.String(), "private key does not match public key")
	require.NoError(t, os.Remove(own.TLSKey))
	require.Same(t, first, keys.config())
	require.NoError(t, os.Rename(next.TLSKey, own.TLSKey))
	second := keys.config()
	require.NotSame(t, first, second)
	issued := func(c *tls.Config, by *signer) bool {
		leaf, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
		require.NoError(t, err)
		return leaf.CheckSignatureFrom(by.cert) == nil
	}
	assert.True(t, issued(first, ours))
	assert.True(t, issued(second, theirs))

	require.NoError(t, os.Rename(theirs.path, ours.path))
	third := keys.config()
	require.NotSame(t, second, third)
	require.Same(t, third, keys.config())
	require.False(t, second.ClientCAs.Equal(third.ClientCAs))
}

// What cannot be read is told at the start, and by the name of the side that it is for.
func TestFilesOfTLSAreReadAtStart(t *testing.T) {
	own := newSigner(t).here30()
	missing := filepath.Join(t.TempDir(), "missing.pem")
	_, err := secured(nil, config.Listen{TLSCert: own.TLSCert, TLSKey: missing}, zerolog.Nop())
	assert.ErrorContains(t, err, "TLS towards drivers: certificate: open "+missing)
	_, err = secured(nil, config.Listen{TLSCert: own.TLSCert, TLSKey: own.TLSKey, TLSClientCA: own.TLSKey}, zerolog.Nop())
	assert.ErrorContains(t, err, "TLS towards drivers: signers of certificates: no certificate in "+own.TLSKey)
	_, err = newNodeDialer(config.Cassandra{TLS: true, TLSCA: missing}, zerolog.Nop())
	assert.ErrorContains(t, err, "TLS towards Cassandra: signers of certificates: open "+missing)
	plain, err := newNodeDialer(config.Cassandra{TLSCA: missing}, zerolog.Nop())
	require.NoError(t, err)
	assert.Nil(t, plain.keys)
}

// Drivers of old versions of TLS are not served, and who was let in once is asked again.
func TestDriversOverTLS(t *testing.T) {
	ours := newSigner(t)
	own := ours.here30()
	n := startNode(t, own, ours.path)
	pool := x509.NewCertPool()
	pool.AddCert(ours.cert)
	pair, err := tls.LoadX509KeyPair(own.TLSCert, own.TLSKey)
	require.NoError(t, err)
	client := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	for range 2 {
		conn, err := tls.Dial("tcp", n.address, client)
		require.NoError(t, err)
		_, err = conn.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF)
		assert.False(t, conn.ConnectionState().DidResume)
		require.NoError(t, <-n.outcomes)
		_ = conn.Close()
	}
	old := client.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, err = tls.Dial("tcp", n.address, old)
	assert.ErrorContains(t, err, "protocol version")
	require.Error(t, <-n.outcomes)
}
