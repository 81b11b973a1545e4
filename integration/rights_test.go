package integration

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/integration/cassandra"
)

// rightsFixture is a node with roles, and a proxy that has logged in.
type rightsFixture struct {
	t     *testing.T
	node  string
	proxy *instance
	admin *gocql.Session
}

// startRightsFixture starts both; they end with the test.
func startRightsFixture(t *testing.T) *rightsFixture {
	t.Helper()
	w := needEnvironment(t)
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	c, err := cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(w.runDir, "integration-rights"), RunDir: w.runDir, Heap: "256m", FastJIT: true, Properties: cassandra.Once(),
		Address: func(int) string { return "127.0.9.1" }, Log: os.Stderr,
		Yaml: map[string]string{
			"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer", "role_manager": "CassandraRoleManager",
			"permissions_validity": "100ms", "roles_validity": "100ms", "credentials_validity": "100ms",
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Wipe()) })
	b := &rightsFixture{t: t, node: c.Nodes()[0].Addr()}
	b.proxy = startProxy(t, func(c *config.Config) {
		c.Cassandra.ContactPoints = []string{b.node}
		c.Cassandra.Username, c.Cassandra.Password = "cassandra", "cassandra"
	})
	b.admin = b.login(b.node, "cassandra", "cassandra", 4).session
	for _, cql := range []string{
		"CREATE KEYSPACE bank WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE ROLE writer WITH PASSWORD = 'w' AND LOGIN = true", "CREATE ROLE reader WITH PASSWORD = 'r' AND LOGIN = true",
		"CREATE ROLE nobody WITH PASSWORD = 'n' AND LOGIN = true",
	} {
		b.grant(cql)
	}
	root := b.login(b.proxy.address, "cassandra", "cassandra", 4)
	o := root.run(statement{cql: "CREATE TABLE bank.accounts (branch text, id text, balance bigint, PRIMARY KEY (branch, id)) WITH comment = '@critical'"})
	require.NoError(t, o.err())
	b.grant("GRANT MODIFY ON bank.accounts TO writer")
	b.grant("GRANT SELECT ON bank.accounts TO writer")
	b.grant("GRANT SELECT ON bank.accounts TO reader")
	return b
}

// grant changes roles at the node.
func (b *rightsFixture) grant(cql string) {
	b.t.Helper()
	require.NoError(b.t, b.admin.Query(cql).Exec(), cql)
}

// login connects as a role.
func (b *rightsFixture) login(address, role, password string, version int) *gocql2 {
	b.t.Helper()
	c := cluster2(address, "")
	c.ProtoVersion = version
	c.Authenticator = gocql.PasswordAuthenticator{Username: role, Password: password}
	return openGocql2(b.t, c)
}

// noModify returns Cassandra's error for a role that may not write.
func noModify(role string) *failure {
	return &failure{0x2100, "User " + role + " has no MODIFY permission on <table bank.accounts> or any of its parents"}
}

// Cassandra's rights decide which role may do what with locks, and a refusal is Cassandra's own.
func TestRights(t *testing.T) {
	b := startRightsFixture(t)
	t.Run("who may write may lock", b.writer)
	t.Run("who may not gets Cassandra's words", b.withoutRights)
	t.Run("GRANT and REVOKE", b.changes)
	t.Run("login", b.logins)
	t.Run("each statement by each role", b.matrix)
	t.Run("the command line", b.commandLine)
	t.Run("the proxy's own role", b.ownRole)
}

