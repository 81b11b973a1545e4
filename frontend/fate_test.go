package frontend

import (
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/refusal"
	"music/musiccore"
)

// fatefulLocks answer as a test says.
type fatefulLocks struct {
	Locks
	lock, begin error
	state       musiccore.State
	verdicts    []musiccore.Verdict // of the operations, one after the other
}

func (l *fatefulLocks) Lock(_ musiccore.Key, _ musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	return musiccore.Answer{Err: l.lock, Grant: musiccore.Grant{Applied: true, Ref: 9, State: l.state}}, nil
}

func (l *fatefulLocks) Unlock(musiccore.Key, musiccore.LockRef, musiccore.Client, func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{}, true
}

func (l *fatefulLocks) Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Err: l.begin, Ticket: musiccore.Ticket{Key: k, Ref: r, Kind: kind, Stamp: fenceStamp, Lease: 30 * time.Second}}, true
}

func (l *fatefulLocks) End(musiccore.Ticket, musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	v := l.verdicts[0]
	l.verdicts = l.verdicts[1:]
	return v, nil
}

// The writes whose fates are tried, and what Cassandra would call each.
const (
	plainFate = "UPDATE bank.accounts SET n = 1 WHERE id = 'x'"
	batchFate = "BEGIN BATCH " + plainFate + "; DELETE FROM bank.accounts WHERE id = 'x'; APPLY BATCH"
	condFate  = "UPDATE bank.accounts SET n = 1 WHERE id = 'x' IF balance = 10"
)

// fate is a row of the table in docs/cql.md, "What a client hears that knows nothing of locks".
type fate struct {
	name    string
	text    string
	locks   fatefulLocks
	answers []message.Message // of Cassandra, to what it is sent
	code    primitive.ErrorCode
	kind    primitive.WriteType // of a WRITE_TIMEOUT
	says    string
}

const (
	tells     = musiccore.VerdictTell
	uncertain = musiccore.VerdictUncertain
	lost      = musiccore.VerdictLost
)

