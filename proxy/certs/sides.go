package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"music/config"
)

// Drivers returns how drivers are served; nil where no certificate is set.
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

// driverTLS resumes no session: a driver whom the files do not let in any more must not come in by
// having been let in before.
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

// Nodes returns how Cassandra is spoken to; nil where TLS is off.
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

// nodeTLS takes any certificate of a believed authority where the name of the host is not verified.
func nodeTLS(c config.Cassandra) (*tls.Config, error) {
	own, authorities, err := readFiles(c.TLSCert, c.TLSKey, c.TLSCA)
	if err != nil {
		return nil, err
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: own, RootCAs: authorities, DynamicRecordSizingDisabled: true}
	if !c.TLSVerifyHost {
		t.InsecureSkipVerify = true //nolint:gosec // what is verified in its place is all but the name
		t.VerifyConnection = func(s tls.ConnectionState) error { return signedBy(s.PeerCertificates, authorities) }
	}
	return t, nil
}

// errNoCertificate is that of a node which shows no certificate.
var errNoCertificate = errors.New("the node shows no certificate")

// signedBy returns an error unless a chain leads to one of the authorities; nil are those that the
// system trusts.
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

// Proxies returns how proxies speak to each other; nil where they do not know each other by
// certificates.
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

// proxyTLS is one configuration for both sides: each proxy is a client and a server to the others,
// and shows the same certificate.
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
