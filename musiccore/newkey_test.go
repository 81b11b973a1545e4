package musiccore

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lockOther locks another key of the table, whose lock row is row, and returns what was sent to the store until
// the client holds the lock, which it must without waiting for any time.
func (s *fakeStore) lockOther(name string, row *Row, q Request) []Action {
	s.h.t.Helper()
	s.row, s.actions = row, nil
	op := s.h.op()
	s.h.collect(s.h.core.Lock(s.h.time(), op, Key{Table: s.h.table, PK: name}, q))
	s.answerAll()
	s.h.expectState(op, StateHeld)
	return s.actions
}

// readFirst reports whether the lock row was read before anything else was done.
func readFirst(actions []Action) bool {
	_, read := actions[0].(ReadRow)
	return read
}

// After a few new keys the lock row of the next one is not read before its Enqueue. If there is a row
// after all, the INSERT is refused, the row is read and the client is enqueued at once; and it takes
// twice as many new keys until the next is taken for one.
func TestTheRowOfTheNextNewKeyIsNotRead(t *testing.T) {
	for name, q := range map[string]Request{"LOCK": {}, "NOWAIT": {NoWait: true}, "one statement": {Once: BlindPut}} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			s := newFakeStore(h)
			n, old := 0, Row{Guard: 7, Head: 8, Epoch: t0 - 1}
			next := func(row *Row) []Action {
				n++
				return s.lockOther(fmt.Sprint(n), row, q)
			}
			for guesses := range wrongGuesses + 2 {
				for range newKeysInRow << min(guesses, wrongGuesses) {
					require.True(t, readFirst(next(nil)), "key %d, after %d wrong guesses", n, guesses)
				}
				require.False(t, readFirst(next(nil)), "key %d, after %d wrong guesses", n, guesses)
				row := old
				actions := next(&row)
				require.False(t, readFirst(actions))
				require.Equal(t, IfAbsent, actions[0].(Apply).Swap.If.What)
			}
		})
	}
}

// A row that was made at the same time may be for one statement of another proxy: the Enqueue waits
// as long as that may take. A row of long ago is not waited for.
func TestARefusedInsertWaitsForARivalOnly(t *testing.T) {
	for name, age := range map[string]time.Duration{"of the same time": 10 * time.Millisecond, "of before": 2 * rivalWait} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			op := h.lock(Request{})
			id, _ := commandOf[ReadRow](h)
			h.reply(id, Result{Status: StatusDone})
			insert, a := commandOf[Apply](h)
			row := Row{Guard: 1, Head: 2, Epoch: a.Swap.Set.Row.Epoch - Stamp(age.Microseconds())}
			h.advanceUnticked(100 * time.Millisecond)
			h.reply(insert, Result{Status: StatusRefused})
			id, _ = commandOf[ReadRow](h)
			h.reply(id, Result{Status: StatusDone, Row: &row})
			if age < rivalWait {
				h.expectNoCommand()
				h.advance(200 * time.Millisecond)
			}
			id, _ = commandOf[Apply](h)
			h.reply(id, Result{Status: StatusDone})
			h.expectState(op, StateHeld)
		})
	}
}
