package musiccore

import (
	"slices"
	"time"
)

// A lock for one statement on a key without a lock row costs one LWT (docs/protocol.md 3.20, Once).
// It makes the row with a reference that has been released already: the queue is empty, the epoch
// lies above all stamps of the term, and the row is dirty. So nothing has to be released, and any
// proxy may begin the next term at any time. The operations of the term are checked against the row,
// as in a strict table: their client is told only if the epoch is still the same.

// onceWindow is how many stamps such a term has.
const onceWindow = Stamp(16)

// notOnceFor is for how many new keys of a table locks are ordinary after one had data: there, an
// EnqueueReleased costs an LWT and saves none.
const notOnceFor = 32

// rivalWait bounds how long an Enqueue waits for the statement of another proxy.
const rivalWait = 500 * time.Millisecond

// once is an entry whose Enqueue has made the lock row, and released the reference. It stays among
// the unnumbered ones until the stamps of the key are known. If these do not allow its statement,
// it is enqueued again like any other.
type once struct {
	entry *entry
	ref   LockRef
	epoch Stamp // of its term
}

// EnqueueReleased makes the lock row of a key that has none, with one reference that has been
// released. The stamps of its term begin at the epoch onceWindow below that of the row.
func EnqueueReleased(b Block, clk Stamp) Swap {
	s := Enqueue(nil, b, 0, clk)
	s.Set.Row = Release(s.Set.Row, onceWindow, true, 0).onto(s.Set.Row)
	return s
}

// mayBeOnce reports whether the Enqueue of these entries, on a key without a lock row, may release
// the reference at once.
func (k *key) mayBeOnce(now Now, entries []*entry, b Block) bool {
	if k.c.tables[k.id.Table].notOnce > 0 && entries[0].once != 0 {
		k.learn(func(f *tableFacts) { f.notOnce-- })
		return false
	}
	return len(entries) == 1 && b.N == 1 && !b.Retained && entries[0].once != 0 && !entries[0].behind && now.Clk >= k.firstEpoch()
}

// firstEpoch returns the lowest epoch of a term that needs no Renew and whose stamps lie above all
// plain writes.
func (k *key) firstEpoch() Stamp { return max(k.table.closed, k.table.altered, k.table.hidden) }

// termEpoch returns the epoch of the term that an Enqueue begins which makes the lock row.
func (l *lwt) termEpoch() Stamp {
	if l.once {
		return l.swap.Set.Row.Epoch - onceWindow
	}
	return l.swap.Set.Row.Epoch
}

// onceEnqueued takes the applied Enqueue of a lock for one statement.
func (k *key) onceEnqueued(l *lwt, b Block) {
	k.queue.requeue(l.entries)
	k.queue.once = once{l.entries[0], b.First, l.termEpoch()}
}

// holdsForOnce reports whether the unnumbered entries wait for a lock of one statement here: their
// Enqueue would end its term, and the fate of its put would be unknown.
func (k *key) holdsForOnce(now Now) bool {
	rival := now.Boot < k.queue.enqueueAt && k.view.row.Empty()
	waits := rival || k.queue.once.entry != nil || k.term.released()
	return waits && !anyMustBeNumbered(now, k.queue.unnumbered)
}

// waitForRival has the next Enqueue wait after another proxy has made the lock row first: if that was
// for one statement, the statement is under way, and an Enqueue would leave its fate unknown. A
// refusal takes two rounds, one LWT, put and check of the other proxy about twice as many.
func (k *key) waitForRival() {
	k.queue.enqueueAt = k.c.now + min(2*(k.c.now-k.lwt.firstSent), rivalWait)
}

// enterOnce opens the term of a lock for one statement as soon as the stamps of the key are known.
func (k *key) enterOnce(now Now) {
	o, s := k.queue.once, &k.stampRead
	if o.entry == nil || s.cmd != 0 && now.Boot < s.until(k.c.opts) {
		return
	}
	k.queue.once = once{}
	if !k.servesOnce(now, o) {
		return
	}
	k.queue.unnumbered = withoutFirst(k.queue.unnumbered)
	o.entry.ref, o.entry.phase = o.ref, phaseWaiting
	k.queue.insert(o.entry)
	k.c.last.term++
	k.term = &term{
		id: k.c.last.term, holder: o.entry, cleanness: cleanness{dirty: true}, lastRef: o.ref,
		window: window{epoch: o.epoch, seq: 2, released: o.epoch + onceWindow},
	}
	k.grant(now, o.entry)
}

// servesOnce reports whether the term of a lock for one statement may begin.
func (k *key) servesOnce(now Now, o once) bool {
	e, s := o.entry, &k.stampRead
	waits := slices.Index(k.queue.unnumbered, e) == 0 && e.wait.op != 0
	fits := s.empty || e.once == BlindPut && s.top < o.epoch+2
	if s.done && !fits {
		k.learn(func(f *tableFacts) { f.notOnce = notOnceFor })
	}
	return waits && k.term == nil && k.lwt == nil && k.view.row.Epoch == o.epoch+onceWindow &&
		s.epoch == o.epoch && s.done && fits && o.epoch >= k.firstEpoch() &&
		now.Clk != 0 && !k.c.draining && k.c.self.Valid(now)
}

// released reports whether the term is of a reference that was released when it was enqueued.
func (t *term) released() bool { return t != nil && t.window.released != 0 }

// rowEpoch returns the epoch that the lock row shows while the term lasts.
func (t *term) rowEpoch() Stamp { return max(t.window.epoch, t.window.released) }

// windowSize returns how many stamps the term has.
func (k *key) windowSize() Stamp {
	if k.term.released() {
		return onceWindow
	}
	return k.c.opts.Window
}

// endReleased ends a term that has been released, once its client has given the lock back. One that
// would need another window ends, too.
func (k *key) endReleased(now Now) {
	t := k.term
	if !t.released() {
		return
	}
	if t.renewal.wanted {
		k.closeTerm(now, StateLost)
	}
	if t.open || t.ops.flight.ops > 0 || t.synch.cmd != 0 {
		return
	}
	if dirty := !t.clean(); !t.broken && (!dirty || k.mayPutBlind()) {
		k.view.settled = settled{epoch: t.window.released, unfenced: dirty}
	}
	k.chooseBlockSize()
	k.endTerm()
}

// mayFence reports whether a FencedPut may begin: it is the first operation of the term, and the key
// was empty when its stamps were read.
func (k *key) mayFence() bool {
	t, s := k.term, &k.stampRead
	return k.firstTerm() && s.done && s.empty && t.window.seq == 2 && t.ops.flight.ops == 0 && len(t.ops.waiting) == 0 && !t.renewal.blocksPuts
}

// fenced notes that an acknowledged put has deleted everything older of a key that was empty: that
// is all that a Synch does.
func (k *key) fenced(tk Ticket) {
	if tk.Fence != 0 && k.term != nil && k.term.id == tk.Term && k.firstTerm() {
		k.term.synced = true
	}
}

// enqueuesFrom returns the row that an Enqueue is made from: the term that left it dirty in advance
// may have ended with nothing, or nothing of its own, that could still surface.
func (v *view) enqueuesFrom() *Row {
	r := v.pointer()
	if r == nil || v.settled.epoch == 0 || r.Epoch != v.settled.epoch {
		return r
	}
	better := *r
	better.Dirty, better.Unfenced = v.settled.unfenced, v.settled.unfenced
	return &better
}
