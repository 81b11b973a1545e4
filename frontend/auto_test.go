package frontend

import (
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// scriptedLocks answer LOCK as the test says.
type scriptedLocks struct {
	*grantingLocks
	answer musiccore.Answer
}

func (g *scriptedLocks) Lock(k musiccore.Key, _ musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	g.locked <- k
	return g.answer, nil
}

// policy makes bank.accounts critical, with sections of its own for plain writes or another policy.
func (r *rig) policy(p catalog.Policy) {
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Settings: catalog.Settings{Unlocked: p}})
}

// autoRig is a client of a table whose plain writes get sections of their own.
func autoRig(t *testing.T, d dialect, core Locks) (r *rig, client, backend *peer) {
	t.Helper()
	r = newRig(t, func(o *Options) { o.Locks = core })
	r.policy(catalog.Auto)
	client, backend = r.login(d)
	return r, client, backend
}

const lonely = "UPDATE bank.accounts SET n = 1 WHERE id = 'x'"

// A plain write takes the lock, goes out under it as it is, and gives it back, whatever Cassandra answers.
func TestAWriteAlone(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		_, client, backend := autoRig(t, d, g)
		for _, answer := range []message.Message{&message.VoidResult{}, &message.Invalid{ErrorMessage: "no"}, &message.Overloaded{ErrorMessage: "full"}} {
			for _, text := range []string{lonely, "BEGIN BATCH " + lonely + "; DELETE FROM bank.accounts WHERE id = 'x' APPLY BATCH"} {
				client.send(1, query(text))
				sent := backend.answer(1).(*message.Query)
				assert.Equal(t, text, sent.Query)
				assert.Equal(t, primitive.ConsistencyLevelQuorum, sent.Options.Consistency)
				assert.EqualValues(t, 1000, *sent.Options.DefaultTimestamp)
				assert.Empty(t, g.unlocked, "not before the answer")
				backend.send(1, answer)
				assert.IsType(t, answer, client.answer(1))
				assert.Equal(t, <-g.locked, musiccore.Key{PK: "x"})
				assert.EqualValues(t, 9, <-g.unlocked)
			}
		}
	})
}

// A write alone that does not get its lock is refused: nothing is written, and its place in the queue is given up.
func TestAWriteAloneThatGetsNoLock(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		g := &scriptedLocks{grantingLocks: newGrantingLocks()}
		_, client, _ := autoRig(t, d, g)
		g.answer = musiccore.Answer{Grant: musiccore.Grant{Ref: 5, State: musiccore.StateQueued}}
		client.send(1, query(lonely))
		f := client.failure(1)
		assert.Equal(t, primitive.ErrorCodeOverloaded, f.GetErrorCode())
		assert.Contains(t, f.GetErrorMessage(), "MUSIC_UNAVAILABLE: bank.accounts: others are writing this key: nothing was written, try again")
		assert.EqualValues(t, 5, <-g.unlocked, "its place is given up")
		g.answer = musiccore.Answer{Grant: musiccore.Grant{State: musiccore.StateQueued}}
		client.send(1, query(lonely))
		assert.Equal(t, primitive.ErrorCodeOverloaded, client.failure(1).GetErrorCode())
		g.answer = musiccore.Answer{Err: musiccore.ErrNoSession}
		client.send(1, query(lonely))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_UNAVAILABLE: bank.accounts: this proxy has lost touch")
		assert.Empty(t, g.unlocked)
	})
}

// The lock does not outlive its write: not where the connection is lost, nor where the term gives no stamp.
func TestAWriteAloneThatIsLost(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		_, client, backend := autoRig(t, d, g)
		client.send(1, query(lonely))
		backend.answer(1)
		_ = backend.Close()
		backendLost(client, 1)
		assert.EqualValues(t, 9, <-g.unlocked)

		_, client, _ = autoRig(t, d, &endedLocks{g})
		client.send(1, query(lonely))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_UNAVAILABLE: bank.accounts: the write came too late")
		assert.EqualValues(t, 9, <-g.unlocked)
	})
}

