package frontend

import (
	"math"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// loginAs logs a client in.
func (r *rig) loginAs(d dialect, role string) (client, backend *peer) {
	r.t.Helper()
	client = r.dial(d)
	hello := client.envelope(r.t, 0, startup(d))
	client.write(hello)
	backend = r.accept(d)
	backend.expect(hello)
	ask := dialect{version: d.version}.envelope(r.t, 0, &message.Authenticate{Authenticator: "PasswordAuthenticator"})
	backend.write(ask)
	client.expect(ask)
	client.segmented, backend.segmented = d.version == v5, d.version == v5
	relayed(client, backend, 0, &message.AuthResponse{Token: []byte("\x00" + role + "\x00secret")}, &message.AuthSuccess{})
	return client, backend
}

// guardedStatement is a statement of ours with the probes that Cassandra is asked before the core is.
type guardedStatement struct{ cql, probes string }

// guardedStatements are of every kind. bank.auto gives plain writes sections of their own.
func guardedStatements() []guardedStatement {
	const remove, look, take = "DELETE FROM", "SELECT", "REVOKE"
	return []guardedStatement{
		{"LOCK bank.accounts WHERE id = 'x'", remove},
		{"LOCK bank.accounts WHERE id IN ('x', 'y')", remove},
		{"LOCK bank.accounts WHERE id = 'x' USING LOCK 7", remove},
		{"UNLOCK bank.accounts WHERE id = 'x' USING LOCK 7", remove},
		{"UNLOCK bank.accounts WHERE id = 'x' FORCE", take},
		{"LIST LOCKS ON bank.accounts", look},
		{"SELECT LIST LOCKS ON bank.accounts WHERE id = 'x'", look},
		{"SELECT balance FROM bank.accounts WHERE id = 'x' USING LOCK 7", look},
		{"SELECT balance FROM bank.accounts WHERE id = 'x' FOR UPDATE", remove + " " + look},
		{"UPDATE bank.accounts USING LOCK 7 SET balance = 1 WHERE id = 'x'", remove},
		{"UPDATE bank.accounts USING LOCK 0 SET balance = 1 WHERE id = 'x'", remove},
		{"INSERT INTO bank.accounts (id, balance) VALUES ('x', 1) USING LOCK 7", remove},
		{"DELETE FROM bank.accounts USING LOCK 7 WHERE id = 'x'", remove},
		{"BEGIN BATCH USING LOCK 7 UPDATE bank.accounts SET balance = 1 WHERE id = 'x'; APPLY BATCH", remove},
		{"UPDATE bank.accounts USING LOCK 7 SET balance = 1 WHERE id = 'x' IF balance = 2", remove + " " + look},
		{"BEGIN BATCH USING LOCK 7 UPDATE bank.accounts SET balance = 1 WHERE id = 'x' IF balance = 2; APPLY BATCH", remove + " " + look},
		{"UPDATE bank.auto SET balance = 1 WHERE id = 'x'", remove},
		{"UPDATE bank.auto SET balance = 1 WHERE id = 'x' IF balance = 2", remove + " " + look},
	}
}

// ways are the requests by which a client has a statement carried out. A statement that Cassandra prepares is prepared.
func (g guardedStatement) ways(client, backend *peer) []message.Message {
	ways := []message.Message{query(g.cql)}
	if strings.HasPrefix(g.cql, "UPDATE") || strings.HasPrefix(g.cql, "INSERT") || strings.HasPrefix(g.cql, "DELETE") {
		ways = append(ways, &message.Batch{Children: []*message.BatchChild{{Query: g.cql}}})
	}
	if strings.Contains(g.cql, "LOCK bank") || strings.Contains(g.cql, "LIST LOCKS") {
		return append(ways, &message.Prepare{Query: g.cql})
	}
	client.send(1, &message.Prepare{Query: g.cql})
	backend.answer(1)
	backend.send(1, preparedAs(idOf(g.cql)))
	id := client.answer(1).(*message.PreparedResult).PreparedQueryId
	return append(ways, &message.Execute{QueryId: id, ResultMetadataId: []byte("result metadata!"), Options: &message.QueryOptions{}},
		&message.Batch{Children: []*message.BatchChild{{Id: id}}})[:len(ways)+1]
}

// slowLocks give no stamp before the test says so.
type slowLocks struct {
	Locks
	asked, stamp chan struct{}
}

// Begin implements Locker.
func (l slowLocks) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	l.asked <- struct{}{}
	<-l.stamp
	return musiccore.Answer{Ticket: musiccore.Ticket{Key: k, Ref: ref, Kind: kind, Stamp: 7}}, true
}