func fates() []fate {
	refusing := func(err error) fatefulLocks { return fatefulLocks{lock: err} }
	stampless := func(err error) fatefulLocks { return fatefulLocks{state: musiccore.StateHeld, begin: err} }
	judged := func(v ...musiccore.Verdict) fatefulLocks {
		return fatefulLocks{state: musiccore.StateHeld, verdicts: v}
	}
	const overloaded, timeout, invalid = primitive.ErrorCodeOverloaded, primitive.ErrorCodeWriteTimeout, primitive.ErrorCodeInvalid
	void, passes := &message.VoidResult{}, balances(bigint(10))
	slow := &message.WriteTimeout{ErrorMessage: "slow", Consistency: primitive.ConsistencyLevelQuorum, BlockFor: 2, Received: 1, WriteType: primitive.WriteTypeSimple}
	return []fate{
		{name: "the key is not free in time", text: plainFate, locks: fatefulLocks{state: musiccore.StateQueued}, code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: others are writing this key: nothing was written, try again"},
		{name: "no quorum", text: plainFate, locks: refusing(musiccore.ErrUnavailable), code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: this key cannot be read or written at QUORUM"},
		{name: "no session", text: condFate, locks: refusing(musiccore.ErrNoSession), code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: this proxy has lost touch"},
		{name: "clocks", text: plainFate, locks: refusing(musiccore.ErrClock), code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: the clocks"},
		{name: "draining", text: batchFate, locks: refusing(musiccore.ErrDraining), code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: this proxy is shutting down"},
		{name: "too many wait", text: plainFate, locks: refusing(musiccore.ErrTooManyWaiters), code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: too many writes wait"},
		{name: "lost before it was sent", text: plainFate, locks: stampless(musiccore.ErrLost), code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: the write came too late"},
		{name: "not held", text: condFate, locks: stampless(musiccore.ErrNotHeld), code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: the write came too late"},
		{name: "not settled in time", text: plainFate, locks: stampless(musiccore.ErrSynchronising), code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: writes that the last writer"},
		{name: "too few replicas", text: plainFate, locks: stampless(shortOfReplicas{&refusal.ShortError{Text: "Cannot achieve", Consistency: uint16(primitive.ConsistencyLevelQuorum), Required: 2, Alive: 1}}), code: primitive.ErrorCodeUnavailable, says: "nothing was done"},
		{name: "too large", text: plainFate, locks: stampless(musiccore.ErrTooLarge), code: invalid, says: "MUSIC_REFUSED: this key"},
		{name: "poisoned", text: plainFate, locks: stampless(musiccore.ErrPoisoned), code: invalid, says: "MUSIC_REFUSED: this key"},
		{name: "read of a condition, uncertain", text: condFate, locks: judged(uncertain), answers: []message.Message{passes}, code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: the proxy could not find out in time whether it has read"},
		{name: "read of a condition, lost", text: condFate, locks: judged(lost), answers: []message.Message{passes}, code: overloaded, says: "MUSIC_UNAVAILABLE: bank.accounts: the write came too late"},
		{name: "read of a condition, Cassandra's own", text: condFate, locks: judged(uncertain), answers: []message.Message{&message.ReadTimeout{ErrorMessage: "slow read"}}, code: primitive.ErrorCodeReadTimeout, says: "slow read"},
		{name: "write, lost", text: plainFate, locks: judged(lost), answers: []message.Message{void}, code: timeout, kind: primitive.WriteTypeSimple, says: "MUSIC_UNCERTAIN: whether this write to bank.accounts"},
		{name: "write, uncertain", text: plainFate, locks: judged(uncertain), answers: []message.Message{void}, code: timeout, kind: primitive.WriteTypeSimple, says: "MUSIC_UNCERTAIN"},
		{name: "batch, uncertain", text: batchFate, locks: judged(uncertain), answers: []message.Message{void}, code: timeout, kind: primitive.WriteTypeBatch, says: "MUSIC_UNCERTAIN"},
		{name: "conditional write, lost", text: condFate, locks: judged(tells, lost), answers: []message.Message{passes, void}, code: timeout, kind: primitive.WriteTypeCas, says: "MUSIC_UNCERTAIN"},
		{name: "conditional write, uncertain", text: condFate, locks: judged(tells, uncertain), answers: []message.Message{passes, void}, code: timeout, kind: primitive.WriteTypeCas, says: "MUSIC_UNCERTAIN"},
		{name: "conditional write, Cassandra's own", text: condFate, locks: judged(tells, uncertain), answers: []message.Message{passes, slow}, code: timeout, kind: primitive.WriteTypeCas, says: "MUSIC_UNCERTAIN"},
		{name: "conditional write, Cassandra is overloaded", text: condFate, locks: judged(tells, uncertain), answers: []message.Message{passes, &message.Overloaded{ErrorMessage: "full"}}, code: timeout, kind: primitive.WriteTypeCas, says: "MUSIC_UNCERTAIN"},
		{name: "write, Cassandra's own", text: plainFate, locks: judged(uncertain), answers: []message.Message{slow}, code: timeout, kind: primitive.WriteTypeSimple, says: "slow"},
		{name: "write that Cassandra refuses", text: plainFate, locks: judged(lost), answers: []message.Message{&message.Invalid{ErrorMessage: "no"}}, code: invalid, says: "no"},
		{name: "write that Cassandra refuses late", text: condFate, locks: judged(tells, uncertain), answers: []message.Message{passes, &message.Unauthorized{ErrorMessage: "no right"}}, code: primitive.ErrorCodeUnauthorized, says: "no right"},
	}
}

// shortOfReplicas is what the core tells where too few replicas live to settle a key.
type shortOfReplicas struct{ *refusal.ShortError }

func (e shortOfReplicas) Unwrap() []error { return []error{musiccore.ErrSynchronising, e.ShortError} }

// A client that knows nothing of locks hears of every fate of its write what it knows from Cassandra: to try again where nothing was
// written, a time-out where that is not known, and never INVALID for what may be.
func TestFatesOfAWriteAlone(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		core := &fatefulLocks{}
		r := newRig(t, func(o *Options) { o.Locks = core })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{
			Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Settings: catalog.Settings{Unlocked: catalog.Auto},
			Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "balance": {Name: "balance", Type: "bigint"}, "n": {Name: "n", Type: "int"}},
		})
		client, backend := r.login(d)
		for _, f := range fates() {
			*core = f.locks
			client.send(1, query(f.text))
			for _, answer := range f.answers {
				backend.answer(1)
				backend.send(1, answer)
			}
			got := client.failure(1)
			assert.Equal(t, f.code, got.GetErrorCode(), "%s: %v", f.name, got)
			assert.Contains(t, got.GetErrorMessage(), f.says, f.name)
			for _, word := range []string{"lock_ref", "LOCK", "MUSIC_LOST", "MUSIC_NOT_HELD"} {
				assert.NotContains(t, got.GetErrorMessage(), word, f.name)
			}
			if f.kind != "" {
				require.IsType(t, &message.WriteTimeout{}, got, f.name)
				assert.Equal(t, f.kind, got.(*message.WriteTimeout).WriteType, f.name)
			}
		}
	})
}

// A write alone that was late within its own lease is told nothing of that.
func TestAWriteAloneIsNotWarned(t *testing.T) {
	g := newGrantingLocks()
	g.left = time.Millisecond
	_, client, backend := autoRig(t, dialect{version: v4}, g)
	client.send(1, query(lonely))
	backend.answer(1)
	backend.send(1, &message.VoidResult{})
	assert.Empty(t, client.next().Body.Warnings)
	<-g.locked
	<-g.unlocked
}
