// Package certs makes the TLS configurations of the proxy's connections from files, and makes them
// again when a file changes: towards drivers, towards Cassandra, and between proxies.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/rs/zerolog"
)

// Source is a TLS configuration made from files. It is made again when one of them has changed, so
// that certificates can be replaced while the proxy runs. If the new files cannot be read or do not
// match, as in the middle of a replacement, the previous configuration stays in use. It is safe for
// concurrent use.
type Source struct {
	files []string
	build func() (*tls.Config, error)
	log   zerolog.Logger

	mu   sync.Mutex
	seen []os.FileInfo // the states of files just before last was made
	last *tls.Config
}

// newSource reads the files; empty names are ignored. It returns an error if they cannot be used.
func newSource(build func() (*tls.Config, error), log zerolog.Logger, files ...string) (*Source, error) {
	s := &Source{build: build, log: log}
	for _, file := range files {
		if file != "" {
			s.files = append(s.files, file)
		}
	}
	s.seen = s.look()
	var err error
	s.last, err = s.build()
	return s, err
}

// Config returns the present configuration. It must not be modified. It blocks to read changed
// files.
func (s *Source) Config() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.look()
	if unchanged(s.seen, now) {
		return s.last
	}
	next, err := s.build()
	if err != nil {
		s.log.Warn().Err(err).Msg("changed TLS files cannot be used; the previous ones stay in use")
		return s.last
	}
	s.log.Info().Strs("files", s.files).Msg("changed TLS files are used from now on")
	s.seen, s.last = now, next
	return next
}

// Listener returns a listener of TLS connections, each with the configuration as it is when the
// connection begins. A nil Source returns ln itself. Accept does not wait for the handshake: that
// is for the caller to do, with a time limit.
func (s *Source) Listener(ln net.Listener) net.Listener {
	if s == nil {
		return ln
	}
	return tls.NewListener(ln, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.Config(), nil },
	})
}

// look returns the state of each file, nil for one that does not exist.
func (s *Source) look() []os.FileInfo {
	all := make([]os.FileInfo, len(s.files))
	for i, file := range s.files {
		if info, err := os.Stat(file); err == nil {
			all[i] = info
		}
	}
	return all
}

// unchanged reports whether the files are the same as before, by size and time of modification.
func unchanged(before, now []os.FileInfo) bool {
	for i := range before {
		a, b := before[i], now[i]
		if a == nil || b == nil || !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}

// readFiles reads the certificate that one side of a connection sends, and the authorities that it
// trusts; nil if no file is named.
func readFiles(cert, key, ca string) (own []tls.Certificate, authorities *x509.CertPool, err error) {
	if own, err = readPair(cert, key); err != nil {
		return nil, nil, err
	}
	authorities, err = readAuthorities(ca)
	return own, authorities, err
}

// readPair reads a certificate and its key; none if no file is named.
func readPair(cert, key string) ([]tls.Certificate, error) {
	if cert == "" {
		return nil, nil
	}
	own, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return []tls.Certificate{own}, nil
}

// readAuthorities reads the certificates of the trusted authorities; nil if no file is named.
func readAuthorities(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("signers of certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("signers of certificates: no certificate in %s", path)
	}
	return pool, nil
}
