package musiccore

// expire ends a client lease: silence, and the next one is told so.
func (k *key) expire(now Now) {
	k.died = true
	k.close(now, StateLost)
}

// giveBack is the UNLOCK of the holder, or a Force. It is answered at once
// when nothing is unsettled and no put can become so.
func (k *key) giveBack(now Now, op OpID, how State) {
	t := k.term
	k.close(now, how)
	t.unlock = begin{op: op, until: now.Boot + k.c.opts.Wait}
	if t.flight.puts == 0 && !t.unsettled {
		k.answerUnlock(StateReleased)
		return
	}
	k.c.waits(op, k, nil)
}

func (k *key) answerUnlock(how State) {
	t := k.term
	if t.unlock.op == 0 {
		return
	}
	k.c.answer(Answer{Op: t.unlock.op, Grant: Grant{Applied: how == StateReleased, Ref: t.place.ref, State: how}})
	t.unlock.op = 0
}

// close lets no more operations in. Those in flight still end; then the term
// is settled if need be, and released.
func (k *key) close(now Now, how State) {
	t := k.term
	if !t.open {
		return
	}
	t.open, t.shut = false, now.Boot
	t.synch.tries = 0
	if t.reserve != nil {
		t.reserve.until = now.Boot + k.c.opts.Retain
	}
	k.brief(now, t.place, how)
	k.finish(t.place, how)
	waiting := t.waiting
	t.waiting = nil
	for _, b := range waiting {
		k.askEnded(b.ask(t.place.ref))
	}
}

// drained reports that a closed term may be released: nothing in flight, and
// settled or enough tried (docs/protocol.md 3.11, Release).
func (t *term) drained(tries int) bool {
	if t.open || t.flight.ops > 0 || t.synch.cmd != 0 {
		return false
	}
	return !t.unsettled || t.broken || t.synch.tries >= tries
}

// release ends the term for everybody. The row may only become clean when
// nothing is left that could surface (I7, C6, C7, C17).
func (k *key) release(now Now) {
	t := k.term
	if len(k.asking)+len(k.riders) > 0 && !t.alone && k.glances(now) {
		return
	}
	dirty := t.unsettled || (t.dirty && !t.synced) || t.broken
	if !dirty && (t.flight.ops > 0 || t.synch.cmd != 0) {
		k.broken(now, "I7", "a clean release with operations in flight")
		return
	}
	used := t.seq
	if t.broken {
		used = k.c.opts.Window
	}
	k.answerUnlock(StateReleased)
	k.appraise()
	next := k.nextInLine()
	if t.reserve != nil {
		t.reserve.plain = true
	}
	held := Row{Guard: k.view.row.Guard, Head: next - 1, Epoch: t.base}
	l := lwt{why: releasing, swap: Release(held, used, dirty, now.Clk)}
	if !t.alone && next > t.last {
		k.takeAlong(now, &l)
	}
	if k.start(now, l) {
		k.left = now.Boot
		k.yielding(l.swap)
	}
}

// nextInLine answers the reference that a Release makes the head: the one behind
// the term, but where it ends with others in the line of a block that cannot be
// handed over the next of them. Their block goes on, as another term.
func (k *key) nextInLine() LockRef {
	t := k.term
	b := t.reserve
	if b != nil {
		k.passSilent(b)
	}
	switch {
	case b == nil || len(b.line) == 0 || t.broken || k.c.draining:
		return t.last + 1
	case b.named > 0:
		return b.line[0].ref
	}
	return b.next
}

// released ends the term whose Release was applied. A block that the new head is
// in waits for another term.
func (k *key) released(now Now, head LockRef) {
	b := k.term.reserve
	if b == nil || head > b.last {
		k.endTerm()
		return
	}
	k.term.reserve = nil
	k.endTerm()
	b.plain = false
	k.stand(now, b, head)
}

// skip releases an abandoned head that never had a term: two stamps are left
// free, and dirty stays what it was (docs/protocol.md 3.11, Release; C6). Where a dead
// session had it, nobody can say what was sent under it.
func (k *key) skip(now Now) {
	r := k.view.row
	if _, foreign := k.stranger(); foreign {
		if k.forsaken(now) || (k.front().forced && k.seize && k.view.vouched == r.Epoch) {
			k.start(now, lwt{why: skipping, swap: Release(r, k.c.opts.Window, true, now.Clk)})
		}
		return
	}
	r.Head = k.abandonedRun()
	k.start(now, lwt{why: skipping, swap: Release(r, 2, r.DirtySince(k.closed), now.Clk)})
}

// abandonedRun returns the last of the abandoned references that follow one another from the head
// on: one LWT does what the Releases of all would do with nothing between them. A client that goes
// away may leave thousands. Blocks that are handed out in memory, and references of dead sessions,
// have Releases of their own.
func (k *key) abandonedRun() LockRef {
	r := k.view.row
	last := r.through(r.Head)
	for _, p := range k.queued {
		switch {
		case p.ref <= last:
		case p.ref != last+1 || !p.gone || p.guest || p.phase != waiting || p.own():
			return last
		default:
			last = p.ref
		}
	}
	return last
}

// expel releases an own head that memory does not know: nobody can say what
// was sent under it.
func (k *key) expel(now Now) {
	k.start(now, lwt{why: expelling, swap: Release(k.view.row, k.c.opts.Window, true, now.Clk)})
}

// endTerm forgets a term whose Release is definite.
func (k *key) endTerm() {
	p, b := k.term.place, k.term.reserve
	k.answerUnlock(StateReleased)
	k.term = nil
	if b != nil {
		k.drop(b)
	}
	if k.front() == p {
		k.pop()
	}
}

// loseTerm forgets a term that is no more. Where somebody else may have taken
// its reference over, that one is not told to be lost: the row knows more.
func (k *key) loseTerm(now Now) {
	t, how := k.term, State(0)
	if k.final(t.place.ref) {
		how = StateLost
	}
	k.close(now, how)
	if t.unlock.op != 0 && how == 0 {
		k.ask(ask{op: t.unlock.op, what: askUnlock, ref: t.place.ref, until: t.unlock.until})
		t.unlock.op = 0
	}
	k.answerUnlock(StateLost)
	k.dropChecks()
	delete(k.c.running, k.term.synch.cmd)
	k.endTerm()
}
