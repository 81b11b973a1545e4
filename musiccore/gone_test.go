package musiccore

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A LOCK that was on its way to the core while its table was dropped leaves nothing behind: its LWT can never
// be carried out, and would be repeated for ever.
func TestALockOfATableThatIsGone(t *testing.T) {
	h := newHarness(t)
	for _, pk := range []string{"a", "b", "c", "d"} { // after these the lock row of the next key is not read first
		h.collect(h.core.Lock(h.time(), h.op(), Key{h.table, pk}, Request{Once: BlindPut}))
		id, _ := commandOf[ReadRow](h)
		h.reply(id, Result{Status: StatusDone})
		id, _ = commandOf[Apply](h)
		h.reply(id, Result{Status: StatusDone})
	}
	h.collect(h.core.Dropped(h.time(), h.table))
	h.open = nil
	op := h.lock(Request{Once: BlindPut})
	gone := Result{Cause: errors.New("the table is gone"), Gone: true}
	sent := 0
	for end := h.now + time.Minute; h.now < end; h.advance(time.Second) {
		for _, c := range h.open {
			sent++
			h.reply(c.ID, gone)
		}
		h.open = nil
	}
	h.expectError(op, ErrUnavailable)
	require.LessOrEqual(t, sent, 2)
	require.Empty(t, h.core.keys)
	require.Empty(t, h.core.commands)
	require.True(t, h.core.Quiet())
}
