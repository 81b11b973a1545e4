package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	gocqlv1 "github.com/gocql/gocql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readyTable makes a table and waits until it can be locked: proxies of earlier tests that were
// killed count as living for a while.
func readyTable(t *testing.T, keyspace string) *tableFixture {
	t.Helper()
	s := newTableFixture(t, keyspace, "@critical")
	eventually(t, time.Minute, "the table can be locked", func() error {
		return s.do(s.client, "LOCK ACCOUNTS WHERE branch = 'ready'").err()
	})
	return s
}

// onWire returns a connection of its own to the fixture's proxy, in its keyspace.
func (s *tableFixture) onWire(t *testing.T, version primitive.ProtocolVersion) *attacker {
	t.Helper()
	b := &attacker{fixture: &fenceFixture{t: t, keyspace: s.keyspace}, wire: openWire(t, s.address, version, primitive.CompressionNone)}
	b.mustUse(s.keyspace)
	return b
}

// gocql does not send the values of a statement that it does not know: the error names the spelling
// that works.
func TestGocqlIsToldOfSelectLock(t *testing.T) {
	s := readyTable(t, "pitfall_gocql")
	for _, d := range []driver{withGocql2(4, ""), withGocql2(5, ""), withGocql1("")} {
		c := d.open(t, s.address, s.keyspace)
		o := s.do(c, "LOCK ACCOUNTS WHERE branch = ?", "zurich")
		require.NotNil(t, o.failure, d.name)
		assert.Contains(t, o.failure.text, "write SELECT LOCK", d.name)
		o = s.do(c, "UNLOCK ACCOUNTS WHERE branch = ? USING LOCK ?", "zurich", 1)
		require.NotNil(t, o.failure, d.name)
		assert.Contains(t, o.failure.text, "SELECT UNLOCK", d.name)
	}
}

