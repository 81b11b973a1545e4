package musiccore

import "time"

// key is the state machine of one key: who asks, who waits, who holds, and
// the one LWT under way. It is made by the first operation and forgotten when
// nobody holds, waits or is owed an answer.
type key struct {
	c        *Core
	id       Key
	view     view
	lwt      *lwt
	asking   []*place // no reference yet, in order of arrival
	queued   []*place // references that live in the lock row, ascending
	tokens   map[[16]byte]*place
	reserves []*reserve // of this proxy's blocks, in the order of their references
	term     *term      // the head's tenure, if it is here
	asks     []ask
	ended    []ending
	closed   Stamp // of the table
	died     bool  // the last holder did not give the lock back
	wanted   time.Duration
	spoken   SessionID     // whom HintWaiting was said to
	long     int           // sections in a row that were not short
	spare    int32         // references that the next block reserves; 0: sections are too long for one
	turn     time.Duration // from LOCK to grant, as the last one here had to wait
	timer    timer
	mode     // of the table
	along
}

// due is the key's timer.
func (k *key) due(now Now) { k.step(now) }

// step does everything that the key's state asks for. It is called after
// every event, and whatever it does not do waits for another.
func (k *key) step(now Now) {
	if k.c.draining {
		k.sendAway(now)
	}
	k.pass(now)
	k.leaveBehind(now)
	k.hasten(now)
	k.alight(now)
	k.enter(now)
	k.lineUp()
	k.handOver(now)
	k.fix(now)
	k.serve(now)
	k.push(now)
	if k.lwt == nil {
		k.choose(now)
	}
	k.answerEnded()
	k.look(now)
	k.speak()
	k.settle(now)
}

// choose starts the LWT that matters most.
func (k *key) choose(now Now) {
	if k.view.known == unread {
		return
	}
	switch t := k.term; {
	case t != nil && t.drained(k.c.opts.SettleTries) && !t.lingers(now):
		if !k.awaitsReturn(now) {
			k.release(now)
		}
	case t != nil && t.window.wanted:
		k.renew(now)
	case t == nil && k.stray() && k.view.vouched == k.view.row.Epoch:
		k.expel(now)
	case t == nil && k.abandonedHead():
		k.skip(now)
	case t == nil && k.guestHeads():
		k.takeOver(now)
	}
	if k.lwt == nil {
		k.enqueue(now)
	}
	if k.lwt == nil {
		k.preempt(now)
	}
}

// front is the lowest reference here that lives in the lock row.
func (k *key) front() *place {
	if len(k.queued) == 0 {
		return nil
	}
	return k.queued[0]
}

func (k *key) pop() {
	k.queued[0] = nil
	k.queued = k.queued[1:]
}

// heads reports that p is the head of the queue as known.
func (k *key) heads(p *place) bool {
	return p != nil && k.view.known == present && !k.view.row.Empty() && p.ref == k.view.row.Head
}

func (k *key) abandonedHead() bool {
	p := k.front()
	return k.heads(p) && p.gone
}

// stray: the head is of this session, and memory does not know it.
func (k *key) stray() bool {
	if k.view.known != present || k.term != nil {
		return false
	}
	_, s, ok := k.view.row.Holder()
	return ok && s == k.c.self.id && !k.heads(k.front())
}

// stranger answers the head's session if it is not this one.
func (k *key) stranger() (SessionID, bool) {
	if k.view.known != present || k.term != nil {
		return SessionID{}, false
	}
	_, s, ok := k.view.row.Holder()
	return s, ok && s != k.c.self.id
}

// waitedFor reports that somebody here wants the head to move on. An
// abandoned reference counts: only this proxy can release it in its turn.
func (k *key) waitedFor(now Now) bool {
	return len(k.queued) > 0 || now.Boot < k.wanted || k.ride.out()
}

// pass drops what the head has passed: lost, and final (docs/protocol.md 3.5, Poll).
func (k *key) pass(now Now) {
	if k.view.known != present {
		return
	}
	if t := k.term; t != nil && !k.changing() && k.view.row.Epoch != t.base {
		if !k.checked() {
			k.c.alarm(k.id, "I3", "a term was taken away while its session was valid")
		}
		k.loseTerm(now)
	}
	for p := k.front(); p != nil && k.term == nil && p.ref < k.view.row.Head; p = k.front() {
		k.pop()
		k.losePlace(p)
	}
	if p := k.front(); k.term == nil && k.displaced(p) {
		k.pop()
		k.dismiss(p)
	}
}

