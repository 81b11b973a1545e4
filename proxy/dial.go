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

// nodeDialer opens connections to Cassandra: one those of clients, another the proxy's own, of the
// driver's session and the members' link. Nodes may take a role from a certificate, so that the two
// never show the same.
type nodeDialer struct {
	certs   *certs.Source // nil = plain text
	timeout time.Duration
}

// newNodeDialer reads the files of TLS where it is on.
func newNodeDialer(c config.Cassandra, log zerolog.Logger) (*nodeDialer, error) {
	source, err := certs.Nodes(c, sampled(log))
	if err != nil {
		return nil, err
	}
	return &nodeDialer{certs: source, timeout: c.ConnectTimeout}, nil
}

// dial connects to address, and under TLS asks the node to prove that it is name. It takes at most
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

// dialPoint connects to a contact point, host:port: under TLS it proves to be that host.
func (d *nodeDialer) dialPoint(ctx context.Context, point string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(point)
	if err != nil {
		return nil, fmt.Errorf("contact point: %w", err)
	}
	return d.dial(ctx, point, host)
}

// DialHost implements gocql.HostDialer. A node that was found by an address alone has to prove
// that. Requests are not held back for others to go out with them: those of one section follow each
// other, and each would wait.
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
