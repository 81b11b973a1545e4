package musiccore

import (
	"slices"
	"time"
)

// blockMax bounds the references of one block.
const blockMax = 1024

// reserve is what this proxy keeps of references that it reserved for itself: a
// retained tuple of the queue (PROTOCOL.md 6). All of them are one tenure on one
// base, in which the lock goes from hand to hand in memory. The row shows the
// tuple's first one as the head until the tenure ends, and nothing durable tells
// how far it has come: where this session dies, none of them goes on elsewhere.
// So nobody is told a reference of a block before it is granted.
type reserve struct {
	first, next, last LockRef // next is handed out next
	line              []*place
	shut              bool          // others wait behind the block: the line takes nobody any more
	plain             bool          // nothing is handed over any more
	until             time.Duration // in nobody's hands it is kept so long
	peek              time.Duration // no look before then who waits elsewhere
}

// retains reports whether an Enqueue is to reserve a block: sections here are
// short, and those who ask, but for one who is granted at once, have the time to
// hear of their references later.
func (k *key) retains(now Now, vacant bool, ps []*place) bool {
	if k.c.opts.Retain == 0 || k.spare == 0 {
		return false
	}
	for i, p := range ps {
		if !p.early(now) && (!vacant || i > 0) {
			return false
		}
	}
	return len(ps) > 1 || k.spare > 1
}

// early reports that a place has time before its client must be told something:
// by then, as the last one here has waited, it is granted.
func (p *place) early(now Now) bool { return !p.atOnce && now.Boot+p.k.turn < p.tellAt() }

// tellAt is when a place in a line is to be enqueued by itself, so that its
// client can be told a reference in time.
func (p *place) tellAt() time.Duration { return p.until - p.k.c.opts.Wait/3 }

// reserved puts a block's own place where its references live, and those who
// asked for it in its line.
func (k *key) reserved(now Now, ps []*place, t Block) {
	b := &reserve{first: t.First, next: t.First, last: t.Last()}
	own := &place{k: k, ref: t.First, phase: waiting, reserve: b, since: now.Boot}
	own.timer.who = own
	k.insert(own)
	k.reserves = append(k.reserves, b)
	for _, p := range ps {
		if !p.gone {
			b.join(p)
		}
	}
}

// join puts a place at the end of the line.
func (b *reserve) join(p *place) {
	b.line = append(b.line, p)
	p.reserve = b
	p.keep(p.until)
}

// lineUp lets who asks wait for a block's next reference instead of for one of
// their own, in their order.
func (k *key) lineUp(now Now) {
	if len(k.reserves) == 0 {
		return
	}
	b := k.reserves[len(k.reserves)-1]
	for len(k.asking) > 0 && k.joins(now, b, k.asking[0]) {
		b.join(k.asking[0])
		k.asking = k.asking[1:]
	}
}

// joins reports that a block has a reference for one more, who need not hear of
// it or gets it now. Who is known to wait behind the block comes first.
func (k *key) joins(now Now, b *reserve, p *place) bool {
	if b.shut || b.plain || b.next+LockRef(len(b.line)) > b.last {
		return false
	}
	t := k.term
	if t != nil && t.reserve == b && !t.open && t.flight.ops == 0 && len(b.line) == 0 {
		return true
	}
	return p.early(now) && !p.nowait && k.view.row.Guard <= b.last && len(k.riders) == 0
}

// inherits reports that a drained tenure may go to another reference, or be kept
// for one: what is unsettled after all tries ends it, dirty.
func (t *term) inherits() bool {
	b := t.reserve
	return b != nil && !b.plain && b.next <= b.last && !t.unsettled && !t.broken
}

// lingers reports that a drained tenure is kept: somebody is in its line, or
// could come within Options.Retain.
func (t *term) lingers(now Now) bool {
	return t.inherits() && (len(t.reserve.line) > 0 || (!t.reserve.shut && now.Boot < t.reserve.until))
}

// handOver gives the tenure to the next in the line, without an LWT: nothing of
// the reference before is in flight, and all else is inherited (PROTOCOL.md 6,
// Hand-over).
func (k *key) handOver(now Now) {
	t := k.term
	if t == nil || t.reserve == nil {
		return
	}
	b := t.reserve
	b.shut = b.shut || k.view.row.Guard > b.last || len(k.riders) > 0
	if !t.drained(k.c.opts.SettleTries) || !t.inherits() {
		return
	}
	k.answerUnlock(Released)
	if len(b.line) == 0 || !k.c.self.Valid(now) {
		return
	}
	p := b.line[0]
	b.line = b.line[1:]
	if k.front() == t.place {
		k.pop()
	}
	p.ref, p.reserve = b.next, nil
	b.next++
	k.insert(p)
	k.grant(now, p)
}

// fix makes the present holder of a block plain, so that it outlives this
// session: who holds for longer than a block is kept may be waiting for something,
// and whoever holds while the proxy is drained goes on elsewhere (PROTOCOL.md 1,
// Shutdown). Nothing is handed over once that Renew is sent.
func (k *key) fix(now Now) {
	t := k.term
	if t == nil || !t.open || t.reserve == nil || t.reserve.plain {
		return
	}
	if now.Boot < t.place.since+k.c.opts.Retain && !k.c.draining {
		return
	}
	t.reserve.plain = true
	t.window.wanted = true
	k.spare = 0
	k.disband(t.reserve, 0)
}

// disband sends the line away, from its i-th place on: who stands there asks for
// a reference of its own.
func (k *key) disband(b *reserve, i int) {
	away := slices.Clone(b.line[i:])
	for _, p := range away {
		p.reserve = nil
	}
	k.asking = append(away, k.asking...)
	b.line, b.shut = b.line[:i:i], true
}

// tell has a place, and those behind it, ask for references of their own: its
// client is to be told one soon.
func (k *key) tell(p *place) {
	k.disband(p.reserve, slices.Index(p.reserve.line, p))
	p.keep(p.until)
}

// lined counts those in the lines.
func (k *key) lined() int {
	n := 0
	for _, r := range k.reserves {
		n += len(r.line)
	}
	return n
}

// drop forgets a reserve that has ended: its line asks anew.
func (k *key) drop(b *reserve) {
	k.disband(b, 0)
	k.reserves = slices.DeleteFunc(k.reserves, func(r *reserve) bool { return r == b })
}

// brief notes, when a reference ends, whether sections are short here: only then
// is the key worth keeping.
func (k *key) brief(now Now, p *place, how State) {
	if how == Released && now.Boot-p.since < k.c.opts.Retain {
		k.spare = max(k.spare, 1)
	} else {
		k.spare = 0
	}
}

// appraise chooses, when a tenure ends, how many references the next one here
// reserves: more than were used, so that who comes before it is its turn has one.
// Where others want the key a single one is not worth a block.
func (k *key) appraise() {
	used := int64(1)
	if b := k.term.reserve; b != nil {
		used = int64(b.next - b.first)
	}
	if k.othersBehind() {
		used += int64(len(k.queued)) - 1 // who waits here may come again
	} else {
		used *= 8
	}
	if k.spare > 0 {
		k.spare = int32(min(max(used, 1), blockMax))
	}
}