// ownRole: with the rights that docs/roles.md gives it, the proxy does everything that it does as a
// superuser, with warnings.
func (b *rightsFixture) ownRole(t *testing.T) {
	for _, part := range onPage(t, "docs/roles.md").of(kindGrants) {
		for _, cql := range part.lines {
			b.grant(strings.ReplaceAll(strings.TrimSuffix(cql, ";"), "bank", "till"))
			if strings.HasPrefix(cql, "CREATE ROLE") {
				b.grant("CREATE KEYSPACE till WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
			}
		}
	}
	password := "wrong"
	least := func(c *config.Config) {
		c.Cassandra.ContactPoints = []string{b.node}
		c.Cassandra.Username, c.Cassandra.Password = "music", config.Secret(password)
	}
	c := needEnvironment(t).config()
	least(&c)
	shut := begin(c)
	shut.log.tells(t, `"message":"Cassandra refuses the proxy's own login`)
	require.NoError(t, shut.stop())
	password = "secret"
	p := startProxy(t, least)
	root := b.login(p.address, "cassandra", "cassandra", 4)
	var warned []string
	for i, through := range []*gocql2{root, b.login(b.proxy.address, "cassandra", "cassandra", 4)} {
		o := through.run(statement{cql: fmt.Sprintf("CREATE TABLE till.t%d (id text PRIMARY KEY, n int) WITH comment = '@critical'", i)})
		require.NoError(t, o.err())
		warned = append(warned, strings.ReplaceAll(strings.Join(o.warnings, "\n"), fmt.Sprint("till.t", i), "till.t"))
	}
	assert.Equal(t, warned[1], warned[0])
	assert.Contains(t, warned[0], "commitlog_sync is periodic")
	for _, table := range []string{"till.t0", "till.t1"} {
		first, second := told(root.run(statement{cql: "LOCK " + table + " WHERE id = 'x' LEASE 1s"}), "lock_ref"), ""
		require.NoError(t, root.run(statement{cql: "UPDATE " + table + " USING LOCK " + first + " SET n = 1 WHERE id = 'x'"}).err())
		eventually(t, time.Minute, "the lease ends", func() error {
			o := root.run(statement{cql: "LOCK " + table + " WHERE id = 'x'"})
			second = told(o, "lock_ref")
			if told(o, "state") != "held" {
				return errorf("%v", o)
			}
			return nil
		})
		o := root.run(statement{cql: "SELECT n FROM " + table + " WHERE id = 'x' USING LOCK " + second})
		require.NoError(t, o.err(), "what the first one left behind is settled")
		assert.Equal(t, "1", o.cell("n"))
	}
	assert.NotContains(t, p.log.String(), "permission")
	b.checkRole(t, p.address)
}

func (b *rightsFixture) writer(t *testing.T) {
	for version := 3; version <= 5; version++ {
		c := b.login(b.proxy.address, "writer", "w", version)
		o := c.run(statement{cql: "LOCK bank.accounts WHERE branch = 'b'"})
		require.NoError(t, o.err())
		require.Equal(t, "held", told(o, "state"), "%v", o)
		ref := told(o, "lock_ref")
		o = c.run(statement{cql: "LIST LOCKS ON bank.accounts"})
		require.NoError(t, o.err())
		assert.Len(t, o.rows, 1)
		for _, cql := range []string{
			"INSERT INTO bank.accounts (branch, id, balance) VALUES ('b', 'x', 1) USING LOCK " + ref,
			"SELECT * FROM bank.accounts WHERE branch = 'b' USING LOCK " + ref, "UNLOCK bank.accounts WHERE branch = 'b' USING LOCK " + ref,
		} {
			require.NoError(t, c.run(statement{cql: cql}).err(), cql)
		}
		o = c.run(statement{cql: "SELECT LOCK bank.accounts WHERE branch = ?", values: []any{"b"}})
		require.Equal(t, "held", told(o, "state"), "bound: %v", o)
		ref = told(o, "lock_ref")
		require.NoError(t, c.run(statement{cql: "UNLOCK bank.accounts WHERE branch = 'b' USING LOCK " + ref}).err())
	}
}

func (b *rightsFixture) withoutRights(t *testing.T) {
	holder := b.login(b.proxy.address, "writer", "w", 4)
	o := holder.run(statement{cql: "LOCK bank.accounts WHERE branch = 'b'"})
	require.Equal(t, "held", told(o, "state"), "%v", o)
	ref := told(o, "lock_ref")
	for role, password := range map[string]string{"reader": "r", "nobody": "n"} {
		for version := 3; version <= 5; version++ {
			c := b.login(b.proxy.address, role, password, version)
			for _, s := range []statement{
				{cql: "LOCK bank.accounts WHERE branch = 'c'"},
				{cql: "LOCK bank.accounts WHERE branch = 'b' USING LOCK " + ref},
				{cql: "UNLOCK bank.accounts WHERE branch = 'b' USING LOCK " + ref},
				{cql: "SELECT LOCK bank.accounts WHERE branch = ?", values: []any{"c"}},
				{cql: "SELECT UNLOCK bank.accounts WHERE branch = ? USING LOCK ?", values: []any{"b", 1}},
				{cql: "UPDATE bank.accounts USING LOCK " + ref + " SET balance = 2 WHERE branch = 'b' AND id = 'x'"},
				{cql: "DELETE FROM bank.accounts USING LOCK ? WHERE branch = ?", values: []any{mustInt(t, ref), "b"}},
			} {
				assert.Equal(t, noModify(role), c.run(s).failure, "%s, v%d: %s", role, version, s.cql)
			}
		}
	}
	b.readers(t, ref)
	b.forcers(t, ref)
	for _, cql := range []string{
		"UPDATE bank.accounts USING LOCK " + ref + " SET balance = 3 WHERE branch = 'b' AND id = 'x'", "UNLOCK bank.accounts WHERE branch = 'b' USING LOCK " + ref,
	} {
		require.NoError(t, holder.run(statement{cql: cql}).err(), "the holder is as free as before")
	}
}

// forcers: ending another client's lock needs AUTHORIZE, which the roles with SELECT and MODIFY do
// not have.
func (b *rightsFixture) forcers(t *testing.T, ref string) {
	const force = "UNLOCK bank.accounts WHERE branch = 'b' FORCE REASON 'they said so'"
	for role, password := range map[string]string{"reader": "r", "nobody": "n", "writer": "w"} {
		for version := 3; version <= 5; version++ {
			o := b.login(b.proxy.address, role, password, version).run(statement{cql: force})
			want := &failure{0x2100, "User " + role + " has no AUTHORIZE permission on <table bank.accounts> or any of its parents"}
			assert.Equal(t, want, o.failure, "%s, v%d", role, version)
		}
	}
	b.grant("GRANT AUTHORIZE ON bank.accounts TO nobody")
	eventually(t, time.Minute, "the right to force", func() error { // Cassandra caches for a moment that there was none
		return b.login(b.proxy.address, "nobody", "n", 4).run(statement{cql: "UNLOCK bank.accounts WHERE branch = 'f' FORCE"}).err()
	})
	for version := 3; version <= 5; version++ {
		c := b.login(b.proxy.address, "nobody", "n", version)
		o := c.run(statement{cql: "UNLOCK bank.accounts WHERE branch = 'f' FORCE"})
		require.NoError(t, o.err(), "v%d", version)
		assert.Equal(t, "false", told(o, "[applied]"), "nobody holds it: %v", o)
		o = c.run(statement{cql: "SELECT UNLOCK bank.accounts WHERE branch = ? FORCE REASON ?", values: []any{"f", "bound"}})
		require.NoError(t, o.err(), "v%d", version)
		assert.Equal(t, noModify("nobody"), c.run(statement{cql: "UNLOCK bank.accounts WHERE branch = 'b' USING LOCK " + ref}).failure, "to force is not to modify")
	}
	held := b.login(b.proxy.address, "writer", "w", 4).run(statement{cql: "LOCK bank.accounts WHERE branch = 'g'"})
	require.Equal(t, "held", told(held, "state"), "%v", held)
	o := b.login(b.proxy.address, "nobody", "n", 4).run(statement{cql: "UNLOCK bank.accounts WHERE branch = 'g' FORCE REASON 'they said so'"})
	require.NoError(t, o.err())
	assert.Equal(t, "true", told(o, "[applied]"), "%v", o)
	b.proxy.log.tells(t, `: they said so"`)
	assert.Regexp(t, `"reason":"nobody at [0-9.:]+: they said so"`, b.proxy.log.String(), "the audit tells who and why")
	b.grant("REVOKE AUTHORIZE ON bank.accounts FROM nobody")
}

// readers: reading under a lock, and listing holders, needs SELECT and no more.
func (b *rightsFixture) readers(t *testing.T, ref string) {
	nobody := b.login(b.proxy.address, "nobody", "n", 4)
	for _, cql := range []string{"SELECT * FROM bank.accounts WHERE branch = 'b' USING LOCK " + ref, "LIST LOCKS ON bank.accounts"} {
		assert.Equal(t, &failure{0x2100, "User nobody has no SELECT permission on <table bank.accounts> or any of its parents"},
			nobody.run(statement{cql: cql}).failure, cql)
	}
	listed := b.login(b.proxy.address, "reader", "r", 4).run(statement{cql: "LIST LOCKS ON bank.accounts"})
	require.NoError(t, listed.err())
	assert.Len(t, listed.rows, 1)
}

func (b *rightsFixture) changes(t *testing.T) {
	const lock = "LOCK bank.accounts WHERE branch = 'changes' NOWAIT"
	reader, writer := b.login(b.proxy.address, "reader", "r", 4), b.login(b.proxy.address, "writer", "w", 5)
	require.NoError(t, writer.run(statement{cql: lock}).err())
	require.NotNil(t, reader.run(statement{cql: lock}).failure)
	b.grant("GRANT MODIFY ON KEYSPACE bank TO reader")
	b.grant("REVOKE MODIFY ON bank.accounts FROM writer")
	eventually(t, time.Minute, "the GRANT is seen", func() error { return reader.run(statement{cql: lock}).err() })
	eventually(t, time.Minute, "the REVOKE is seen", func() error {
		if f := writer.run(statement{cql: lock}).failure; f == nil || *f != *noModify("writer") {
			return errorf("%v", f)
		}
		return nil
	})
	b.grant("GRANT MODIFY ON bank.accounts TO writer")
	eventually(t, time.Minute, "the second GRANT is seen", func() error { return writer.run(statement{cql: lock}).err() })
}

func (b *rightsFixture) logins(t *testing.T) {
	startup := raw(4, 0, 1, primitive.OpCodeStartup, bodyOf(t, message.NewStartup(message.StartupOptionCqlVersion, "3.0.0")))
	for _, token := range []string{"\x00writer\x00wrong", "\x00unknown\x00w", "\x00writer\x00w", "writer", "", "\x00\x00", "\x00writer\x00"} {
		response := raw(4, 0, 2, primitive.OpCodeAuthResponse, bodyOf(t, &message.AuthResponse{Token: []byte(token)}))
		want, err := exchange(b.node, [][]byte{startup, response})
		require.NoError(t, err)
		got, err := exchange(b.proxy.address, [][]byte{startup, response})
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got), "%q\ndirect\n%sproxied\n%s", token, hex.Dump(want), hex.Dump(got))
	}
	c := cluster2(b.proxy.address, "")
	c.Authenticator = gocql.PasswordAuthenticator{Username: "writer", Password: "wrong"}
	_, err := c.CreateSession()
	require.ErrorContains(t, err, "Provided username writer and/or password are incorrect")

	b.loginOfCqlsh(t)
	const script = `
import sys
from cassandra.cluster import Cluster
from cassandra.auth import PlainTextAuthProvider
session = Cluster([sys.argv[1]], connect_timeout=60, control_connection_timeout=60, auth_provider=PlainTextAuthProvider("writer", "w")).connect()
row = session.execute("LOCK bank.accounts WHERE branch = 'python'").one()
session.execute("UPDATE bank.accounts USING LOCK %d SET balance = 1 WHERE branch = 'python' AND id = 'x'" % row.lock_ref)
print(row.state, session.execute("UNLOCK bank.accounts WHERE branch = 'python' USING LOCK %d" % row.lock_ref).one().state)
`
	cmd, connects := program(t, needPython(t).Python, "-c", script, hostOf(t, b.proxy.address))
	assert.Equal(t, "HELD RELEASED\n", output(t, cmd, false))
	assert.Equal(t, []string{b.proxy.address}, connected(t, connects))
}

// loginOfCqlsh: after LOGIN in cqlsh, a person has the rights of the new role.
func (b *rightsFixture) loginOfCqlsh(t *testing.T) {
	const lock = "LOCK bank.accounts WHERE branch = 'shell' NOWAIT;"
	sh := openShell(t, b.proxy.address, "", "-u", "writer", "-p", "w")
	held := sh.ask(lock)
	assert.Contains(t, held, "HELD")
	sh.ask("LOGIN nobody 'n'")
	assert.Contains(t, sh.ask(lock), `Unauthorized: Error from server: code=2100 [Unauthorized] message="`+noModify("nobody").text+`"`)
	assert.Contains(t, sh.ask("LOGIN nobody 'wrong'"), "Provided username nobody and/or password are incorrect")
	sh.ask("LOGIN writer 'w'")
	assert.Contains(t, sh.ask("UNLOCK bank.accounts WHERE branch = 'shell' USING LOCK "+told(readTable(held), "lock_ref")+";"), "RELEASED")
}
