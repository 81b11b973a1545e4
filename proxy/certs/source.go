// Package certs makes the TLS configurations of the proxy's connections out of files, and makes
// them anew when a file changes: towards drivers, towards Cassandra, and between proxies.
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

// Source is a TLS configuration made of files. It is made anew when one of them has changed, so
// that certificates can be replaced under a running proxy. While the new files cannot be read or do
// not fit together, as in the middle of their replacement, the ones read before are used. Its
// methods may be called concurrently.
type Source struct {
	files []string
	build func() (*tls.Config, error)
	log   zerolog.Logger

	mu   sync.Mutex
	seen []os.FileInfo // of files, from before last was made
	last *tls.Config
}

// newSource reads the files; empty names do not count. What cannot be read is an error now, not at
// the first connection.
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

// Config returns the configuration for a connection that is made now. It must not be modified.
func (s *Source) Config() *tls.Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.look()
	if unchanged(s.seen, now) {
		return s.last
	}
	next, err := s.build()
	if err != nil {
		s.log.Warn().Err(err).Msg("changed files of TLS cannot be used; the ones read before are used on")
		return s.last
	}
	s.log.Info().Strs("files", s.files).Msg("changed files of TLS are used from now on")
	s.seen, s.last = now, next
	return next
}

// Listener returns a listener whose connections speak TLS, each by the files as they are when it
// begins; a nil Source returns ln as it is. Accept does not wait for the handshake: the caller
// does, with a limit of its own.
func (s *Source) Listener(ln net.Listener) net.Listener {
	if s == nil {
		return ln
	}
	return tls.NewListener(ln, &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.Config(), nil },
	})
}

// look returns the state of each file, nil for one that is not there.
func (s *Source) look() []os.FileInfo {
	all := make([]os.FileInfo, len(s.files))
	for i, file := range s.files {
		if info, err := os.Stat(file); err == nil {
			all[i] = info
		}
	}
	return all
}

// unchanged reports whether files are the same as before, as far as the file system tells.
func unchanged(before, now []os.FileInfo) bool {
	for i := range before {
		a, b := before[i], now[i]
		if a == nil || b == nil || !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}

// readFiles reads the certificate that one side of a connection shows, and the authorities that it
// believes; nil where no file is named.
func readFiles(cert, key, ca string) (own []tls.Certificate, authorities *x509.CertPool, err error) {
	if own, err = readPair(cert, key); err != nil {
		return nil, nil, err
	}
	authorities, err = readAuthorities(ca)
	return own, authorities, err
}

// readPair reads a certificate and its key; none where no file is named.
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

// readAuthorities reads the certificates of the authorities that are believed; nil where no file is
// named.
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
