package integration

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/integration/cassandra"
)

// certAuthority signs certificates.
type certAuthority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	path string // of its own certificate
}

// keyPair is a certificate and its key, in files.
type keyPair struct{ cert, key string }

func newCertAuthority(t *testing.T, name string) *certAuthority {
	t.Helper()
	i := &certAuthority{t: t, path: filepath.Join(t.TempDir(), "ca.pem")}
	template := certificateFor(name)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	i.cert, i.key = template, newKey(t)
	der := i.sign(template, i.key)
	var err error
	i.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(i.path, pemOf("CERTIFICATE", der), 0o600))
	return i
}

// certificateFor returns a certificate of a name, valid now.
func certificateFor(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (i *certAuthority) sign(template *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	i.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, &key.PublicKey, i.key)
	require.NoError(i.t, err)
	return der
}

// issue writes a certificate for a host, and for the identities given as URIs, into dir. The key's
// file has the certificate, too, as Cassandra wants it.
func (i *certAuthority) issue(dir, host string, identities ...string) keyPair {
	i.t.Helper()
	key := newKey(i.t)
	template := certificateFor(host)
	template.IPAddresses = []net.IP{net.ParseIP(host)}
	for _, identity := range identities {
		uri, err := url.Parse(identity)
		require.NoError(i.t, err)
		template.URIs = append(template.URIs, uri)
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	cert := pemOf("CERTIFICATE", i.sign(template, key))
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(i.t, err)
	p := keyPair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	require.NoError(i.t, os.WriteFile(p.cert, cert, 0o600))
	require.NoError(i.t, os.WriteFile(p.key, append(pemOf("PRIVATE KEY", raw), cert...), 0o600))
	return p
}

// tlsFixture is a node that requires client certificates, with the certificates for it. Each side
// has a certificate authority of its own.
type tlsFixture struct {
	t                    *testing.T
	node                 string
	nodes, proxies, apps *certAuthority
	proxy, relayed       keyPair // as a client of the node: of the proxy itself, and of clients' connections
	front                keyPair // as a server of drivers
	address              string  // of the proxy
}

// startTLSFixture starts the node; it ends with the test.
func startTLSFixture(t *testing.T) *tlsFixture {
	t.Helper()
	const host = "127.0.8.1"
	w := needEnvironment(t)
	v := &tlsFixture{t: t, nodes: newCertAuthority(t, "nodes"), proxies: newCertAuthority(t, "proxies"), apps: newCertAuthority(t, "apps"), address: w.address()}
	own := v.nodes.issue(t.TempDir(), host)
	for _, p := range []*keyPair{&v.proxy, &v.relayed, &v.front} {
		*p = v.proxies.issue(t.TempDir(), hostOf(t, v.address))
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(w.runDir, "integration-tls"), RunDir: w.runDir, Heap: "256m", FastJIT: true,
		Address: func(int) string { return host }, Log: os.Stderr,
		Yaml: map[string]string{"client_encryption_options": fmt.Sprintf(
			"{enabled: true, optional: true, require_client_auth: true, keystore: %q, truststore: %q, "+
				"ssl_context_factory: {class_name: org.apache.cassandra.security.PEMBasedSslContextFactory}}", own.key, v.proxies.path)},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Wipe()) })
	v.node = c.Nodes()[0].Addr()
	return v
}

// settings configures a proxy that uses TLS on both sides.
func (v *tlsFixture) settings(c *config.Config) {
	c.Cassandra.ContactPoints = []string{v.node}
	c.Cassandra.TLS, c.Cassandra.TLSCA, c.Cassandra.TLSCert, c.Cassandra.TLSKey = true, v.nodes.path, v.proxy.cert, v.proxy.key
	c.Cassandra.TLSClientsCert, c.Cassandra.TLSClientsKey = v.relayed.cert, v.relayed.key
	c.Listen.TLSCert, c.Listen.TLSKey, c.Listen.TLSClientCA = v.front.cert, v.front.key, v.apps.path
}

// relay starts a proxy without locks that uses TLS towards Cassandra only. It may fail to listen;
// the caller stops it.
func (v *tlsFixture) relay(change func(*config.Cassandra)) *instance {
	c := needEnvironment(v.t).config()
	v.settings(&c)
	c.Music.Locks, c.Listen.TLSCert, c.Listen.TLSKey, c.Listen.TLSClientCA = false, "", "", ""
	change(&c.Cassandra)
	return begin(c)
}

