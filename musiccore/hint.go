package musiccore

// HintKind is what a Hint says.
type HintKind uint8

// The hints of PROTOCOL.md 1, Hints.
const (
	YourTurn HintKind = iota + 1 // the head is of the session that is told
	Wanted                       // somebody waits behind the head that the session that is told keeps
)

// Hint is a word from one proxy to another about a key. It may be lost, late
// or wrong: it makes the other look, and never grants. Whoever waits polls as
// well.
type Hint struct {
	Key  Key
	To   SessionID
	Kind HintKind
}

// Hear takes a hint of another proxy. One for another session, or of a key
// that nobody waits for here, is nothing.
func (c *Core) Hear(now Now, h Hint) Effects {
	if !c.up(now) || h.To != c.self.id {
		return c.leave()
	}
	if k := c.keys[h.Key]; k != nil && h.Kind == YourTurn && k.term == nil {
		k.view.called()
		k.step(now)
	}
	return c.leave()
}

// called makes the next read of the row come at once, and one at QUORUM after
// it if that one shows nothing new.
func (v *view) called() {
	v.next, v.tries, v.hinted = 0, 0, true
}

// heard takes a read that a hint asked for: LOCAL_ONE is enough if it shows
// that the head is here, else QUORUM has the word, once.
func (k *key) heard() {
	v := &k.view
	if v.hinted = !v.quorum && !k.heads(k.front()); v.hinted {
		v.next, v.quorumAt = 0, 0
	}
}

// yourTurn tells the session of a new head that its turn has come.
func (k *key) yourTurn() {
	_, s, ok := k.view.row.Holder()
	if ok && s != k.c.self.id && !k.c.dead(s) {
		k.c.out.Hints = append(k.c.out.Hints, Hint{Key: k.id, To: s, Kind: YourTurn})
	}
}
