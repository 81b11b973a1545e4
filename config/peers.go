package config

import (
	"errors"
	"net"
	"net/netip"
)

// Peers says how the proxies of a cluster reach each other: where one of them has given a lock,
// another has to ask it.
type Peers struct {
	Listen     string // host:port for other proxies; empty = they cannot ask this one
	Advertise  string // empty = the host of Listen; see AdvertiseHost
	Secret     Secret // the same on every proxy; empty = none
	SecretFile string // where Load took Secret from
	TLSCert    string // files in PEM form: all three, or none
	TLSKey     string
	TLSCA      string // of those who sign the proxies' certificates, and nobody else's
}

// minSecret is the shortest shared secret, in bytes: one that is guessed opens every lock.
const minSecret = 16

// Why the proxies' channel cannot be as it is set.
var (
	errOpen        = errors.New("not on loopback, and neither peer-secret-file nor peer-tls-cert is set: whoever reaches it could take every lock")
	errShortSecret = errors.New("the secret has fewer than 16 bytes")
	errTLSParts    = errors.New("peer-tls-cert, peer-tls-key and peer-tls-ca go together")
)

// Encrypted reports whether proxies authenticate each other by certificates.
func (p Peers) Encrypted() bool { return p.TLSCert != "" }

// AdvertiseHost returns the address or name that other proxies dial; empty if there is no channel.
func (p Peers) AdvertiseHost() string {
	return Listen{Address: p.Listen, Advertise: p.Advertise}.AdvertiseHost()
}

// peerSettings are about the channel between proxies.
func peerSettings() []setting {
	return []setting{
		{
			name: "peer-listen", usage: "address on which other proxies ask this one for its locks; a cluster with several proxies needs it", check: checkPeerListen,
			field: func(c *Config) field {
				return text(&c.Peers.Listen, "host:port; port 0 = any free one; empty = off; not on loopback only with peer-secret-file or peer-tls-cert")
			},
		},
		{
			name: "peer-advertise", usage: "address told to other proxies; empty = the host of peer-listen", check: checkPeerAdvertise,
			field: func(c *Config) field {
				return text(&c.Peers.Advertise, "an IP address or host name without port; needed where peer-listen names every address")
			},
		},
		{
			name: "peer-secret-file", usage: "file with a secret by which proxies know each other, the same on every proxy; what they say is signed and not encrypted", check: checkPeerSecret,
			field: func(c *Config) field {
				return text(&c.Peers.SecretFile, "a readable file of 16 bytes or more; line ends at its end do not count")
			},
		},
		{
			name: "peer-tls-cert", reload: byItself, usage: "file with the certificate that this proxy shows to other proxies, as a server and as a client; read again at every connection", check: checkPeerTLS,
			field: func(c *Config) field {
				return text(&c.Peers.TLSCert, "PEM, for the address of peer-advertise; with peer-tls-key and peer-tls-ca")
			},
		},
		{
			name: "peer-tls-key", reload: byItself, usage: "file with the key of peer-tls-cert", check: checkPeerTLS,
			field: func(c *Config) field { return text(&c.Peers.TLSKey, "PEM; with peer-tls-cert") },
		},
		{
			name: "peer-tls-ca", reload: byItself, usage: "file with the certificates of those who sign the proxies' certificates: each that shows one of theirs counts as a proxy", check: checkPeerTLS,
			field: func(c *Config) field { return text(&c.Peers.TLSCA, "PEM; with peer-tls-cert") },
		},
	}
}

// checkPeerListen asks for a channel that not everybody can use.
func checkPeerListen(c *Config) error {
	p := c.Peers
	if p.Listen == "" {
		return nil
	}
	if err := checkBind(p.Listen); err != nil {
		return err
	}
	if p.Secret == "" && p.SecretFile == "" && !p.Encrypted() && !loopback(p.Listen) {
		return errOpen
	}
	return nil
}

// loopback reports whether an address to listen on can be reached from this machine only.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// checkPeerAdvertise requires an address that other proxies can dial if peer-listen does not give
// one.
func checkPeerAdvertise(c *Config) error {
	if c.Peers.Advertise != "" {
		return checkHost(c.Peers.Advertise)
	}
	host, _, err := net.SplitHostPort(c.Peers.Listen)
	if err == nil && unspecified(host) {
		return errAdvertise
	}
	return nil
}

// checkPeerSecret refuses a secret that can be guessed.
func checkPeerSecret(c *Config) error {
	if c.Peers.Secret != "" && len(c.Peers.Secret) < minSecret {
		return errShortSecret
	}
	return nil
}

// checkPeerTLS refuses a TLS configuration between proxies that is not complete.
func checkPeerTLS(c *Config) error {
	p := c.Peers
	if (p.TLSCert == "") != (p.TLSKey == "") || (p.TLSCert == "") != (p.TLSCA == "") {
		return errTLSParts
	}
	return nil
}
