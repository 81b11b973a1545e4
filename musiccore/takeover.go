package musiccore

// A guest is a place whose reference another session enqueued: that session is
// dead, and the client came here. It waits like any other; at the head it gets
// its term from a Takeover of its own (docs/protocol.md 3.13, Takeover).

// keeper answers the session on which a live reference hangs: for the head
// T.Owner if set, else the queue's.
func (k *key) keeper(r LockRef) (SessionID, bool) {
	if r == k.view.row.Head {
		_, s, ok := k.view.row.Holder()
		return s, ok
	}
	return k.view.row.Session(r)
}

// told answers what the row says about a reference that memory did not know
// when it was asked for. It is false while nobody can tell yet whether the
// reference's session lives. The row never grants: an own reference that
// memory does not know has had its term, or is of an earlier life (C15).
func (k *key) told(now Now, a ask) bool {
	switch a.what {
	case askForce:
		return k.toldForce(now, a)
	case askNext:
		k.toldNext()
		return true
	}
	r, p := k.view.row, k.find(a.ref)
	s, known := k.keeper(a.ref)
	switch {
	case k.view.known != present || a.ref > r.Guard:
		k.c.answer(Answer{Op: a.op, Err: ErrNotHeld})
	case k.live(a.ref) != nil, k.dormant(a.ref) != nil:
		k.join(now, a, p)
	case k.endedHow(a.ref) != 0:
		k.askEnded(a)
	case k.final(a.ref):
		k.c.answer(a.lost())
	case known && s == k.c.self.id:
		return k.toldOwn(a, p)
	default:
		return known && k.toldForeign(now, a, s)
	}
	return true
}

// toldOwn answers what asks for a reference of this session that nobody was
// told: it was never given, or waits to be released.
func (k *key) toldOwn(a ask, p *place) bool {
	if p != nil && p.gone {
		return false // its Release is under way
	}
	k.c.answer(Answer{Op: a.op, Err: ErrNotHeld})
	return true
}

// toldForeign answers what asks for a reference of another session: it is
// there, or it goes on here if that session is dead. What a dead session kept
// for itself goes on nowhere: nothing tells which reference was handed out
// (docs/protocol.md 3.17). It is lost once it has been passed over: a Renew of the dead
// session may still be applied that makes its holder plain.
func (k *key) toldForeign(now Now, a ask, s SessionID) bool {
	known, dead := k.c.observe(now, s)
	switch {
	case !known:
		return false
	case !dead:
		k.c.answer(Answer{Op: a.op, Err: &ElsewhereError{Session: s}})
	case k.view.row.kept(a.ref):
		k.want(now)
		return false
	case k.c.draining && a.what != askUnlock:
		k.c.answer(Answer{Op: a.op, Err: ErrDraining})
	case a.what == askUnlock:
		k.abandon(k.adopt(now, a.ref), StateReleased)
		k.c.answer(Answer{Op: a.op, Grant: Grant{Applied: true, Ref: a.ref, State: StateReleased}})
	default:
		k.join(now, a, k.adopt(now, a.ref))
	}
	return true
}

// adopt makes a guest of a dead session's reference.
func (k *key) adopt(now Now, r LockRef) *place {
	p := &place{k: k, ref: r, phase: waiting, guest: true, lease: k.c.opts.ClientLease, since: now.Boot}
	p.timer.who = p
	k.insert(p)
	p.keep(now.Boot + k.c.opts.QueuedLease)
	return p
}

// join lets an operation that had to ask go on at the reference's place.
func (k *key) join(now Now, a ask, p *place) {
	switch a.what {
	case askLock:
		delete(k.c.ops, a.op)
		k.resume(now, a.op, a.request)
	case askUnlock:
		delete(k.c.ops, a.op)
		k.unlock(now, a.op, a.ref)
	default:
		k.awaitTerm(begin{op: a.op, kind: a.kind, until: a.until}, p)
	}
}

// awaitTerm lets an operation wait for the term of a guest at the head; where
// the reference waits the operation does not.
func (k *key) awaitTerm(b begin, p *place) {
	if k.term != nil && k.term.place == p {
		k.term.waiting = append(k.term.waiting, b)
		k.c.waits(b.op, k, nil)
		return
	}
	if !p.guest || p.gone || !k.heads(p) {
		k.c.answer(Answer{Op: b.op, Err: ErrNotHeld})
		return
	}
	p.begins = append(p.begins, b)
	k.c.waits(b.op, k, nil)
}

// guestHeads: the head is a guest that waits for its Takeover. One that its session
// has made part of a block since it was adopted may have been handed on.
func (k *key) guestHeads() bool {
	p := k.front()
	return k.heads(p) && p.guest && p.phase == waiting && !p.gone && !k.view.row.kept(p.ref)
}

// forsaken reports that the head's session is dead, by a row read at QUORUM: from
// then on anybody may end its term, on that base.
func (k *key) forsaken(now Now) bool {
	x, foreign := k.stranger()
	return foreign && k.c.watch(now, x).dead && k.view.vouched == k.view.row.Epoch
}

// takeOver moves the head's term here: its session is dead, and its client has
// come. Base, head and owner are of one read (C2), and the LWT is IF base (C3).
func (k *key) takeOver(now Now) {
	if now.Clk == 0 || k.c.draining || !k.c.self.Valid(now) || !k.forsaken(now) {
		return
	}
	s := Takeover(k.view.row, k.c.self.id, k.c.opts.Window, now.Clk)
	k.start(now, lwt{why: takingOver, swap: s})
}

// taken notes an applied Takeover: its base is the guest's, and nobody else's.
func (k *key) taken(base Stamp) {
	k.view.vouched = max(k.view.vouched, base)
	if p := k.front(); k.heads(p) && p.guest {
		p.taken = base
	}
}

// displaced reports that somebody else has the head's term, which a place here
// waits for.
func (k *key) displaced(p *place) bool {
	owner := k.view.row.Owner
	if !k.heads(p) || owner == (SessionID{}) {
		return false
	}
	if !p.guest {
		return true
	}
	return !k.changing() && p.taken != k.view.row.Epoch && !k.c.dead(owner)
}

// dismiss sends the client of a displaced place to the session that was faster.
func (k *key) dismiss(p *place) {
	var err error = ErrUnavailable
	if owner := k.view.row.Owner; owner != k.c.self.id {
		err = &ElsewhereError{Session: owner}
	}
	for _, b := range p.begins {
		k.c.answer(Answer{Op: b.op, Err: err})
	}
	p.begins = nil
	k.refuse(p, Grant{}, err)
	k.finish(p, 0)
	if p.reserve != nil {
		k.drop(p.reserve)
	}
}

// askBegins lets the operations that wait for a guest's term ask what has
// become of its reference.
func (k *key) askBegins(p *place) {
	begins := p.begins
	p.begins = nil
	for _, b := range begins {
		k.askEnded(b.ask(p.ref))
	}
}

// overdueBegins answers those for whom the Takeover took too long.
func (k *key) overdueBegins(now Now) {
	p := k.front()
	for p != nil && len(p.begins) > 0 && p.begins[0].until <= now.Boot {
		k.c.answer(Answer{Op: p.begins[0].op, Err: ErrSynchronising})
		p.begins = p.begins[1:]
	}
}
