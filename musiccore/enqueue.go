package musiccore

import (
	"slices"
	"time"
)

// enqueue sends one LWT that gets references for all unnumbered entries, unless something better is
// under way.
func (k *key) enqueue(now Now) {
	k.askElsewhere(now)
	if len(k.queue.unnumbered) == 0 || k.releaseWillEnqueue(now) || k.holdsForOnce(now) || k.waitsForLocalRead(now) {
		return
	}
	r := k.view.enqueuesFrom()
	entries, b := k.takeUnnumbered(now, r == nil || r.Empty())
	if len(entries) == 0 {
		return
	}
	k.queue.once = once{}
	l := lwt{purpose: purposeEnqueue, swap: Enqueue(r, b, k.table.closed, now.Clk), req: b.Req, entries: entries}
	if l.once = r == nil && k.mayBeOnce(now, entries, b); l.once {
		l.swap = EnqueueReleased(b, now.Clk)
	}
	if k.startLWT(now, l) && r == nil {
		k.readStampsEarly(now, l.once || entries[0].behind)
	}
}

// newKeysInRow is after how many new keys of a table in a row the lock row of the next key is not read
// before it is enqueued. Each time that was wrong the number is doubled, at most wrongGuesses times:
// among keys of which some are old such a guess would cost more than the reads that it saves.
const (
	newKeysInRow = 4
	wrongGuesses = 8
)

// presumeAbsent has an Enqueue go without a read of the lock row, if the table's last keys were new.
// If there is a row the INSERT is refused, and the read after it shows the row.
func (k *key) presumeAbsent() {
	if k.view.state != rowUnread || k.view.read.cmd != 0 || len(k.queue.unnumbered) == 0 {
		return
	}
	if f := k.c.tables[k.id.Table]; f.newKeys >= newKeysInRow<<f.wrongGuesses {
		k.view.state = rowAbsent
	}
}

// noteNewKey remembers whether a key of the table had no lock row when it was locked first here.
func (k *key) noteNewKey(isNew bool) {
	k.learn(func(f *tableFacts) {
		if !isNew {
			f.newKeys = 0
		} else if f.newKeys < newKeysInRow<<wrongGuesses {
			f.newKeys++
		}
	})
}

// insertRefused notes that a lock row has been there before the Enqueue that was to make it: from
// another proxy's at the same time, or for long.
func (k *key) insertRefused() {
	k.endUnfenced()
	k.noteNewKey(false)
	if k.view.row.Epoch >= k.lwt.termEpoch()-Stamp(rivalWait/time.Microsecond) {
		k.waitForRival()
		return
	}
	k.learn(func(f *tableFacts) { f.wrongGuesses = min(f.wrongGuesses+1, wrongGuesses) })
}

// releaseWillEnqueue reports whether the unnumbered entries can wait for the Release of the term
// that is here, which enqueues them: sections are short, so it comes within Options.Retain, and no
// client has to be told anything before.
func (k *key) releaseWillEnqueue(now Now) bool {
	t := k.term
	if t == nil || k.blocks.nextSize == 0 || now.Boot >= t.holder.plainAt() {
		return false
	}
	return !slices.ContainsFunc(k.queue.unnumbered, func(e *entry) bool { return !e.canWaitUnnumbered(now) })
}

// takeUnnumbered removes the unnumbered entries and returns them with the block to enqueue for
// them; both are empty if nothing can be enqueued now. vacant means that the first reference
// becomes the head at once.
func (k *key) takeUnnumbered(now Now, vacant bool) ([]*entry, Block) {
	if len(k.queue.unnumbered) == 0 || k.c.draining || !k.mayTakeTerms(now) || (vacant && now.Clk == 0) {
		return nil, Block{}
	}
	k.refuseNoWait(now)
	entries := k.queue.unnumbered
	if len(entries) == 0 {
		return nil, Block{}
	}
	k.queue.unnumbered = nil
	k.c.last.request++
	b := Block{
		First: k.table.first, N: int32(len(entries)), Session: k.c.self.id, Req: k.c.last.request,
		Retained: k.reservesBlock(now, vacant, entries),
	}
	if b.Retained && vacant {
		b.N = max(b.N, k.blocks.nextSize)
	} else if b.Retained {
		b.N = max(b.N, min(k.blocks.nextSize, 8*b.N)) // others come behind it
	}
	return entries, b
}

// mayTakeTerms reports whether this session may get references and terms: it is valid, and the table has
// been read for it. While there was no session nobody waited for this proxy to follow a change of the
// table.
func (k *key) mayTakeTerms(now Now) bool {
	return k.c.self.Valid(now) && k.table.known(k.c.self.id)
}

// refuseNoWait answers BUSY to the unnumbered entries with NOWAIT that are not first.
func (k *key) refuseNoWait(now Now) {
	patient := make([]*entry, 0, len(k.queue.unnumbered))
	for _, e := range k.queue.unnumbered {
		if e.wait.noWait && (len(patient) > 0 || k.claimedByOthers()) {
			e.answer(k.busyGrant())
			e.end(StateLost)
			k.watchHead(now)
			continue
		}
		patient = append(patient, e)
	}
	k.queue.unnumbered = patient
}

// claimedByOthers reports whether anybody is ahead of a new entry. References that were given back
// and wait for their LWT do not count: a client that unlocks and then locks with NOWAIT finds the
// key free.
func (k *key) claimedByOthers() bool {
	for _, e := range k.queue.numbered {
		if !e.abandoned && e.phase != phaseEnded {
			return true
		}
	}
	return k.view.state == rowPresent && k.view.row.remoteFrom(k.view.row.Head, k.c.self.id)
}

// remoteFrom reports whether another session than this one has a reference from first on.
func (r Row) remoteFrom(first LockRef, self SessionID) bool {
	return slices.ContainsFunc(r.Queue, func(b Block) bool { return b.Last() >= first && b.Session != self })
}

// anyMustBeNumbered reports whether one of the entries must be numbered now.
func anyMustBeNumbered(now Now, entries []*entry) bool {
	return slices.ContainsFunc(entries, func(e *entry) bool { return e.mustBeNumbered(now) })
}

// mustBeNumbered reports whether the entry's client has to be told a reference now.
func (e *entry) mustBeNumbered(now Now) bool {
	return e.wait.atOnce || (e.wait.op != 0 && now.Boot >= e.numberBy())
}

// canWaitUnnumbered reports whether the entry will probably be granted before its client must be
// told a reference, assuming that it waits as long as the last one here.
func (e *entry) canWaitUnnumbered(now Now) bool {
	return !e.wait.atOnce && now.Boot+e.k.blocks.lastWait < e.numberBy()
}

// numberBy returns when an entry without a reference has to be enqueued, so that its client can be
// told one in time.
func (e *entry) numberBy() time.Duration { return e.deadline - e.k.c.opts.Wait/3 }

// assignRefs gives the entries of an applied Enqueue the references of its block, and answers those
// that do not wait for their turn.
func (k *key) assignRefs(now Now, entries []*entry, b Block) {
	if b.Retained {
		k.blockEnqueued(now, entries, b)
		return
	}
	busy := k.claimedByOthers()
	for i, e := range entries {
		e.ref = b.First + LockRef(i)
		e.phase = phaseWaiting
		k.queue.insert(e)
		if e.wait.atOnce && e.wait.op != 0 && busy {
			k.answerTimedOut(now, e)
		}
		busy = busy || !e.abandoned
	}
}
