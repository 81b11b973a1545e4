package integration

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/require"
)

// fenceFixture has what the attempts to write without a lock need: critical tables with rows, locks
// in every state, and statements that were prepared before the tables were critical.
type fenceFixture struct {
	t        *testing.T
	keyspace string
	direct   *gocql.Session
	holder   *gocql2           // the client that has the locks
	words    map[string]string // for the placeholders of the attempts' texts: $KS, $HELD …
	early    map[string][]byte // ids of writes prepared while the table was not critical
	foreign  map[string][]byte // ids of writes that another connection has prepared
	watched  []string          // SELECTs of everything that an attempt could change
	asked    time.Time         // when the queued reference was last asked for
}

// newFenceFixture makes tables, rows and locks through the proxy.
func newFenceFixture(t *testing.T, keyspace string) *fenceFixture {
	t.Helper()
	fx := &fenceFixture{t: t, keyspace: keyspace, words: map[string]string{"$KS": keyspace}, early: map[string][]byte{}, foreign: map[string][]byte{}}
	fx.direct = openGocql2(t, cluster2(needEnvironment(t).direct(), "")).session
	fx.execDirect("DROP KEYSPACE IF EXISTS " + keyspace)
	fx.execDirect("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	fx.holder = openGocql2(t, cluster2(needProxy(t), keyspace))
	fx.tables()
	fx.fill()
	fx.prepareEarly()
	fx.exec("ALTER TABLE late WITH comment = '@critical'")
	fx.locks()
	fx.watch()
	return fx
}

// execDirect runs a statement directly at the node.
func (fx *fenceFixture) execDirect(cql string, values ...any) {
	fx.t.Helper()
	require.NoError(fx.t, fx.direct.Query(cql, values...).Exec(), cql)
}

// exec runs a statement through the proxy, which must succeed.
func (fx *fenceFixture) exec(cql string) outcome {
	fx.t.Helper()
	o := fx.holder.run(statement{cql: cql})
	require.NoError(fx.t, o.err(), cql)
	return o
}

func (fx *fenceFixture) tables() {
	fx.t.Helper()
	const columns = "branch text, id text, balance bigint, tags set<text>, title text static, PRIMARY KEY (branch, id)"
	for _, ddl := range []string{
		"CREATE TABLE accounts (" + columns + ") WITH comment = 'money @critical(lease=10m)'",
		`CREATE TABLE "Accounts" (` + columns + ") WITH comment = '@critical'",
		"CREATE TABLE vault (" + columns + ") WITH comment = '@critical'",
		"CREATE TABLE late (" + columns + ")", "CREATE TABLE plain (" + columns + ")",
	} {
		fx.exec(ddl)
	}
	fx.words["$COMPANION"] = fx.companion("accounts")
}

// companion returns the name of a table's companion.
func (fx *fenceFixture) companion(table string) string {
	fx.t.Helper()
	var id gocql.UUID
	err := fx.direct.Query("SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", fx.keyspace, table).Scan(&id)
	require.NoError(fx.t, err)
	return "music_lock_" + hex.EncodeToString(id[:])
}

// fill writes rows to every table.
func (fx *fenceFixture) fill() {
	fx.t.Helper()
	for _, table := range []string{"accounts", `"Accounts"`, "vault", "late", "plain"} {
		for _, branch := range []string{"zurich", "geneva", "basel", "chur"} {
			insert := "INSERT INTO " + fx.keyspace + "." + table + " (branch, id, balance, tags, title) VALUES (?, ?, 100, {'a', 'b'}, 'old')"
			fx.execDirect(insert, branch, "x")
			fx.execDirect(insert, branch, "y")
		}
	}
	fx.execDirect("INSERT INTO music.named (name, value) VALUES ('battery', 'old')")
}

// earlyWrites returns statements that are prepared before their table is critical.
func earlyWrites() map[string]string {
	return map[string]string{
		"insert": "INSERT INTO late (branch, id, balance) VALUES ('zurich', 'x', 666)",
		"update": "UPDATE late SET balance = 666 WHERE branch = 'zurich' AND id = 'x'",
		"delete": "DELETE FROM late WHERE branch = 'zurich'",
		"batch":  "BEGIN BATCH INSERT INTO plain (branch, id, balance) VALUES ('zurich', 'x', 666); UPDATE late SET balance = 666 WHERE branch = 'zurich' AND id = 'x'; APPLY BATCH",
		"cas":    "UPDATE late SET balance = 666 WHERE branch = 'zurich' AND id = 'x' IF EXISTS",
	}
}

func (fx *fenceFixture) prepareEarly() {
	fx.t.Helper()
	w := openWire(fx.t, needProxy(fx.t), primitive.ProtocolVersion4, primitive.CompressionNone)
	b := &attacker{fixture: fx, wire: w}
	b.mustUse(fx.keyspace)
	for name, text := range earlyWrites() {
		fx.early[name], _, _ = b.prepare(text, "")
		require.NotEmpty(fx.t, fx.early[name], text)
	}
	for name, text := range earlyWrites() {
		fx.foreign[name], _, _ = b.prepare(strings.ReplaceAll(text, "late", "accounts"), "")
		require.NotEmpty(fx.t, fx.foreign[name], text)
	}
}

// locks acquires a reference of every state.
func (fx *fenceFixture) locks() {
	fx.t.Helper()
	fx.words["$HELD"] = fx.lock("LOCK accounts WHERE branch = 'zurich' LEASE 10m", "held")
	fx.words["$QUEUED"] = fx.lock("LOCK accounts WHERE branch = 'zurich' WAIT 300ms LEASE 10m", "queued")
	fx.words["$FUTURE"] = "4711"
	for range 2 {
		fx.exec("UNLOCK accounts WHERE branch = 'geneva' USING LOCK " + fx.lock("LOCK accounts WHERE branch = 'geneva' LEASE 10m", "held"))
	}
	fx.words["$OTHER"] = fx.lock("LOCK accounts WHERE branch = 'geneva' LEASE 10m", "held") // 3: no reference of zurich's holder
	fx.words["$RELEASED"] = fx.lock("LOCK accounts WHERE branch = 'basel' LEASE 10m", "held")
	fx.exec("UNLOCK accounts WHERE branch = 'basel' USING LOCK " + fx.words["$RELEASED"])
	fx.words["$EXPIRED"] = fx.lock("LOCK accounts WHERE branch = 'chur' LEASE 1s", "held")
	next := fx.lock("LOCK accounts WHERE branch = 'chur' WAIT 300ms LEASE 10m", "queued")
	eventually(fx.t, time.Minute, "a lease runs out", func() error {
		if o := fx.exec("LOCK accounts WHERE branch = 'chur' LEASE 10m WAIT 1s USING LOCK " + next); told(o, "state") != "held" {
			return errorf("%v", o)
		}
		return nil
	})
	// The first use of a key rewrites what was there before: this is done now.
	for branch, ref := range map[string]string{"zurich": fx.words["$HELD"], "geneva": fx.words["$OTHER"], "chur": next} {
		fx.exec("SELECT * FROM accounts WHERE branch = '" + branch + "' USING LOCK " + ref)
	}
}

// lock returns the reference.
func (fx *fenceFixture) lock(cql, state string) string {
	fx.t.Helper()
	o := fx.exec(cql)
	require.Equal(fx.t, state, told(o, "state"), "%s: %v", cql, o)
	require.NotEqual(fx.t, "0", told(o, "lock_ref"), "%s: not decided: %v", cql, o)
	return told(o, "lock_ref")
}

// watch sets the SELECTs whose rows must not change.
func (fx *fenceFixture) watch() {
	const columns = "branch, id, balance, tags, title, writetime(balance), ttl(balance), writetime(tags), writetime(title)"
	for _, table := range []string{"accounts", `"Accounts"`, "vault", "late", "plain"} {
		fx.watched = append(fx.watched, fmt.Sprintf("SELECT JSON %s FROM %s.%s", columns, fx.keyspace, table))
	}
	for _, table := range []string{"accounts", "Accounts", "vault", "late"} {
		rows := fmt.Sprintf("SELECT JSON * FROM %s.%s", fx.keyspace, fx.companion(table))
		eventually(fx.t, time.Minute, "the proxy has followed its DDL", func() error { return fx.direct.Query(rows).Exec() })
		fx.watched = append(fx.watched, rows)
	}
	fx.watched = append(
		fx.watched, "SELECT JSON * FROM music.tables", "SELECT JSON name, value, writetime(value) FROM music.named",
		"SELECT JSON session FROM music.sessions", // the beats move
		"SELECT JSON schema_version FROM system.local",
	)
}

// contents returns what the node has, one text for each SELECT. The SELECTs run concurrently.
func (fx *fenceFixture) contents() []string {
	fx.t.Helper()
	all, faults := make([]string, len(fx.watched)), make(chan error, len(fx.watched))
	for i, cql := range fx.watched {
		go func() {
			iter := fx.direct.Query(cql).Iter()
			var row string
			for iter.Scan(&row) {
				all[i] += row + "\n"
			}
			faults <- iter.Close()
		}()
	}
	for range fx.watched {
		require.NoError(fx.t, <-faults)
	}
	return all
}

// keepQueued asks for the queued reference now and then, so that it stays in the queue.
func (fx *fenceFixture) keepQueued() {
	fx.t.Helper()
	if time.Since(fx.asked) < 2*time.Second {
		return
	}
	fx.asked = time.Now()
	o := fx.exec("LOCK accounts WHERE branch = 'zurich' WAIT 1ms USING LOCK " + fx.words["$QUEUED"])
	require.Equal(fx.t, "queued", told(o, "state"), "%v", o)
}

// number returns one of the fixture's references.
func (fx *fenceFixture) number(word string) int64 {
	fx.t.Helper()
	n, err := strconv.ParseInt(fx.words[word], 10, 64)
	require.NoError(fx.t, err)
	return n
}

// expand replaces the placeholders in a text.
func (fx *fenceFixture) expand(text string) string {
	for word, meant := range fx.words {
		text = strings.ReplaceAll(text, word, meant)
	}
	return text
}

// attacker is one connection on which writes without a lock are tried.
type attacker struct {
	fixture *fenceFixture
	wire    *wire
	flag    uint8 // of the next frame: tracing; custom payload
	own     string
}

// mustUse changes the connection's keyspace.
func (b *attacker) mustUse(keyspace string) {
	b.fixture.t.Helper()
	_, f := b.ask(plainQuery(`USE "` + keyspace + `"`))
	require.Nil(b.fixture.t, f)
}

// prepare returns the id and in v5 the result metadata's id, or why there is none.
func (b *attacker) prepare(text, keyspace string) (id, metadata []byte, f *failure) {
	b.fixture.t.Helper()
	m, f := b.ask(&message.Prepare{Query: text, Keyspace: keyspace})
	if f != nil {
		return nil, nil, f
	}
	p, ok := m.(*message.PreparedResult)
	require.True(b.fixture.t, ok, "PREPARE was answered %v", m)
	return p.PreparedQueryId, p.ResultMetadataId, nil
}
