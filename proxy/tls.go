package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/rs/zerolog"

	"music/config"
)

// secured makes a listener for drivers one of TLS; it stays as it is where no certificate is set. Connections are handed out before
// their handshake: that is for whoever serves them to do, in its own time.
func secured(ln net.Listener, l config.Listen, log zerolog.Logger) (net.Listener, error) {
	if !l.Encrypted() {
		return ln, nil
	}
	keys, err := newKeyring(func() (*tls.Config, error) { return driverTLS(l) }, log, l.TLSCert, l.TLSKey, l.TLSClientCA)
	if err != nil {
		return nil, fmt.Errorf("TLS towards drivers: %w", err)
	}
	return tls.NewListener(ln, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return keys.config(), nil },
	}), nil
}

// driverTLS is how drivers are served. No session is resumed: whom the files do not let in any more must not come in by having been
// let in before.
func driverTLS(l config.Listen) (*tls.Config, error) {
	own, signers, err := readPapers(l.TLSCert, l.TLSKey, l.TLSClientCA)
	if err != nil {
		return nil, err
	}
	asked := tls.NoClientCert
	if signers != nil {
		asked = tls.RequireAndVerifyClientCert
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: own, ClientCAs: signers, ClientAuth: asked,
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}, nil
}

// nodeDialer opens connections to Cassandra: one those of clients, another the proxy's own, of the driver's session and the members' link.
// Nodes may take a role from a certificate, so that the two never show the same.
type nodeDialer struct {
	keys    *keyring // nil = plain text
	timeout time.Duration
}

// newNodeDialer reads the files of TLS where it is on.
func newNodeDialer(c config.Cassandra, log zerolog.Logger) (*nodeDialer, error) {
	d := &nodeDialer{timeout: c.ConnectTimeout}
	if !c.TLS {
		return d, nil
	}
	var err error
	d.keys, err = newKeyring(func() (*tls.Config, error) { return nodeTLS(c) }, log, c.TLSCA, c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("TLS towards Cassandra: %w", err)
	}
	return d, nil
}

// dial connects to address, and under TLS asks the node to prove that it is name. It takes at most the timeout.
func (d *nodeDialer) dial(ctx context.Context, address, name string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil || d.keys == nil {
		return conn, err
	}
	own := d.keys.config().Clone()
	own.ServerName = name
	secure := tls.Client(conn, own)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return secure, nil
}

// dialPoint connects to a contact point, host:port: under TLS it proves to be that host.
func (d *nodeDialer) dialPoint(ctx context.Context, point string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(point)
	if err != nil {
		return nil, fmt.Errorf("contact point: %w", err)
	}
	return d.dial(ctx, point, host)
}

// DialHost implements gocql.HostDialer. A node that was found by an address alone has to prove that. Requests are not held back for
// others to go out with them: those of one section follow each other, and each would wait.
func (d *nodeDialer) DialHost(ctx context.Context, host *gocql.HostInfo) (*gocql.DialedHost, error) {
	name, _, err := net.SplitHostPort(host.HostnameAndPort())
	if err != nil {
		return nil, fmt.Errorf("name of a node: %w", err)
	}
	conn, err := d.dial(ctx, host.ConnectAddressAndPort(), name)
	if err != nil {
		return nil, err
	}
	return &gocql.DialedHost{Conn: conn, DisableCoalesce: true}, nil
}

// nodeTLS is how nodes are spoken to. Without verification of the host any certificate of a signer will do.
func nodeTLS(c config.Cassandra) (*tls.Config, error) {
	own, signers, err := readPapers(c.TLSCert, c.TLSKey, c.TLSCA)
	if err != nil {
		return nil, err
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: own, RootCAs: signers, DynamicRecordSizingDisabled: true}
	if !c.TLSVerifyHost {
		t.InsecureSkipVerify = true //nolint:gosec // what is verified in its place is all but the name
		t.VerifyConnection = func(s tls.ConnectionState) error { return signedBy(s.PeerCertificates, signers) }
	}
	return t, nil
}

// errNoCertificate ends a connection with somebody who shows no certificate.
var errNoCertificate = errors.New("the node shows no certificate")

// signedBy tells whether a chain leads to one of the signers; nil are those whom the system trusts.
func signedBy(chain []*x509.Certificate, signers *x509.CertPool) error {
	if len(chain) == 0 {
		return errNoCertificate
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: signers, Intermediates: between})
	return err //nolint:wrapcheck // it says what is wrong with which certificate
}
