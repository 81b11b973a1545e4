package musiccore

import "slices"

// A reference that was told to be lost stays lost. One that has ended only in memory may not be told
// so: if the session died before its Release, its client could go on with it elsewhere, by a
// Takeover. So an operation on it waits until the end is final, and is told that the lock is
// unavailable if that takes too long.

// maxEndings bounds the runs of ended references that a key remembers.
const maxEndings = 16

// ending is how a run of consecutive references ended: StateReleased or StateLost.
type ending struct {
	first, last LockRef
	how         State
}

// endings are those of the references of one key, the latest last.
type endings []ending

// record remembers how a reference ended. State 0, of a reference that may go on elsewhere, is not
// remembered.
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
		*es = slices.Delete(all, 0, 1)
	}
	*es = append(*es, ending{r, r, how})
}

// of returns how a reference ended, or 0 if that is not known.
func (es endings) of(r LockRef) State {
	for _, e := range es {
		if e.first <= r && r <= e.last {
			return e.how
		}
	}
	return 0
}

// isFinal reports whether nothing can succeed under a reference any more, whatever happens to this
// session: the head has passed it in the lock row, or the lock was handed on inside a block, from
// which no reference is taken over.
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

// lateVerdict returns the verdict for a ticket whose term has ended.
func (c *Core) lateVerdict(tk Ticket) Verdict {
	k := c.keys[tk.Key]
	kept, idle := c.idle.get(tk.Key)
	if (k != nil && k.isFinal(tk.Ref)) || (idle && tk.Ref < kept.row.Head) {
		return VerdictLost
	}
	return VerdictUncertain
}

// lostVerdict returns the verdict for an operation whose term is being taken away.
func (k *key) lostVerdict() Verdict {
	if k.isFinal(k.term.holder.ref) {
		return VerdictLost
	}
	return VerdictUncertain
}

// silentEntry returns the entry of a reference that was abandoned and is not being passed over, or
// nil.
func (k *key) silentEntry(r LockRef) *entry {
	e := k.findEntry(r)
	if e == nil || !e.abandoned || e.phase != phaseWaiting || e.standsForBlock() || (k.lwt.changesTerm() && (k.view.isHead(e) || e.ref < k.lwt.swap.Set.Row.Head)) {
		return nil
	}
	return e
}

// reviveEntry returns the entry of a reference that its client uses again, or nil. An entry that
// was abandoned because its client was silent keeps its place.
func (k *key) reviveEntry(r LockRef) *entry {
	e := k.silentEntry(r)
	if e == nil || k.endings.of(r) != 0 {
		return k.liveEntry(r)
	}
	e.abandoned, e.wait.noWait = false, false
	return e
}

// queryEnding answers an operation on a reference for which there is no entry here: with how it
// ended once that is final, else by the lock row.
func (k *key) queryEnding(q query) {
	q.ended = k.endings.of(q.ref)
	if q.ended != 0 && (k.isFinal(q.ref) || q.givenBack()) {
		k.c.answer(q.endedAnswer())
		return
	}
	k.addQuery(q)
}

// answerFinalQueries answers the queries for references that have ended for ever by now.
func (k *key) answerFinalQueries() {
	k.queries = slices.DeleteFunc(k.queries, func(q query) bool {
		over := q.ended != 0 && k.isFinal(q.ref)
		if over {
			k.c.answer(q.endedAnswer())
		}
		return over
	})
}

// endNote returns the kind of note for the end of a lock here; how is 0 if the lock may go on
// elsewhere.
func endNote(how State) NoteKind {
	if how == 0 {
		return NoteOrphaned
	}
	return NoteEnded
}

// givenBack reports whether the query is about a reference that its client gave back: it is
// answered at once.
func (q query) givenBack() bool { return q.ended == StateReleased && q.kind != queryBegin }

// endedAnswer returns the answer for a reference that ended as q.ended says.
func (q query) endedAnswer() Answer {
	switch {
	case q.kind == queryLock:
		return Answer{Op: q.op, Grant: Grant{Ref: q.ref, State: q.ended}}
	case q.kind == queryUnlock:
		return Answer{Op: q.op, Grant: Grant{Applied: q.ended == StateReleased, Ref: q.ref, State: q.ended}}
	case q.ended == StateReleased:
		return Answer{Op: q.op, Err: ErrReleased}
	}
	return Answer{Op: q.op, Err: ErrLost}
}
