package musiccore

import (
	"slices"
	"time"
)

// quorumEvery is how often a waiting key is looked at by QUORUM: a replica
// may have missed a commit for good (docs/protocol.md 3.5, Poll).
const quorumEvery = time.Second

// freshFor is how long a row that others change is taken for what it was when it
// was seen, and glanceFor how long an LWT, or a read at QUORUM, waits for a look
// at it.
const (
	freshFor  = 5 * time.Millisecond
	glanceFor = 100 * time.Millisecond
)

// known is what has been seen of a lock row.
type known uint8

const (
	unread known = iota
	absent
	present
)

// view is what this proxy knows of one lock row, and its read under way.
type view struct {
	row      Row
	known    known
	firm     CommandID     // not 0: read at QUORUM or written by an own LWT; no read begun after this command can show no row
	vouched  Stamp         // the base that may be entered dirty: read at QUORUM, or own Enqueue on an empty queue
	cmd      CommandID     // the read under way
	began    time.Duration // … since when
	quorum   bool          // … and how
	at       time.Duration // when the queue was seen last
	glance   bool          // an LWT waits for a look
	tries    int           // reads that brought nothing
	next     time.Duration // no read before
	quorumAt time.Duration // last QUORUM read
	hinted   bool          // a hint says that there is something to see
	soon     time.Duration // a hint says that there will be, by then
	cause    error         // why the last read failed
	kept     keptBlocks
}

func (v *view) pointer() *Row {
	if v.known != present {
		return nil
	}
	return &v.row
}

// applied notes an own LWT. A read may have shown a later state before the
// reply came, so it is joined and not written over.
func (v *view) applied(s Swap) {
	v.row, _ = newer(v.row, s.onto(v.row))
	v.known = present
	if s.If.What == IfAbsent || s.If.What == IfGuardEpoch {
		v.vouched = s.Set.Row.Epoch
	}
}

// look starts a read if the key needs one: to begin with, to decide
// something that only QUORUM decides, or because it waits for a stranger.
func (k *key) look(now Now) {
	v := &k.view
	quorum := k.needsQuorum(now)
	if quorum && !v.quorum && now.Boot-v.began >= glanceFor {
		// What a quorum has to tell does not wait for one replica.
		delete(k.c.running, v.cmd)
		v.cmd = 0
	}
	if v.cmd != 0 || (now.Boot < v.next && !v.glance) {
		return
	}
	if !quorum && !v.glance && !k.needsRow() && !k.polls(now) && !k.peeks(now) {
		return
	}
	// One replica may have nothing to show for good, or half a row. Who only looks before an LWT hears of it by a refusal.
	waits := !v.glance || k.polls(now)
	v.quorum = quorum || v.cause != nil || (waits && v.known != unread && now.Boot-v.quorumAt >= quorumEvery)
	v.cmd, v.began = k.c.do(k.id, ReadRow{Quorum: v.quorum}), now.Boot
	k.c.running[v.cmd] = k
}

// glances reports that an LWT on the queue is to wait for a look at it: others
// change it, too, and one replica, which is near, knows of all but the latest. An
// LWT made from an older row would be refused, at the price of one.
func (k *key) glances(now Now) bool {
	v := &k.view
	if v.known != present || now.Boot-v.at < freshFor || (v.cmd != 0 && now.Boot-v.began >= glanceFor) {
		return false
	}
	v.glance = k.othersFrom(v.row.Head)
	return v.glance
}

// needsRow: somebody wants to enqueue and nothing has been seen.
func (k *key) needsRow() bool { return k.view.known == unread && len(k.asking) > 0 }

// peeks: others may wait behind a block, and the hint may have been lost. A look
// when something happens is enough: in nobody's hands, and in one's for long, a
// block ends by itself.
func (k *key) peeks(now Now) bool {
	t := k.term
	if t == nil || t.reserve == nil || t.reserve.shut || now.Boot < t.reserve.peek {
		return false
	}
	t.reserve.peek = now.Boot + k.c.opts.Retain
	return true
}

