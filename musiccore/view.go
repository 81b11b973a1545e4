package musiccore

import (
	"slices"
	"time"
)

// quorumReadEvery is how often the row of a waiting key is read at QUORUM: one replica may have
// missed a commit for good (docs/protocol.md 3.5, Poll).
const quorumReadEvery = time.Second

// rowFreshFor is how long a row that other sessions change counts as up to date. localReadTimeout is
// how long an LWT, or a read at QUORUM, waits for a read of one replica.
const (
	rowFreshFor      = 5 * time.Millisecond
	localReadTimeout = 100 * time.Millisecond
)

// confirmAfter is how long after a commit at LOCAL_QUORUM the row is read at SERIAL, which completes
// the commit if it was lost on its way to other data centres. The next LWT of the key does that,
// too, and usually comes first.
const confirmAfter = time.Second

// rowState is what has been seen of a lock row.
type rowState uint8

const (
	rowUnread rowState = iota
	rowAbsent
	rowPresent
)

// view is what this proxy knows of one lock row.
type view struct {
	row             Row
	state           rowState
	firmAfter       CommandID     // not 0: the row exists for every QUORUM read begun after it
	decidedAfter    CommandID     // likewise for every SERIAL read
	confirmAt       time.Duration // not 0: an own commit may be on no quorum yet; read at SERIAL then
	quorumEpoch     Stamp         // read at QUORUM, or made by an own LWT: a dirty term may open on it
	seenAt          time.Duration // when the queue was read last
	read            rowRead
	hinted          bool          // after a hint that the row has changed
	releaseExpected time.Duration // after a hint that it is about to change: until when it is read often
	retainedCache   retainedBlocks
	settled         settled
}

// rowRead is the read of a lock row under way, and when the next one may begin.
type rowRead struct {
	cmd             CommandID     // under way; 0: none
	began           time.Duration // when
	quorum          bool          // it, or the last one, was at QUORUM or SERIAL
	serial          bool          // it, or the last one, was at SERIAL
	completes       bool          // it, or the last one, completes what no quorum shows
	localReadWanted bool          // an LWT waits for a read of one replica
	empty           int           // how many reads in a row showed nothing new
	behind          int           // how many reads at QUORUM in a row showed an older row than is known
	next            time.Duration // the next read is not before that
	quorumAt        time.Duration // of the last QUORUM read
	err             error         // why the last read failed
}

// settled says that the row on this epoch is clean, or unfenced, although it says dirty: the term that
// left it so in advance has ended well (once.go).
type settled struct {
	epoch    Stamp // 0: there is none
	unfenced bool  // it is not clean, but unfenced
}

// pointer returns the row, or nil if there is none or nothing is known.
func (v *view) pointer() *Row {
	if v.state != rowPresent {
		return nil
	}
	return &v.row
}

// applied records an own LWT. A read may have shown a later state before the reply came, so the
// result is joined with the row and does not replace it.
func (v *view) applied(s Swap) {
	v.row, _ = newer(v.row, s.onto(v.row))
	v.state = rowPresent
	if s.If.What == IfAbsent || s.If.What == IfGuardEpoch {
		v.quorumEpoch = s.Set.Row.Epoch
	}
}

// committed records how an own LWT was committed. Commands up to last were sent before that is
// known.
func (v *view) committed(now Now, last CommandID, near bool) {
	v.decidedAfter = last
	if near {
		v.confirmAt = now.Boot + confirmAfter
		return
	}
	v.firmAfter, v.confirmAt = last, 0
}

