package musiccore

import "time"

// headWatch is how a key follows a head of another session.
type headWatch struct {
	until time.Duration // until then the head is followed even if no reference waits here
	told  SessionID     // the session that HintWaiting was sent to
}

// isHead reports whether the entry has the head of the queue, as known.
func (v *view) isHead(e *entry) bool {
	return e != nil && v.state == rowPresent && !v.row.Empty() && e.ref == v.row.Head
}

// abandonedHead reports whether the head is an abandoned reference of this proxy.
func (k *key) abandonedHead() bool {
	e := k.queue.first()
	return k.view.isHead(e) && e.abandoned
}

// orphanedHead reports whether the head is of this session, and no entry is for it.
func (k *key) orphanedHead() bool {
	if k.view.state != rowPresent || k.term != nil {
		return false
	}
	_, s, ok := k.view.row.Holder()
	return ok && s == k.c.self.id && !k.view.isHead(k.queue.first())
}

// unknownHead reports whether the registers of the row are of such different ages that it does not show
// whose the head is. One replica may show such a row for ever.
func (k *key) unknownHead() bool {
	if k.view.state != rowPresent || k.term != nil || k.view.row.Empty() {
		return false
	}
	_, _, known := k.view.row.Holder()
	return !known
}

// remoteHead returns the session of the head if it is another one.
func (k *key) remoteHead() (SessionID, bool) {
	if k.view.state != rowPresent || k.term != nil {
		return SessionID{}, false
	}
	_, s, ok := k.view.row.Holder()
	return s, ok && s != k.c.self.id
}

// remoteHeadID returns the session of the head if it is another one, else the zero value.
func (k *key) remoteHeadID() SessionID {
	s, _ := k.remoteHead()
	return s
}

// headAwaited reports whether this proxy waits for the head to move on. An abandoned reference
// counts: only this proxy can release it in its turn.
func (k *key) headAwaited(now Now) bool {
	return len(k.queue.numbered) > 0 || now.Boot < k.headWatch.until
}

// watchHead follows the head for a while, although no reference waits here: if it is of a dead
// session, or an orphan, some proxy must find out. It is for clients that only use NOWAIT.
func (k *key) watchHead(now Now) {
	if x, foreign := k.remoteHead(); foreign || k.orphanedHead() || k.unknownHead() {
		k.headWatch.until = now.Boot + 2*k.c.deadAfter(x)
	}
}

// dropOvertaken drops the term and the entries that the head has passed: they are lost, and that is
// final (docs/protocol.md 3.5, Poll).
func (k *key) dropOvertaken(now Now) {
	if k.view.state != rowPresent {
		return
	}
	if t := k.term; t != nil && !k.lwt.changesTerm() && k.view.row.Epoch != t.rowEpoch() {
		if !k.isChecked() {
			k.c.alarm(k.id, "I3", "a term was taken away while its session was valid")
		}
		k.loseTerm(now)
	}
	for e := k.queue.first(); e != nil && k.term == nil && e.ref < k.view.row.Head; e = k.queue.first() {
		k.queue.pop()
		e.lose()
	}
	if e := k.queue.first(); k.term == nil && k.displaced(e) {
		k.queue.pop()
		k.redirect(e)
	}
}
