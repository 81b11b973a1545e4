package frontend

import (
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// grantingLocks grant every LOCK reference 9. verdict is what it says of each operation.
type grantingLocks struct {
	leasedLocks
	verdict  musiccore.Verdict
	unlocked chan musiccore.LockRef
	locked   chan musiccore.Key
}

func newGrantingLocks() *grantingLocks {
	return &grantingLocks{leasedLocks{left: 30 * time.Second}, musiccore.VerdictTell, make(chan musiccore.LockRef, 9), make(chan musiccore.Key, 9)}
}

func (g *grantingLocks) Lock(k musiccore.Key, _ musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	g.locked <- k
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 9, State: musiccore.StateHeld}}, nil
}

func (g *grantingLocks) Unlock(_ musiccore.Key, ref musiccore.LockRef, _ musiccore.Client, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	g.unlocked <- ref
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: ref, State: musiccore.StateReleased}}, true
}

func (g *grantingLocks) End(musiccore.Ticket, musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	return g.verdict, nil
}

// updateRig is a client that may lock bank.accounts.
func updateRig(t *testing.T, d dialect, g *grantingLocks) (client, backend *peer) {
	t.Helper()
	r := newRig(t, func(o *Options) { o.Locks = g })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
	return r.login(d)
}

// page is one page of a column.
func page(state []byte, values ...string) *message.RowsResult {
	m := &message.RowsMetadata{ColumnCount: 1, PagingState: state, Columns: []*message.ColumnMetadata{{Keyspace: "bank", Table: "accounts", Name: "a", Type: datatype.Varchar}}}
	data := message.RowSet{}
	for _, v := range values {
		data = append(data, message.Row{[]byte(v)})
	}
	return &message.RowsResult{Metadata: m, Data: data}
}

// Cassandra may answer a page without rows and more to come: a client hears of its lock in the first row there is, or in one of its own
// at the end, and asks for the lock once.
func TestPagesWithoutRowsOfForUpdate(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		for _, last := range []*message.RowsResult{page(nil), page(nil, "x")} {
			g := newGrantingLocks()
			client, backend := updateRig(t, d, g)
			q := query("SELECT a FROM bank.accounts WHERE id = 'x' FOR UPDATE")
			q.Options.PageSize = 5
			answers := []*message.RowsResult{page([]byte("first")), page([]byte{}), last}
			answers[1].Metadata.PagingState = []byte("second")
			var got *message.RowsResult
			for i, answer := range answers {
				client.send(1, q)
				sent := backend.answer(1).(*message.Query)
				assert.Equal(t, "SELECT a FROM bank.accounts WHERE id = 'x' ", sent.Query)
				assert.Equal(t, primitive.ConsistencyLevelQuorum, sent.Options.Consistency)
				assert.EqualValues(t, 5, sent.Options.PageSize)
				assert.Equal(t, []string{"", "first", "second"}[i], string(sent.Options.PagingState), "Cassandra gets its own state")
				backend.send(1, answer)
				got = client.answer(1).(*message.RowsResult)
				q.Options.PagingState = got.Metadata.PagingState
				if i < 2 {
					assert.Empty(t, got.Data)
				}
			}
			require.Len(t, got.Data, 1)
			want := message.Row{{1}, {0, 0, 0, 0, 0, 0, 0, 9}, []byte("HELD"), nil}
			if len(last.Data) > 0 {
				want[3] = []byte("x")
			}
			assert.Equal(t, want, got.Data[0])
			assert.Nil(t, got.Metadata.PagingState)
			assert.Len(t, g.locked, 1)
			assert.Empty(t, g.unlocked)
		}
	})
}

// A read that fails gives the lock that was taken for it back before the client hears of it; that of a later page does not.
func TestReadThatFailsGivesItsLockBack(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		client, backend := updateRig(t, d, g)
		q := query("SELECT a FROM bank.accounts WHERE id = 'x' FOR UPDATE")
		client.send(1, q)
		backend.answer(1)
		backend.send(1, &message.ReadTimeout{ErrorMessage: "too slow", Consistency: primitive.ConsistencyLevelQuorum})
		assert.Equal(t, "too slow", client.failure(1).GetErrorMessage())
		require.Len(t, g.unlocked, 1)
		assert.EqualValues(t, 9, <-g.unlocked)

		q.Options.PagingState = pagingState{ref: 9, inner: []byte("first")}.bytes()
		client.send(1, q)
		backend.answer(1)
		backend.send(1, &message.ReadTimeout{ErrorMessage: "too slow", Consistency: primitive.ConsistencyLevelQuorum})
		client.failure(1)
		assert.Empty(t, g.unlocked)
	})
}