// endedLocks are Locks that end every lock at once.
type endedLocks struct{ *grantingLocks }

func (*endedLocks) Begin(musiccore.Key, musiccore.LockRef, musiccore.Kind, func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Err: musiccore.ErrLost}, true
}

// A plain write has one id, Cassandra's, whatever its table is when it is prepared and when it is executed: drivers take no other one.
func TestAPreparedWriteFollowsItsTable(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		r, client, backend := autoRig(t, d, g)
		r.server.Tables.Set("bank", "accounts", nil)
		const text = "UPDATE bank.accounts SET n = 1 WHERE id = ?"
		id := r.prepare(client, backend, text)
		relayed(client, backend, 1, execute(id, []byte("x")), &message.VoidResult{})

		r.policy(catalog.Auto)
		client.send(1, execute(id, []byte("x")))
		assert.Equal(t, primitive.ErrorCodeUnprepared, client.failure(1).GetErrorCode())
		require.Equal(t, id, r.prepare(client, backend, text))
		alone := func() {
			client.send(1, execute(id, []byte("x")))
			sent := backend.answer(1).(*message.Execute)
			assert.Equal(t, id, sent.QueryId)
			assert.EqualValues(t, 1000, *sent.Options.DefaultTimestamp)
			backend.send(1, &message.VoidResult{})
			assert.IsType(t, &message.VoidResult{}, client.answer(1))
			assert.Equal(t, <-g.locked, musiccore.Key{PK: "x"})
			<-g.unlocked
		}
		alone()

		r.policy(catalog.Reject)
		client.send(1, execute(id, []byte("x")))
		fencedOff(client, 1)
		client.send(1, &message.Batch{Children: []*message.BatchChild{{Id: id}}})
		fencedOff(client, 1)
		r.policy(catalog.Allow)
		relayed(client, backend, 1, execute(id, []byte("x")), &message.VoidResult{})
		relayed(client, backend, 1, &message.Batch{Children: []*message.BatchChild{{Id: id, Values: []*primitive.Value{primitive.NewValue([]byte("x"))}}}}, &message.VoidResult{})
		r.server.Tables.Set("bank", "accounts", nil)
		relayed(client, backend, 1, execute(id, []byte("x")), &message.VoidResult{})
		r.policy(catalog.Auto)
		alone()
		assert.Empty(t, g.locked)
	})
}

// What can have no section is prepared all the same, since applications prepare everything when they start: it is refused when it is
// executed, and never UNPREPARED, which would have drivers prepare it for ever.
func TestWhatCannotBeWrittenAloneIsRefusedWhenExecuted(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, client, backend := autoRig(t, d, newGrantingLocks())
		r.policy(catalog.Reject)
		const text = "INSERT INTO bank.accounts (n) VALUES (?)"
		id := r.prepare(client, backend, text)
		r.policy(catalog.Auto)
		client.send(1, execute(id, []byte("{}")))
		assert.Equal(t, primitive.ErrorCodeUnprepared, client.failure(1).GetErrorCode())
		require.Equal(t, id, r.prepare(client, backend, text))
		client.send(1, execute(id, []byte("{}")))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_KEY")
		client.send(1, &message.Batch{Children: []*message.BatchChild{{Id: id, Values: []*primitive.Value{primitive.NewValue([]byte("{}"))}}}})
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_KEY")
	})
}

