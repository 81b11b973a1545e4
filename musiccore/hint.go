package musiccore

import "time"

// HintKind is the content of a Hint.
type HintKind uint8

// The hints of docs/protocol.md 3.16, Hints.
const (
	HintYourTurn  HintKind = iota + 1 // the receiver has the head
	HintWaiting                       // a reference waits behind the head of the receiver
	HintReleasing                     // the Release that makes the receiver's reference the head is under way
	_                                 // asked for an enqueue, by releases before this one
	HintRecall                        // the receiver is to give back what it has borrowed of reference Last
)

// releasingPollEvery and releasingFor are how often, and for how long, the row is read after a hint
// that a Release is under way. Replicas get a commit half a round trip before the proxy that
// sent the LWT gets its answer, and a whole one before a hint that it then sent could arrive.
const (
	releasingPollEvery = 5 * time.Millisecond
	releasingFor       = 300 * time.Millisecond
)

// Hint is a message from one proxy to another about a key. It makes the receiver read the row, and
// never grants. It may be lost, late or wrong, since proxies with waiters also poll.
type Hint struct {
	Key  Key
	To   SessionID
	Kind HintKind
	Last LockRef // for HintRecall
}

// Hear takes a hint of another proxy. It ignores a hint for another session or of an unknown kind, and
// HintYourTurn and HintReleasing for a key that nobody waits for here.
func (c *Core) Hear(now Now, hint Hint) Effects {
	if !c.checkSession(now) || hint.To != c.self.id {
		return c.takeEffects()
	}
	switch k := c.keys[hint.Key]; {
	case hint.Kind == HintRecall:
		c.closeLoan(held{hint.Key, hint.Last})
	case hint.Kind == HintWaiting:
		c.key(hint.Key).lookForWaiters(now)
	case hint.Kind == HintYourTurn && k != nil && k.term == nil:
		k.view.hintReceived()
		k.step(now)
	case hint.Kind == HintReleasing && k != nil && k.term == nil:
		k.view.releaseExpected, k.lastHolder.ended = now.Boot+releasingFor, now.Boot
		k.view.read.next = 0
		k.step(now)
	}
	return c.takeEffects()
}

// lookForWaiters finds out which sessions wait elsewhere, so that the Release can tell the next
// one: a holder that was granted by its own Enqueue has not seen who came later. It reads at
// QUORUM, since a waiter sends its hint after its Enqueue was applied; the same read shows an
// orphaned head. If a term is here and the last reference in the queue is known to be another
// session's, the Release tells that session without a read.
func (k *key) lookForWaiters(now Now) {
	last, known := k.view.row.Session(k.view.row.Guard)
	if k.term == nil || !known || last == k.c.self.id {
		k.addQuery(query{kind: queryWaiters, until: now.Boot + k.c.opts.Wait})
	}
	k.step(now)
}

// tellNextHead sends the hint that the Release could not send because it was faster than the read.
// If a term is here, its Release will send it.
func (k *key) tellNextHead() {
	if k.term == nil {
		k.sendYourTurn()
	}
}

// sendWaiting tells the session of the head that a reference waits here: again when another
// session has the head, and after each QUORUM read that shows no change.
func (k *key) sendWaiting() {
	s, foreign := k.remoteHead()
	if !foreign || k.c.dead(s) || !k.queue.hasWaiter() {
		s = SessionID{}
	}
	if s != k.headWatch.told && s != (SessionID{}) {
		k.sendHint(s, HintWaiting)
		k.lastHolder.ended = 0
	}
	k.headWatch.told = s
}

// hasWaiter reports whether a reference waits here for its turn.
func (q *queue) hasWaiter() bool {
	for _, e := range q.numbered {
		if e.phase == phaseWaiting && !e.abandoned {
			return true
		}
	}
	return false
}

// hintReceived makes the next read of the row start at once, and one at QUORUM after it if that one
// shows nothing new.
func (v *view) hintReceived() {
	v.read.next, v.read.empty, v.hinted = 0, 0, true
}

// hintAnswered handles a read that followed a hint: LOCAL_ONE is enough if it shows that the head
// is here, else a read at QUORUM decides.
func (k *key) hintAnswered() {
	v := &k.view
	if v.hinted = !v.read.quorum && !k.view.isHead(k.queue.first()); v.hinted {
		v.read.next, v.read.quorumAt = 0, 0
	}
}

// sendYourTurn tells the session of a new head that its turn has come.
func (k *key) sendYourTurn() {
	_, s, ok := k.view.row.Holder()
	if ok && s != k.c.self.id && !k.c.dead(s) {
		k.sendHint(s, HintYourTurn)
	}
}

// sendReleasing tells the session that is next that the Release is under way.
func (k *key) sendReleasing(release Swap) {
	row := release.onto(k.view.row)
	s, ok := row.Session(row.Head)
	if ok && s != k.c.self.id && !k.c.dead(s) {
		k.sendHint(s, HintReleasing)
	}
}

// sendHint emits a hint for another session.
func (k *key) sendHint(to SessionID, what HintKind) {
	k.c.out.Hints = append(k.c.out.Hints, Hint{Key: k.id, To: to, Kind: what})
}
