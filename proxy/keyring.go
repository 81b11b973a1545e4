package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"

	"github.com/rs/zerolog"
)

// keyring is a TLS configuration made of files. It is made anew when one of them has changed, so that certificates are replaced under
// a running proxy. While the new files cannot be read or do not fit together, as in the middle of their replacement, those that were
// read last hold. For concurrent use.
type keyring struct {
	files []string
	build func() (*tls.Config, error)
	log   zerolog.Logger

	mu   sync.Mutex
	seen []os.FileInfo // of files, as they were before last was made
	last *tls.Config
}

// newKeyring reads the files, of which empty names do not count. What cannot be read is told now, not at the first connection.
func newKeyring(build func() (*tls.Config, error), log zerolog.Logger, files ...string) (*keyring, error) {
	k := &keyring{build: build, log: sampled(log)}
	for _, file := range files {
		if file != "" {
			k.files = append(k.files, file)
		}
	}
	k.seen = k.look()
	var err error
	k.last, err = k.build()
	return k, err
}

// config is what holds for a connection that is made now. It must not be changed.
func (k *keyring) config() *tls.Config {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.look()
	if unchanged(k.seen, now) {
		return k.last
	}
	next, err := k.build()
	if err != nil {
		k.log.Warn().Err(err).Msg("changed files of TLS cannot be used; those that were read before hold")
		return k.last
	}
	k.log.Info().Strs("files", k.files).Msg("changed files of TLS hold from now on")
	k.seen, k.last = now, next
	return next
}

// look tells of which make the files are; nil for one that is not there.
func (k *keyring) look() []os.FileInfo {
	all := make([]os.FileInfo, len(k.files))
	for i, file := range k.files {
		if info, err := os.Stat(file); err == nil {
			all[i] = info
		}
	}
	return all
}

// unchanged tells whether files are the same as before, as far as the file system tells.
func unchanged(before, now []os.FileInfo) bool {
	for i := range before {
		a, b := before[i], now[i]
		if a == nil || b == nil || !os.SameFile(a, b) || a.Size() != b.Size() || !a.ModTime().Equal(b.ModTime()) {
			return false
		}
	}
	return true
}

// readPapers reads what one side of a connection shows, and whom it believes; none of either where no file is named.
func readPapers(cert, key, ca string) (own []tls.Certificate, signers *x509.CertPool, err error) {
	if own, err = readPair(cert, key); err != nil {
		return nil, nil, err
	}
	signers, err = readSigners(ca)
	return own, signers, err
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

// readSigners reads the certificates of those who are believed; nil where no file is named.
func readSigners(path string) (*x509.CertPool, error) {
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
