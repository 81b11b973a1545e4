package musiccore

import (
	"slices"
	"time"
)

// stampRead is a read of the highest stamp of a key's data. It replaces the Synch before puts that
// read nothing, in a term that began with an own Enqueue on a key without a lock row: only plain
// writes from below closed can still surface, and they lie below such a put whenever they arrive.
// The term stays dirty: an operation that reads needs a Synch first. If it ends without one, and with
// nothing of its own open, the row is left unfenced, and puts that read nothing need no Synch in the
// next term either (docs/protocol.md 3.6, Begin).
type stampRead struct {
	epoch Stamp     // of the Enqueue that made the lock row; 0: no own Enqueue has
	cmd   CommandID // under way; 0: none
	began time.Duration
	early bool  // it was sent together with that Enqueue
	done  bool  // it has ended
	top   Stamp // the highest stamp of the data; forever if that is not known
	empty bool  // there are no data
}

// forever lies above every stamp of a window.
const forever = Stamp(1<<63 - 1)

// startStampRead sends the read.
func (k *key) startStampRead(now Now) {
	s := &k.stampRead
	s.began, s.early = now.Boot, k.term == nil
	s.cmd = k.c.do(k.id, ReadStamps{Closed: k.table.closed, Clk: now.Clk, Early: s.early})
	k.c.commands[s.cmd] = k
}

// readStampsEarly sends the read together with the Enqueue that is to make the lock row, if that is
// needed, or likely to be useful: at the table's last new key here, the first operation was a put
// that reads nothing. If the Enqueue is applied, no put of any proxy is older, and plain writes ended
// before this session knew closed, so the read shows as much as one after it.
func (k *key) readStampsEarly(now Now, needed bool) {
	if needed || k.c.tables[k.id.Table].putsFirst {
		k.startStampRead(now)
	}
}

// notePutsFirst remembers which kind of operation came first at a new key of the table.
func (k *key) notePutsFirst(puts bool) {
	k.learn(func(f *tableFacts) { f.putsFirst = puts })
}

// noteNothingPut records that the first term of a key ends, or synchronises, without a put before.
func (k *key) noteNothingPut() {
	if k.stampRead.early && k.term.window.epoch == k.stampRead.epoch && k.term.window.seq == 2 {
		k.notePutsFirst(false)
	}
}

// ended takes the result of a ReadStamps.
func (s *stampRead) ended(r Result) {
	s.cmd, s.done, s.top = 0, true, forever
	switch {
	case r.Status == StatusDone:
		s.top, s.empty = r.Stamp, r.Empty
	case s.early && r.Status == StatusUnknown:
		s.done = false // once more, in the term
	}
}

// endUnfenced forgets the result of the read, that an own Enqueue has made the lock row, and that the
// term began unfenced: plain writes may now lie above it, or the columns have changed, or the term
// synchronises.
func (k *key) endUnfenced() {
	delete(k.c.commands, k.stampRead.cmd)
	k.stampRead = stampRead{}
	if k.term != nil {
		k.term.unfenced = false
	}
}

// firstTerm reports whether the term that is here began with the lock row, not below closed, and has
// not synchronised or left anything unsettled.
func (k *key) firstTerm() bool {
	t, s := k.term, &k.stampRead
	return s.epoch != 0 && t.window.epoch == s.epoch && s.epoch >= k.table.closed && !t.unsettled
}

// mayPutBlind reports whether puts that read nothing may begin although the term is dirty, and whether
// those of the next term may, if nothing is in flight: what can still surface lies below them.
func (k *key) mayPutBlind() bool {
	t, s := k.term, &k.stampRead
	return t.unfenced && !t.unsettled || k.firstTerm() && s.done && s.top < s.epoch+t.window.seq
}

// awaitsStamps reports whether the waiting operations are to wait for a ReadStamps instead of a
// Synch, and sends it if that has not been done. They wait for it only for a short time.
func (k *key) awaitsStamps(now Now) bool {
	t, s := k.term, &k.stampRead
	if !k.firstTerm() || s.done || len(t.ops.waiting) == 0 || slices.ContainsFunc(t.ops.waiting, func(b waitingOp) bool { return b.kind != BlindPut }) {
		return false
	}
	if s.cmd == 0 {
		k.notePutsFirst(true)
		k.startStampRead(now)
	}
	return now.Boot < k.stampRead.until(k.c.opts)
}

// until returns how long operations wait for a ReadStamps.
func (s *stampRead) until(o Options) time.Duration { return s.began + o.OpTimeout/8 }
