package proxy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/config"
)

const (
	identityEvery = time.Minute // between two calls of checkIdentity
	anonymous     = "anonymous" // Cassandra's name for the user of a connection if it has no authentication
)

// Why clients cannot be served with the certificate of their connections to Cassandra.
var (
	errIdentity = errors.New("nodes give every client the role of cassandra-tls-clients-cert, whatever it logs in as")
	errOwnRole  = errors.New("that is the proxy's own role, which no client may have")
	errNameless = errors.New("the node does not tell which role this connection has")
)

// awaitIdentity blocks until it is known that nodes give clients no other role than the allowed
// one. It returns an error if they do, or if ctx ends. Cassandra's authenticators for mutual TLS
// give a client the role of its connection's certificate without looking at its login.
func (p *process) awaitIdentity(ctx context.Context) error {
	if p.cfg.Cassandra.TLSClientsCert == "" {
		return nil
	}
	passes := func(err error) bool { return !errors.Is(err, errIdentity) }
	err := newStartLog(p.log).until(ctx, "clients' connections to Cassandra cannot be opened; the proxy listens for drivers when they can", passes, func() error { return p.checkIdentity(ctx) })
	if err != nil {
		return fmt.Errorf("connect clients to Cassandra: %w", err)
	}
	return nil
}

// watchIdentity repeats the check until ctx ends, since a certificate may be given a role, or
// replaced, at any time. It returns an error if clients can no longer be served. While the node
// does not answer no client can log in either.
func (p *process) watchIdentity(ctx context.Context) error {
	for p.cfg.Cassandra.TLSClientsCert != "" && pause(ctx, identityEvery) {
		if err := p.checkIdentity(ctx); errors.Is(err, errIdentity) {
			return err
		}
	}
	return nil
}

// checkIdentity asks the home node once. It returns an error that wraps errIdentity if clients
// cannot be served.
func (p *process) checkIdentity(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*p.home.timeout)
	defer cancel()
	role, err := p.home.identity(ctx)
	allowed := p.cfg.Cassandra.TLSClientsRole
	switch {
	case errors.Is(err, errNameless):
		return fmt.Errorf("%w: %w", errIdentity, err)
	case err != nil:
		return err
	}
	p.home.role.Store(&role)
	switch {
	case role == "":
		return nil
	case role != allowed:
		return fmt.Errorf("%w: bind its identity to no role, or allow that one with cassandra-tls-clients-role: %q", errIdentity, role)
	case !p.cfg.Music.Locks:
		return nil
	}
	own, err := p.home.ownRole(ctx, p.cfg.Cassandra)
	if err == nil && own == role {
		err = fmt.Errorf("%w: %w: %q", errIdentity, errOwnRole, role)
	}
	return err
}

// identity returns the role that the home node gives clients' connections by their certificate; ""
// if it gives none. It tries a login that does not exist.
func (h *home) identity(ctx context.Context) (role string, err error) {
	l, err := dialHomeAs(ctx, h, h.clients, rand.Text(), rand.Text())
	switch {
	case refused(err, primitive.ErrorCodeAuthenticationError), errors.Is(err, errChallenged):
		return "", nil
	case err != nil:
		return "", err
	}
	defer l.close()
	if role, err = l.role(ctx); role == anonymous {
		role = ""
	}
	return role, err
}

// ownRole returns the role of the proxy's own connections.
func (h *home) ownRole(ctx context.Context, c config.Cassandra) (string, error) {
	l, err := dialHome(ctx, h, c)
	if err != nil {
		return "", err
	}
	defer l.close()
	return l.role(ctx)
}

// refusedRole returns the role in Cassandra's error for a read without permission (5.0:
// ClientState.ensurePermission), "" if there is none.
func refusedRole(text string) string {
	named, user := strings.CutPrefix(text, "User ")
	role, _, found := strings.Cut(named, " has no SELECT permission on ")
	if !user || !found {
		return ""
	}
	return role
}

// role returns the role that the connection has at the node, from the node's list of clients, or
// from its error if the role may not read that. The connection is found by its driver name, since
// its address may have been translated on the way.
func (c *homeConn) role(ctx context.Context) (string, error) {
	rows, err := c.rows(ctx, "SELECT username, driver_name FROM system_views.clients")
	var r *refusal
	if errors.As(err, &r) && r.code == primitive.ErrorCodeUnauthorized {
		if named := refusedRole(r.text); named != "" {
			return named, nil
		}
	}
	if err != nil {
		return "", err
	}
	for _, row := range rows {
		if string(row[1]) == c.name && len(row[0]) > 0 {
			return string(row[0]), nil
		}
	}
	return "", errNameless
}
