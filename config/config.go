// Package config holds the one value that says how a proxy runs: its defaults, where its settings
// come from, and what they may be.
//
// Settings come from flags, from MUSIC_… environment variables, from a YAML file and from the
// defaults, the earlier of these winning. One table (see settings) is behind all of them and behind
// the reference of the documentation: a setting is added there, in Config and in Default.
package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Config is the configuration of a proxy. It is a plain value: copy it, compare it, change it
// before the proxy runs. Printed in any way, it keeps the password to itself.
type Config struct {
	Cassandra Cassandra
	Listen    Listen
	Peers     Peers
	Music     Music
	Limits    Limits
	Log       Log
}

// Cassandra says where the cluster is and with which role the proxy's own session logs in. Clients
// log in as themselves: nothing of theirs is configured here.
type Cassandra struct {
	ContactPoints  []string // hosts or host:port; at least one
	Port           int      // of contact points that name none
	Username       string
	Password       Secret
	PasswordFile   string // where Load took Password from
	LocalDC        string // empty = that of the first node reached
	ConnectTimeout time.Duration

	TLS           bool   // on every connection
	TLSCA         string // file in PEM form; empty = those whom the system trusts
	TLSCert       string // of the proxy's own connections: files in PEM form, or neither
	TLSKey        string
	TLSVerifyHost bool

	TLSClientsCert string // of clients' connections, likewise; never the proxy's own
	TLSClientsKey  string
	TLSClientsRole string // the one role that nodes may take that certificate for; empty = none
}

// ForClients returns how clients' connections are made: as c, but with their own certificate in the
// place of the proxy's.
func (c Cassandra) ForClients() Cassandra {
	c.TLSCert, c.TLSKey = c.TLSClientsCert, c.TLSClientsKey
	return c
}

// Listen says where the proxy is reached.
type Listen struct {
	Address   string // host:port for drivers
	Advertise string // empty = the host of Address; see AdvertiseHost
	Metrics   string // host:port for metrics and health; empty = off

	MetricsAsked bool // Metrics was set, and is not the default: where it is taken, the proxy does not start

	TLSCert     string // files in PEM form, or neither: then drivers are served in plain text
	TLSKey      string
	TLSClientCA string // file in PEM form; empty = drivers need no certificate
}

// Music holds the settings of the lock service. Which of them proxies may have different, and why
// nothing breaks then, stands in docs/guarantees.md.
type Music struct {
	Locks         bool   // false = a pure relay, which opens no session of its own
	Replication   string // of the keyspace music, a CQL map; empty = chosen from the cluster's data centres
	SessionLease  time.Duration
	ClientLease   time.Duration
	MaxWait       time.Duration // how long LOCK may wait for a driver whose own time-out is not known
	LockCommit    string        // auto, or quorum: no LWT on a lock row is acknowledged by fewer
	Retain        time.Duration // a key whose sections are shorter is kept so long for the next LOCK here; 0 = never
	Critical      []string      // patterns of tables that are critical whatever their comment says; see CriticalByName
	MetricsTables []string      // whose locks have metrics of their own; see NamedTables

	ExpectProxies int // this one included; at start drivers wait until so many have said where they are
}

// Limits bounds what clients can take from the proxy and how long it waits for others.
type Limits struct {
	MaxConnections   int
	MaxFrameSize     Size
	Label            Size          // of AS and REASON
	Statement        Size          // of the texts that the proxy itself keeps or carries out
	Prepared         Size          // of what is remembered of all prepared statements
	PreparedEach     Size          // of that, for those of one connection
	Waiters          int           // that wait for one key
	Waits            int           // operations of one connection that wait for the locks
	Messages         Size          // of all messages that are held; 0 = a quarter of what Go may use, or 1 GiB
	MessageTimeout   time.Duration // for the rest of a message that has begun
	HandshakeTimeout time.Duration // from accept to a finished login
	BackendTimeout   time.Duration // silence of Cassandra while it owes an answer, after which it counts as lost
	ShutdownTimeout  time.Duration // from SIGTERM to the end, whatever is still in flight
}

// Log says what the log tells and in which form.
type Log struct {
	Level  string // trace, debug, info, warn or error
	Format string // json, text, or auto: text where the log is written to a terminal, else json

	Audit     string // all, ends, refused or none
	AuditFile string // where the audit is written to; empty = the log
}

// Default returns the settings that hold where nothing else is said. Only the contact points are
// missing from it.
func Default() Config {
	return Config{
		Cassandra: Cassandra{Port: 9042, ConnectTimeout: 4 * time.Second, TLSVerifyHost: true},
		Listen:    Listen{Address: "127.0.0.1:9042", Metrics: "127.0.0.1:9044"},
		Music: Music{
			Locks:        true,
			SessionLease: 10 * time.Second,
			ClientLease:  30 * time.Second,
			MaxWait:      1500 * time.Millisecond,
			LockCommit:   "auto",
			Retain:       200 * time.Millisecond,

			ExpectProxies: 1,
		},
		Limits: Limits{
			MaxConnections:   10000,
			MaxFrameSize:     16 * mebibyte,
			Label:            256,
			Statement:        64 * kibibyte,
			Prepared:         64 * mebibyte,
			PreparedEach:     8 * mebibyte,
			Waiters:          10000,
			Waits:            2000,
			MessageTimeout:   30 * time.Second,
			HandshakeTimeout: 10 * time.Second,
			BackendTimeout:   65 * time.Second,
			ShutdownTimeout:  10 * time.Second,
		},
		Log: Log{Level: "info", Format: "auto", Audit: "ends"},
	}
}

// Addresses returns the contact points as host:port, Port added where a point names none.
func (c Cassandra) Addresses() []string {
	addresses := make([]string, 0, len(c.ContactPoints))
	for _, point := range c.ContactPoints {
		host, port := splitPoint(point)
		if port == "" {
			port = strconv.Itoa(c.Port)
		}
		addresses = append(addresses, net.JoinHostPort(host, port))
	}
	return addresses
}

// AdvertiseHost returns the address or name that drivers are shown: Advertise, or else the host of
// Address. It is empty only in a configuration that Validate refuses.
func (l Listen) AdvertiseHost() string {
	if l.Advertise != "" {
		return l.Advertise
	}
	host, _, err := net.SplitHostPort(l.Address)
	if err != nil || unspecified(host) {
		return ""
	}
	return host
}

// String returns every setting on a line of its own, in the table's order, secrets as ***.
func (c Config) String() string {
	var b strings.Builder
	for _, s := range settings() {
		fmt.Fprintf(&b, "%s: %s\n", s.name, s.field(&c).shown())
	}
	return b.String()
}

// splitPoint cuts a contact point into host and port; the port is empty where none is named. A bare
// IPv6 address is a host, colons and all.
func splitPoint(point string) (host, port string) {
	if _, err := netip.ParseAddr(point); err == nil {
		return point, ""
	}
	if host, port, err := net.SplitHostPort(point); err == nil {
		return host, port
	}
	return point, ""
}

// unspecified reports whether a host to listen on means every address of the machine.
func unspecified(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "" || err == nil && addr.IsUnspecified()
}
