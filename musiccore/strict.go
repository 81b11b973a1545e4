package musiccore

// check is an operation of a strict table that the store has acknowledged. A QUORUM read of the
// lock row that begins after that says whether its client may be told (docs/protocol.md 3.8,
// check; M6). It counts as in flight until then.
type check struct {
	op    OpID
	n     uint64
	epoch Stamp
	after CommandID // only a read after this command decides
}

// deferVerdict makes an operation wait for its verdict. It returns false if the operation is over,
// or its End came before.
func (k *key) deferVerdict(now Now, tk Ticket) bool {
	t := k.term
	if !t.ops.flight.hold(tk.Number) {
		return false
	}
	t.ops.checks = append(t.ops.checks, check{op: tk.Op, n: tk.Number, epoch: tk.Epoch, after: k.c.last.command})
	k.c.addPending(tk.Op, k, nil)
	k.view.read.next = 0
	k.step(now)
	return true
}

// answerChecks answers the checks that a QUORUM read decides: the row shows the operation's own
// term, on the epoch of its stamp or one that an own Renew has made since. A read that shows a
// lower epoch has missed a commit, and decides nothing.
func (k *key) answerChecks(id CommandID, r *Row) {
	t := k.term
	if t == nil || len(t.ops.checks) == 0 {
		return
	}
	if t.released() && !k.view.read.serial {
		k.view.read.next = 0 // only a read at SERIAL decides
		return
	}
	left := t.ops.checks[:0]
	for _, c := range t.ops.checks {
		switch {
		case c.after >= id || r == nil || r.Epoch < c.epoch:
			left = append(left, c)
		case k.term.owns(r, k.lwt) && !t.broken:
			k.answerCheck(c, VerdictTell)
		default:
			k.answerCheck(c, k.lostVerdict())
		}
	}
	if t.ops.checks = left; len(left) > 0 && left[len(left)-1].after >= id {
		k.view.read.next = 0 // the check came while the read was under way
	}
}

// answerCheck answers a check; its operation is no longer in flight.
func (k *key) answerCheck(c check, v Verdict) {
	if !k.term.ops.flight.over(c.n) {
		k.term.ops.flight.finish(c.n)
	}
	k.c.answer(Answer{Op: c.op, Verdict: v})
}

// owns reports whether a row shows the term that is here: on its epoch, on an earlier one, or on
// that of a Renew whose outcome is not known yet.
func (t *term) owns(r *Row, l *lwt) bool {
	if t.released() {
		return r.Epoch == t.window.released
	}
	for _, b := range t.window.oldEpochs {
		if r.Epoch == b {
			return true
		}
	}
	return r.Epoch == t.window.epoch || (l != nil && l.purpose == purposeRenew && r.sameTerm(l.swap.Set.Row))
}

// loseChecks answers the checks that no read can answer any more.
func (k *key) loseChecks() {
	for _, c := range k.term.ops.checks {
		k.answerCheck(c, k.lostVerdict())
	}
	k.term.ops.checks = nil
}

// expireChecks answers the checks of operations that are over: their clients are told "unknown",
// whatever arrives later (C16).
func (k *key) expireChecks() {
	left := k.term.ops.checks[:0]
	for _, c := range k.term.ops.checks {
		if k.term.ops.flight.over(c.n) {
			k.answerCheck(c, VerdictUncertain)
			continue
		}
		left = append(left, c)
	}
	k.term.ops.checks = left
}
