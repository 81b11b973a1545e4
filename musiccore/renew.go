package musiccore

// renewal is the state of the Renew of a term.
type renewal struct {
	wanted     bool
	sent       bool  // its LWT is under way
	blocksPuts bool  // puts wait for it: the present window must not be written in
	floor      Stamp // the new epoch lies at or above it
}

// due reports whether the window is nearly used up and no Renew is on its way.
func (w *renewal) due(seq, size Stamp) bool {
	return seq >= size/4*3 && !w.wanted && !w.sent
}

// require requests a window at or above floor. Puts wait for it, because they must not use the
// present window.
func (w *renewal) require(floor Stamp) {
	w.wanted, w.blocksPuts, w.floor = true, true, max(w.floor, floor)
}

// renew sends the Renew for a fresh window; operations go on in the old one meanwhile.
func (k *key) renew(now Now) {
	t := k.term
	floor := max(t.renewal.floor, now.Clk)
	if floor == 0 && t.renewal.blocksPuts {
		if !t.open { // nobody knows when the clocks agree again: it is released without a Synch
			t.synch.tries = k.c.opts.SettleTries
		}
		return
	}
	floor = max(floor, k.table.hidden)
	dirty := (t.dirty && !t.synced) || t.unsettled || t.ops.flight.puts > 0 || t.synch.cmd != 0
	held := Row{Guard: k.view.row.Guard, Head: t.holder.ref, Epoch: t.window.epoch}
	owner := k.c.self.id
	if t.block != nil && !t.block.plain {
		owner = SessionID{} // what is set tells others that nothing is handed over
	}
	s := Renew(held, owner, dirty, k.c.opts.Window, floor)
	if k.startLWT(now, lwt{purpose: purposeRenew, swap: s}) {
		t.renewal.wanted, t.renewal.sent = false, true
	}
}

// renewed moves the term into the window of its applied Renew. A request that came since needs
// another Renew.
func (t *term) renewed(now Now, epoch Stamp) {
	if t == nil {
		return
	}
	t.window.oldEpochs = append(t.window.oldEpochs, t.window.epoch)
	if t.ops.flight.ops == 0 {
		t.window.oldEpochs = nil
	}
	t.window.epoch, t.window.seq, t.renewal.sent = epoch, 2, false
	t.window.far = now.far(epoch)
	if !t.renewal.wanted {
		t.renewal = renewal{}
	}
}
