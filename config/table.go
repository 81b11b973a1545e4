package config

import (
	"slices"
	"time"
)

// setting is one row of the table: a name, what it is for, and its place in a Config. Flags,
// environment, file, faults and reference all come from it.
type setting struct {
	name   string // of the flag and the YAML key; envName gives the variable's
	usage  string // one sentence part, without end stop
	reload reload
	field  func(*Config) field
	check  func(*Config) error // what the field alone cannot judge; nil = nothing
}

// settings returns the table, in the order of the reference.
func settings() []setting {
	return slices.Concat(cassandraSettings(), cassandraTLSSettings(), listenSettings(), listenTLSSettings(), peerSettings(), musicSettings(), limitSettings(), logSettings())
}

// cassandraSettings are about the nodes behind the proxy and its own login there.
func cassandraSettings() []setting {
	return []setting{
		{
			name: "contact-points", usage: "nodes through which the proxy finds the cluster", check: checkContactPoints,
			field: func(c *Config) field {
				return list(&c.Cassandra.ContactPoints, "one or more of host, host:port, [IPv6]:port")
			},
		},
		{
			name: "port", usage: "port of contact points that name none",
			field: func(c *Config) field { return number(&c.Cassandra.Port, 65535) },
		},
		{
			name: "username", usage: "role of the proxy's own session", check: checkUsername,
			field: func(c *Config) field { return text(&c.Cassandra.Username, "a role; empty where no login is asked for") },
		},
		{
			name: "password", usage: "password of the role of username; on a command line others can read it", check: checkPassword,
			field: func(c *Config) field { return secret(&c.Cassandra.Password, "any text, with username") },
		},
		{
			name: "password-file", usage: "file that holds the password of the role of username; line ends at its end do not count",
			field: func(c *Config) field {
				return text(&c.Cassandra.PasswordFile, "a readable file that is not empty; not together with password")
			},
		},
		{
			name: "local-dc", usage: "data centre of this proxy; empty = that of the first node reached",
			field: func(c *Config) field { return text(&c.Cassandra.LocalDC, "a name of a data centre") },
		},
		{
			name: "connect-timeout", usage: "how long opening a connection to a node may take",
			field: func(c *Config) field {
				return duration(&c.Cassandra.ConnectTimeout, 100*time.Millisecond, time.Minute)
			},
		},
	}
}

// listenSettings are about the addresses of the proxy itself.
func listenSettings() []setting {
	return []setting{
		{
			name: "listen", usage: "address on which drivers are served; all proxies of a cluster use one port", check: checkListen,
			field: func(c *Config) field {
				return text(&c.Listen.Address, "host:port; port 0 = any free one")
			},
		},
		{
			name: "advertise", usage: "address told to drivers; empty = the host of listen", check: checkAdvertise,
			field: func(c *Config) field {
				return text(&c.Listen.Advertise, "an IP address or host name without port; needed where listen names every address")
			},
		},
		{
			name: "metrics-listen", usage: "address of metrics and health; if the port is in use, the proxy serves without them where this is the default, and does not start where it was set", check: checkMetrics,
			field: metricsField,
		},
		{
			name: "metrics-tables", usage: "critical tables whose locks have metrics of their own besides, with the label table", check: checkMetricsTables,
			field: func(c *Config) field {
				return list(&c.Music.MetricsTables, `none, or up to 50 of keyspace.table; "Quoted" names keep their case`)
			},
		},
	}
}

// metricsField is a text that notes whether it was set.
func metricsField(c *Config) field {
	f := text(&c.Listen.Metrics, "host:port other than listen; empty = off")
	set := f.set
	f.set = func(s string) error {
		c.Listen.MetricsAsked = s != ""
		return set(s)
	}
	return f
}

// musicSettings are about the lock service.
func musicSettings() []setting {
	return []setting{
		{
			name: "locks", usage: "whether locks are served; off = everything is forwarded, also writes to critical tables without a lock",
			field: func(c *Config) field { return toggle(&c.Music.Locks) },
		},
		{
			name: "music-replication", usage: "replication of the keyspace music; empty = automatic", check: checkReplication,
			field: func(c *Config) field {
				return text(&c.Music.Replication, "a CQL map like {'class': 'NetworkTopologyStrategy', 'dc1': 3}")
			},
		},
		{
			name: "session-lease", usage: "silence after which a proxy counts as dead; proxies may have different ones, and wait for the longer of two",
			field: func(c *Config) field { return duration(&c.Music.SessionLease, time.Second, 5*time.Minute) },
		},
		{
			name: "client-lease", usage: "silence after which a client loses its lock, unless its LOCK or the table says otherwise",
			field: func(c *Config) field { return duration(&c.Music.ClientLease, time.Second, time.Hour) },
		},
		{
			name: "max-wait", usage: "how long a LOCK without WAIT waits, and the longest WAIT (8s for Python drivers, if that is longer); longer than a lightweight transaction takes, or no LOCK is answered HELD",
			field: func(c *Config) field { return duration(&c.Music.MaxWait, 100*time.Millisecond, time.Minute) },
		},
		{
			name: "lock-commit", usage: "which replicas must have committed a LOCK before it is answered: auto = a quorum of the own data centre, where there are several and every node has paxos_variant v2; quorum = a quorum of all",
			field: func(c *Config) field { return choice(&c.Music.LockCommit, "auto", "quorum") },
		},
		{
			name: "retain", usage: "how long a proxy keeps a key for the next LOCK there, if sections (from LOCK to UNLOCK) are shorter than this; 0s: not at all",
			field: func(c *Config) field { return duration(&c.Music.Retain, 0, 10*time.Second) },
		},
		{
			name: "critical", reload: widened, usage: "tables that are critical as if their comment said @critical; the same on every proxy", check: checkCritical,
			field: func(c *Config) field {
				return list(&c.Music.Critical, `none, or one or more of keyspace.table, where * stands for any letters and ? for one; "Quoted" names keep their case`)
			},
		},
		{
			name: "expect-proxies", usage: "number of proxies in the cluster, each before a node of its own; a starting one waits up to a minute for them before it listens, so that the first driver sees all",
			field: func(c *Config) field { return number(&c.Music.ExpectProxies, 10000) },
		},
	}
}

