package musiccore

import (
	"errors"
	"testing"
	"time"
)

// C9: after a put of unknown outcome the key is synchronised before the next get.
func TestC9SettledBeforeTheNextGet(t *testing.T) {
	h, _ := newHolder(t)
	tk, _ := h.begin(1, Put)
	if v := h.end(tk, OutcomeUnknown); v != VerdictUncertain {
		t.Fatalf("verdict %v", v)
	}
	get, op := h.begin(1, Get)
	if get.OK() {
		t.Fatal("a get after an unsettled put reads what may come or go")
	}
	id, c := commandOf[Synch](h)
	if c.Fence <= tk.Stamp {
		t.Fatalf("fence %d must lie above the put's %d", c.Fence, tk.Stamp)
	}
	h.reply(id, Result{Status: StatusDone})
	if !h.answerOf(op).Ticket.OK() {
		t.Fatal("no ticket after the settling")
	}
}

// C7: a Synch waits until no put is in flight, and operations wait for the Synch.
func TestC7SynchIsExclusive(t *testing.T) {
	h, _ := newHolder(t)
	lost, _ := h.begin(1, Put)
	slow, _ := h.begin(1, Put)
	h.end(lost, OutcomeUnknown)
	_, op := h.begin(1, Put)
	h.expectNoCommand()
	if v := h.end(slow, OutcomeAcked); v != VerdictTell {
		t.Fatalf("verdict %v", v)
	}
	id, c := commandOf[Synch](h)
	if c.Fence <= slow.Stamp {
		t.Fatal("an acknowledged put must lie below the fence, and be read by it")
	}
	h.expectWaiting(op)
	h.reply(id, Result{Status: StatusDone})
	if tk := h.answerOf(op).Ticket; tk.Stamp <= c.Fence+1 {
		t.Fatalf("stamp %d within the synchronise's", tk.Stamp)
	}
}

// When closed is raised a synchronised term has to synchronise again.
func TestRaiseOfClosedUnsynchronises(t *testing.T) {
	h, _ := newHolder(t) // dirty at entry, synchronised since
	h.collect(h.core.Closed(h.time(), h.table, 1))
	if tk, _ := h.begin(1, Get); tk.OK() {
		t.Fatal("synched=false in every open term of the table")
	}
	id, _ := commandOf[Synch](h)
	h.collect(h.core.Closed(h.time(), h.table, 2))
	h.reply(id, Result{Status: StatusDone})
	id, _ = commandOf[Synch](h) // the first did not see what came before the raise
	h.reply(id, Result{Status: StatusDone})
	if !h.term().synced {
		t.Fatal("not synchronised")
	}
}

// C10: each attempt to synchronise has a fence of its own.
func TestC10EachAttemptHasAFreshFence(t *testing.T) {
	h, _, op := newFirstPut(t)
	last := Stamp(0)
	for range 4 {
		id, c := commandOf[Synch](h)
		if c.Fence < last+2 && last != 0 {
			t.Fatalf("fence %d after %d", c.Fence, last)
		}
		last = c.Fence
		h.reply(id, unknown)
		h.expectNoCommand() // not at once
		h.advance(500 * time.Millisecond)
	}
	id, _ := commandOf[Synch](h)
	h.reply(id, Result{Status: StatusDone})
	if tk := h.answerOf(op).Ticket; tk.Stamp <= last+1 {
		t.Fatal("stamps overlap")
	}
}

// A Synch that met a stamp above its fence is tried again in a window above that.
func TestAboveRenewsAndStartsAgain(t *testing.T) {
	h, _, op := newFirstPut(t)
	id, c := commandOf[Synch](h)
	above := c.Fence + 10*h.opts.Window
	h.reply(id, Result{Status: StatusAbove, Stamp: above})
	id, a := commandOf[Apply](h)
	r := a.Swap.Set.Row
	if r.Epoch != above+1 || r.Head != 1 || !r.Dirty || r.Owner != session(1) {
		t.Fatalf("%+v", r)
	}
	h.reply(id, Result{Status: StatusDone})
	h.advance(time.Second)
	id, c = commandOf[Synch](h)
	if c.Fence <= above {
		t.Fatal("still below")
	}
	h.reply(id, Result{Status: StatusDone})
	if tk := h.answerOf(op).Ticket; tk.Stamp <= c.Fence+1 || tk.Epoch != above+1 {
		t.Fatalf("%+v", tk)
	}
}

// A key with a stamp beyond every window is refused, and the error says so.
func TestPoisonedKeyIsRefusedByName(t *testing.T) {
	h, _, op := newFirstPut(t)
	id, _ := commandOf[Synch](h)
	h.reply(id, Result{Status: StatusAbove, Stamp: poison})
	h.expectError(op, ErrPoisoned)
	_, a := commandOf[Apply](h)
	if !a.Swap.Set.Row.Dirty || a.Swap.Set.Row.Head != 2 {
		t.Fatalf("released dirty: %+v", a.Swap)
	}
}

