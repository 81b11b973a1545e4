package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/proxy/certs/certstest"
)

// Files are replaced under a running proxy, in two steps: what does not fit together meanwhile is
// logged, and changes nothing.
func TestFilesAreReadAgain(t *testing.T) {
	ours, theirs := certstest.NewAuthority(t), certstest.NewAuthority(t)
	own, next := ours.Local(), theirs.Local()
	var said bytes.Buffer
	source, err := Drivers(config.Listen{TLSCert: own.Cert, TLSKey: own.Key, TLSClientCA: ours.Path}, zerolog.New(&said))
	require.NoError(t, err)
	first := source.Config()
	require.Same(t, first, source.Config(), "nothing has changed")

	require.NoError(t, os.Rename(next.Cert, own.Cert))
	require.Same(t, first, source.Config(), "the key is not there yet")
	assert.Contains(t, said.String(), "private key does not match public key")
	require.NoError(t, os.Remove(own.Key))
	require.Same(t, first, source.Config())
	require.NoError(t, os.Rename(next.Key, own.Key))
	second := source.Config()
	require.NotSame(t, first, second)
	issuedBy := func(c *tls.Config, a *certstest.Authority) bool {
		leaf, err := x509.ParseCertificate(c.Certificates[0].Certificate[0])
		require.NoError(t, err)
		return leaf.CheckSignatureFrom(a.Cert) == nil
	}
	assert.True(t, issuedBy(first, ours))
	assert.True(t, issuedBy(second, theirs))

	require.NoError(t, os.Rename(theirs.Path, ours.Path))
	third := source.Config()
	require.NotSame(t, second, third)
	require.Same(t, third, source.Config())
	require.False(t, second.ClientCAs.Equal(third.ClientCAs))
}

// What cannot be read is an error at the start, not at the first connection, and names the side
// that it is for.
func TestFilesAreReadAtStart(t *testing.T) {
	a := certstest.NewAuthority(t)
	own := a.Local()
	missing := filepath.Join(t.TempDir(), "missing.pem")
	drivers := func(l config.Listen) error { _, err := Drivers(l, zerolog.Nop()); return err }
	proxies := func(p config.Peers) error { _, err := Proxies(p, zerolog.Nop()); return err }
	_, nodes := Nodes(config.Cassandra{TLS: true, TLSCA: missing}, zerolog.Nop())
	for want, err := range map[string]error{
		"TLS towards drivers: certificate: open " + missing:                          drivers(config.Listen{TLSCert: own.Cert, TLSKey: missing}),
		"TLS towards drivers: signers of certificates: no certificate in " + own.Key: drivers(config.Listen{TLSCert: own.Cert, TLSKey: own.Key, TLSClientCA: own.Key}),
		"TLS towards Cassandra: signers of certificates: open " + missing:            nodes,
		"TLS between proxies: certificate":                                           proxies(config.Peers{TLSCert: own.Key, TLSKey: own.Key, TLSCA: a.Path}),
		"TLS between proxies: signers of certificates: open " + missing:              proxies(config.Peers{TLSCert: own.Cert, TLSKey: own.Key, TLSCA: missing}),
		"TLS between proxies: signers of certificates: no certificate in " + own.Key: proxies(config.Peers{TLSCert: own.Cert, TLSKey: own.Key, TLSCA: own.Key}),
	} {
		assert.ErrorContains(t, err, want)
	}
	plain, err := Nodes(config.Cassandra{TLSCA: missing}, zerolog.Nop())
	require.NoError(t, err)
	assert.Nil(t, plain, "TLS is off")
}

// Drivers of old versions of TLS are not served, and a driver that was let in once has to show its
// certificate again.
func TestDriversOverTLS(t *testing.T) {
	ours := certstest.NewAuthority(t)
	own := ours.Local()
	source, err := Drivers(config.Listen{TLSCert: own.Cert, TLSKey: own.Key, TLSClientCA: ours.Path}, zerolog.Nop())
	require.NoError(t, err)
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := certstest.Serve(t, source.Listener(plain))
	pool := x509.NewCertPool()
	pool.AddCert(ours.Cert)
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	require.NoError(t, err)
	client := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	for range 2 {
		conn, err := tls.Dial("tcp", n.Address, client)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err = conn.Read(make([]byte, 1))
		assert.ErrorIs(t, err, io.EOF)
		assert.False(t, conn.ConnectionState().DidResume)
		require.NoError(t, <-n.Handshakes)
		_ = conn.Close()
	}
	old := client.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	_, err = tls.Dial("tcp", n.Address, old)
	assert.ErrorContains(t, err, "protocol version")
	require.Error(t, <-n.Handshakes)
}
