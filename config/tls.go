package config

import "errors"

// Why connections cannot be encrypted as it is set.
var (
	errTLSPair   = errors.New("a certificate and its key go together")
	errTLSNoCert = errors.New("set without tls-cert: drivers would be served in plain text")
	errTLSOff    = errors.New("set, but cassandra-tls is off")
	errTLSOwn    = errors.New("the same as the proxy's own: clients would be who the proxy is")
	errTLSNobody = errors.New("set without cassandra-tls-clients-cert")
	errTLSRole   = errors.New("the proxy's own role: clients would be who the proxy is")
)

// Encrypted reports whether drivers are served over TLS.
func (l Listen) Encrypted() bool { return l.TLSCert != "" }

// listenTLSSettings are about TLS towards drivers.
func listenTLSSettings() []setting {
	return []setting{
		{
			name: "tls-cert", reload: byItself, usage: "file with the certificate that drivers are shown; with it they are served over TLS only; read again when it changes", check: checkListenPair,
			field: func(c *Config) field {
				return text(&c.Listen.TLSCert, "PEM, for the address that drivers are told, with tls-key; empty = plain text")
			},
		},
		{
			name: "tls-key", reload: byItself, usage: "file with the key of tls-cert", check: checkListenPair,
			field: func(c *Config) field { return text(&c.Listen.TLSKey, "PEM; with tls-cert") },
		},
		{
			name: "tls-client-ca", reload: byItself, usage: "file with the certificates of those who sign drivers' certificates; a driver without one of theirs is refused", check: checkClientCA,
			field: func(c *Config) field {
				return text(&c.Listen.TLSClientCA, "PEM, with tls-cert; empty = drivers are asked for no certificate")
			},
		},
	}
}

// cassandraTLSSettings are about TLS towards Cassandra.
func cassandraTLSSettings() []setting {
	return []setting{
		{
			name: "cassandra-tls", usage: "TLS on every connection to Cassandra",
			field: func(c *Config) field { return toggle(&c.Cassandra.TLS) },
		},
		{
			name: "cassandra-tls-ca", reload: byItself, usage: "file with the certificates of those who sign the nodes' certificates; read again when it changes", check: checkCassandraCA,
			field: func(c *Config) field {
				return text(&c.Cassandra.TLSCA, "PEM, with cassandra-tls; empty = those that the system trusts")
			},
		},
		{
			name: "cassandra-tls-cert", reload: byItself, usage: "file with the certificate that nodes are shown on the proxy's own connections, never on clients'", check: checkCassandraPair,
			field: func(c *Config) field {
				return text(&c.Cassandra.TLSCert, "PEM, with cassandra-tls and cassandra-tls-key; empty = none")
			},
		},
		{
			name: "cassandra-tls-key", reload: byItself, usage: "file with the key of cassandra-tls-cert", check: checkCassandraPair,
			field: func(c *Config) field { return text(&c.Cassandra.TLSKey, "PEM; with cassandra-tls-cert") },
		},
		{
			name: "cassandra-tls-clients-cert", reload: byItself, usage: "file with the certificate that nodes are shown on clients' connections, where they ask for one", check: checkClientsPair,
			field: func(c *Config) field {
				return text(&c.Cassandra.TLSClientsCert, "PEM, with cassandra-tls and cassandra-tls-clients-key, not that of cassandra-tls-cert; empty = none")
			},
		},
		{
			name: "cassandra-tls-clients-key", reload: byItself, usage: "file with the key of cassandra-tls-clients-cert", check: checkClientsPair,
			field: func(c *Config) field {
				return text(&c.Cassandra.TLSClientsKey, "PEM; with cassandra-tls-clients-cert")
			},
		},
		{
			name: "cassandra-tls-clients-role", usage: "the role that nodes give every client by cassandra-tls-clients-cert, whatever it logs in as; if nodes have a role for it that is not named here, the proxy does not serve", check: checkClientsRole,
			field: func(c *Config) field {
				return text(&c.Cassandra.TLSClientsRole, "a role other than username, with cassandra-tls-clients-cert; empty = none may be")
			},
		},
		{
			name: "cassandra-tls-verify-host", usage: "a node's certificate must be for the name or address at which the node was found",
			field: func(c *Config) field { return toggle(&c.Cassandra.TLSVerifyHost) },
		},
	}
}

// checkListenPair refuses one of two files.
func checkListenPair(c *Config) error { return checkPair(c.Listen.TLSCert, c.Listen.TLSKey) }

// checkClientCA refuses to ask clients for certificates without TLS.
func checkClientCA(c *Config) error {
	if c.Listen.TLSClientCA != "" && !c.Listen.Encrypted() {
		return errTLSNoCert
	}
	return nil
}

// checkCassandraCA refuses a CA for Cassandra if TLS is off.
func checkCassandraCA(c *Config) error { return checkUnused(c, c.Cassandra.TLSCA) }

// checkCassandraPair refuses a certificate without its key or a key alone, and both if TLS is off.
func checkCassandraPair(c *Config) error {
	if err := checkPair(c.Cassandra.TLSCert, c.Cassandra.TLSKey); err != nil {
		return err
	}
	return checkUnused(c, c.Cassandra.TLSCert)
}

// checkClientsPair refuses what checkCassandraPair does, and the proxy's own files: nodes may take
// a role from a certificate.
func checkClientsPair(c *Config) error {
	clients := c.Cassandra.ForClients()
	if err := checkPair(clients.TLSCert, clients.TLSKey); err != nil {
		return err
	}
	if clients.TLSCert != "" && (clients.TLSCert == c.Cassandra.TLSCert || clients.TLSKey == c.Cassandra.TLSKey) {
		return errTLSOwn
	}
	return checkUnused(c, clients.TLSCert)
}

// checkClientsRole refuses a role without the certificate that stands for it, and the proxy's own.
func checkClientsRole(c *Config) error {
	switch role := c.Cassandra.TLSClientsRole; {
	case role == "":
		return nil
	case c.Cassandra.TLSClientsCert == "":
		return errTLSNobody
	case role == c.Cassandra.Username:
		return errTLSRole
	}
	return nil
}

// checkPair refuses one of two files.
func checkPair(cert, key string) error {
	if (cert == "") != (key == "") {
		return errTLSPair
	}
	return nil
}

// checkUnused refuses a file of TLS towards Cassandra that nobody would read: connections would not
// be as safe as they look.
func checkUnused(c *Config, file string) error {
	if file != "" && !c.Cassandra.TLS {
		return errTLSOff
	}
	return nil
}