// A key that cannot be written back is refused, and the error says why.
func TestTooLarge(t *testing.T) {
	h, _, op := newFirstPut(t)
	id, _ := commandOf[Synch](h)
	cause := errors.New("a row of 17 MiB")
	h.reply(id, Result{Status: StatusTooLarge, Cause: cause})
	if err := h.answerOf(op).Err; !errors.Is(err, ErrTooLarge) || !errors.Is(err, cause) {
		t.Fatal(err)
	}
	if r := h.release(1); !r.Dirty {
		t.Fatal("clean")
	}
}

// A Synch that was under way when the schema changed may have read with the old schema: it does not
// count, and the operation that waits for it gets its stamp after another Synch.
func TestASynchroniseUnderASchemaEventIsDoneAgain(t *testing.T) {
	h, s := newHolder(t)
	tk, _ := h.begin(1, Put)
	h.end(tk, OutcomeUnknown)
	_, get := h.begin(1, Get)
	id, _ := commandOf[Synch](h)
	h.collect(h.core.Altered(h.time(), h.table))
	h.reply(id, Result{Status: StatusDone})
	h.expectWaiting(get)
	id, renew := commandOf[Apply](h)
	s.apply(renew.Swap)
	h.reply(id, Result{Status: StatusDone})
	h.expectWaiting(get)
	id, again := commandOf[Synch](h)
	if again.Fence <= renew.Swap.Set.Row.Epoch {
		t.Fatalf("fence %d in the old window, epoch %d", again.Fence, renew.Swap.Set.Row.Epoch)
	}
	h.reply(id, Result{Status: StatusDone})
	if !h.answerOf(get).Ticket.OK() {
		t.Fatal("it was synchronised under the new schema")
	}
}

// I12: a Synch whose fence does not fit into the window waits for the next window.
func TestSynchDoesNotLeaveTheWindow(t *testing.T) {
	h := newHarness(t, func(o *Options) { o.Window = 16 })
	s := newFakeStore(h)
	h.lock(Request{})
	s.answerAll()
	base := h.term().window.epoch
	h.term().window.seq = 14
	_, op := h.begin(1, Put)
	id, c := commandOf[Synch](h)
	if c.Fence+1 != base+15 {
		t.Fatalf("the last two stamps of the window: %d", c.Fence-base)
	}
	h.reply(id, unknown)
	h.advance(time.Second)
	id, a := commandOf[Apply](h)
	h.expectNoCommand()
	if a.Swap.Set.Row.Epoch < base+16 || !a.Swap.Set.Row.Dirty {
		t.Fatalf("I12: %+v", a.Swap)
	}
	h.reply(id, Result{Status: StatusDone})
	id, c = commandOf[Synch](h)
	if c.Fence != a.Swap.Set.Row.Epoch+2 {
		t.Fatalf("fence %d", c.Fence)
	}
	h.reply(id, Result{Status: StatusDone})
	if tk := h.answerOf(op).Ticket; tk.Stamp != c.Fence+2 {
		t.Fatalf("%+v", tk)
	}
}

// If the store says at once that too few replicas live, the client is told at once, and the next
// operation tries again.
func TestASynchThatTheStoreCannotDoIsToldAtOnce(t *testing.T) {
	h := newHarness(t)
	s := newFakeStore(h)
	op := h.lock(Request{})
	s.answerAll()
	h.expectState(op, StateHeld)
	few := errors.New("required 2, alive 1")
	for range 5 {
		_, put := h.begin(1, Put)
		_, get := h.begin(1, Get)
		id, _ := commandOf[Synch](h)
		h.reply(id, Result{Status: StatusUnavailable, Cause: few})
		for _, op := range []OpID{put, get} {
			h.expectError(op, ErrSynchronising)
			h.expectError(op, few)
		}
		h.expectNoCommand()
	}
	_, put := h.begin(1, Put)
	s.answerAll()
	tk := h.answerOf(put).Ticket
	h.end(tk, OutcomeUnknown)
	h.unlock(1)
	for range h.opts.SettleTries {
		id, _ := commandOf[Synch](h)
		h.reply(id, Result{Status: StatusUnavailable, Cause: few})
		h.advance(time.Second)
	}
	s.answerAll()
	if s.row.Head != 2 || !s.row.Dirty {
		t.Fatalf("released with what is unsettled: %+v", *s.row)
	}
}

// copies are the Synchs that the store has seen since the first term's.
func (h *harness) synchs(s *fakeStore) []Synch {
	var all []Synch
	for _, a := range s.actions {
		if c, ok := a.(Synch); ok {
			all = append(all, c)
		}
	}
	return all[1:]
}

// A Synch waits for a get in flight: the get may have returned the value of a put that the Synch
// then leaves out.
func TestASynchWaitsForAGetInFlight(t *testing.T) {
	h, _ := newHolder(t)
	put, _ := h.begin(1, Put)
	get, _ := h.begin(1, Get)
	h.end(put, OutcomeUnknown)
	_, next := h.begin(1, Get)
	h.expectNoCommand()
	if v := h.end(get, OutcomeAcked); v != VerdictTell {
		t.Fatalf("verdict %v", v)
	}
	id, _ := commandOf[Synch](h)
	h.reply(id, Result{Status: StatusDone})
	if !h.answerOf(next).Ticket.OK() {
		t.Fatal("no ticket after the Synch")
	}
}