// driver opens a session of the Go driver with a certificate, which trusts one certificate
// authority.
func (v *tlsFixture) driver(address string, signers *certAuthority, own keyPair) (*gocql.Session, error) {
	c := cluster2(address, "")
	c.ConnectTimeout = requestTimeout
	c.SslOpts = &gocql.SslOptions{CaPath: signers.path, CertPath: own.cert, KeyPath: own.key, EnableHostVerification: true}
	return c.CreateSession()
}

// TestTLS is one test because the node's start is slow.
func TestTLS(t *testing.T) {
	v := startTLSFixture(t)
	p := startProxy(t, func(c *config.Config) {
		v.settings(c)
		c.Listen.Address = v.address
	})
	app := v.apps.issue(t.TempDir(), "127.0.0.1")
	t.Run("sections", func(t *testing.T) { v.sections(t, app) })
	t.Run("strangers", func(t *testing.T) { v.untrustedClients(t, p, app) })
	t.Run("plain text", func(t *testing.T) { v.plainText(t, p) })
	t.Run("nodes", v.untrustedNodes)
	t.Run("new files", func(t *testing.T) { v.replaced(t, app) })
}

// Drivers go through sections over TLS, and Cassandra has no connection that is not encrypted.
func (v *tlsFixture) sections(t *testing.T, app keyPair) {
	s, err := v.driver(v.address, v.proxies, app)
	require.NoError(t, err)
	defer closeWithin(s.Close)
	for _, c := range []client{
		&gocql2{s}, openPython(t, v.address, "", v.proxies.path, app.cert, app.key),
		openShell(t, v.address, "", "--ssl", "--cqlshrc", v.cqlshrc(t, app)),
	} {
		for _, cql := range []string{
			"CREATE KEYSPACE IF NOT EXISTS vault WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
			"CREATE TABLE IF NOT EXISTS vault.gold (id int PRIMARY KEY, grams bigint) WITH comment = '@critical'",
		} {
			require.NoError(t, c.run(statement{cql: cql}).err())
		}
		o := c.run(statement{cql: "LOCK vault.gold WHERE id = 1"})
		require.NoError(t, o.err())
		require.Equal(t, "held", told(o, "state"), "%v", o)
		ref := told(o, "lock_ref")
		for _, cql := range []string{
			"UPDATE vault.gold USING LOCK " + ref + " SET grams = 7 WHERE id = 1",
			"UNLOCK vault.gold WHERE id = 1 USING LOCK " + ref,
		} {
			require.NoError(t, c.run(statement{cql: cql}).err(), cql)
		}
		eventually(t, time.Minute, "a read", func() error { // cqlsh shows rows of a table when it has heard of it
			o = c.run(statement{cql: "SELECT grams FROM vault.gold WHERE id = 1"})
			return o.err()
		})
		assert.Equal(t, "7", o.cell("grams"), "%T: %v", c, o)
		o = c.run(statement{cql: "SELECT address, port, ssl_enabled, driver_name FROM system_views.clients"})
		require.NoError(t, o.err())
		require.GreaterOrEqual(t, len(o.rows), 4, "of the drivers, of the proxy's session, and its link: %v", o)
		for _, row := range o.rows {
			assert.Equal(t, "true", strings.ToLower(row[2]), "%v", row)
		}
	}
}

// cqlshrc writes the configuration of a cqlsh with certificates.
func (v *tlsFixture) cqlshrc(t *testing.T, own keyPair) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cqlshrc")
	text := fmt.Sprintf("[ssl]\nvalidate = true\ncertfile = %s\nusercert = %s\nuserkey = %s\n", v.proxies.path, own.cert, own.key)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A driver that does not trust the proxy, and a client that the proxy does not trust, exchange no
