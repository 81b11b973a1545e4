package frontend

import (
	"fmt"
	"slices"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/refusal"
	"music/musiccore"
)

// verdictLocks give every operation a stamp at once, and its verdict when the test says so.
type verdictLocks struct {
	Locks
	ended    chan musiccore.Outcome
	verdicts chan musiccore.Verdict
}

func (b *verdictLocks) Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Ticket: musiccore.Ticket{Key: k, Ref: r, Kind: kind, Stamp: 7}}, true
}

func (b *verdictLocks) End(_ musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	b.ended <- o
	return musiccore.VerdictUncertain, func() musiccore.Verdict { return <-b.verdicts }
}

// withBorrowed is a rig in front of it, with bank.accounts as a critical table.
func withBorrowed(t *testing.T) (*rig, *verdictLocks) {
	t.Helper()
	b := &verdictLocks{ended: make(chan musiccore.Outcome, 8), verdicts: make(chan musiccore.Verdict, 8)}
	r := newRig(t, func(o *Options) { o.Locks = b })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
	return r, b
}

// The answer of an operation waits for its verdict, and nothing else on the connection does.
func TestAnswerWaitsForItsVerdict(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r, core := withBorrowed(t)
		client, backend := r.login(d)
		write := query("UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = 'x'")
		read := query("SELECT n FROM bank.accounts WHERE id = 'x' USING LOCK 1")
		for _, tc := range []struct {
			asked   message.Message
			answer  message.Message
			outcome musiccore.Outcome
			verdict musiccore.Verdict
			code    primitive.ErrorCode // 0: the answer itself
			says    string
		}{
			{write, &message.VoidResult{}, musiccore.OutcomeAcked, musiccore.VerdictTell, 0, ""},
			{write, &message.VoidResult{}, musiccore.OutcomeAcked, musiccore.VerdictUncertain, primitive.ErrorCodeWriteTimeout, "MUSIC_UNCERTAIN"},
			{write, &message.VoidResult{}, musiccore.OutcomeAcked, musiccore.VerdictLost, primitive.ErrorCodeInvalid, "is unknown"},
			{write, &message.Invalid{ErrorMessage: "no"}, musiccore.OutcomeRefused, musiccore.VerdictTell, primitive.ErrorCodeInvalid, "no"},
			{write, &message.Invalid{ErrorMessage: "no"}, musiccore.OutcomeRefused, musiccore.VerdictLost, primitive.ErrorCodeInvalid, "nothing was written"},
			{write, &message.Invalid{ErrorMessage: "no"}, musiccore.OutcomeRefused, musiccore.VerdictUncertain, primitive.ErrorCodeInvalid, "no"},
			{write, &message.Overloaded{ErrorMessage: "full"}, musiccore.OutcomeUnknown, musiccore.VerdictLost, primitive.ErrorCodeInvalid, "is unknown"},
			{write, &message.Overloaded{ErrorMessage: "full"}, musiccore.OutcomeUnknown, musiccore.VerdictUncertain, primitive.ErrorCodeOverloaded, "full"},
			{read, rows(nil), musiccore.OutcomeAcked, musiccore.VerdictTell, 0, ""},
			{read, rows(nil), musiccore.OutcomeAcked, musiccore.VerdictUncertain, primitive.ErrorCodeInvalid, "MUSIC_UNAVAILABLE"},
			{read, rows(nil), musiccore.OutcomeAcked, musiccore.VerdictLost, primitive.ErrorCodeInvalid, "MUSIC_LOST"},
		} {
			client.send(5, tc.asked)
			backend.answer(5)
			backend.send(5, tc.answer)
			assert.Equal(t, tc.outcome, <-core.ended)
			relayed(client, backend, 6, query("SELECT a FROM b.c"), rows(nil))
			core.verdicts <- tc.verdict
			got := client.answer(5)
			failure, failed := got.(message.Error)
			require.Equal(t, tc.code != 0, failed, "%v", got)
			if failed {
				assert.Equal(t, tc.code, failure.GetErrorCode())
				assert.Contains(t, failure.GetErrorMessage(), tc.says)
			}
		}
	})
}

// A client that is owed an answer which waits for its verdict is told when Cassandra is lost, and a draining connection waits for it.
func TestVerdictAtTheEndOfAConnection(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, core := withBorrowed(t)
		client, backend := r.login(d)
		write := func() {
			client.send(5, query("UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = 'x'"))
			backend.answer(5)
			backend.send(5, &message.VoidResult{})
			<-core.ended
		}
		write()
		_ = backend.Close()
		backendLost(client, 5)
		core.verdicts <- musiccore.VerdictTell
		client.ended()

		client, backend = r.login(d)
		write()
		r.stop()
		client.silent()
		core.verdicts <- musiccore.VerdictTell
		assert.IsType(t, &message.VoidResult{}, client.answer(5))
		client.ended()
	})
}

// What Cassandra says of the read that an operation waits for is told as it would have said it of the operation.
func TestCassandrasOwnWordOfTooFewReplicas(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		short := &refusal.ShortError{Text: "Cannot achieve consistency level LOCAL_QUORUM", Consistency: uint16(primitive.ConsistencyLevelLocalQuorum), Required: 2, Alive: 1}
		core := &refusingLocks{err: fmt.Errorf("%w: %w", musiccore.ErrSynchronising, short)}
		r := newRig(t, func(o *Options) { o.Locks = core })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		client, backend := r.login(d)
		id := prepareWrite(client, backend)
		for _, asked := range underLock(id) {
			client.send(5, asked)
			f := client.failure(5).(*message.Unavailable)
			assert.Contains(t, f.ErrorMessage, short.Text+": ")
			assert.Equal(t, []any{primitive.ConsistencyLevelLocalQuorum, int32(2), int32(1)}, []any{f.Consistency, f.Required, f.Alive})
		}
		core.err = fmt.Errorf("%w: %w", musiccore.ErrUnavailable, short) // of a LOCK, which has waited for it
		client.send(5, underLock(id)[0])
		assert.Contains(t, client.failure(5).(*message.Invalid).ErrorMessage, "MUSIC_UNAVAILABLE")
		backend.silent()
	})
}

// refusingLocks give no stamp, and say why.
type refusingLocks struct {
	Locks
	err error
}

func (w *refusingLocks) Begin(musiccore.Key, musiccore.LockRef, musiccore.Kind, func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Err: w.err}, true
}

// An answer that waits for its verdict does not wait for room behind the end of another one that is not written yet: what has been
// posted can only be written after that.
func TestAVerdictBehindTheEndOfALargeAnswer(t *testing.T) {
	r, core := withBorrowed(t)
	client, backend := r.login(dialect{version: v4})
	client.send(1, query("SELECT a FROM b.c"))
	backend.answer(1)
	client.send(5, query("UPDATE bank.accounts USING LOCK 1 SET n = 1 WHERE id = 'x'"))
	backend.answer(5)
	const half = 500
	large := backend.envelope(t, 1, rows(noise(2*half)))
	backend.write(large[:half])
	client.expect(large[:half])
	r.server.each(func(c *conn) { c.post(client.envelope(t, 9, rows(noise(1<<20)))) })
	backend.write(append(slices.Clone(large[half:]), backend.envelope(t, 5, &message.VoidResult{})...))
	assert.Equal(t, musiccore.OutcomeAcked, <-core.ended)
	core.verdicts <- musiccore.VerdictTell
	client.expect(large[half:])
	client.answer(9)
	client.answer(5)
}
