package musiccore

import "time"

// HintKind is what a Hint says.
type HintKind uint8

// The hints of docs/protocol.md 3.16, Hints.
const (
	HintYourTurn  HintKind = iota + 1 // the head is of the session that is told
	HintWaiting                       // somebody waits behind the head that the session that is told keeps
	HintReleasing                     // the Release behind which the session that is told has the head is under way
	HintPiggyback                     // the session that is told is to enqueue Block when it gives the key back
)

// yieldEvery and yieldFor are how often, and how long, the row is looked at when a
// Release is said to be under way. Every replica hears of a commit half a round
// trip before the proxy whose LWT it is, and a whole one before that proxy's word
// is here.
const (
	releasingPollEvery = 5 * time.Millisecond
	releasingFor       = 300 * time.Millisecond
)

// Hint is a word from one proxy to another about a key. It may be lost, late
// or wrong: it makes the other look, and never grants. Whoever waits polls as
// well.
type Hint struct {
	Key  Key
	To   SessionID
	Kind HintKind

	Block Block   // of HintPiggyback: whose, and how many
	Last  LockRef // likewise: not with the Release of a later one
}

// Hear takes a hint of another proxy. One for another session is nothing, nor
// is HintYourTurn or HintReleasing of a key that nobody waits for here, or HintPiggyback of one
// that nobody has or waits for here.
func (c *Core) Hear(now Now, h Hint) Effects {
	if !c.checkSession(now) || h.To != c.self.id {
		return c.takeEffects()
	}
	switch k := c.keys[h.Key]; {
	case h.Kind == HintWaiting:
		c.key(h.Key).lookForWaiters(now)
	case h.Kind == HintYourTurn && k != nil && k.term == nil:
		k.view.hintReceived()
		k.step(now)
	case h.Kind == HintReleasing && k != nil && k.term == nil:
		k.view.releaseExpected = now.Boot + releasingFor
		k.view.read.next = 0
		k.step(now)
	case h.Kind == HintPiggyback && k != nil && len(k.queue.numbered) > 0 && h.Block.Session != c.self.id:
		k.acceptPiggybacked(now, h)
		k.step(now)
	}
	return c.takeEffects()
}

// lookForWaiters looks who waits elsewhere, so that the Release knows whom to tell: an
// owner that was granted by its own Enqueue has never seen who came later. It
// is a read at QUORUM, since a waiter speaks after its Enqueue was applied. The
// same read shows an own head that memory does not know. Where a term is here
// and the queue as known ends with a stranger, that one is told in its turn.
func (k *key) lookForWaiters(now Now) {
	last, known := k.view.row.Session(k.view.row.Guard)
	if k.term == nil || !known || last == k.c.self.id {
		k.addQuery(query{kind: queryWaiters, until: now.Boot + k.c.opts.Wait})
	}
	k.step(now)
}

// tellNextHead tells a head that is not here that its turn has come: the Release
// was faster than the read. While a term is here its Release will tell.
func (k *key) tellNextHead() {
	if k.term == nil {
		k.sendYourTurn()
	}
}

// sendWaiting tells the session that has the head that a reference waits here: again
// when another session has it, and with each look at QUORUM that shows no change.
func (k *key) sendWaiting() {
	s, foreign := k.remoteHead()
	if !foreign || k.c.dead(s) || !k.hasWaiter() {
		s = SessionID{}
	}
	if s != k.headWatch.told && s != (SessionID{}) {
		k.sendHint(s, HintWaiting)
	}
	k.headWatch.told = s
}

// hasWaiter reports that a reference waits here for its turn.
func (k *key) hasWaiter() bool {
	for _, e := range k.queue.numbered {
		if e.phase == phaseWaiting && !e.abandoned {
			return true
		}
	}
	return false
}

// hintReceived makes the next read of the row come at once, and one at QUORUM after
// it if that one shows nothing new.
func (v *view) hintReceived() {
	v.read.next, v.read.empty, v.hinted = 0, 0, true
}

// hintAnswered takes a read that a hint asked for: LOCAL_ONE is enough if it shows
// that the head is here, else QUORUM has the word, once.
func (k *key) hintAnswered() {
	v := &k.view
	if v.hinted = !v.read.quorum && !k.isHead(k.queue.first()); v.hinted {
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

func (k *key) sendHint(to SessionID, what HintKind) {
	k.c.out.Hints = append(k.c.out.Hints, Hint{Key: k.id, To: to, Kind: what})
}
