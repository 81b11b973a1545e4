package musiccore

import "testing"

// A section on a new key, command by command.
func TestLockPutUnlock(t *testing.T) {
	h := newHarness(t)
	op := h.lock(Request{Owner: "me"})
	id, read := commandOf[ReadRow](h)
	if read.Quorum {
		t.Fatal("the first look is local")
	}
	h.reply(id, Result{Status: StatusDone})
	id, w := commandOf[Apply](h)
	if w.Swap.If.What != IfAbsent || !w.Swap.Set.Row.Dirty {
		t.Fatalf("new key: %+v", w.Swap)
	}
	h.reply(id, Result{Status: StatusDone})
	if g := h.expectState(op, StateHeld); g.Ref != 1 || g.Lease != h.opts.ClientLease || g.Holder != "me" || !g.Applied {
		t.Fatalf("grant %+v", g)
	}
	tk, put := h.begin(1, Put)
	if tk.OK() {
		t.Fatal("a dirty term gives no ticket before the synchronise")
	}
	id, c := commandOf[Synch](h)
	if c.Fence != w.Swap.Set.Row.Epoch+2 {
		t.Fatalf("fence %d", c.Fence)
	}
	h.reply(id, Result{Status: StatusDone})
	tk = h.answerOf(put).Ticket
	if tk.Stamp != w.Swap.Set.Row.Epoch+4 {
		t.Fatalf("stamp %d after fence and cells", tk.Stamp)
	}
	if v := h.end(tk, OutcomeAcked); v != VerdictTell {
		t.Fatalf("verdict %v", v)
	}
	un := h.unlock(1)
	if g := h.expectState(un, StateReleased); !g.Applied {
		t.Fatal("applied")
	}
	id, w = commandOf[Apply](h)
	if w.Swap.Set.Row.Dirty || w.Swap.Set.Row.Head != 2 || w.Swap.Set.Row.Epoch <= tk.Stamp {
		t.Fatalf("release %+v", w.Swap)
	}
	h.reply(id, Result{Status: StatusDone})
	h.expectNoCommand()
	if len(h.core.keys) != 0 || len(h.core.ops) != 0 || len(h.core.commands) != 0 || len(h.core.timers) != 0 {
		t.Fatal("an idle key leaves memory behind")
	}
	op = h.lock(Request{})
	_, w = commandOf[Apply](h)
	if w.Swap.If.What != IfGuardEpoch || w.Swap.Set.Row.Dirty {
		t.Fatalf("the row of an idle key is remembered: %+v", w.Swap)
	}
	h.expectWaiting(op)
}