// polls: the head is of another session, and somebody here waits behind it.
func (k *key) polls(now Now) bool {
	_, foreign := k.stranger()
	return foreign && k.waitedFor(now)
}

// needsQuorum: what is to be decided must not come from one replica.
func (k *key) needsQuorum(now Now) bool {
	if slices.ContainsFunc(k.asks, ask.ofRow) || (k.term != nil && len(k.term.checks) > 0) || (k.lwt != nil && k.lwt.refused != 0) || k.ride.after != 0 {
		return true
	}
	v := &k.view
	if v.known != present || v.row.Empty() || k.term != nil || k.changing() || !k.waitedFor(now) {
		return false
	}
	_, session, known := v.row.Holder()
	switch {
	case !known:
		return true
	case v.vouched == v.row.Epoch:
		return false
	case session != k.c.self.id:
		return k.c.dead(session)
	case k.stray():
		return true
	}
	return !k.queued[0].gone && v.row.DirtySince(k.closed)
}

// rowRead takes what a ReadRow saw.
func (k *key) rowRead(now Now, id CommandID, r Result) {
	v := &k.view
	v.cmd, v.cause, v.at, v.glance = 0, r.Cause, now.Boot, false
	before, vouched, was := v.row, v.vouched, v.known
	if r.Status == StatusDone {
		k.saw(now, id, r.Row)
	}
	changed := v.known != was || v.row.Epoch != before.Epoch || v.row.Guard != before.Guard || v.vouched != vouched
	switch {
	case changed:
		v.next, v.tries = 0, 1
	case now.Boot < v.soon:
		v.next = now.Boot + yieldEvery
	case k.rideNear(now):
		v.next = now.Boot + backoff(0)
	default:
		v.next = now.Boot + backoff(v.tries)
		v.tries++
	}
	if v.hinted {
		k.heard()
	}
	if r.Status != StatusDone || !v.quorum {
		return
	}
	v.quorumAt = now.Boot
	if !changed {
		k.spoken = SessionID{} // the word may have been lost, or the head be unknown where it should be known
	}
	k.resolve(now, id, r.Row)
	k.strand(id, r.Row)
	k.answerAsks(now, id)
	k.answerChecks(id, r.Row)
}

// saw joins a row that was read with what is known. One base never shows two
// terms, and a lock row never vanishes (I1).
func (k *key) saw(now Now, id CommandID, r *Row) {
	v := &k.view
	if r == nil {
		k.sawNone(now, id)
		return
	}
	row, ok := *r, true
	if v.known == present {
		row, ok = newer(v.row, *r)
	}
	if !ok {
		k.broken(now, "I1", "one base shows two terms")
		return
	}
	v.row, v.known = row, present
	if v.quorum {
		v.firm = k.c.last.command
	}
	if v.quorum && r.Epoch == row.Epoch {
		v.vouched = r.Epoch
	}
}

// sawNone takes a read that showed no row. A row that only one replica has
// shown may be an INSERT that is on no quorum yet (docs/protocol.md 7.1).
func (k *key) sawNone(now Now, id CommandID) {
	v := &k.view
	switch {
	case v.known == unread:
		v.known = absent
	case v.known != present || !v.quorum || id <= v.firm:
	case v.firm == 0:
		v.row, v.known = Row{}, absent
	default:
		k.broken(now, "I1", "the lock row has vanished: references will start again from 1")
		k.forgetRow(now)
	}
}

// forgetRow starts a key anew whose lock row is gone: what it had given means
// nothing any more.
func (k *key) forgetRow(now Now) {
	if k.term != nil {
		k.loseTerm(now)
	}
	for _, p := range k.queued {
		k.losePlace(p)
	}
	k.ride = ride{}
	k.queued, k.view = nil, view{known: absent, cmd: k.view.cmd, quorum: true}
	if k.lwt != nil && k.lwt.swap.If.What != IfAbsent {
		k.dropLWT()
	}
}
