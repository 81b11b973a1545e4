package proxy

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
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// signer is somebody who signs certificates.
type signer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	path string // of its own certificate
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	s := &signer{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "signer"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	s.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &s.key.PublicKey, s.key)
	require.NoError(t, err)
	s.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	s.path = s.write(t.TempDir(), "ca.pem", "CERTIFICATE", der)
	return s
}

func (s *signer) write(dir, name, kind string, der []byte) string {
	s.t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(s.t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}

// issue writes a certificate for an address into dir and returns the settings that use it.
func (s *signer) issue(dir string, address net.IP, until time.Time) config.Peers {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(s.t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: until.Add(-time.Hour), NotAfter: until, IPAddresses: []net.IP{address},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, &key.PublicKey, s.key)
	require.NoError(s.t, err)
	raw, err := x509.MarshalECPrivateKey(key)
	require.NoError(s.t, err)
	return config.Peers{TLSCert: s.write(dir, "cert.pem", "CERTIFICATE", der), TLSKey: s.write(dir, "key.pem", "EC PRIVATE KEY", raw), TLSCA: s.path}
}

func TestCertificates(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	here, elsewhere := net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 9)
	soon, past := time.Now().Add(30*time.Minute), time.Now().Add(-time.Minute)
	c, k := newCluster(), keyOf("x")
	dir := t.TempDir()
	a := startStation(t, c, ours.issue(dir, here, soon))
	ref := a.held(k)
	b := startStation(t, c, ours.issue(t.TempDir(), here, soon))
	b.put(k, ref)
	asks := func(name string, channel config.Peers, want error) {
		t.Helper()
		assert.ErrorIs(t, startStation(t, c, channel).asks(a, k, ref), want, name)
	}
	asks("expired", ours.issue(t.TempDir(), here, past), errPeer)
	foreign := theirs.issue(t.TempDir(), here, soon)
	asks("of other signers", foreign, errPeer)
	foreign.TLSCA = ours.path
	asks("of other signers, who believe ours", foreign, errPeer)
	asks("none", config.Peers{}, errPeer)
	other := ours.issue(t.TempDir(), elsewhere, soon)
	named := startStation(t, c, other)
	assert.ErrorIs(t, b.asks(named, k, ref), errPeer, "it stands for another address")

	conn, err := tls.Dial("tcp", a.address, &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	require.Error(t, err, "%v", conn)
	assert.Contains(t, err.Error(), "protocol version")
	bare := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+a.address+askList, strings.NewReader("{}"))
	require.NoError(t, err)
	_, err = bare.Do(r)
	assert.ErrorContains(t, err, "certificate required")

	// Files are replaced under a running proxy: from then on those of the new signers are believed, and no others.
	require.NoError(t, os.Rename(theirs.path, ours.path))
	theirs.path = ours.path
	theirs.issue(dir, here, soon)
	asks("new files", theirs.issue(t.TempDir(), here, soon), nil)
	b.peers.client.CloseIdleConnections()
	assert.ErrorIs(t, b.asks(a, k, ref), errPeer, "signed by who is believed no more")
}

// What cannot be read is told at the start, not at the first connection.
func TestCertificatesAreReadAtStart(t *testing.T) {
	s := newSigner(t)
	good := s.issue(t.TempDir(), net.IPv4(127, 0, 0, 1), time.Now().Add(time.Minute))
	good.Listen = "127.0.0.1:0"
	for want, spoil := range map[string]func(*config.Peers){
		"between proxies: certificate": func(p *config.Peers) { p.TLSCert = p.TLSKey },
		"between proxies: signers of":  func(p *config.Peers) { p.TLSCA = "/no/such/file" },
		"no certificate in":            func(p *config.Peers) { p.TLSCA = p.TLSKey },
	} {
		p := good
		spoil(&p)
		_, err := peerKeys(p, zerolog.Nop())
		assert.ErrorContains(t, err, want)
	}
}
