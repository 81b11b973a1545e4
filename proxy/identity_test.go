package proxy

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/proxy/certs/certstest"
)

// takesFor answers as a node that lets everybody in who does not log in as the proxy, and says what
// it has them for.
func takesFor(login message.Message, clients func(driver string) message.Message) func(message.Message) message.Message {
	driver := ""
	return func(m message.Message) message.Message {
		switch m := m.(type) {
		case *message.Startup:
			driver = m.Options[message.StartupOptionDriverName]
			return &message.Authenticate{Authenticator: "MutualTlsWithPasswordFallbackAuthenticator"}
		case *message.AuthResponse:
			if string(m.Token) == "\x00music\x00secret" {
				return &message.AuthSuccess{}
			}
			return login
		}
		return clients(driver)
	}
}

// named is what system_views.clients shows: another connection, and this one if it has a role.
func named(roles ...string) func(string) message.Message {
	return func(driver string) message.Message {
		rows := &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: 2, Columns: []*message.ColumnMetadata{
			{Name: "username", Type: datatype.Varchar}, {Name: "driver_name", Type: datatype.Varchar},
		}}, Data: message.RowSet{{[]byte("music"), []byte("another")}}}
		for _, role := range roles {
			rows.Data = append(rows.Data, message.Row{[]byte(role), []byte(driver)})
		}
		return rows
	}
}

// hidden refuses app to see it.
func hidden(string) message.Message {
	return &message.Unauthorized{ErrorMessage: "User app has no SELECT permission on <table system_views.clients> or any of its parents"}
}

// Clients are served only where no login of theirs makes them somebody whom nobody has allowed.
func TestWhomNodesTakeClientsFor(t *testing.T) {
	in := &message.AuthSuccess{}
	for name, tc := range map[string]struct {
		answers func(message.Message) message.Message
		allowed string
		want    error
	}{
		"a login decides":                {takesFor(&message.AuthenticationError{ErrorMessage: "wrong"}, nil), "", nil},
		"more than a login decides":      {takesFor(&message.AuthChallenge{Token: []byte{1}}, nil), "", nil},
		"there are no roles":             {takesFor(in, named("anonymous")), "", nil},
		"a role":                         {takesFor(in, named("app")), "", errIdentity},
		"a role that may not look":       {takesFor(in, hidden), "", errIdentity},
		"the role that is allowed":       {takesFor(in, hidden), "app", nil},
		"another than is allowed":        {takesFor(in, hidden), "other", errIdentity},
		"nobody knows":                   {takesFor(in, named()), "", errIdentity},
		"nobody knows, and one may be":   {takesFor(in, named()), "app", errIdentity},
		"the proxy's own, even if asked": {takesFor(in, named("app")), "app", errOwnRole},
	} {
		p := &process{home: fakeNode(t, tc.answers), log: zerolog.Nop()}
		p.home.timeout, p.home.clients.timeout = 10*time.Second, 10*time.Second
		p.cfg.Cassandra = config.Cassandra{Username: "music", Password: "secret", TLSClientsCert: "cert.pem", TLSClientsRole: tc.allowed}
		p.cfg.Music.Locks = tc.want == errOwnRole //nolint:errorlint // of the table
		assert.ErrorIs(t, p.awaitIdentity(t.Context()), tc.want, name)
		if tc.want == nil {
			assert.Equal(t, tc.allowed, p.options(netip.AddrPort{}, nil).RoleByCertificate(), name)
		}
	}
}

// A node that cannot be asked has not said that clients may be served.
func TestClientsWaitForANodeThatTells(t *testing.T) {
	p := &process{home: homeAt(time.Second, []string{"127.0.0.1:1"}), log: zerolog.Nop()}
	p.cfg.Cassandra.TLSClientsCert = "cert.pem"
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Error(t, p.awaitIdentity(ctx))
}

// The proxy's own certificate is not shown on clients' connections, with or without one of theirs.
func TestClientsShowACertificateOfTheirOwn(t *testing.T) {
	ours := certstest.NewAuthority(t)
	mine, theirs := ours.Local(), ours.Local()
	node := startNode(t, ours.Local(), ours.Path)
	c := config.Cassandra{TLS: true, TLSCA: ours.Path, ConnectTimeout: 20 * time.Second, TLSCert: mine.Cert, TLSKey: mine.Key}
	h, err := newHome(c, zerolog.Nop())
	require.NoError(t, err)
	_, served := visit(t, node, h.nodes)
	assert.NoError(t, served)
	_, served = visit(t, node, h.clients)
	assert.ErrorContains(t, served, "didn't provide a certificate")
	c.TLSClientsCert, c.TLSClientsKey = theirs.Cert, theirs.Key
	h, err = newHome(c, zerolog.Nop())
	require.NoError(t, err)
	for _, d := range []*nodeDialer{h.nodes, h.clients} {
		_, served = visit(t, node, d)
		assert.NoError(t, served)
	}
	assert.NotEqual(t, h.nodes.certs.Config().Certificates, h.clients.certs.Config().Certificates)
}

// Where nodes may take clients' role from the certificate, clients have a role though no login is asked for.
func TestClientsOfARoleByCertificate(t *testing.T) {
	for _, role := range []string{"", "app"} {
		p := process{home: new(home)}
		p.cfg.Cassandra.TLSClientsRole = role
		assert.Equal(t, role != "", p.options(netip.AddrPort{}, nil).Roles)
	}
}