// startRead starts a read if the key needs one: the first, one that must be at QUORUM to decide
// something, or one because it waits for another session.
func (k *key) startRead(now Now) {
	v := &k.view
	serial := k.needsSerial(now)
	quorum := serial || k.needsQuorum(now)
	completes := quorum && v.read.behind > 1 // whoever had the commit may be gone for good: this completes it
	if quorum && !v.read.quorum && now.Boot-v.read.began >= localReadTimeout {
		// A QUORUM read does not wait for one replica.
		delete(k.c.commands, v.read.cmd)
		v.read.cmd = 0
	}
	if v.read.cmd != 0 || (now.Boot < v.read.next && !v.read.localReadWanted) {
		return
	}
	if !quorum && !v.read.localReadWanted && !k.needsRow() && !k.pollsHead(now) && !k.term.checksBehind(now, k.c.opts.Retain) {
		return
	}
	// One replica may lack the row, or half of it, for good. That does not matter to a read before
	// an LWT: the LWT is refused then.
	waits := !v.read.localReadWanted || k.pollsHead(now)
	v.read.quorum = quorum || v.read.err != nil || (waits && v.state != rowUnread && now.Boot-v.read.quorumAt >= quorumReadEvery)
	v.read.serial, v.read.completes = serial || completes, completes
	v.read.cmd, v.read.began = k.c.do(k.id, ReadRow{Quorum: v.read.quorum, Serial: v.read.serial, Completes: completes}), now.Boot
	k.c.commands[v.read.cmd] = k
}

// waitsForLocalRead reports whether an LWT on the queue must wait for a read of one replica: other
// sessions change the queue, too, and a near replica knows all but the latest change. An LWT made
// from an older row would be refused, which costs as much as one that is applied.
func (k *key) waitsForLocalRead(now Now) bool {
	v := &k.view
	if v.state != rowPresent || now.Boot-v.seenAt < rowFreshFor || (v.read.cmd != 0 && now.Boot-v.read.began >= localReadTimeout) {
		return false
	}
	v.read.localReadWanted = k.view.row.remoteFrom(v.row.Head, k.c.self.id)
	return v.read.localReadWanted
}

// needsRow reports whether an entry is to be enqueued and nothing has been read.
func (k *key) needsRow() bool { return k.view.state == rowUnread && len(k.queue.unnumbered) > 0 }

// checksBehind reports whether to read who waits behind a block, since the hint of another session
// may have been lost. Doing so at events is enough: a block without a holder, or with one holder
// for long, ends by itself.
func (t *term) checksBehind(now Now, retain time.Duration) bool {
	if t == nil || t.block == nil || t.block.closed || now.Boot < t.block.nextCheck {
		return false
	}
	t.block.nextCheck = now.Boot + retain
	return true
}

// pollsHead reports whether the head is of another session, and somebody here waits behind it.
func (k *key) pollsHead(now Now) bool {
	_, foreign := k.remoteHead()
	return foreign && k.headAwaited(now)
}

// needsSerial reports whether a decision depends on every LWT before it: that a reference was never
// given, that nobody has begun a term since, or that the own last commit is on a quorum.
func (k *key) needsSerial(now Now) bool {
	return slices.ContainsFunc(k.queries, query.needsSerial) || (k.term.released() && len(k.term.ops.checks) > 0) || (k.view.confirmAt != 0 && now.Boot >= k.view.confirmAt)
}

// needsQuorum reports whether a decision must not depend on one replica.
func (k *key) needsQuorum(now Now) bool {
	if slices.ContainsFunc(k.queries, query.needsRow) || (k.term != nil && len(k.term.ops.checks) > 0) || (k.lwt != nil && k.lwt.refused != 0) {
		return true
	}
	v := &k.view
	if v.state != rowPresent || v.row.Empty() || k.term != nil || k.lwt.changesTerm() || !k.headAwaited(now) {
		return false
	}
	_, session, _ := v.row.Holder()
	switch {
	case k.unknownHead():
		return true
	case v.quorumEpoch == v.row.Epoch:
		return false
	case session != k.c.self.id:
		return k.c.dead(session)
	case k.orphanedHead():
		return true
	}
	return !k.queue.numbered[0].abandoned && v.row.leftOpen(k.table.closed)
}

