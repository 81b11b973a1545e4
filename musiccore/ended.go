package musiccore

import "slices"

// What is told to be lost stays lost. A reference that has ended in this memory alone has not: were the session to die before its
// Release, the client could go on with it elsewhere, by a Takeover. So who asks under it waits until the end is final, and
// hears that the lock cannot be served now where that takes too long.

// endedKept bounds the runs of ended references that a key remembers.
const endedKept = 16

// ending is how references that follow one another ended: StateReleased or StateLost.
type ending struct {
	first, last LockRef
	how         State
}

// record remembers how a reference ended.
func (k *key) record(r LockRef, how State) {
	if r == 0 || how == 0 {
		return
	}
	if n := len(k.ended); n > 0 && k.ended[n-1].last+1 == r && k.ended[n-1].how == how {
		k.ended[n-1].last = r
		return
	}
	if len(k.ended) == endedKept {
		k.ended = append(k.ended[:0], k.ended[1:]...)
	}
	k.ended = append(k.ended, ending{r, r, how})
}

// endedHow answers how a reference ended as memory knows; 0 where it does not.
func (k *key) endedHow(r LockRef) State {
	for _, e := range k.ended {
		if e.first <= r && r <= e.last {
			return e.how
		}
	}
	return 0
}

// final reports that nothing can succeed under a reference any more, whatever becomes of this session: the head has passed it in
// the lock row, or it was handed on inside a block, of which nobody else takes anything over.
func (k *key) final(r LockRef) bool {
	if k.view.known == present && r < k.view.row.Head {
		return true
	}
	t := k.term
	if t == nil || t.reserve == nil || t.place.reserve != nil {
		return false
	}
	return r < t.place.ref || (r == t.place.ref && !t.open && !t.reserve.plain && t.flight.ops == 0)
}

// missed is the verdict of an operation whose term is no more: where its reference may go on, its client is to look.
func (c *Core) missed(tk Ticket) Verdict {
	k := c.keys[tk.Key]
	kept, idle := c.idle.get(tk.Key)
	if (k != nil && k.final(tk.Ref)) || (idle && tk.Ref < kept.row.Head) {
		return VerdictLost
	}
	return VerdictUncertain
}

// parting is the verdict of an operation whose term is being taken away.
func (k *key) parting() Verdict {
	if k.final(k.term.place.ref) {
		return VerdictLost
	}
	return VerdictUncertain
}

// dormant answers the place of a reference that was given up, by silence or by its client, before its turn has come.
func (k *key) dormant(r LockRef) *place {
	p := k.find(r)
	if p == nil || !p.gone || p.phase != waiting || p.own() || (k.changing() && (k.heads(p) || p.ref < k.lwt.swap.Set.Row.Head)) {
		return nil
	}
	return p
}

// claimed answers the place of a reference that its client asks for. One that was only silent for too long goes on where it
// stands.
func (k *key) claimed(r LockRef) *place {
	p := k.dormant(r)
	if p == nil || k.endedHow(r) != 0 {
		return k.live(r)
	}
	p.gone, p.nowait = false, false
	return p
}

// askEnded answers what asks for a reference that no place here is for: how it ended, once that is final, or what the row tells.
func (k *key) askEnded(a ask) {
	a.how = k.endedHow(a.ref)
	if a.how != 0 && (k.final(a.ref) || a.givenBack()) {
		k.c.answer(a.ended())
		return
	}
	k.ask(a)
}

// answerEnded answers those whose reference has ended for ever by now.
func (k *key) answerEnded() {
	k.asks = slices.DeleteFunc(k.asks, func(a ask) bool {
		over := a.how != 0 && k.final(a.ref)
		if over {
			k.c.answer(a.ended())
		}
		return over
	})
}

// endOf is what is told of a lock that ends here.
func endOf(how State) NoteKind {
	if how == 0 {
		return NoteOrphaned
	}
	return NoteEnded
}

// givenBack reports that it asks how a reference stands that its client has given back: not that it is lost.
func (a ask) givenBack() bool { return a.how == StateReleased && a.what != askBegin }

// ended is what it is told of a reference that has ended as a.how says.
func (a ask) ended() Answer {
	switch {
	case a.what == askLock:
		return Answer{Op: a.op, Grant: Grant{Ref: a.ref, State: a.how}}
	case a.what == askUnlock:
		return Answer{Op: a.op, Grant: Grant{Applied: a.how == StateReleased, Ref: a.ref, State: a.how}}
	case a.how == StateReleased:
		return Answer{Op: a.op, Err: ErrReleased}
	}
	return Answer{Op: a.op, Err: ErrLost}
}
