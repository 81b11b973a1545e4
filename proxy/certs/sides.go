package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"music/config"
)

// Drivers returns the TLS configuration towards drivers; nil if no certificate is set.
func Drivers(l config.Listen, log zerolog.Logger) (*Source, error) {
	if !l.Encrypted() {
		return nil, nil
	}
	s, err := newSource(func() (*tls.Config, error) { return driverTLS(l) }, log, l.TLSCert, l.TLSKey, l.TLSClientCA)
	if err != nil {
		return nil, fmt.Errorf("TLS towards drivers: %w", err)
	}
	return s, nil
}

// driverTLS makes the configuration towards drivers. TLS sessions are not resumed, since a driver
// that the changed files no longer admit could else reconnect.
func driverTLS(l config.Listen) (*tls.Config, error) {
	own, authorities, err := readFiles(l.TLSCert, l.TLSKey, l.TLSClientCA)
	if err != nil {
		return nil, err
	}
	asked := tls.NoClientCert
	if authorities != nil {
		asked = tls.RequireAndVerifyClientCert
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: own, ClientCAs: authorities, ClientAuth: asked,
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}, nil
}

// Nodes returns the TLS configuration towards Cassandra; nil if TLS is off.
func Nodes(c config.Cassandra, log zerolog.Logger) (*Source, error) {
	if !c.TLS {
		return nil, nil
	}
	s, err := newSource(func() (*tls.Config, error) { return nodeTLS(c) }, log, c.TLSCA, c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("TLS towards Cassandra: %w", err)
	}
	return s, nil
}

// nodeTLS makes the configuration towards Cassandra. If host names are not to be verified it
// accepts any certificate of a trusted authority.
func nodeTLS(c config.Cassandra) (*tls.Config, error) {
	own, authorities, err := readFiles(c.TLSCert, c.TLSKey, c.TLSCA)
	if err != nil {
		return nil, err
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: own, RootCAs: authorities, DynamicRecordSizingDisabled: true}
	if !c.TLSVerifyHost {
		t.InsecureSkipVerify = true //nolint:gosec // VerifyConnection verifies everything but the name
		t.VerifyConnection = func(s tls.ConnectionState) error { return signedBy(s.PeerCertificates, authorities) }
	}
	return t, nil
}

// errNoCertificate means that a node has sent no certificate.
var errNoCertificate = errors.New("the node shows no certificate")

// signedBy returns an error unless the chain leads to one of the authorities; nil means those that
// the system trusts.
func signedBy(chain []*x509.Certificate, authorities *x509.CertPool) error {
	if len(chain) == 0 {
		return errNoCertificate
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between})
	return err //nolint:wrapcheck // it says what is wrong with which certificate
}

// Proxies returns the TLS configuration between proxies; nil if they do not use certificates.
func Proxies(p config.Peers, log zerolog.Logger) (*Source, error) {
	if !p.Encrypted() {
		return nil, nil
	}
	s, err := newSource(func() (*tls.Config, error) { return proxyTLS(p) }, log, p.TLSCert, p.TLSKey, p.TLSCA)
	if err != nil {
		return nil, fmt.Errorf("TLS between proxies: %w", err)
	}
	return s, nil
}

// proxyTLS makes the configuration between proxies, which serves for both sides: each proxy is a
// client and a server of the others, with the same certificate.
func proxyTLS(p config.Peers) (*tls.Config, error) {
	own, authorities, err := readFiles(p.TLSCert, p.TLSKey, p.TLSCA)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: own,
		RootCAs: authorities, ClientCAs: authorities, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"http/1.1"},
		SessionTicketsDisabled: true,
	}, nil
}
