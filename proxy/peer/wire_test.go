package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/refusal"
	"music/musiccore"
)

// Every field of a ticket travels: what a core needs to know its own ticket by must come back.
func TestTicketsTravelWhole(t *testing.T) {
	var lent musiccore.Ticket
	v := reflect.ValueOf(&lent).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		require.True(t, f.CanSet(), "%s does not travel", v.Type().Field(i).Name)
		switch f.Kind() {
		case reflect.Int64:
			f.SetInt(1<<62 + int64(i)) // more than a float64 has room for
		case reflect.Uint8, reflect.Uint64:
			f.SetUint(200 + uint64(i))
		case reflect.Array:
			f.Index(0).SetUint(7)
		case reflect.Bool:
			f.SetBool(true)
		}
	}
	lent.Key = testKey("x")
	told, err := json.Marshal(replyTo(musiccore.Answer{Ticket: lent}))
	require.NoError(t, err)
	assert.NotContains(t, string(told), "Key")
	var r reply
	require.NoError(t, json.Unmarshal(told, &r))
	from := musiccore.SessionID{9}
	want := lent
	want.Lender, want.Loan = from, 0 // the borrower's own
	assert.Equal(t, want, r.answer(lent.Key, from).Ticket)
}

// Every field of a hint travels.
func TestHintsTravelWhole(t *testing.T) {
	sent := musiccore.Hint{
		Key: testKey("x"), To: musiccore.SessionID{9}, Kind: musiccore.HintRecall, Last: 7,
	}
	for i, v := 0, reflect.ValueOf(sent); i < v.NumField(); i++ {
		require.False(t, v.Field(i).IsZero(), v.Type().Field(i).Name)
	}
	h := hints{queues: map[musiccore.SessionID]*hintQueue{sent.To: {waiting: []musiccore.Hint{sent}, senders: 1}}}
	told, err := json.Marshal(question{Hints: h.take(sent.To)})
	require.NoError(t, err)
	var q question
	require.NoError(t, json.Unmarshal(told, &q))
	assert.Equal(t, sent, q.Hints[0].hint(sent.To))
	assert.NotContains(t, string(told), "To")
}

// An error means the same at both ends.
func TestErrorsTravel(t *testing.T) {
	for _, want := range append(faults(), &musiccore.ElsewhereError{Session: musiccore.SessionID{3}}) {
		sent := replyTo(musiccore.Answer{Err: fmt.Errorf("%w: and why", want)})
		got := sent.err()
		if errors.Is(want, musiccore.ErrElsewhere) {
			assert.Equal(t, want, got)
			continue
		}
		assert.ErrorIs(t, got, want)
		assert.Equal(t, want.Error()+": and why", got.Error())
	}
	short := &refusal.ShortError{Text: "Cannot achieve", Consistency: 4, Required: 2, Alive: 1}
	sent := replyTo(musiccore.Answer{Err: fmt.Errorf("%w: %w", musiccore.ErrSynchronising, short)})
	told, err := json.Marshal(sent)
	require.NoError(t, err)
	var heard reply
	require.NoError(t, json.Unmarshal(told, &heard))
	require.ErrorIs(t, heard.err(), musiccore.ErrSynchronising)
	var got *refusal.ShortError
	require.ErrorAs(t, heard.err(), &got)
	assert.Equal(t, short, got)
	unknown := replyTo(musiccore.Answer{Err: errors.New("something else")})
	assert.ErrorIs(t, unknown.err(), musiccore.ErrUnavailable)
	assert.NoError(t, new(reply).err())
}

// What proxies of one version say to each other is fixed, also the names of the core's fields and
// the texts of its errors in it: with any change of these lines Version has to change, too, unless
// both sides ignore it.
func TestWireFormat(t *testing.T) {
	lent := musiccore.Ticket{Key: testKey("x"), Ref: 1, Stamp: 2, Kind: musiccore.Put}
	sent := []any{
		spoken,
		question{
			Key: toWire(testKey("x")), Ref: 1, Lock: &musiccore.Request{}, Kind: musiccore.Put, Ticket: &wireTicket{Ticket: lent}, Outcome: musiccore.OutcomeAcked,
			Reason: "r", Hints: []wireHint{{Key: toWire(testKey("x"))}},
		},
		reply{Verdict: musiccore.VerdictTell, Ticket: &wireTicket{Ticket: lent}, Locks: []wireListing{{Key: toWire(testKey("x"))}}, More: true},
	}
	for _, fault := range faults() {
		sent = append(sent, replyTo(musiccore.Answer{Err: fault}).Fault)
	}
	var got []string
	for _, m := range sent {
		text, err := json.Marshal(m)
		require.NoError(t, err)
		got = append(got, string(text))
	}
	want, err := os.ReadFile("testdata/wire.txt")
	require.NoError(t, err)
	assert.Equal(t, strings.TrimSpace(string(want)), strings.Join(got, "\n"))
}
