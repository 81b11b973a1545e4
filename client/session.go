// Package client is an ordinary client of the proxies: it logs in, lists and ends locks, and runs a
// command under a lock. It uses nothing of a proxy that other drivers do not.
package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// Options are the addresses of the proxies, and the client's login.
type Options struct {
	Proxies            []string // host:port; the first that answers is used, another where it does so no more
	Username, Password string
	TLS                *tls.Config // nil = plain text
	Timeout            time.Duration
}

// Why no proxy could be asked. The texts say what to do.
var (
	ErrUnreachable = errors.New("no proxy answers: is one running there, and the node behind it, without which it does not listen? --proxy says where")
	ErrLogin       = errors.New("the login is refused: see --username and --password-file")
	ErrNoProxy     = errors.New("what answers there is Cassandra itself, and no MUSIC proxy: give the address of a proxy with --proxy")
)

// Session is connected to one proxy at a time. It is not safe for concurrent use.
type Session struct {
	options Options
	at      int // in options.Proxies
	cql     *gocql.Session
}

// Open connects to the first proxy that answers.
func Open(ctx context.Context, o Options) (*Session, error) {
	o.Proxies = slices.Clone(o.Proxies)
	s := &Session{options: o, at: -1}
	return s, s.Next(ctx)
}

// Next connects to the next proxy that answers, which may be the same.
func (s *Session) Next(ctx context.Context) error {
	s.Close()
	var faults []error
	for range s.options.Proxies {
		s.at = (s.at + 1) % len(s.options.Proxies)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		if s.cql, err = connectIn(ctx, s.options, s.Address()); err == nil {
			return nil
		}
		s.cql = nil
		if isLogin(err) {
			return fmt.Errorf("%s: %w: %w", s.Address(), ErrLogin, err)
		}
		faults = append(faults, fmt.Errorf("%s: %w", s.Address(), err))
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, errors.Join(faults...))
}

// Discover learns the proxies that the present one knows, so that another can be used if it does
// not answer any more.
func (s *Session) Discover(ctx context.Context) error {
	_, err := s.Rows(ctx, "SELECT native_address, native_port FROM system.peers_v2", func(scan func(...any) bool) bool {
		var ip net.IP
		var port int
		more := scan(&ip, &port)
		if address := net.JoinHostPort(ip.String(), strconv.Itoa(port)); more && !slices.Contains(s.options.Proxies, address) {
			s.options.Proxies = append(s.options.Proxies, address)
		}
		return more
	})
	return err
}

// Known returns the known proxies.
func (s *Session) Known() []string { return slices.Clone(s.options.Proxies) }

// Address returns the address of the present proxy.
func (s *Session) Address() string { return s.options.Proxies[s.at] }

// closeTime is how long closing a connection may take.
const closeTime = 200 * time.Millisecond

// Close closes the connection. gocql 2.1.2 waits for a proxy that does not answer: then Close
// leaves it behind.
func (s *Session) Close() {
	if s.cql == nil {
		return
	}
	closed := make(chan struct{})
	go func(cql *gocql.Session) {
		defer close(closed)
		cql.Close()
	}(s.cql)
	s.cql = nil
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
}

// connectIn is connect until ctx ends, of which gocql does not know: a session that is made later is
// closed.
func connectIn(ctx context.Context, o Options, address string) (*gocql.Session, error) {
	type connected struct {
		session *gocql.Session
		err     error
	}
	made := make(chan connected)
	go func() {
		session, err := connect(o, address)
		select {
		case made <- connected{session, err}:
		case <-ctx.Done():
			if session != nil {
				session.Close()
			}
		}
	}()
	select {
	case c := <-made:
		return c.session, c.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// connect logs in at one proxy and uses no other.
func connect(o Options, address string) (*gocql.Session, error) {
	c := gocql.NewCluster(address)
	c.DisableInitialHostLookup = true
	c.Events.DisableTopologyEvents, c.Events.DisableNodeStatusEvents, c.Events.DisableSchemaEvents = true, true, true
	c.NumConns, c.ProtoVersion = 1, 4
	c.Timeout, c.ConnectTimeout = o.Timeout, o.Timeout
	c.Consistency = gocql.One
	c.ReconnectInterval = 0
	c.Logger = gocql.NewLogger(gocql.LogLevelNone)
	if o.Username != "" {
		c.Authenticator = gocql.PasswordAuthenticator{Username: o.Username, Password: o.Password}
	}
	if o.TLS != nil {
		c.SslOpts = &gocql.SslOptions{Config: o.TLS, EnableHostVerification: !o.TLS.InsecureSkipVerify}
	}
	session, err := c.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return session, nil
}

// isLogin reports whether a login was refused, or is required and was not given.
func isLogin(err error) bool {
	text := err.Error()
	return strings.Contains(text, "authentication required") || strings.Contains(text, "Provided username") || code(err) == gocql.ErrCodeCredentials
}

// code returns the code of an ERROR of Cassandra or the proxy; -1 if err is not one.
func code(err error) int {
	var told gocql.RequestError
	if errors.As(err, &told) {
		return told.Code()
	}
	return -1
}

// Answered reports whether err is an answer of the proxy, or of Cassandra behind it: another proxy
// would not help.
func Answered(err error) bool { return code(err) >= 0 }

// Rows sends a query, scans the columns of each row and calls each. It returns the warnings of the
// answer.
func (s *Session) Rows(ctx context.Context, cql string, each func(scan func(...any) bool) bool) ([]string, error) {
	if s.cql == nil {
		return nil, ErrUnreachable
	}
	iter := s.cql.Query(cql).IterContext(ctx)
	for each(iter.Scan) {
	}
	warnings := iter.Warnings()
	return warnings, explained(iter.Close())
}

// Values sends a statement with bound values, and returns the rows as values that can be bound
// again.
func (s *Session) Values(ctx context.Context, cql string, bound ...any) (rows [][]any, err error) {
	if s.cql == nil {
		return nil, ErrUnreachable
	}
	iter := s.cql.Query(cql, bound...).IterContext(ctx)
	for {
		row, err := iter.RowData()
		if err != nil || !iter.Scan(row.Values...) {
			return rows, explained(iter.Close())
		}
		rows = append(rows, row.Values)
	}
}

// Shown returns a row of Values as text.
func Shown(row []any) string {
	var all []string
	for _, value := range row {
		all = append(all, fmt.Sprint(reflect.Indirect(reflect.ValueOf(value))))
	}
	return strings.Join(all, ", ")
}

// explained adds what to do to an error whose own text does not say it.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case code(err) == gocql.ErrCodeSyntax:
		return fmt.Errorf("%w (%w)", ErrNoProxy, err)
	}
	return err
}
