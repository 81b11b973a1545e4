package musiccore

// Force ends the head of a key, whoever holds it (docs/protocol.md 3.14, Force; paper
// §IV, forcedRelease). It is answered with a Grant that names the reference
// that was ended; Applied is false where nobody held. The reference of a
// session that lives is for that session's proxy: ElsewhereError, but not of a
// strict table, where anybody may. The holder's
// operations in flight still end, within Options.OpTimeout, and then hear LOST.
// Like UNLOCK it may be answered before its LWT. Where r is not 0, only the tenure
// that it is of is ended: by the word of another proxy, which may be old. reason is
// for the audit.
func (c *Core) Force(now Now, op OpID, id Key, r LockRef, reason string) Effects {
	if !c.up(now) {
		c.answer(Answer{Op: op, Err: ErrNoSession})
		return c.leave()
	}
	k := c.key(id)
	k.force(now, ask{op: op, what: askForce, ref: r, reason: reason, until: now.Boot + c.opts.Wait})
	k.step(now)
	return c.leave()
}

func (k *key) force(now Now, a ask) {
	switch t := k.term; {
	case t == nil:
		k.ask(a)
	case t.open && !t.covers(a.ref):
		k.c.answer(Answer{Op: a.op, Grant: Grant{Ref: a.ref, State: StateReleased}})
	case t.open:
		k.forced(t.place, a)
		k.giveBack(now, a.op, StateLost)
	default:
		k.c.answer(Answer{Op: a.op, Grant: Grant{Ref: t.place.ref, State: StateReleased}})
	}
}

// toldForce answers a Force by what a QUORUM read of the row shows.
func (k *key) toldForce(now Now, a ask) bool {
	if k.term != nil {
		delete(k.c.ops, a.op)
		k.force(now, a)
		return true
	}
	ref, s, held := k.view.row.Holder()
	if k.view.known != present || !held || a.ref != 0 && a.ref != ref {
		k.c.answer(Answer{Op: a.op, Grant: Grant{State: StateReleased}})
		return true
	}
	if s != k.c.self.id {
		known, dead := k.c.observe(now, s)
		switch {
		case dead || k.seize:
		case known:
			k.c.answer(Answer{Op: a.op, Err: &ElsewhereError{Session: s, Ref: ref}})
			return true
		default:
			return false
		}
	}
	p := k.find(ref)
	if p == nil && s != k.c.self.id {
		p = k.adopt(now, ref)
		p.forced = k.seize
	}
	k.forceHead(now, a, ref, p)
	return true
}

// covers reports that the tenure is that of a reference: its holder's, or another of
// the block that is handed on. 0 names any.
func (t *term) covers(r LockRef) bool {
	first := t.place.ref
	if t.reserve != nil {
		first = min(first, t.reserve.first)
	}
	return r == 0 || first <= r && r <= max(t.place.ref, t.last)
}

// forceHead gives up a head that has no term here: its place, or where memory
// knows none the own reference that is released by whoever sees it.
func (k *key) forceHead(now Now, a ask, ref LockRef, p *place) {
	if p == nil {
		p = &place{k: k, ref: ref, gone: true, since: now.Boot}
		k.wanted = max(k.wanted, now.Boot+k.c.opts.DeadAfter(0))
	}
	k.forced(p, a)
	if !p.gone {
		if p.op != 0 { // it hears that the lock is lost when that is final
			k.ask(ask{op: p.op, what: askLock, ref: ref, request: Request{Ref: ref}, until: now.Boot + k.c.opts.Wait})
			p.op = 0
		}
		k.abandon(p, StateLost)
	}
	k.c.answer(Answer{Op: a.op, Grant: Grant{Applied: true, Ref: ref, State: StateReleased}})
}

// forced tells who was ended and why.
func (k *key) forced(p *place, a ask) {
	k.died = true
	k.note(NoteForced, p, StateLost)
	k.c.out.Notes[len(k.c.out.Notes)-1].Reason = a.reason
}
