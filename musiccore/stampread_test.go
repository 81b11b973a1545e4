package musiccore

import "testing"

// newKeyHeld is a harness whose client holds a key that had no lock row, and the epoch.
func newKeyHeld(t *testing.T) (*harness, Stamp) {
	t.Helper()
	h := newHarness(t)
	op := h.lock(Request{})
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	id, w := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	h.expectState(op, StateHeld)
	return h, w.Swap.Set.Row.Epoch
}

// blindPut begins a put that reads nothing, whose key has so high a stamp.
func (h *harness) blindPut(top Stamp) (Ticket, OpID) {
	h.t.Helper()
	tk, op := h.begin(1, BlindPut)
	if tk.OK() {
		h.t.Fatal("a ticket before the stamps of the key are known")
	}
	id, _ := commandOf[ReadStamps](h)
	h.reply(id, Result{Status: StatusDone, Stamp: top})
	return h.answers[op].Ticket, op
}

// A first section of one put reads the key's stamps in the place of a Synch, and leaves the row dirty.
func TestAPutOfANewKeyNeedsNoSynch(t *testing.T) {
	h, epoch := newKeyHeld(t)
	tk, _ := h.blindPut(epoch - 1)
	if !tk.OK() || tk.Kind != Put || tk.Stamp != epoch+2 {
		t.Fatalf("ticket %+v", tk)
	}
	if next, _ := h.begin(1, BlindPut); !next.OK() || next.Stamp != epoch+3 {
		t.Fatalf("the next ticket: %+v", next)
	} else if v := h.end(next, OutcomeAcked); v != VerdictTell {
		t.Fatalf("verdict %v", v)
	}
	h.end(tk, OutcomeAcked)
	h.expectState(h.unlock(1), StateReleased)
	if _, w := commandOf[Apply](h); !w.Swap.Set.Row.Dirty {
		t.Fatalf("release %+v", w.Swap)
	}
}

// What reads waits for a Synch, and a put behind it does, too; a put that reads is of that kind.
func TestAGetOfANewKeySynchronises(t *testing.T) {
	for _, kind := range []Kind{Get, Put} {
		h, epoch := newKeyHeld(t)
		tk, _ := h.blindPut(epoch - 1)
		h.end(tk, OutcomeAcked)
		first, get := h.begin(1, kind)
		second, put := h.begin(1, BlindPut)
		if first.OK() || second.OK() {
			t.Fatal("a ticket before the Synch")
		}
		id, c := commandOf[Synch](h)
		if c.Fence <= tk.Stamp {
			t.Fatalf("the fence %d is not above the put %d", c.Fence, tk.Stamp)
		}
		h.reply(id, Result{Status: StatusDone})
		if !h.answerOf(get).Ticket.OK() || !h.answerOf(put).Ticket.OK() {
			t.Fatal("no tickets after the Synch")
		}
	}
}

// A stamp at or above the put's would hide it.
func TestAPutBelowTheStampsOfItsKeySynchronises(t *testing.T) {
	h, epoch := newKeyHeld(t)
	if tk, _ := h.blindPut(epoch + 2); tk.OK() {
		t.Fatalf("ticket %+v", tk)
	}
	commandOf[Synch](h)
}

// Where the stamps cannot be read, or not soon, the key is synchronised.
func TestAPutOfANewKeyWhoseStampsAreNotRead(t *testing.T) {
	t.Run("failed", func(t *testing.T) {
		h, _ := newKeyHeld(t)
		h.begin(1, BlindPut)
		id, _ := commandOf[ReadStamps](h)
		h.reply(id, Result{})
		commandOf[Synch](h)
	})
	t.Run("slow", func(t *testing.T) {
		h, _ := newKeyHeld(t)
		h.begin(1, BlindPut)
		commandOf[ReadStamps](h)
		h.advance(h.opts.OpTimeout / 8)
		commandOf[Synch](h)
	})
}

// A raise of closed lets plain writes lie above the term.
func TestAPutBelowClosedIsFenced(t *testing.T) {
	h, epoch := newKeyHeld(t)
	tk, _ := h.blindPut(epoch - 1)
	h.end(tk, OutcomeAcked)
	h.collect(h.core.Closed(h.time(), h.table, epoch+1000))
	if tk, _ := h.begin(1, BlindPut); tk.OK() {
		t.Fatalf("ticket %+v", tk)
	}
}

// The second term of a key synchronises, so that the third finds it clean.
func TestTheSecondSectionOfAKeySynchronises(t *testing.T) {
	h, epoch := newKeyHeld(t)
	tk, _ := h.blindPut(epoch - 1)
	h.end(tk, OutcomeAcked)
	h.unlock(1)
	id, _ := commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	h.lock(Request{})
	id, _ = commandOf[Apply](h)
	h.reply(id, Result{Status: StatusDone})
	if tk, _ := h.begin(2, BlindPut); tk.OK() {
		t.Fatalf("ticket %+v", tk)
	}
	commandOf[Synch](h)
}
