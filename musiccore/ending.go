package musiccore

import "slices"

// What is told to be lost stays lost. A reference that has ended in this memory alone has not: were the session to die before its
// Release, the client could go on with it elsewhere, by a Takeover. So who asks under it waits until the end is final, and
// hears that the lock cannot be served now where that takes too long.

// endedKept bounds the runs of ended references that a key remembers.
const maxEndings = 16

// ending is how references that follow one another ended: StateReleased or StateLost.
type ending struct {
	first, last LockRef
	how         State
}

// endings are those of a key's references, the latest last.
type endings []ending

// record remembers how a reference ended. State 0 is remembered of none: it may go on elsewhere.
func (es *endings) record(r LockRef, how State) {
	if r == 0 || how == 0 {
		return
	}
	all := *es
	if n := len(all); n > 0 && all[n-1].last+1 == r && all[n-1].how == how {
		all[n-1].last = r
		return
	}
	if len(all) == maxEndings {
		all = append(all[:0], all[1:]...)
	}
	*es = append(all, ending{r, r, how})
}

// of returns how a reference ended as memory knows; 0 where it does not.
func (es endings) of(r LockRef) State {
	for _, e := range es {
		if e.first <= r && r <= e.last {
			return e.how
		}
	}
	return 0
}

// isFinal reports that nothing can succeed under a reference any more, whatever becomes of this session: the head has passed it in
// the lock row, or it was handed on inside a block, of which nobody else takes anything over.
func (k *key) isFinal(r LockRef) bool {
	if k.view.state == rowPresent && r < k.view.row.Head {
		return true
	}
	t := k.term
	if t == nil || t.block == nil || t.holder.block != nil {
		return false
	}
	return r < t.holder.ref || (r == t.holder.ref && !t.open && !t.block.plain && t.ops.flight.ops == 0)
}

// lateVerdict is the verdict of an operation whose term is no more: where its reference may go on, its client is to look.
func (c *Core) lateVerdict(tk Ticket) Verdict {
	k := c.keys[tk.Key]
	kept, idle := c.idle.get(tk.Key)
	if (k != nil && k.isFinal(tk.Ref)) || (idle && tk.Ref < kept.row.Head) {
		return VerdictLost
	}
	return VerdictUncertain
}

// lostVerdict is the verdict of an operation whose term is being taken away.
func (k *key) lostVerdict() Verdict {
	if k.isFinal(k.term.holder.ref) {
		return VerdictLost
	}
	return VerdictUncertain
}

// silentEntry answers the place of a reference that was given up, by silence or by its client, before its turn has come.
func (k *key) silentEntry(r LockRef) *entry {
	e := k.findEntry(r)
	if e == nil || !e.abandoned || e.phase != phaseWaiting || e.standsForBlock() || (k.changesTerm() && (k.isHead(e) || e.ref < k.lwt.swap.Set.Row.Head)) {
		return nil
	}
	return e
}

// reviveEntry answers the place of a reference that its client asks for. One that was only silent for too long goes on where it
// stands.
func (k *key) reviveEntry(r LockRef) *entry {
	e := k.silentEntry(r)
	if e == nil || k.endings.of(r) != 0 {
		return k.liveEntry(r)
	}
	e.abandoned, e.wait.noWait = false, false
	return e
}

// queryEnding answers what asks for a reference that no place here is for: how it ended, once that is final, or what the row tells.
func (k *key) queryEnding(a query) {
	a.ended = k.endings.of(a.ref)
	if a.ended != 0 && (k.isFinal(a.ref) || a.givenBack()) {
		k.c.answer(a.endedAnswer())
		return
	}
	k.addQuery(a)
}

// answerFinalQueries answers those whose reference has ended for ever by now.
func (k *key) answerFinalQueries() {
	k.queries = slices.DeleteFunc(k.queries, func(a query) bool {
		over := a.ended != 0 && k.isFinal(a.ref)
		if over {
			k.c.answer(a.endedAnswer())
		}
		return over
	})
}

// endNote is what is told of a lock that ends here.
func endNote(how State) NoteKind {
	if how == 0 {
		return NoteOrphaned
	}
	return NoteEnded
}

// givenBack reports that it asks how a reference stands that its client has given back: not that it is lost.
func (a query) givenBack() bool { return a.ended == StateReleased && a.kind != queryBegin }

// endedAnswer is what it is told of a reference that has ended as a.how says.
func (a query) endedAnswer() Answer {
	switch {
	case a.kind == queryLock:
		return Answer{Op: a.op, Grant: Grant{Ref: a.ref, State: a.ended}}
	case a.kind == queryUnlock:
		return Answer{Op: a.op, Grant: Grant{Applied: a.ended == StateReleased, Ref: a.ref, State: a.ended}}
	case a.ended == StateReleased:
		return Answer{Op: a.op, Err: ErrReleased}
	}
	return Answer{Op: a.op, Err: ErrLost}
}
