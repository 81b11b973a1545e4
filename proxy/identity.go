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
	identityEvery = time.Minute // between two looks at whom nodes take clients for
	anonymous     = "anonymous" // the user of whoever connects to a Cassandra without authentication
)

// Why clients cannot be served with the certificate that their connections show.
var (
	errIdentity = errors.New("nodes take every client for a role by cassandra-tls-clients-cert, whatever it logs in as")
	errOwnRole  = errors.New("that is the proxy's own role: no client may be")
	errNameless = errors.New("the node does not say as which role it has this connection")
)

// awaitIdentity returns once it is known that nodes take no client for another role than is
// allowed; an error if they do, or ctx ends. Cassandra's authenticators by mutual TLS let a client
// be the role of its connection's certificate without looking at its login.
func (p *process) awaitIdentity(ctx context.Context) error {
	if p.cfg.Cassandra.TLSClientsCert == "" {
		return nil
	}
	complaint := newStartLog(p.log)
	for {
		err := p.checkIdentity(ctx)
		if err == nil || errors.Is(err, errIdentity) {
			return err
		}
		complaint.say(err, "clients' connections to Cassandra cannot be made; the proxy listens once they can")
		if !pause(ctx, connectPause) {
			return fmt.Errorf("reach Cassandra for clients: %w", err)
		}
	}
}

// watchIdentity looks again until ctx ends, since an identity may be given a role, and files may be
// replaced, at any time. It returns an error where clients may not be served any more. While the
// node does not answer, nobody can log in there either.
func (p *process) watchIdentity(ctx context.Context) error {
	for p.cfg.Cassandra.TLSClientsCert != "" && pause(ctx, identityEvery) {
		if err := p.checkIdentity(ctx); errors.Is(err, errIdentity) {
			return err
		}
	}
	return nil
}

// checkIdentity asks the home node once.
func (p *process) checkIdentity(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*p.home.timeout)
	defer cancel()
	role, err := p.home.identity(ctx)
	allowed := p.cfg.Cassandra.TLSClientsRole
	switch {
	case errors.Is(err, errNameless):
		return fmt.Errorf("%w: %w", errIdentity, err)
	case err != nil || role == "":
		return err
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

// identity returns the role that the home node takes clients' connections for by their certificate,
// found with a login that nobody has; "" where it takes them for none.
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

// refusedRole returns the role that Cassandra names where it refuses a read (5.0:
// ClientState.ensurePermission), "" where it names none.
func refusedRole(text string) string {
	named, user := strings.CutPrefix(text, "User ")
	role, _, found := strings.Cut(named, " has no SELECT permission on ")
	if !user || !found {
		return ""
	}
	return role
}

// role returns the name of the role that the node has the connection for: the list of its clients
// says so, or the refusal to show it. The connection is found there by the name that it has as a
// driver, since its address may have been translated on the way.
func (l *homeConn) role(ctx context.Context) (string, error) {
	rows, err := l.rows(ctx, "SELECT username, driver_name FROM system_views.clients")
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
		if string(row[1]) == l.name && len(row[0]) > 0 {
			return string(row[0]), nil
		}
	}
	return "", errNameless
}