// limitSettings bound what clients take and how long things may last.
func limitSettings() []setting {
	return []setting{
		{
			name: "max-connections", reload: atOnce, usage: "client connections open at a time",
			field: func(c *Config) field { return number(&c.Limits.MaxConnections, 1000000) },
		},
		{
			name: "max-frame-size", reload: atOnce, usage: "largest message taken from a client",
			field: func(c *Config) field { return size(&c.Limits.MaxFrameSize, 4*kibibyte, 256*mebibyte) },
		},
		{
			name: "max-label-size", reload: atOnce, usage: "longest text of AS and REASON in LOCK and UNLOCK; a longer one is refused",
			field: func(c *Config) field { return size(&c.Limits.Label, 16, 64*kibibyte) },
		},
		{
			name: "max-statement-size", reload: atOnce, usage: "longest text of LOCK, UNLOCK and LIST LOCKS, and of any prepared statement that concerns a lock or changes the schema; a longer one is refused",
			field: func(c *Config) field { return size(&c.Limits.Statement, kibibyte, mebibyte) },
		},
		{
			name: "max-prepared-size", reload: atOnce, usage: "memory of all prepared statements that the proxy remembers; beyond it the proxy forgets the least recently used ones, and drivers prepare them again",
			field: func(c *Config) field { return size(&c.Limits.Prepared, mebibyte, 16*gibibyte) },
		},
		{
			name: "max-prepared-per-connection", reload: atOnce, usage: "the part of max-prepared-size that one connection may use; beyond it its own oldest statements are forgotten",
			field: func(c *Config) field { return size(&c.Limits.PreparedEach, 64*kibibyte, gibibyte) },
		},
		{
			name: "max-waiters-per-key", usage: "references and clients that wait for one key at this proxy; a further LOCK is told MUSIC_UNAVAILABLE",
			field: func(c *Config) field { return number(&c.Limits.Waiters, 1000000) },
		},
		{
			name: "max-waits-per-connection", reload: atOnce, usage: "operations of one connection that wait for locks at a time; a further one is told MUSIC_UNAVAILABLE",
			field: func(c *Config) field { return number(&c.Limits.Waits, 32768) },
		},
		{
			name: "max-message-memory", reload: atOnce, usage: "memory of all requests that the proxy holds at a time, incomplete or waiting for a lock; answers have half as much beside it; beyond it the proxy reads no further; 0 = a quarter of GOMEMLIMIT (which is 90% of the cgroup's limit where it is not set), or 1GiB where there is none",
			field: func(c *Config) field { return size(&c.Limits.Messages, 0, 1024*gibibyte) },
		},
		{
			name: "message-timeout", usage: "time in which a message that a client has begun must arrive",
			field: func(c *Config) field { return duration(&c.Limits.MessageTimeout, 100*time.Millisecond, time.Hour) },
		},
		{
			name: "handshake-timeout", usage: "time that a client has from connecting to the end of its login",
			field: func(c *Config) field {
				return duration(&c.Limits.HandshakeTimeout, 100*time.Millisecond, 10*time.Minute)
			},
		},
		{
			name: "backend-timeout", usage: "how long Cassandra may be silent while it owes a client an answer, and how long it may owe one that a table which becomes critical waits for, before the connection counts as lost; longer than its own time-outs",
			field: func(c *Config) field { return duration(&c.Limits.BackendTimeout, time.Second, time.Hour) },
		},
		{
			name: "shutdown-timeout", usage: "time that requests in flight have when the proxy ends; a second later it ends even if something hangs",
			field: func(c *Config) field { return duration(&c.Limits.ShutdownTimeout, 0, 10*time.Minute) },
		},
	}
}

// logSettings are about the log.
func logSettings() []setting {
	return []setting{
		{
			name: "log-level", reload: atOnce, usage: "least severe level that is logged",
			field: func(c *Config) field { return choice(&c.Log.Level, "trace", "debug", "info", "warn", "error") },
		},
		{
			name: "log-format", usage: "form of the log: one JSON object a line, or text for people; auto = text at a terminal, JSON elsewhere",
			field: func(c *Config) field { return choice(&c.Log.Format, "auto", "json", "text") },
		},
		{
			name: "audit", usage: "which lines the audit has: all, only ends of locks and what was refused, only what was refused or forced, or none",
			field: func(c *Config) field { return choice(&c.Log.Audit, "all", "ends", "refused", "none") },
		},
		{
			name: "audit-file", usage: "file that the audit is added to, opened again on SIGHUP; empty = the log",
			field: func(c *Config) field { return text(&c.Log.AuditFile, "a file that can be written") },
		},
	}
}
