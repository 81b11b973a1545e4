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

// yard is the ground of the break-ins: critical tables with something to lose, locks in every state, and what a thief could
// have prepared before there was a fence.
type yard struct {
	t        *testing.T
	keyspace string
	direct   *gocql.Session
	smith    *gocql2           // who has the locks
	words    map[string]string // that stand in the attempts' texts: $KS, $HELD …
	early    map[string][]byte // ids of writes prepared while the table was not critical
	foreign  map[string][]byte // ids of writes that another connection has prepared
	watched  []string          // SELECTs that show everything there is to lose
	asked    time.Time         // when the queued reference was last asked for
}

// newYard builds it through the proxy.
func newYard(t *testing.T, keyspace string) *yard {
	t.Helper()
	y := &yard{t: t, keyspace: keyspace, words: map[string]string{"$KS": keyspace}, early: map[string][]byte{}, foreign: map[string][]byte{}}
	y.direct = openGocql2(t, cluster2(needWorld(t).direct(), "")).session
	y.tell("DROP KEYSPACE IF EXISTS " + keyspace)
	y.tell("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	y.smith = openGocql2(t, cluster2(needProxy(t), keyspace))
	y.tables()
	y.fill()
	y.prepareEarly()
	y.order("ALTER TABLE late WITH comment = '@critical'")
	y.locks()
	y.watch()
	return y
}

// tell has the node do something, past the proxy.
func (y *yard) tell(cql string, values ...any) {
	y.t.Helper()
	require.NoError(y.t, y.direct.Query(cql, values...).Exec(), cql)
}

// order has the proxy do something.
func (y *yard) order(cql string) outcome {
	y.t.Helper()
	o := y.smith.run(statement{cql: cql})
	require.NoError(y.t, o.err(), cql)
	return o
}

func (y *yard) tables() {
	y.t.Helper()
	const columns = "branch text, id text, balance bigint, tags set<text>, title text static, PRIMARY KEY (branch, id)"
	for _, ddl := range []string{
		"CREATE TABLE accounts (" + columns + ") WITH comment = 'money @critical(lease=10m)'",
		`CREATE TABLE "Accounts" (` + columns + ") WITH comment = '@critical'",
		"CREATE TABLE vault (" + columns + ") WITH comment = '@critical'",
		"CREATE TABLE late (" + columns + ")", "CREATE TABLE plain (" + columns + ")",
	} {
		y.order(ddl)
	}
	y.words["$COMPANION"] = y.companion("accounts")
}

// companion is the name of a table's lock rows.
func (y *yard) companion(table string) string {
	y.t.Helper()
	var id gocql.UUID
	err := y.direct.Query("SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", y.keyspace, table).Scan(&id)
	require.NoError(y.t, err)
	return "music_lock_" + hex.EncodeToString(id[:])
}

// fill gives every table something to lose.
func (y *yard) fill() {
	y.t.Helper()
	for _, table := range []string{"accounts", `"Accounts"`, "vault", "late", "plain"} {
		for _, branch := range []string{"zurich", "geneva", "basel", "chur"} {
			insert := "INSERT INTO " + y.keyspace + "." + table + " (branch, id, balance, tags, title) VALUES (?, ?, 100, {'a', 'b'}, 'old')"
			y.tell(insert, branch, "x")
			y.tell(insert, branch, "y")
		}
	}
	y.tell("INSERT INTO music.named (name, value) VALUES ('battery', 'old')")
}

// earlyWrites are prepared before their table is critical.
func earlyWrites() map[string]string {
	return map[string]string{
		"insert": "INSERT INTO late (branch, id, balance) VALUES ('zurich', 'x', 666)",
		"update": "UPDATE late SET balance = 666 WHERE branch = 'zurich' AND id = 'x'",
		"delete": "DELETE FROM late WHERE branch = 'zurich'",
		"batch":  "BEGIN BATCH INSERT INTO plain (branch, id, balance) VALUES ('zurich', 'x', 666); UPDATE late SET balance = 666 WHERE branch = 'zurich' AND id = 'x'; APPLY BATCH",
		"cas":    "UPDATE late SET balance = 666 WHERE branch = 'zurich' AND id = 'x' IF EXISTS",
	}
}

func (y *yard) prepareEarly() {
	y.t.Helper()
	w := openWire(y.t, needProxy(y.t), primitive.ProtocolVersion4, primitive.CompressionNone)
	b := &burglar{yard: y, wire: w}
	b.mustUse(y.keyspace)
	for name, text := range earlyWrites() {
		y.early[name], _, _ = b.prepare(text, "")
		require.NotEmpty(y.t, y.early[name], text)
	}
	for name, text := range earlyWrites() {
		y.foreign[name], _, _ = b.prepare(strings.ReplaceAll(text, "late", "accounts"), "")
		require.NotEmpty(y.t, y.foreign[name], text)
	}
}

// locks gets a reference of every state.
func (y *yard) locks() {
	y.t.Helper()
	y.words["$HELD"] = y.lock("LOCK accounts WHERE branch = 'zurich' LEASE 10m", "held")
	y.words["$QUEUED"] = y.lock("LOCK accounts WHERE branch = 'zurich' WAIT 300ms LEASE 10m", "queued")
	y.words["$FUTURE"] = "4711"
	for range 2 {
		y.order("UNLOCK accounts WHERE branch = 'geneva' USING LOCK " + y.lock("LOCK accounts WHERE branch = 'geneva' LEASE 10m", "held"))
	}
	y.words["$OTHER"] = y.lock("LOCK accounts WHERE branch = 'geneva' LEASE 10m", "held") // 3: no reference of zurich's holder
	y.words["$RELEASED"] = y.lock("LOCK accounts WHERE branch = 'basel' LEASE 10m", "held")
	y.order("UNLOCK accounts WHERE branch = 'basel' USING LOCK " + y.words["$RELEASED"])
	y.words["$EXPIRED"] = y.lock("LOCK accounts WHERE branch = 'chur' LEASE 1s", "held")
	next := y.lock("LOCK accounts WHERE branch = 'chur' WAIT 300ms LEASE 10m", "queued")
	eventually(y.t, 10*time.Second, "a lease runs out", func() error {
		if o := y.order("LOCK accounts WHERE branch = 'chur' LEASE 10m WAIT 1s USING LOCK " + next); told(o, "state") != "held" {
			return errorf("%v", o)
		}
		return nil
	})
	// The first use of a key rewrites what was there before: that is done now.
	for branch, ref := range map[string]string{"zurich": y.words["$HELD"], "geneva": y.words["$OTHER"], "chur": next} {
		y.order("SELECT * FROM accounts WHERE branch = '" + branch + "' USING LOCK " + ref)
	}
}

// lock returns the reference.
func (y *yard) lock(cql, state string) string {
	y.t.Helper()
	o := y.order(cql)
	require.Equal(y.t, state, told(o, "state"), "%s: %v", cql, o)
	require.NotEqual(y.t, "0", told(o, "lock_ref"), "%s: not decided: %v", cql, o)
	return told(o, "lock_ref")
}

// watch says what must not change.
func (y *yard) watch() {
	const columns = "branch, id, balance, tags, title, writetime(balance), ttl(balance), writetime(tags), writetime(title)"
	for _, table := range []string{"accounts", `"Accounts"`, "vault", "late", "plain"} {
		y.watched = append(y.watched, fmt.Sprintf("SELECT JSON %s FROM %s.%s", columns, y.keyspace, table))
	}
	for _, table := range []string{"accounts", "Accounts", "vault", "late"} {
		y.watched = append(y.watched, fmt.Sprintf("SELECT JSON * FROM %s.%s", y.keyspace, y.companion(table)))
	}
	y.watched = append(
		y.watched, "SELECT JSON * FROM music.tables", "SELECT JSON name, value, writetime(value) FROM music.named",
		"SELECT JSON session FROM music.sessions", // the beats move
		"SELECT JSON schema_version FROM system.local",
	)
}

// contents is all of it as the node has it, one text a SELECT. They are asked at once.
func (y *yard) contents() []string {
	y.t.Helper()
	all, faults := make([]string, len(y.watched)), make(chan error, len(y.watched))
	for i, cql := range y.watched {
		go func() {
			iter := y.direct.Query(cql).Iter()
			var row string
			for iter.Scan(&row) {
				all[i] += row + "\n"
			}
			faults <- iter.Close()
		}()
	}
	for range y.watched {
		require.NoError(y.t, <-faults)
	}
	return all
}

// keepQueued asks for the queued reference now and then, so that it stays in the queue.
func (y *yard) keepQueued() {
	y.t.Helper()
	if time.Since(y.asked) < 2*time.Second {
		return
	}
	y.asked = time.Now()
	o := y.order("LOCK accounts WHERE branch = 'zurich' WAIT 1ms USING LOCK " + y.words["$QUEUED"])
	require.Equal(y.t, "queued", told(o, "state"), "%v", o)
}

// number is one of the yard's references.
func (y *yard) number(word string) int64 {
	y.t.Helper()
	n, err := strconv.ParseInt(y.words[word], 10, 64)
	require.NoError(y.t, err)
	return n
}

// say puts the yard's words into a text.
func (y *yard) say(text string) string {
	for word, meant := range y.words {
		text = strings.ReplaceAll(text, word, meant)
	}
	return text
}

// burglar is one connection that tries to write without a lock.
type burglar struct {
	yard *yard
	wire *wire
	flag uint8 // of the next frame: tracing; custom payload
	own  string
}

// mustUse changes the connection's keyspace.
func (b *burglar) mustUse(keyspace string) {
	b.yard.t.Helper()
	_, f := b.ask(plainQuery(`USE "` + keyspace + `"`))
	require.Nil(b.yard.t, f)
}

// prepare returns the id and in v5 the result metadata's id, or why there is none.
func (b *burglar) prepare(text, keyspace string) (id, metadata []byte, f *failure) {
	b.yard.t.Helper()
	m, f := b.ask(&message.Prepare{Query: text, Keyspace: keyspace})
	if f != nil {
		return nil, nil, f
	}
	p, ok := m.(*message.PreparedResult)
	require.True(b.yard.t, ok, "PREPARE was answered %v", m)
	return p.PreparedQueryId, p.ResultMetadataId, nil
}