// A USE does not overtake a write that Cassandra has answered the proxy a question about: it would be sent to a table of the other
// keyspace.
func TestUseDoesNotOvertakeAWriteInDoubt(t *testing.T) {
	locks := slowLocks{asked: make(chan struct{}), stamp: make(chan struct{})}
	r := rightsRig(t, locks)
	client, backend := r.loginAs(dialect{version: v4}, "anna")
	relayed(client, backend, 0, query("USE bank"), &message.SetKeyspaceResult{Keyspace: "bank"})
	client.send(1, query("UPDATE accounts USING LOCK 7 SET balance = 1 WHERE id = 'x'"))
	backend.answer(1) // the question for the right
	client.send(2, query("USE other"))
	backend.send(1, &message.VoidResult{})
	<-locks.asked
	backend.silent()
	close(locks.stamp)
	assert.Contains(t, backend.answer(1).(*message.Query).Query, "UPDATE accounts")
	backend.send(1, &message.VoidResult{})
}

// untouchableLocks must not be called: every method panics.
type untouchableLocks struct{ Locks }

// rightsRig has bank.accounts and bank.auto.
func rightsRig(t *testing.T, core Locks, change ...func(*Options)) *rig {
	t.Helper()
	r := newRig(t, append(change, func(o *Options) { o.Locks = core })...)
	for name, policy := range map[string]catalog.Policy{"accounts": catalog.Reject, "auto": catalog.Auto} {
		r.server.Tables.Set("bank", name, &catalog.Critical{
			ID: [16]byte{byte(policy)}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Settings: catalog.Settings{Unlocked: policy},
			Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "balance": {Name: "balance", Type: "int"}},
		})
	}
	return r
}

// Whoever has no right on a table is told so by Cassandra, whatever the lock's state is, and the core hears nothing of it: no lease is
// renewed, no key synchronised. That holds for the last of several rights as for the first.
func TestNobodyReachesTheCoreWithoutRights(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := rightsRig(t, untouchableLocks{})
		for _, g := range guardedStatements() {
			for _, request := range g.ways(r.loginAs(d, "mallory")) {
				client, backend := r.loginAs(d, "mallory") // of which no right is known
				client.send(1, request)
				probes := strings.Fields(strings.ReplaceAll(g.probes, "DELETE FROM", "DELETE"))
				for i, verb := range probes {
					asked := backend.answer(1).(*message.Query).Query
					require.True(t, strings.HasPrefix(asked, verb), "%s: %s", g.cql, asked)
					require.True(t, verb == "REVOKE" || strings.HasSuffix(asked, "IN ()"), asked)
					if i < len(probes)-1 {
						backend.send(1, &message.VoidResult{})
					}
				}
				backend.send(1, &message.Unauthorized{ErrorMessage: "User mallory has no such permission"})
				assert.Equal(t, primitive.ErrorCodeUnauthorized, client.failure(1).GetErrorCode(), g.cql)
			}
		}
	})
}

// From Cassandra 6 on a node that takes the role from the certificate of clients' connections asks for no login. There are rights all the same.
func TestNobodyReachesTheCoreWithoutRightsByCertificate(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := rightsRig(t, untouchableLocks{}, func(o *Options) { o.Roles = true })
		for _, g := range guardedStatements() {
			client, backend := r.login(d)
			client.send(1, query(g.cql))
			verb, _, _ := strings.Cut(g.probes, " ")
			require.True(t, strings.HasPrefix(backend.answer(1).(*message.Query).Query, verb), g.cql)
			backend.send(1, &message.Unauthorized{ErrorMessage: "User app has no such permission"})
			assert.Equal(t, primitive.ErrorCodeUnauthorized, client.failure(1).GetErrorCode(), g.cql)
		}
		client, _ := r.login(d)
		client.send(1, query("LIST LOCKS"))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "name a table")
	})
}

