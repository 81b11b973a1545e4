// Package certstest issues certificates for tests.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates.
type Authority struct {
	Cert *x509.Certificate
	Path string // the file of its own certificate
	t    testing.TB
	key  *ecdsa.PrivateKey
}

// NewAuthority returns an authority whose certificate is in a temporary directory of the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.Cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.Path = a.write(t.TempDir(), "ca.pem", "CERTIFICATE", der)
	return a
}

func (a *Authority) write(dir, name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(a.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// Pair is a certificate and its key, in files.
type Pair struct{ Cert, Key string }

// Issue writes a certificate for an address into dir. It is valid for the hour before until.
func (a *Authority) Issue(dir string, address net.IP, until time.Time) Pair {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: until.Add(-time.Hour), NotAfter: until, IPAddresses: []net.IP{address},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, &key.PublicKey, a.key)
	require.NoError(a.t, err)
	raw, err := x509.MarshalECPrivateKey(key)
	require.NoError(a.t, err)
	return Pair{Cert: a.write(dir, "cert.pem", "CERTIFICATE", der), Key: a.write(dir, "key.pem", "EC PRIVATE KEY", raw)}
}

// Local issues a certificate for 127.0.0.1, valid for half an hour, into a directory of its own.
func (a *Authority) Local() Pair {
	a.t.Helper()
	return a.Issue(a.t.TempDir(), net.IPv4(127, 0, 0, 1), time.Now().Add(30*time.Minute))
}

// Server does the handshake of each connection, and closes it.
type Server struct {
	Address    string
	Handshakes chan error // the result of each handshake
}

// Serve runs a server on a TLS listener until the test ends.
func Serve(t *testing.T, ln net.Listener) *Server {
	t.Helper()
	s := &Server{Address: ln.Addr().String(), Handshakes: make(chan error, 100)}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.Handshakes <- conn.(*tls.Conn).HandshakeContext(t.Context())
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		serving.Wait()
	})
	return s
}
