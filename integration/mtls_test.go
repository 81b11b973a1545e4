package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/integration/cassandra"
)

// mtlsFixture is a node that takes roles from certificates, and the certificates for it.
type mtlsFixture struct {
	t       *testing.T
	signer  *certAuthority
	own     keyPair            // of the node
	proxy   keyPair            // of the proxy's role
	clients map[string]keyPair // by who they stand for
	node    string
}

// The identities that certificates hold, and the roles that they have.
const (
	identityOfProxy = "spiffe://music/proxy" // proxy, a superuser
	identityOfApp   = "spiffe://music/app"   // app, without any grant
	identityOfNone  = "spiffe://music/none"  // none
)

// open starts or restarts the node with one of Cassandra's authenticators. It runs until stop is
// called.
func (p *mtlsFixture) open(authenticator string, keep bool) (stop func()) {
	p.t.Helper()
	const host = "127.0.8.1"
	w := needEnvironment(p.t)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	o := cassandra.Options{
		Dir: filepath.Join(w.runDir, "integration-mtls"), RunDir: w.runDir, Heap: "256m", FastJIT: true, Keep: keep,
		Address: func(int) string { return host }, Log: os.Stderr, Access: cassandra.Access{TLS: p.tls(p.proxy)},
		Yaml: cassandra.Durable(map[string]string{
			"client_encryption_options": fmt.Sprintf("{enabled: true, optional: true, require_client_auth: true, keystore: %q, truststore: %q, "+
				"ssl_context_factory: {class_name: org.apache.cassandra.security.PEMBasedSslContextFactory}}", p.own.key, p.signer.path),
			"authenticator": "{class_name: " + authenticator + ", parameters: {validator_class_name: org.apache.cassandra.auth.SpiffeCertificateValidator}}",
			"authorizer":    "CassandraAuthorizer", "role_manager": "CassandraRoleManager",
			"permissions_validity": "100ms", "roles_validity": "100ms", "credentials_validity": "100ms",
		}),
	}
	if !keep {
		o.Access.TLS = nil // no certificate has a role yet; in plain text a password counts
	}
	c, err := cassandra.Start(ctx, o)
	require.NoError(p.t, err)
	p.node = c.Nodes()[0].Addr()
	return func() { assert.NoError(p.t, c.Close()) }
}

// tls returns the configuration of a client with a certificate.
func (p *mtlsFixture) tls(own keyPair) *tls.Config {
	pair, err := tls.LoadX509KeyPair(own.cert, own.key)
	require.NoError(p.t, err)
	return &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
}

// configure returns the configuration of a proxy whose connections for clients have a certificate.
func (p *mtlsFixture) configure(clients, allowed string) config.Config {
	c := needEnvironment(p.t).config()
	c.Cassandra.ContactPoints = []string{p.node}
	c.Cassandra.TLS, c.Cassandra.TLSCA, c.Cassandra.TLSCert, c.Cassandra.TLSKey = true, p.signer.path, p.proxy.cert, p.proxy.key
	c.Cassandra.TLSClientsCert, c.Cassandra.TLSClientsKey, c.Cassandra.TLSClientsRole = p.clients[clients].cert, p.clients[clients].key, allowed
	return c
}

// whoIs returns the role that Cassandra gives a client that logs in through a proxy: a superuser is one that can read the roles.
func whoIs(address, role, password string) (string, error) {
	c := cluster2(address, "")
	c.Authenticator = gocql.PasswordAuthenticator{Username: role, Password: password}
	s, err := c.CreateSession()
	if err != nil {
		return "", err
	}
	defer closeWithin(s.Close)
	err = s.Query("SELECT role FROM system_auth.roles").Exec()
	if err == nil {
		return "a superuser", nil
	}
	named := regexp.MustCompile(`User (\S+) has no SELECT`).FindStringSubmatch(err.Error())
	if named == nil {
		return "", err
	}
	return named[1], nil
}