// What Cassandra has let a client do it is not asked about again for a while, and each operation that it carries out says so anew.
func TestRightsAreRememberedFromWhatWasDone(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		client, backend := rightsRig(t, g).loginAs(d, "anna")
		const put, get = "UPDATE bank.accounts USING LOCK 9 SET balance = 1 WHERE id = 'x'", "SELECT balance FROM bank.accounts WHERE id = 'x' USING LOCK 9"
		for i, cql := range []string{put, get, put, get} {
			client.send(1, query(cql))
			if i < 2 {
				assert.Contains(t, backend.answer(1).(*message.Query).Query, "IN ()")
				backend.send(1, &message.VoidResult{})
			}
			assert.NotContains(t, backend.answer(1).(*message.Query).Query, "IN ()")
			backend.send(1, rows(nil))
			client.answer(1)
		}
		client.send(1, query("LOCK bank.accounts WHERE id = 'y'"))
		client.answer(1)
		assert.Equal(t, musiccore.Key{PK: "y"}, <-g.locked)
	})
}

// A put under a held lock looks its right up without memory of its own.
func TestToLookUpARightAllocatesNothing(t *testing.T) {
	c, table := new(conn), &catalog.Table{}
	c.authenticated.Store(true)
	for _, what := range []permission{permissionModify, permissionSelect} {
		require.Equal(t, what, c.missingPermission(table, permissionModify|permissionSelect))
		c.rights.note(right{table, what})
	}
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		if c.missingPermission(table, permissionModify|permissionSelect) != 0 {
			assert.Fail(t, "it is known")
		}
		c.rights.note(right{table, permissionModify})
	}))
}

// listingLocks are Locks with locks of some keys.
type listingLocks struct {
	Locks
	all []musiccore.Listing
}

func (l listingLocks) List(only musiccore.Key) (all []musiccore.Listing, missing []string) {
	for _, one := range l.all {
		if only.PK == "" || only.PK == one.Key.PK {
			all = append(all, one)
		}
	}
	return all, nil
}

// LIST LOCKS answers the same prepared as it does as text, and PREPARE tells the columns that EXECUTE answers.
func TestListLocksPrepared(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		core := listingLocks{all: []musiccore.Listing{{Key: musiccore.Key{PK: "x"}, Ref: 3}, {Key: musiccore.Key{PK: "y"}, Ref: 4, Position: 1}}}
		client, _ := rightsRig(t, core).login(d)
		for text, bound := range map[string]string{
			"LIST LOCKS": "", "LIST LOCKS ON bank.accounts": "", "LIST LOCKS ON bank.accounts WHERE id = 'y'": "", "SELECT LIST LOCKS ON bank.accounts WHERE id = ?": "y",
		} {
			options := &message.QueryOptions{}
			if bound != "" {
				options.PositionalValues = []*primitive.Value{primitive.NewValue([]byte(bound))}
			}
			client.send(1, &message.Query{Query: text, Options: options})
			want := client.answer(1).(*message.RowsResult)
			client.send(1, &message.Prepare{Query: text})
			prepared := client.answer(1).(*message.PreparedResult)
			assert.Len(t, prepared.VariablesMetadata.Columns, len(options.PositionalValues))
			client.send(1, &message.Execute{QueryId: prepared.PreparedQueryId, ResultMetadataId: prepared.ResultMetadataId, Options: options})
			got := client.answer(1).(*message.RowsResult)
			assert.Equal(t, want, got, text)
			assert.Equal(t, prepared.ResultMetadata.Columns, got.Metadata.Columns)
			assert.NotEmpty(t, got.Data, text)
		}
	})
}

// The rights that a batch needs are looked up once for each of its tables: it may have as many statements as a message has room for.
func TestRightsOfALargeBatch(t *testing.T) {
	r, client, backend, _ := sectionsRig(t, dialect{version: v4})
	id := r.prepare(client, backend, "DELETE FROM bank.accounts WHERE id = 'x'")
	m := new(message.Batch)
	for range math.MaxUint16 {
		m.Children = append(m.Children, &message.BatchChild{Id: id})
	}
	client.send(1, m)
	assert.Len(t, backend.answer(1).(*message.Batch).Children, len(m.Children), "within the time that a test waits")
	backend.send(1, &message.VoidResult{})
	client.answer(1)
}
