package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"music/client"
)

// failed is the error of a command that was called correctly.
type failed struct{ error }

// Unwrap returns the wrapped error.
func (f failed) Unwrap() error { return f.error }

// Why a login cannot be made as it was given.
var (
	errNobody   = errors.New("--password-file without --username")
	errNoSecret = errors.New("--username without --password-file")
	errHalfPair = errors.New("--tls-cert and --tls-key go together")
	errNoSigner = errors.New("no certificate in it")
	errTimeout  = errors.New("--timeout is not above 0")
)

// login is how a command connects to the proxies, as any client does.
type login struct {
	proxies                 []string
	username, passwordFile  string
	encrypted               bool
	authority, cert, certAt string // files in PEM form
	timeout                 time.Duration
}

// flags adds the flags of every command that connects to a proxy.
func (l *login) flags(flags *pflag.FlagSet) {
	flags.StringSliceVar(&l.proxies, "proxy", []string{"127.0.0.1:9042"}, "proxies, host:port each; the first that answers is asked")
	flags.StringVarP(&l.username, "username", "u", "", "role to log in as, where Cassandra asks for a login")
	flags.StringVar(&l.passwordFile, "password-file", "", "file with the password of --username; line ends at its end do not count")
	flags.BoolVar(&l.encrypted, "tls", false, "the proxies serve TLS")
	flags.StringVar(&l.authority, "tls-ca", "", "file with the certificates of those who sign the proxies' certificates; empty = those that the system trusts")
	flags.StringVar(&l.cert, "tls-cert", "", "file with the certificate to show, where the proxies ask for one")
	flags.StringVar(&l.certAt, "tls-key", "", "file with the key of --tls-cert")
	flags.DurationVar(&l.timeout, "timeout", 10*time.Second, "how long connecting, and each answer, may take")
}

// options returns the client's options; an error is one of usage.
func (l *login) options() (client.Options, error) {
	o := client.Options{Proxies: l.proxies, Username: l.username, Timeout: l.timeout}
	switch {
	case len(l.proxies) == 0:
		return o, client.ErrUnreachable
	case l.username == "" && l.passwordFile != "":
		return o, errNobody
	case l.username != "" && l.passwordFile == "":
		return o, errNoSecret
	case l.timeout <= 0:
		return o, errTimeout
	}
	for i, address := range o.Proxies {
		if _, _, err := net.SplitHostPort(address); err != nil {
			o.Proxies[i] = net.JoinHostPort(strings.Trim(address, "[]"), "9042")
		}
	}
	if l.passwordFile != "" {
		secret, err := os.ReadFile(l.passwordFile)
		if err != nil {
			return o, fmt.Errorf("--password-file: %w", err)
		}
		o.Password = strings.TrimRight(string(secret), "\r\n")
	}
	var err error
	if l.encrypted || l.authority != "" || l.cert != "" {
		o.TLS, err = l.tls()
	}
	return o, err
}

// tls returns the TLS configuration: the trusted authorities and the client's own certificate.
func (l *login) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if l.authority != "" {
		raw, err := os.ReadFile(l.authority)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(raw) {
			return nil, fmt.Errorf("--tls-ca %s: %w", l.authority, errNoSigner)
		}
	}
	if (l.cert == "") != (l.certAt == "") {
		return nil, errHalfPair
	}
	if l.cert != "" {
		pair, err := tls.LoadX509KeyPair(l.cert, l.certAt)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// open connects to a proxy. The caller closes the session.
func (l *login) open(ctx context.Context) (*client.Session, error) {
	o, err := l.options()
	if err != nil {
		return nil, err
	}
	s, err := client.Open(ctx, o)
	if err != nil {
		return nil, failed{err}
	}
	return s, nil
}

// errNoKey says that a key is missing.
var errNoKey = errors.New("the key is missing")

// namedLock returns the key of a named lock. The name of a table is refused: its key was forgotten, and
// the lock of that name would protect no row of it.
func namedLock(ctx context.Context, s *client.Session, name string) (client.Key, error) {
	table, err := s.IsTable(ctx, name)
	switch {
	case err != nil:
		return client.Key{}, failed{err}
	case table:
		return client.Key{}, fmt.Errorf("%w: %s is a table, so the value of its key goes behind it; if a lock of this name is meant: music.named %[2]s", errNoKey, name)
	}
	return client.Named(name), nil
}

// keyWords reads the arguments that name a lock: a name, or a table and the values of its key. Its error is
// failed{} if they could not be looked up; else they are wrong.
func keyWords(ctx context.Context, s *client.Session, args []string) (client.Key, error) {
	if len(args) == 1 {
		return namedLock(ctx, s, args[0])
	}
	k, err := s.Key(ctx, args[0], args[1:])
	if err == nil || errors.Is(err, client.ErrKey) || errors.Is(err, client.ErrTable) {
		return k, err
	}
	return k, failed{err}
}
