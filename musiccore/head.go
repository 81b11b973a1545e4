package musiccore

import "time"

// headWatch is how a key follows a head that is not here.
type headWatch struct {
	until time.Duration // the head is followed even if no reference waits here
	told  SessionID     // to whom HintWaiting was sent
}

// isHead reports that p is the head of the queue as known.
func (k *key) isHead(e *entry) bool {
	return e != nil && k.view.state == rowPresent && !k.view.row.Empty() && e.ref == k.view.row.Head
}

func (k *key) abandonedHead() bool {
	e := k.queue.first()
	return k.isHead(e) && e.abandoned
}

// orphanedHead: the head is of this session, and memory does not know it.
func (k *key) orphanedHead() bool {
	if k.view.state != rowPresent || k.term != nil {
		return false
	}
	_, s, ok := k.view.row.Holder()
	return ok && s == k.c.self.id && !k.isHead(k.queue.first())
}

// remoteHead answers the head's session if it is not this one.
func (k *key) remoteHead() (SessionID, bool) {
	if k.view.state != rowPresent || k.term != nil {
		return SessionID{}, false
	}
	_, s, ok := k.view.row.Holder()
	return s, ok && s != k.c.self.id
}

func (k *key) remoteHeadID() SessionID {
	s, _ := k.remoteHead()
	return s
}

// headAwaited reports that somebody here wants the head to move on. An
// abandoned reference counts: only this proxy can release it in its turn.
func (k *key) headAwaited(now Now) bool {
	return len(k.queue.numbered) > 0 || now.Boot < k.headWatch.until || k.piggyback.delegated.pending()
}

// watchHead keeps an eye on the head for those who only ever say NOWAIT: if it is a
// dead stranger's, or an own one that memory does not know, somebody must
// find out.
func (k *key) watchHead(now Now) {
	if x, foreign := k.remoteHead(); foreign || k.orphanedHead() {
		k.headWatch.until = now.Boot + 2*k.c.deadAfter(x)
	}
}

// dropPassed drops what the head has passed: lost, and final (docs/protocol.md 3.5, Poll).
func (k *key) dropPassed(now Now) {
	if k.view.state != rowPresent {
		return
	}
	if t := k.term; t != nil && !k.changesTerm() && k.view.row.Epoch != t.window.epoch {
		if !k.isChecked() {
			k.c.alarm(k.id, "I3", "a term was taken away while its session was valid")
		}
		k.loseTerm(now)
	}
	for e := k.queue.first(); e != nil && k.term == nil && e.ref < k.view.row.Head; e = k.queue.first() {
		k.queue.pop()
		k.loseEntry(e)
	}
	if e := k.queue.first(); k.term == nil && k.displaced(e) {
		k.queue.pop()
		k.redirect(e)
	}
}