// A batch is one write: one lock, one stamp.
func TestABatchAlone(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		r, client, backend := autoRig(t, d, g)
		id := r.prepare(client, backend, "DELETE FROM bank.accounts WHERE id = ?")
		bound := &message.BatchChild{Id: id, Values: []*primitive.Value{primitive.NewValue([]byte("x"))}}
		client.send(1, &message.Batch{Children: []*message.BatchChild{{Query: lonely}, bound}})
		sent := backend.answer(1).(*message.Batch)
		require.Len(t, sent.Children, 2)
		assert.Equal(t, lonely, sent.Children[0].Query)
		assert.Equal(t, id, sent.Children[1].Id)
		assert.EqualValues(t, 1000, *sent.DefaultTimestamp)
		backend.send(1, &message.VoidResult{})
		assert.IsType(t, &message.VoidResult{}, client.answer(1))
		assert.Equal(t, <-g.locked, musiccore.Key{PK: "x"})
		<-g.unlocked
		client.send(1, &message.Batch{Children: []*message.BatchChild{{Query: lonely}, {Query: "UPDATE bank.accounts USING LOCK 3 SET n = 1 WHERE id = 'x'"}}})
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED")
		client.send(1, query("UPDATE bank.accounts USING TIMESTAMP 3 SET n = 1 WHERE id = 'x'"))
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED")
		assert.Empty(t, g.locked)
	})
}

// What a table lets through it lets through in a BATCH message, too.
func TestABatchOfWhatIsAllowed(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, client, backend := autoRig(t, d, newGrantingLocks())
		r.policy(catalog.Allow)
		relayed(client, backend, 1, &message.Batch{Children: []*message.BatchChild{{Query: lonely}, {Query: "UPDATE bank.accounts SET n = 1 WHERE id = 'y'"}}}, &message.VoidResult{})
		client.send(1, &message.Batch{Children: []*message.BatchChild{{Query: lonely}, {Query: "UPDATE bank.accounts USING LOCK 3 SET n = 1 WHERE id = 'x'"}}})
		assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED")
	})
}

// A write with IF is read, tried and written in one section: an application's lightweight transactions go on as they are.
func TestAConditionAlone(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		g := newGrantingLocks()
		r := newRig(t, func(o *Options) { o.Locks = g })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{
			Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Settings: catalog.Settings{Unlocked: catalog.Auto},
			Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "balance": {Name: "balance", Type: "bigint"}, "n": {Name: "n", Type: "int"}},
		})
		client, backend := r.login(d)
		for _, balance := range []int64{10, 9} {
			client.send(1, query("UPDATE bank.accounts SET n = 1 WHERE id = 'x' IF balance = 10"))
			read := backend.answer(1).(*message.Query)
			assert.Contains(t, read.Query, "SELECT")
			assert.Equal(t, <-g.locked, musiccore.Key{PK: "x"})
			assert.Empty(t, g.unlocked)
			backend.send(1, balances(bigint(balance)))
			if balance == 10 {
				write := backend.answer(1).(*message.Query)
				assert.NotContains(t, write.Query, "IF")
				assert.EqualValues(t, 1000, *write.Options.DefaultTimestamp)
				assert.Empty(t, g.unlocked)
				backend.send(1, &message.VoidResult{})
			}
			row := client.answer(1).(*message.RowsResult)
			assert.Equal(t, boolean(balance == 10), row.Data[0][0])
			assert.EqualValues(t, 9, <-g.unlocked)
		}
	})
}

// requestedLocks keep what is asked for.
type requestedLocks struct {
	*grantingLocks
	asked chan musiccore.Request
}

// Lock implements Locker.
func (l requestedLocks) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	l.asked <- q
	return l.grantingLocks.Lock(k, q, done)
}

// A client that does not read its answers keeps the key for no longer than an operation may take, twice over, whatever the lease of
// the table.
func TestTheLeaseOfASectionOfOneWrite(t *testing.T) {
	for most, want := range map[time.Duration]time.Duration{24 * time.Hour: ownSectionLease, time.Second: time.Second} {
		l := requestedLocks{newGrantingLocks(), make(chan musiccore.Request, 1)}
		r, client, backend := autoRig(t, dialect{version: v4}, l)
		was := r.server.Tables.Of("bank", "accounts").Critical()
		now := *was
		now.MaxLease = most
		r.server.Tables.Set("bank", "accounts", &now)
		client.send(1, query(lonely))
		backend.answer(1)
		assert.Equal(t, want, (<-l.asked).Lease)
		backend.send(1, &message.VoidResult{})
		client.answer(1)
	}
}
