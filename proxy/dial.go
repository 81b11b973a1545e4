package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/rs/zerolog"

	"music/config"
	"music/proxy/certs"
)

// nodeDialer opens connections to Cassandra. There is one for clients' connections, and one for the
// proxy's own, which are those of the driver's session and the home connection. Nodes may derive a
// role from a certificate, so the two must never send the same.
type nodeDialer struct {
	certs   *certs.Source // nil = plain text
	timeout time.Duration
}

// newNodeDialer returns a dialer. It reads the TLS files if TLS is on.
func newNodeDialer(c config.Cassandra, log zerolog.Logger) (*nodeDialer, error) {
	source, err := certs.Nodes(c, sampled(log))
	if err != nil {
		return nil, err
	}
	return &nodeDialer{certs: source, timeout: c.ConnectTimeout}, nil
}

// dial connects to address; under TLS the node must prove that it is name. It blocks for at most
// the timeout.
func (d *nodeDialer) dial(ctx context.Context, address, name string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil || d.certs == nil {
		return conn, err
	}
	own := d.certs.Config().Clone()
	own.ServerName = name
	secure := tls.Client(conn, own)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS with %s: %w", address, err)
	}
	return secure, nil
}

// dialPoint connects to a contact point, host:port; under TLS the node must prove that it is that
// host.
func (d *nodeDialer) dialPoint(ctx context.Context, point string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(point)
	if err != nil {
		return nil, fmt.Errorf("contact point: %w", err)
	}
	return d.dial(ctx, point, host)
}

// DialHost implements gocql.HostDialer. A node that is known only by its address must prove that
// address. Requests are not coalesced: those of a section follow one another, so each would only
// wait.
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