// A driver that routes by token prepares a statement given as text, to learn its markers.
func TestTokenAwareDriversLockByText(t *testing.T) {
	s := readyTable(t, "pitfall_token")
	two := cluster2(s.address, s.keyspace)
	two.PoolConfig.HostSelectionPolicy = gocql.TokenAwareHostPolicy(gocql.RoundRobinHostPolicy())
	one := cluster1(s.address, s.keyspace)
	one.PoolConfig.HostSelectionPolicy = gocqlv1.TokenAwareHostPolicy(gocqlv1.RoundRobinHostPolicy())
	for _, c := range []client{openGocql2(t, two), openGocql1(t, one)} {
		ref := s.grant(s.works(c, "LOCK ACCOUNTS WHERE branch = 'a'"), "HELD")
		s.works(c, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'a' AND id = 'x'", ref))
		s.grant(s.works(c, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'a' USING LOCK %d", ref)), "RELEASED")
	}
}

// gocql 1 reads rows by the columns that PREPARE declared: every outcome has them.
func TestEveryOutcomeHasTheColumnsOfPrepare(t *testing.T) {
	s := readyTable(t, "pitfall_columns")
	for version := primitive.ProtocolVersion3; version <= primitive.ProtocolVersion5; version++ {
		b, other := s.onWire(t, version), s.onWire(t, version)
		ask := func(b *attacker, state, cql string, values ...*primitive.Value) []byte {
			t.Helper()
			m, f := b.ask(&message.Prepare{Query: cql})
			require.Nil(t, f, cql)
			p := m.(*message.PreparedResult)
			m, f = b.ask(&message.Execute{QueryId: p.PreparedQueryId, ResultMetadataId: p.ResultMetadataId, Options: b.options(values)})
			require.Nil(t, f, cql)
			rows := m.(*message.RowsResult)
			assert.Equal(t, declared(p.ResultMetadata.Columns), declared(rows.Metadata.Columns), "%s: %s", cql, state)
			require.Len(t, rows.Data, 1)
			assert.Equal(t, state, string(rows.Data[0][2]), cql)
			return rows.Data[0][1]
		}
		const lock, unlock = "SELECT LOCK accounts WHERE branch = ?", "SELECT UNLOCK accounts WHERE branch = ? USING LOCK ?"
		key := text("columns")
		held := primitive.NewValue(ask(b, "HELD", lock, key))
		ask(other, "BUSY", lock+" NOWAIT", key)
		queued := primitive.NewValue(ask(other, "QUEUED", lock+" WAIT 50ms", key))
		ask(b, "RELEASED", unlock, key, held)
		ask(other, "HELD", lock+" USING LOCK ? WAIT 5s", key, queued)
		ask(other, "RELEASED", unlock, key, queued)
	}
}

// A driver that changes to another proxy prepares anew there, and fails if the id is another one
// (Python), or the metadata's (Java).
func TestIdsAreEqualOnEveryProxy(t *testing.T) {
	s := readyTable(t, "pitfall_ids")
	second := startProxy(t, nil)
	for _, version := range []primitive.ProtocolVersion{4, 5} {
		for _, cql := range []string{
			"LOCK accounts WHERE branch = ?", "SELECT LOCK accounts WHERE branch IN ?", "SELECT UNLOCK accounts WHERE branch = ? USING LOCK ?",
			"UPDATE accounts USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?", "SELECT balance FROM accounts WHERE branch = ? USING LOCK ?",
			"SELECT balance FROM accounts WHERE branch = ? FOR UPDATE", "SELECT balance FROM accounts WHERE branch = ?", "SELECT * FROM system.local",
		} {
			var first *message.PreparedResult
			for _, address := range []string{s.address, second.address} {
				there := *s
				there.address = address
				m, f := there.onWire(t, version).ask(&message.Prepare{Query: cql})
				require.Nil(t, f, "%s: %v", cql, f)
				p := m.(*message.PreparedResult)
				if first == nil {
					first = p
					continue
				}
				assert.Equal(t, first.PreparedQueryId, p.PreparedQueryId, cql)
				assert.Equal(t, first.ResultMetadataId, p.ResultMetadataId, cql)
			}
		}
	}
}

// The Java driver uses version 5: it requests no metadata that it has, and names those that it has
// by id. For a statement with a lock they stay valid.
func TestMetadataOfVersion5HoldUnderALock(t *testing.T) {
	s := readyTable(t, "pitfall_metadata")
	b := s.onWire(t, primitive.ProtocolVersion5)
	ref := long(s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'm'"), "HELD"))
	execute := func(cql string, values ...*primitive.Value) message.Message {
		t.Helper()
		m, f := b.ask(&message.Prepare{Query: cql})
		require.Nil(t, f, cql)
		p := m.(*message.PreparedResult)
		require.NotEmpty(t, p.ResultMetadataId, cql)
		o := b.options(values)
		o.SkipMetadata = true
		m, f = b.ask(&message.Execute{QueryId: p.PreparedQueryId, ResultMetadataId: p.ResultMetadataId, Options: o})
		require.Nil(t, f, "%s: %v", cql, f)
		return m
	}
	assert.IsType(t, &message.VoidResult{}, execute("UPDATE accounts USING LOCK ? SET balance = ? WHERE branch = ? AND id = ?", ref, long(5), text("m"), text("x")))
	rows := execute("SELECT balance FROM accounts WHERE branch = ? USING LOCK ?", text("m"), ref).(*message.RowsResult)
	assert.Empty(t, rows.Metadata.NewResultMetadataId, "nothing has changed")
	assert.Empty(t, rows.Metadata.Columns)
	assert.Equal(t, message.RowSet{{long(5).Contents}}, rows.Data)
}

// The driver for Node.js binds by name, and a number without a type as a double.
func TestNodeBindsByNameAndADouble(t *testing.T) {
	s := readyTable(t, "pitfall_node")
	for version := primitive.ProtocolVersion3; version <= primitive.ProtocolVersion5; version++ {
		b := s.onWire(t, version)
		named := func(cql string, values map[string]*primitive.Value) (message.Message, *failure) {
			o := b.options(nil)
			o.NamedValues = values
			return b.ask(&message.Query{Query: cql, Options: o})
		}
		m, f := named("LOCK accounts WHERE branch = :branch", map[string]*primitive.Value{"branch": text("n")})
		require.Nil(t, f, "%v", f)
		ref := m.(*message.RowsResult).Data[0][1]
		const write = "UPDATE accounts USING LOCK :ref SET balance = :balance WHERE branch = :branch AND id = 'x'"
		values := map[string]*primitive.Value{"branch": text("n"), "balance": long(int64(version)), "ref": primitive.NewValue(ref)}
		_, f = named(write, values)
		require.Nil(t, f, "%v", f)
		m, f = named("SELECT balance FROM accounts WHERE branch = :branch AND id = :id USING LOCK :ref",
			map[string]*primitive.Value{"id": text("x"), "ref": primitive.NewValue(ref), "branch": text("n")})
		require.Nil(t, f, "%v", f)
		assert.Equal(t, message.RowSet{{long(int64(version)).Contents}}, m.(*message.RowsResult).Data)
		_, f = named("UPDATE accounts USING LOCK :ref SET balance = :balance WHERE branch = :branch AND id = ?", values)
		require.NotNil(t, f)
		assert.Contains(t, f.text, "not every bind marker has one")
		_, f = named(strings.Replace(write, ":balance", `:"Balance"`, 1), values)
		require.NotNil(t, f)
		assert.Contains(t, f.text, `no value is bound to the marker "Balance"`)
		values["ref"] = double(17)
		_, f = named(write, values)
		require.NotNil(t, f)
		assert.Contains(t, f.text, "prepare the statement, or bind a bigint")
		_, f = named("UNLOCK accounts WHERE branch = :branch USING LOCK :ref", map[string]*primitive.Value{"branch": text("n"), "ref": primitive.NewValue(ref)})
		require.Nil(t, f, "%v", f)
	}
}

// A driver that binds a prepared statement by name uses the names that the client has given to
// markers.
func TestPreparedMarkersKeepTheirNames(t *testing.T) {
	s := readyTable(t, "pitfall_names")
	b := s.onWire(t, primitive.ProtocolVersion4)
	for cql, want := range map[string][]string{
		`LOCK accounts WHERE branch = :b WAIT :w LEASE ? AS :"Who" TOKEN :t`:                    {"b varchar", "w bigint", "[lease] bigint", "Who varchar", "t uuid"},
		"LOCK accounts WHERE branch IN :Several":                                                {"several list<varchar>"},
		"UNLOCK accounts WHERE branch = ? USING LOCK :ref":                                      {"branch varchar", "ref bigint"},
		"UPDATE accounts USING LOCK :ref SET balance = :n WHERE branch = :b AND id = ?":         {"ref bigint", "n bigint", "b varchar", "id varchar"},
		"SELECT balance FROM accounts WHERE branch = ? USING LOCK :ref":                         {"branch varchar", "ref bigint"},
		"SELECT balance FROM accounts WHERE branch = :b AND id = 'x' FOR UPDATE WAIT :patience": {"b varchar", "patience bigint"},
	} {
		m, f := b.ask(&message.Prepare{Query: cql})
		require.Nil(t, f, "%s: %v", cql, f)
		assert.Equal(t, want, declared(m.(*message.PreparedResult).VariablesMetadata.Columns), cql)
	}
}

// Whatever cqlsh makes of comments in a statement, what it sends is executed under the lock.
func TestCqlshKeepsALockBetweenComments(t *testing.T) {
	s := readyTable(t, "pitfall_cqlsh")
	s.driver = withCqlsh()
	c := s.driver.open(t, s.address, s.keyspace)
	ref := s.grant(s.works(c, "LOCK ACCOUNTS WHERE branch = 'c'"), "HELD")
	for i, cql := range []string{
		"UPDATE ACCOUNTS /* one */ USING LOCK %d /* two */ SET balance = %d WHERE branch = 'c' AND id = 'x'",
		"UPDATE ACCOUNTS USING LOCK %d /* USING */ SET balance = %d /* LOCK */ WHERE branch = 'c' AND id = 'x'",
	} {
		s.works(c, fmt.Sprintf(cql, ref, i))
		s.inWindow("c", "x", ref, int64(i))
	}
	s.refused(c, "MUSIC_UNLOCKED", "UPDATE ACCOUNTS /* one */ /* USING LOCK 1 */ SET balance = 1 WHERE branch = 'c' AND id = 'x'")
	s.refused(c, "MUSIC_UNLOCKED", "UPDATE ACCOUNTS /* one USING LOCK 1 two */ SET balance = 1 WHERE branch = 'c' AND id = 'x'")
}

// A driver that times out, and repeats its LOCK with the same token on the same connection, holds
// the lock that was granted meanwhile.
func TestDriverThatGivesUpHoldsWhatItWasGranted(t *testing.T) {
	s := readyTable(t, "pitfall_timeout")
	holder := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 't'"), "HELD")
	session := openGocql2(t, cluster2(s.address, s.keyspace)).session
	lock := fmt.Sprintf("LOCK %s.accounts WHERE branch = 't' WAIT 1500ms TOKEN %s", s.keyspace, gocql.MustRandomUUID())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := session.Query(lock).ExecContext(ctx)
	require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	s.grant(s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 't' USING LOCK %d", holder)), "RELEASED")
	o := (&gocql2{session}).run(statement{cql: lock})
	require.NoError(t, o.err())
	assert.Equal(t, number(holder)+1, number(s.grant(o, "HELD")), "the place of the first try, not another one behind it")
}

// While a hundred LOCKs wait on a connection, its heartbeats are answered, and each LOCK gets its
// own answer once.
func TestHeartbeatsAmongAHundredWaiters(t *testing.T) {
	s := readyTable(t, "pitfall_waiters")
	s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'h' LEASE 60s"), "HELD")
	for _, version := range []primitive.ProtocolVersion{4, 5} {
		w := openWire(t, s.address, version, primitive.CompressionNone)
		owed := map[int16]bool{}
		for range 100 {
			require.NoError(t, w.send(plainQuery("LOCK "+s.keyspace+".accounts WHERE branch = 'h' WAIT 5s"), nil))
			owed[w.stream] = true
		}
		for range 20 {
			require.NoError(t, w.send(&message.Options{}, nil))
			e, err := w.receive()
			require.NoError(t, err)
			require.Equal(t, w.stream, e.stream(), "no LOCK is answered before its time")
			require.Equal(t, primitive.OpCodeSupported, e.opcode())
		}
		for len(owed) > 0 {
			e, err := w.receive()
			require.NoError(t, err)
			require.True(t, owed[e.stream()], "stream %d", e.stream())
			delete(owed, e.stream())
			f, err := w.decode(e)
			require.NoError(t, err)
			rows, ok := f.Body.Message.(*message.RowsResult)
			require.True(t, ok, "%v", f.Body.Message)
			require.Equal(t, "QUEUED", string(rows.Data[0][2]))
		}
	}
}
