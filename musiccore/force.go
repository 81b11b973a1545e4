package musiccore

// Force ends the term of the head, whoever holds it (docs/protocol.md 3.14, Force; paper §IV,
// forcedRelease). It is answered with a Grant that names the reference that was ended; Applied is
// false where nobody held. Where the head is of another session that lives, it is answered with an
// ElsewhereError: that session's proxy has to do it; in a strict table any proxy may. Operations
// of the holder that are in flight still end, within Options.OpTimeout, and then hear LOST. Like
// UNLOCK it may be answered before its LWT. Where r is not 0 only the term that r is of is ended:
// the Force came from another proxy, whose knowledge may be old. reason is for the audit.
func (c *Core) Force(now Now, op OpID, id Key, r LockRef, reason string) Effects {
	if !c.checkSession(now) {
		c.answer(Answer{Op: op, Err: ErrNoSession})
		return c.takeEffects()
	}
	k := c.key(id)
	k.forceTerm(now, query{op: op, kind: queryForce, ref: r, reason: reason, until: now.Boot + c.opts.Wait})
	k.step(now)
	return c.takeEffects()
}

// forceTerm ends the term that is here; if there is none, the lock row decides.
func (k *key) forceTerm(now Now, q query) {
	switch t := k.term; {
	case t == nil:
		k.addQuery(q)
	case t.open && !t.covers(q.ref):
		k.c.answer(Answer{Op: q.op, Grant: Grant{Ref: q.ref, State: StateReleased}})
	case t.open && k.awaitsRun(): // who has the lock is not known here
		k.addQuery(q)
	case t.open:
		k.noteForced(t.holder, q)
		k.giveBack(now, q.op, StateLost)
	default:
		k.c.answer(Answer{Op: q.op, Grant: Grant{Ref: t.holder.ref, State: StateReleased}})
	}
}

// forceFromRow answers a Force by a QUORUM read of the row. It returns false while it is unknown
// whether the head's session lives.
func (k *key) forceFromRow(now Now, q query) bool {
	switch {
	case k.term == nil:
	case k.term.open && k.awaitsRun():
		return false
	default:
		delete(k.c.ops, q.op)
		k.forceTerm(now, q)
		return true
	}
	ref, s, held := k.view.row.Holder()
	if k.view.state != rowPresent || !held || q.ref != 0 && q.ref != ref {
		k.c.answer(Answer{Op: q.op, Grant: Grant{State: StateReleased}})
		return true
	}
	if s != k.c.self.id {
		known, dead := k.c.observe(now, s)
		switch {
		case dead || k.mayForceLiving():
		case known:
			k.c.answer(Answer{Op: q.op, Err: &ElsewhereError{Session: s, Ref: ref}})
			return true
		default:
			return false
		}
	}
	e := k.findEntry(ref)
	if e == nil && s != k.c.self.id {
		e = k.adopt(now, ref)
		e.takeover.forced = k.mayForceLiving()
	}
	k.forceHead(now, q, ref, e)
	return true
}

// covers reports whether the term includes a reference: the holder's, or another of its block. 0
// stands for any.
func (t *term) covers(r LockRef) bool {
	first := t.holder.ref
	if t.block != nil {
		first = min(first, t.block.first)
	}
	return r == 0 || first <= r && r <= max(t.holder.ref, t.lastRef)
}

// forceHead abandons a head that has no term here; e is its entry, nil for an orphan, which is
// reaped.
func (k *key) forceHead(now Now, q query, ref LockRef, e *entry) {
	if e == nil {
		e = &entry{k: k, ref: ref, abandoned: true, since: now.Boot}
		k.headWatch.until = max(k.headWatch.until, now.Boot+k.c.opts.DeadAfter(0))
	}
	k.noteForced(e, q)
	if !e.abandoned {
		if e.wait.op != 0 { // it hears that the lock is lost when that is final
			k.addQuery(query{op: e.wait.op, kind: queryLock, ref: ref, request: Request{Ref: ref}, until: now.Boot + k.c.opts.Wait})
			e.wait.op = 0
		}
		e.abandon(StateLost)
	}
	k.c.answer(Answer{Op: q.op, Grant: Grant{Applied: true, Ref: ref, State: StateReleased}})
}

// noteForced emits the note of who was ended and why.
func (k *key) noteForced(e *entry, q query) {
	k.lastHolder.died = true
	k.note(NoteForced, e, StateLost)
	k.c.out.Notes[len(k.c.out.Notes)-1].Reason = q.reason
}