// message with it.
func (v *tlsFixture) untrustedClients(t *testing.T, p *instance, app keyPair) {
	foreign := newCertAuthority(t, "foreign")
	for name, open := range map[string]func() (*gocql.Session, error){
		"the driver believes others": func() (*gocql.Session, error) { return v.driver(v.address, foreign, app) },
		"the proxy believes others": func() (*gocql.Session, error) {
			return v.driver(v.address, v.proxies, foreign.issue(t.TempDir(), "127.0.0.1"))
		},
		"the driver has no papers":     func() (*gocql.Session, error) { return v.driver(v.address, v.proxies, keyPair{}) },
		"the certificate is of others": func() (*gocql.Session, error) { return v.driver(v.lookalike(t, v.address), v.proxies, app) },
	} {
		s, err := open()
		if assert.Error(t, err, name) {
			continue
		}
		s.Close()
	}
	p.log.tells(t, "TLS handshake failed")
	assert.NotContains(t, p.log.String(), "goroutine ")
}

// lookalike listens at an address and relays to another one.
func (v *tlsFixture) lookalike(t *testing.T, address string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.2.253:0")
	require.NoError(t, err)
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { passOn(from, address) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		passing.Wait()
	})
	return ln.Addr().String()
}

// passOn copies bytes both ways until either side ends.
func passOn(from net.Conn, address string) {
	to, err := net.Dial("tcp", address)
	if err != nil {
		_ = from.Close()
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	})
	_, _ = io.Copy(to, from)
	_ = to.Close()
	back.Wait()
}

// A connection without TLS is closed, with one line in the log.
func (v *tlsFixture) plainText(t *testing.T, p *instance) {
	conn, err := net.Dial("tcp", v.address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte{4, 0, 0, 0, 5, 0, 0, 0, 0})
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	said, err := io.ReadAll(conn)
	require.NoError(t, err, "closed")
	assert.Empty(t, said)
	p.log.tells(t, "does not look like a TLS handshake")
}

// The proxy sends nothing to a node with a wrong certificate, and a node that does not trust the
// proxy does not answer; clients are not told about either.
func (v *tlsFixture) untrustedNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*config.Cassandra)
		want   string // in the log; empty = it works
	}{
		"right":                 {func(*config.Cassandra) {}, ""},
		"signed by others":      {func(c *config.Cassandra) { c.TLSCA = v.apps.path }, "unknown authority"},
		"at another address":    {func(c *config.Cassandra) { c.ContactPoints = []string{v.lookalike(t, v.node)} }, "valid for 127.0.8.1, not 127.0.2.253"},
		"there, not verified":   {func(c *config.Cassandra) { c.ContactPoints, c.TLSVerifyHost = []string{v.lookalike(t, v.node)}, false }, ""},
		"without a certificate": {func(c *config.Cassandra) { c.TLSClientsCert, c.TLSClientsKey = "", "" }, "certificate required"},
	} {
		t.Run(name, func(t *testing.T) {
			p := v.relay(tc.change)
			defer func() { assert.NoError(t, p.stop()) }()
			eventually(t, time.Minute, "what becomes of clients", func() error {
				s, err := cluster2(p.address, "").CreateSession()
				if err == nil {
					s.Close()
					require.Empty(t, tc.want)
					return nil
				}
				assert.NotContains(t, err.Error(), "127.0.8.1", "clients are not told of nodes")
				if log := p.log.String(); tc.want == "" || !strings.Contains(log, tc.want) {
					return errorf("%w, the log is %s", err, log)
				}
				return nil
			})
		})
	}
}

// Certificates are replaced in a running proxy: existing connections stay, and new ones get the new
// certificate.
func (v *tlsFixture) replaced(t *testing.T, app keyPair) {
	old, err := v.driver(v.address, v.proxies, app)
	require.NoError(t, err)
	defer closeWithin(old.Close)
	next := newCertAuthority(t, "next")
	fresh := next.issue(t.TempDir(), hostOf(t, v.address))
	require.NoError(t, os.Rename(fresh.cert, v.front.cert))
	require.NoError(t, os.Rename(fresh.key, v.front.key))
	s, err := v.driver(v.address, next, app)
	require.NoError(t, err)
	defer closeWithin(s.Close)
	require.NoError(t, old.Query("SELECT key FROM system.local").Exec(), "the old connection")
	require.NoError(t, s.Query("SELECT key FROM system.local").Exec())
	_, err = v.driver(v.address, v.proxies, app)
	require.Error(t, err, "the old signers are believed no more")

	require.NoError(t, os.Rename(next.path, v.apps.path))
	pair, err := tls.LoadX509KeyPair(app.cert, app.key)
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", v.address, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	assert.ErrorContains(t, err, "tls: ", "papers of signers that are believed no more")
}
