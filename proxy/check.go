package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/rs/zerolog"

	"music/config"
	"music/proxy/certs"
)

// Checked is one thing that Check has tried.
type Checked struct {
	What  string // the setting, or what was tried with it
	Found string // where all is well
	Err   error
}

// errNothingFound tells that no contact point could be asked.
var errNothingFound = errors.New("no contact point answers")

// Check tries what a start with cfg needs, in the order of the start: files, addresses, every
// contact point with the proxy's own login, and the clients' certificate. It serves nobody, changes
// nothing, and is not there any more when it returns. cfg has passed Validate.
func Check(ctx context.Context, cfg config.Config) []Checked {
	var all []Checked
	add := func(what, found string, err error) { all = append(all, Checked{What: what, Found: found, Err: err}) }
	advertise, err := advertised(ctx, cfg.Listen)
	add("advertise "+cfg.Listen.AdvertiseHost(), advertise.String(), err)
	_, err = certs.Drivers(cfg.Listen, zerolog.Nop())
	add("listen "+cfg.Listen.Address, "free", errors.Join(err, free(ctx, cfg.Listen.Address)))
	_, err = certs.Proxies(cfg.Peers, zerolog.Nop())
	add("peer-listen "+cfg.Peers.Listen, freeOrOff(cfg.Peers.Listen), errors.Join(err, free(ctx, cfg.Peers.Listen)))
	if err = free(ctx, cfg.Listen.Metrics); err != nil && !cfg.Listen.MetricsAsked {
		add("metrics-listen "+cfg.Listen.Metrics, "taken: metrics and health would not be served", nil)
	} else {
		add("metrics-listen "+cfg.Listen.Metrics, freeOrOff(cfg.Listen.Metrics), err)
	}
	return append(all, checkNodes(ctx, cfg)...)
}

// free reports why nobody could listen at an address; one that is empty is off.
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

// freeOrOff returns what is found of an address at which nothing prevents listening.
func freeOrOff(address string) string {
	if address == "" {
		return "off"
	}
	return "free"
}

// checkNodes tries each contact point, and the keyspace of the proxies at the first that answers.
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
		if cfg.Music.Locks {
			found, err := checkMusic(ctx, one)
			all = append(all, Checked{What: "keyspace music", Found: found, Err: err})
		}
		if cfg.Cassandra.TLSClientsCert != "" {
			err := checkClients(ctx, one)
			all = append(all, Checked{What: "cassandra-tls-clients-cert", Found: "nodes take clients for nobody but whom they log in as", Err: err})
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

// checkMusic reads what the proxies share, as far as a read tells: what may be written is seen by
// `music check`.
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
	there, err := l.rows(ctx, "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'music'")
	if err != nil {
		return "", err
	}
	if len(there) == 0 {
		return "not there: the first proxy to start makes it, for which its role needs CREATE ON ALL KEYSPACES (docs/roles.md)", nil
	}
	if _, err := l.rows(ctx, "SELECT session FROM music.sessions LIMIT 1"); err != nil {
		return "", err
	}
	return "there, and the proxy's role reads it", nil
}

// checkClients asks the node for which role it takes clients.
func checkClients(ctx context.Context, cfg config.Config) error {
	h, err := newHome(cfg.Cassandra, zerolog.Nop())
	if err != nil {
		return err
	}
	return (&process{cfg: cfg, home: h}).checkIdentity(ctx)
}