// rowRead takes the result of a ReadRow.
func (k *key) rowRead(now Now, id CommandID, r Result) {
	v := &k.view
	v.read.cmd, v.read.err, v.seenAt, v.read.localReadWanted = 0, r.Cause, now.Boot, false
	before, oldQuorumEpoch, was := v.row, v.quorumEpoch, v.state
	if r.Status == StatusDone {
		k.mergeRead(now, id, r.Row)
	}
	changed := v.state != was || v.row.Epoch != before.Epoch || v.row.Guard != before.Guard || v.quorumEpoch != oldQuorumEpoch
	switch {
	case changed:
		v.read.next, v.read.empty = 0, 1
	case now.Boot < v.releaseExpected:
		v.read.next = now.Boot + releasingPollEvery
	default:
		v.read.next = now.Boot + backoff(v.read.empty)
		v.read.empty++
	}
	if v.hinted {
		k.hintAnswered()
	}
	if r.Status != StatusDone || !v.read.quorum {
		return
	}
	v.read.behind++
	if r.Row == nil || !r.Row.before(v.row) {
		v.read.behind = 0
	}
	if v.read.serial && id > v.decidedAfter {
		v.confirmAt = 0
	}
	v.read.quorumAt = now.Boot
	if !changed {
		k.headWatch.told = SessionID{} // the hint may have been lost, or have found an orphan
	}
	k.resolveRefused(now, id, r.Row)
	k.answerQueries(now, id)
	k.answerChecks(id, r.Row)
}

// mergeRead joins a row that was read with what is known. One epoch never shows two terms, and a
// lock row never vanishes (I1).
func (k *key) mergeRead(now Now, id CommandID, r *Row) {
	v := &k.view
	if r == nil {
		k.mergeNoRow(now, id)
		return
	}
	row, ok := *r, true
	if v.state == rowPresent && v.read.completes && id > v.decidedAfter && r.before(v.row) && !k.lwt.mayBeUnderWay() {
		k.rowLost(now, "the lock row has gone back: what was decided last is lost")
	}
	if v.state == rowUnread {
		k.noteNewKey(false)
	}
	if v.state == rowPresent {
		row, ok = newer(v.row, *r)
	}
	if !ok {
		k.invariantBroken(now, "I1", "one epoch shows two terms")
		return
	}
	v.row, v.state = row, rowPresent
	if v.read.quorum {
		v.firmAfter = k.c.last.command
	}
	if v.read.quorum && r.Epoch == row.Epoch {
		v.quorumEpoch = r.Epoch
	}
}

// mergeNoRow takes a read that showed no row. A row that only one replica has shown may be an
// INSERT that is on no quorum yet (docs/protocol.md 7.1).
func (k *key) mergeNoRow(now Now, id CommandID) {
	v := &k.view
	switch {
	case v.state == rowUnread:
		v.state = rowAbsent
	case v.state != rowPresent || !v.read.quorum:
	case v.shownBy(id) && k.lwt.mayBeUnderWay(): // the read after it decides
	case v.shownBy(id):
		k.rowLost(now, "the lock row has vanished")
	case v.firmAfter == 0 && v.decidedAfter == 0:
		v.row, v.state = Row{}, rowAbsent
	}
}

// shownBy reports whether the row exists for the read at QUORUM that has just ended, command id.
func (v *view) shownBy(id CommandID) bool {
	return (v.firmAfter != 0 && id > v.firmAfter) || (v.read.serial && v.decidedAfter != 0 && id > v.decidedAfter)
}

// rowLost starts a key again whose lock row is an earlier one, or gone: a read that has to show the present row began
// after that was known, so the replicas have lost it, as nodes do that lose power together. LWTs made from it would be
// refused for ever. Its references are not given again, and its stamps lie below the next fence.
func (k *key) rowLost(now Now, text string) {
	lost := k.view.row
	k.invariantBroken(now, "I1", text)
	k.forgetRow(now)
	k.table.first = max(k.table.first, lost.Guard+1)
	k.table.closed = max(k.table.closed, lost.Epoch+k.c.opts.Window)
}

// forgetRow forgets the lock row and all that rests on it: the references that it had given mean nothing any more.
func (k *key) forgetRow(now Now) {
	if k.term != nil {
		k.loseTerm(now)
	}
	for _, e := range k.queue.numbered {
		e.lose()
	}
	k.endUnfenced()
	k.queue.numbered, k.view = nil, view{state: rowAbsent, read: rowRead{cmd: k.view.read.cmd, quorum: true, serial: k.view.read.serial}}
	if k.lwt != nil && k.lwt.swap.If.What != IfAbsent {
		k.dropLWT()
	}
}
