package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"music/config"
	"music/proxy/certs"
)

// Checked is the result of one of Check's checks.
type Checked struct {
	What  string // the setting, or what was checked
	Found string // the finding if Err is nil
	Err   error
}

// errNothingFound means that no contact point has answered.
var errNothingFound = errors.New("no contact point answers")

// Check checks what a start with cfg needs, in the order of the start: files, addresses, every
// contact point with the proxy's own login, and the clients' certificate. It changes nothing, and
// leaves nothing open. cfg must have passed Validate.
func Check(ctx context.Context, cfg config.Config) []Checked {
	var all []Checked
	add := func(what, found string, err error) { all = append(all, Checked{What: what, Found: found, Err: err}) }
	advertise, err := advertised(ctx, cfg.Listen)
	add("advertise "+cfg.Listen.AdvertiseHost(), advertise.String(), err)
	_, err = certs.Drivers(cfg.Listen, zerolog.Nop())
	add("listen "+cfg.Listen.Address, "free", errors.Join(err, free(ctx, cfg.Listen.Address)))
	_, err = certs.Proxies(cfg.Peers, zerolog.Nop())
	add(strings.TrimSpace("peer-listen "+cfg.Peers.Listen), freeOrOff(cfg.Peers.Listen), errors.Join(err, free(ctx, cfg.Peers.Listen)))
	if err = free(ctx, cfg.Listen.Metrics); err != nil && !cfg.Listen.MetricsAsked {
		add("metrics-listen "+cfg.Listen.Metrics, "taken: metrics and health would not be served", nil)
	} else {
		add(strings.TrimSpace("metrics-listen "+cfg.Listen.Metrics), freeOrOff(cfg.Listen.Metrics), err)
	}
	if file := cfg.Log.AuditFile; file != "" {
		add("audit-file "+file, "can be written", writable(file))
	}
	return append(all, checkNodes(ctx, cfg)...)
}

// free returns why the proxy could not listen at an address; nil if it could, or if address is
// empty.
func free(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return ln.Close()
}

// writable returns why a file could not be appended to, or made; nil if it could.
func writable(path string) error {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("make it in %s: %w", filepath.Dir(path), err)
		}
		return nil
	case err != nil:
		return err
	}
	return file.Close()
}

// freeOrOff returns the finding for an address for which free returns nil.
func freeOrOff(address string) string {
	if address == "" {
		return "off"
	}
	return "free"
}

// checkNodes checks each contact point, and the proxies' keyspace at the first that answers.
func checkNodes(ctx context.Context, cfg config.Config) []Checked {
	var all []Checked
	first := true
	for _, address := range cfg.Cassandra.Addresses() {
		one := cfg
		one.Cassandra.ContactPoints = []string{address}
		facts, err := checkNode(ctx, one)
		found := fmt.Sprintf("cluster %s, data centre %s, Cassandra %s", facts.cluster, facts.centre, facts.release)
		all = append(all, Checked{What: "contact point " + address, Found: found, Err: err})
		if err != nil || !first {
			continue
		}
		first = false
		if centre := cfg.Cassandra.LocalDC; centre != "" {
			all = append(all, Checked{What: "local-dc " + centre, Found: "has nodes", Err: facts.knows(centre)})
		}
		if cfg.Music.Locks {
			found, err := checkMusic(ctx, one)
			all = append(all, Checked{What: "keyspace music", Found: found, Err: err})
		}
		if cfg.Cassandra.TLSClientsCert != "" {
			err := checkClients(ctx, one)
			all = append(all, Checked{What: "cassandra-tls-clients-cert", Found: "nodes give clients no other role than the one they log in as", Err: err})
		}
	}
	if first {
		all = append(all, Checked{What: "Cassandra", Err: errNothingFound})
	}
	return all
}

// checkNode logs in to the one contact point as the proxy does.
func checkNode(ctx context.Context, cfg config.Config) (nodeFacts, error) {
	h, err := newHome(cfg.Cassandra, zerolog.Nop())
	if err != nil {
		return nodeFacts{}, err
	}
	facts, err := (&process{cfg: cfg, home: h}).askNode(ctx)
	if err == nil && cfg.Music.Locks && !releaseServes(facts.release) {
		err = fmt.Errorf("release %s of Cassandra: %w", facts.release, errRelease)
	}
	return facts, err
}

// checkMusic checks that the proxy can read the proxies' keyspace. Whether it can write is checked
// by `music check`.
func checkMusic(ctx context.Context, cfg config.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, serviceTimeout)
	defer cancel()
	h, err := newHome(cfg.Cassandra, zerolog.Nop())
	if err != nil {
		return "", err
	}
	l, err := dialHome(ctx, h, cfg.Cassandra)
	if err != nil {
		return "", err
	}
	defer l.close()
	if err := l.isNode(ctx); err != nil {
		return "", err
	}
	there, err := l.rows(ctx, "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'music'")
	if err != nil {
		return "", err
	}
	if len(there) == 0 {
		return "does not exist: the first proxy to start creates it, for which its role needs CREATE ON ALL KEYSPACES (docs/roles.md)", nil
	}
	if _, err := l.rows(ctx, "SELECT session FROM music.sessions LIMIT 1"); err != nil {
		return "", err
	}
	return "exists, and the proxy's role can read it", nil
}

// isNode returns nil if Cassandra itself is behind the connection: a proxy knows LIST LOCKS.
func (c *homeConn) isNode(ctx context.Context) error {
	_, err := c.rows(ctx, "LIST LOCKS")
	var told *refusal
	switch {
	case refused(err, primitive.ErrorCodeSyntaxError):
		return nil
	case err == nil, errors.As(err, &told):
		return errProxyThere
	}
	return err
}

// checkClients checks that the node gives clients no role by the proxy's certificate.
func checkClients(ctx context.Context, cfg config.Config) error {
	h, err := newHome(cfg.Cassandra, zerolog.Nop())
	if err != nil {
		return err
	}
	return (&process{cfg: cfg, home: h}).checkIdentity(ctx)
}
