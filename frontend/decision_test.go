package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/wire"
)

// What is decided about a request says so itself, and depends on nothing that was asked before.
func TestDecisions(t *testing.T) {
	m := newMemoryConn(t, d4(), false)
	m.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}})
	m.server.Tables.Read([][2]string{{"bank", "accounts"}, {"bank", "other"}, {"music", "named"}})
	critical, ordinary := preparedID(idOf("critical")), preparedID(idOf("ordinary"))
	lock := &preparedLockStatement{id: critical, text: []byte("LOCK accounts WHERE id = ?"), table: m.server.Tables.Of("bank", "accounts")}
	m.server.prepared.add(critical, &preparedStatement{kind: classify.Critical, lock: lock}, nil)
	m.server.prepared.add(ordinary, &preparedStatement{}, nil)
	for _, tc := range []struct {
		request message.Message
		want    string
	}{
		{query("UPDATE other SET a = 1 WHERE id = 'x'"), "forward"},
		{query("USE bank"), "forward, watch the answer: USE"},
		{query("CREATE TABLE t (id int PRIMARY KEY)"), "forward, watch the answer: schema change"},
		{query("UPDATE other USING LOCK 5 SET a = 1 WHERE id = 'x'"), "forward, watch the answer: syntax"},
		{query("UPDATE fresh SET a = 1 WHERE id = 'x'"), "forward (table bank.fresh is not in the schema)"},
		{query("UPDATE accounts USING LOCK 5 SET a = 1 WHERE id = 'x'"), "intercept: execute: UPDATE accounts USING LOCK 5 SET a = 1 WHERE id = 'x'"},
		{query("SELECT * FROM system.peers"), "intercept: ask for the topology in system.peers"},
		{query("LOCK other WHERE id = 'x'"), "intercept: ask whether there is a table bank.other, and refuse: ErrorCode Invalid [0x00002200]: MUSIC_REFUSED: bank.other is not critical: make it so with ALTER TABLE bank.other WITH comment = '@critical'"},
		{query("LOCK system.local WHERE key = 'local'"), "intercept: ask whether there is a table system.local, and refuse: ErrorCode Invalid [0x00002200]: MUSIC_REFUSED: system.local is a table of Cassandra's own: it cannot be locked (table system.local is not in the schema)"},
		{query("LIST LOCKS ON other"), "intercept: ask whether there is a table bank.other, and refuse: ErrorCode Invalid [0x00002200]: MUSIC_REFUSED: bank.other is not critical: make it so with ALTER TABLE bank.other WITH comment = '@critical'"},
		{query("LOCK table accounts WHERE id = 'x'"), "intercept: refuse, ErrorCode Invalid [0x00002200]: MUSIC_SYNTAX: WHERE is expected here, not \"accounts\" (at byte 11) (table bank.table is not in the schema)"},
		{&message.Prepare{Query: "UNLOCK FORCE accounts WHERE id = 'x'"}, "intercept: refuse, ErrorCode Invalid [0x00002200]: MUSIC_SYNTAX: WHERE is expected here, not \"accounts\" (at byte 13) (table bank.force is not in the schema)"},
		{query("LOCK music.sessions WHERE session = ?"), "intercept: refuse, ErrorCode Invalid [0x00002200]: MUSIC_REFUSED: music.sessions is for the proxies only: LIST LOCKS shows who holds what (table music.sessions is not in the schema)"},
		{query("UPDATE accounts SET a = 1 WHERE id = 'x'"), "intercept: refuse, ErrorCode Invalid [0x00002200]: MUSIC_UNLOCKED: bank.accounts is critical: take a lock (LOCK bank.accounts WHERE …) and write USING LOCK <ref>"},
		{query("LOCK"), "forward"}, // Cassandra says that it is no statement
		{query("GRANT SELECT ON other TO someone USING LOCK"), "forward"},
		{&message.Prepare{Query: "SELECT a FROM accounts WHERE id = ? FOR UPDATE"}, "intercept: prepare without its lock clauses: SELECT a FROM accounts WHERE id = ? FOR UPDATE"},
		{&message.Prepare{Query: "UNLOCK accounts WHERE id = ? USING LOCK ?"}, "intercept: describe: UNLOCK accounts WHERE id = ? USING LOCK ?"},
		{&message.Prepare{Query: "SELECT a FROM other"}, "forward, watch the answer: prepared id"},
		{execute(critical[:], nil), "intercept: execute prepared: LOCK accounts WHERE id = ?"},
		{execute(ordinary[:], nil), "forward"},
		{&message.Batch{Children: []*message.BatchChild{{Query: "DELETE FROM accounts USING LOCK 5 WHERE id = 'x'"}}}, "intercept: execute a batch under a lock"},
		{&message.Register{EventTypes: []primitive.EventType{primitive.EventTypeSchemaChange}}, "intercept: register for events"},
	} {
		decided(t, m, tc.request, tc.want)
	}
}

// The same holds for a request of the handshake.
func TestDecisionsBeforeTheLogin(t *testing.T) {
	m := newMemoryConn(t, d4(), false)
	m.loggedIn.Store(false)
	first := "forward, watch the answer: login"
	decided(t, m, &message.Options{}, "forward")
	decided(t, m, startup(d4()), first)
	decided(t, m, query("USE bank"), "intercept: unexpected before the login")
	m.authenticated.Store(true)
	decided(t, m, &message.AuthResponse{Token: []byte("\x00role\x00secret")}, first)
}

// decided asserts what is decided about a request, also when it is asked again: so it is where a table changes meanwhile.
func decided(t *testing.T, m *memoryConn, request message.Message, want string) {
	t.Helper()
	for range 2 {
		e := wire.EnvelopeOf(d4().envelope(t, 1, request))
		got := m.decide(&e)
		assert.Equal(t, want, got.String(), "%v", request)
	}
}