// enter is Poll (docs/protocol.md 3.5): the head gets its term if it waits here. A
// place gets at most one term, ever (C15); a dirty one only on a base that
// was read at QUORUM (M6). Paper §IV, acquireLock.
func (k *key) enter(now Now) {
	p := k.front()
	if k.term != nil || k.changing() || !k.heads(p) || p.phase != waiting || p.gone {
		return
	}
	if now.Clk == 0 || k.c.draining || !k.c.self.Valid(now) {
		return
	}
	r := k.view.row
	if !k.grants(p) {
		return
	}
	if r.DirtySince(k.closed) && k.view.vouched != r.Epoch {
		return
	}
	k.open(now, p)
}

// grants reports that T gives the head to a place: by the queue, or a guest by
// its own Takeover.
func (k *key) grants(p *place) bool {
	r := k.view.row
	if p.guest {
		return r.Owner == k.c.self.id && r.Epoch == p.taken
	}
	s, ok := r.Session(r.Head)
	return ok && s == k.c.self.id && r.Owner == (SessionID{})
}

// broken ends the term: an invariant does not hold, so nothing that this
// proxy believes of the key may be told or kept.
func (k *key) broken(now Now, rule, text string) {
	k.c.alarm(k.id, rule, text)
	t := k.term
	switch {
	case t == nil:
	case t.broken:
		k.loseTerm(now)
	default:
		t.broken = true
		k.close(now, StateLost)
	}
}

// settle ends a step: the key is forgotten if nobody needs it, else its timer
// is set.
func (k *key) settle(now Now) {
	if k.unneeded(now) {
		k.c.forget(k)
		return
	}
	if at := k.wake(now); at != 0 {
		k.c.timers.set(&k.timer, at)
	}
}

func (k *key) unneeded(now Now) bool {
	return k.term == nil && k.lwt == nil && len(k.asking) == 0 && len(k.asks) == 0 && !k.waitedFor(now)
}

// wake is when the key has something to do without an event.
func (k *key) wake(now Now) time.Duration {
	at := sooner(now.Boot, 0, k.wanted)
	at = sooner(now.Boot, at, k.view.next)
	if k.view.cmd != 0 {
		at = sooner(now.Boot, at, k.view.began+glanceFor)
	}
	at = sooner(now.Boot, at, k.ride.until)
	if k.lwt != nil {
		at = sooner(now.Boot, at, k.lwt.at)
		at = sooner(now.Boot, at, k.lwt.began+k.c.opts.Retain)
	}
	for _, a := range k.asks {
		at = sooner(now.Boot, at, a.until)
	}
	if w := k.c.watches[k.strangerID()]; w != nil && w.dead {
		at = sooner(now.Boot, at, w.deadAt+k.c.opts.Grace)
	}
	if p := k.front(); p != nil && len(p.begins) > 0 {
		at = sooner(now.Boot, at, p.begins[0].until)
	}
	if p := k.front(); k.term == nil && k.heads(p) {
		// It may be held back by clocks that differ: no event tells their end.
		at = sooner(now.Boot, at, now.Boot+time.Second)
	}
	if k.term != nil && len(k.asking) > 0 {
		at = sooner(now.Boot, at, k.term.place.since+k.c.opts.Retain)
	}
	if k.term != nil {
		at = sooner(now.Boot, at, k.term.wake(now.Boot, k.c.opts))
	}
	return at
}

// wake is when the term has something to do without an event.
func (t *term) wake(now time.Duration, o Options) time.Duration {
	at := sooner(now, 0, t.synch.next)
	at = sooner(now, at, t.unlock.until)
	if oldest, ok := t.flight.oldest(); ok {
		at = sooner(now, at, oldest+o.OpTimeout)
	}
	if len(t.waiting) > 0 {
		at = sooner(now, at, t.waiting[0].until)
	}
	if t.reserve != nil && t.open {
		at = sooner(now, at, t.place.since+o.Retain)
	}
	if t.reserve != nil && !t.open {
		at = sooner(now, at, t.reserve.until)
	}
	if !t.open {
		at = sooner(now, at, t.shut+returnFor)
	}
	if t.window.wanted {
		// It may be held back by clocks that differ: no event tells their end.
		at = sooner(now, at, now+time.Second)
	}
	return at
}

func (k *key) strangerID() SessionID {
	s, _ := k.stranger()
	return s
}