// queuedLocks have the lock given to others.
type queuedLocks struct{ *grantingLocks }

func (queuedLocks) Lock(musiccore.Key, musiccore.Request, func(musiccore.Answer)) (musiccore.Answer, func()) {
	return musiccore.Answer{Grant: musiccore.Grant{Ref: 5, State: musiccore.StateQueued}}, nil
}

// Who does not hold the lock is told so with the columns of the read, in types of its own version of the protocol, though a client of another version
// has prepared the statement.
func TestForUpdateThatAnotherVersionHasPrepared(t *testing.T) {
	const text = "SELECT a FROM bank.accounts WHERE id = 'x' FOR UPDATE"
	of := func(kind datatype.DataType) *message.PreparedResult {
		column := &message.ColumnMetadata{Keyspace: "bank", Table: "accounts", Name: "a", Type: kind}
		return &message.PreparedResult{
			PreparedQueryId: idOf(text), ResultMetadataId: idOf(text), VariablesMetadata: &message.VariablesMetadata{},
			ResultMetadata: &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{column}},
		}
	}
	class := &datatype.Custom{ClassName: "org.apache.cassandra.db.marshal.DurationType"}
	r := rightsRig(t, queuedLocks{newGrantingLocks()})
	client, backend := r.login(dialect{version: v5})
	id := relayed(client, backend, 1, &message.Prepare{Query: text}, of(datatype.Duration)).(*message.PreparedResult).PreparedQueryId
	client.send(1, &message.Execute{QueryId: id, ResultMetadataId: id})
	assert.Equal(t, datatype.Duration, client.answer(1).(*message.RowsResult).Metadata.Columns[3].Type)
	backend.silent()

	client, backend = r.login(d4())
	client.send(1, &message.Execute{QueryId: id, ResultMetadataId: id})
	assert.Equal(t, "SELECT a FROM bank.accounts WHERE id = 'x' ", backend.answer(1).(*message.Prepare).Query)
	backend.send(1, of(class))
	assert.Equal(t, class, client.answer(1).(*message.RowsResult).Metadata.Columns[3].Type)
}

// A connection that ends before the answer leaves no lock behind.
func TestLockOfALostReadIsGivenBack(t *testing.T) {
	g := newGrantingLocks()
	client, backend := updateRig(t, dialect{version: v4}, g)
	client.send(1, query("SELECT a FROM bank.accounts WHERE id = 'x' FOR UPDATE"))
	backend.answer(1)
	require.NoError(t, client.Close())
	select {
	case ref := <-g.unlocked:
		assert.EqualValues(t, 9, ref)
	case <-time.After(patience):
		require.Fail(t, "the lock is left behind")
	}
}

// The keys of LOCK … IN are asked for in one order, whatever order they are written in.
func TestSeveralKeysAreLockedInOneOrder(t *testing.T) {
	g := newGrantingLocks()
	client, _ := updateRig(t, dialect{version: v4}, g)
	for _, list := range []string{"('b', 'c', 'a')", "('c', 'a', 'b', 'a')"} {
		client.send(1, query("LOCK bank.accounts WHERE id IN "+list))
		client.answer(1)
		for _, want := range []string{"a", "b", "c", "a", "b", "c"} { // each is asked for, then renewed
			assert.Equal(t, want, (<-g.locked).PK)
		}
	}
}

// A key that cannot be had in the time of a LOCK … IN is given up, and told as BUSY: that the core then has no use for the question is no
// error of the client's.
func TestSeveralKeysWithinTheirTime(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks, o.MaxWait = ungrantedLocks{}, moment })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
	client, _ := r.login(dialect{version: v4})
	client.send(1, query("LOCK bank.accounts WHERE id IN ('b', 'a')"))
	got, ok := client.answer(1).(*message.RowsResult)
	require.True(t, ok)
	for i, id := range []string{"b", "a"} {
		assert.Equal(t, []message.Column{{0}, nil, []byte("BUSY"), []byte(id)}, []message.Column{got.Data[i][0], got.Data[i][1], got.Data[i][2], got.Data[i][7]})
	}
}
