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

// A first section of one put reads the key's write times instead of a Synch, and leaves the row
// dirty.
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

// A get, and a put that needs a read, wait for a Synch, and so does a put behind them.
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

// A write time at or above the put's stamp would hide the put, so the key is synchronised.
func TestAPutBelowTheStampsOfItsKeySynchronises(t *testing.T) {
	h, epoch := newKeyHeld(t)
	if tk, _ := h.blindPut(epoch + 2); tk.OK() {
		t.Fatalf("ticket %+v", tk)
	}
	commandOf[Synch](h)
}

// If the write times cannot be read, or not soon, the key is synchronised.
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

// After a raise of closed, plain writes may lie above the term, so the key is synchronised.
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

// lockNewKey asks for a key without a lock row, and returns the command that makes it.
func (h *harness) lockNewKey(pk string) (CommandID, Apply) {
	h.t.Helper()
	h.collect(h.core.Lock(h.time(), h.op(), Key{Table: h.table, PK: pk}, Request{}))
	id, _ := commandOf[ReadRow](h)
	h.reply(id, Result{Status: StatusDone})
	return commandOf[Apply](h)
}

// beginOn begins a put that reads nothing on another key.
func (h *harness) beginOn(pk string) Ticket {
	tk, fx := h.core.Begin(h.time(), h.op(), Key{Table: h.table, PK: pk}, 1, BlindPut)
	h.collect(fx)
	return tk
}

// If the last new key of the table began with a put, the write times are read beside the Enqueue,
// else not.
func TestTheStampsOfANewKeyAreReadBesideItsEnqueue(t *testing.T) {
	h, epoch := newKeyHeld(t)
	tk, _ := h.blindPut(epoch - 1)
	h.end(tk, OutcomeAcked)
	id, _ := h.lockNewKey("l")
	read, early := commandOf[ReadStamps](h)
	if !early.Early {
		t.Fatalf("%+v", early)
	}
	h.reply(read, Result{Status: StatusDone})
	h.reply(id, Result{Status: StatusDone})
	if !h.beginOn("l").OK() {
		t.Fatal("no ticket at once")
	}
	id, _ = h.lockNewKey("m")
	read, _ = commandOf[ReadStamps](h)
	h.reply(id, Result{Status: StatusDone})
	h.reply(read, Result{Status: StatusDone})
	h.collect(h.core.Unlock(h.time(), h.op(), Key{Table: h.table, PK: "m"}, 1))
	commandOf[Apply](h)
	h.lockNewKey("n")
	h.expectNoCommand()
}

// A read beside the Enqueue does not count if another session made the lock row or if closed was
// raised since; if it only failed, it is repeated.
func TestAnEarlyReadOfStampsThatCounts(t *testing.T) {
	for name, c := range map[string]struct {
		read    Result
		between func(*harness)
		again   bool
	}{
		"it failed":            {between: func(*harness) {}, again: true},
		"the key is large":     {read: Result{Status: StatusTooLarge}, between: func(*harness) {}},
		"a stamp is too high":  {read: Result{Status: StatusDone, Stamp: poison}, between: func(*harness) {}},
		"the table is altered": {read: Result{Status: StatusDone}, between: func(h *harness) { h.collect(h.core.Altered(h.time(), h.table)) }, again: true},
		"it is closed anew":    {read: Result{Status: StatusDone}, between: func(h *harness) { h.collect(h.core.Closed(h.time(), h.table, 7)) }},
	} {
		t.Run(name, func(t *testing.T) {
			h, epoch := newKeyHeld(t)
			tk, _ := h.blindPut(epoch - 1)
			h.end(tk, OutcomeAcked)
			id, _ := h.lockNewKey("l")
			read, _ := commandOf[ReadStamps](h)
			h.reply(read, c.read)
			c.between(h)
			h.reply(id, Result{Status: StatusDone})
			if h.beginOn("l").OK() {
				t.Fatal("a ticket at once")
			}
			if c.again {
				if _, a := commandOf[ReadStamps](h); a.Early {
					t.Fatalf("%+v", a)
				}
				return
			}
			if _, renews := openCommand[Apply](h); !renews {
				commandOf[Synch](h)
			}
		})
	}
}

// openCommand finds an open command of a kind.
func openCommand[A Action](h *harness) (a A, found bool) {
	for _, c := range h.open {
		if a, found = c.Action.(A); found {
			return a, true
		}
	}
	return a, false
}