// mtlsCase is one configuration of a proxy, and its result.
type mtlsCase struct {
	clients, allowed string
	refused          string // why the proxy does not serve; empty = it does
	wrong, right     string // whom a client is that logs in with a wrong password, and app with its own; empty = nobody
}

// Whatever certificate clients' connections have, no client that logs in through the proxy gets the
// proxy's role, nor a role that was not allowed.
func TestClientsAreNotTheProxy(t *testing.T) {
	signer := newCertAuthority(t, "all")
	p := &mtlsFixture{t: t, signer: signer, own: signer.issue(t.TempDir(), "127.0.8.1"), clients: map[string]keyPair{"": {}}}
	p.proxy = signer.issue(t.TempDir(), "127.0.0.1", identityOfProxy)
	for _, who := range []string{identityOfProxy, identityOfApp, identityOfNone} {
		p.clients[who] = signer.issue(t.TempDir(), "127.0.0.1", who)
	}
	const anybody, own = "nodes give every client the role", "the proxy's own role"
	stop := p.open("org.apache.cassandra.auth.MutualTlsWithPasswordFallbackAuthenticator", false)
	p.roles()
	p.try(t, []mtlsCase{
		{clients: ""},
		{clients: identityOfProxy, refused: anybody},
		{clients: identityOfProxy, allowed: "proxy", refused: own},
		{clients: identityOfApp, refused: anybody},
		{clients: identityOfApp, allowed: "other", refused: anybody},
		{clients: identityOfApp, allowed: "app", wrong: "app", right: "app"},
		{clients: identityOfNone},
	})
	stop()
	stop = p.open("org.apache.cassandra.auth.MutualTlsAuthenticator", true)
	p.try(t, []mtlsCase{
		{clients: ""},
		{clients: identityOfProxy, refused: anybody},
		{clients: identityOfProxy, allowed: "proxy", refused: own},
		{clients: identityOfApp, refused: anybody},
		{clients: identityOfApp, allowed: "app", wrong: "app", right: "app"},
		{clients: identityOfNone},
	})
	stop()
}

// roles makes the roles, and says which certificates they have.
func (p *mtlsFixture) roles() {
	c := cluster2(p.node, "")
	c.Authenticator = gocql.PasswordAuthenticator{Username: "cassandra", Password: "cassandra"}
	admin, err := c.CreateSession()
	require.NoError(p.t, err)
	defer closeWithin(admin.Close)
	for _, cql := range []string{
		"CREATE ROLE proxy WITH SUPERUSER = true AND LOGIN = true", "CREATE ROLE app WITH LOGIN = true AND PASSWORD = 'a'",
		"ADD IDENTITY '" + identityOfProxy + "' TO ROLE 'proxy'", "ADD IDENTITY '" + identityOfApp + "' TO ROLE 'app'",
	} {
		require.NoError(p.t, admin.Query(cql).Exec(), cql)
	}
}

func (p *mtlsFixture) try(t *testing.T, all []mtlsCase) {
	for _, tc := range all {
		c := p.configure(tc.clients, tc.allowed)
		require.NoError(t, c.Validate())
		i := begin(c)
		name := fmt.Sprintf("%q, allowed %q", tc.clients, tc.allowed)
		err := poll(time.Minute, i.answers)
		if tc.refused != "" {
			if assert.Error(t, err, name) && errors.Is(err, errEnded) {
				assert.ErrorContains(t, i.err, tc.refused, name)
			}
			i.cancel()
			<-i.done
			continue
		}
		require.NoError(t, err, "%s\n%s", name, i.log)
		for login, want := range map[[2]string]string{
			{"nobody", "wrongpassword"}: tc.wrong, {"proxy", ""}: tc.wrong, {"app", "b"}: tc.wrong, {"app", "a"}: tc.right,
		} {
			got, err := whoIs(c.Listen.Address, login[0], login[1])
			assert.Equal(t, want, got, "%s, %v: %v", name, login, err)
		}
		assert.NoError(t, i.stop())
	}
}
