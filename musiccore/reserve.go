package musiccore

import (
	"cmp"
	"slices"
	"time"
)

// blockMax bounds the references of one block.
const blockMax = 1024

// reserve is what this proxy keeps of references that it reserved for itself: a
// retained tuple of the queue (docs/protocol.md 3.17). All of them are one tenure on one
// base, in which the lock goes from hand to hand in memory. The row shows the
// tuple's first one as the head until the tenure ends, and nothing durable tells
// how far it has come: where this session dies, none of them goes on elsewhere.
// So who is told a reference of a block before it is granted loses it with the
// session.
type reserve struct {
	first, next, last LockRef       // next is handed out next
	own               *place        // stands for the block among the references that live in the lock row
	line              []*place      // first those who know their reference, in its order
	named             int           // so many of them
	shut              bool          // others wait behind the block: the line takes nobody any more
	plain             bool          // nothing is handed over any more
	until             time.Duration // in nobody's hands it is kept so long
	peek              time.Duration // no look before then who waits elsewhere
}

// retains reports whether an Enqueue is to reserve a block: sections here are
// short, and nobody who asks, but for one who is granted at once, is to be told a
// reference now.
func (k *key) retains(now Now, vacant bool, ps []*place) bool {
	if k.c.opts.Retain == 0 || k.spare == 0 {
		return false
	}
	waits := ps
	if vacant {
		waits = ps[1:]
	}
	return (len(ps) > 1 || k.spare > 1) && !anyPressed(now, waits)
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
	k.takeIn(b)
	k.stand(now, b, t.First)
	k.reserves = append(k.reserves, b)
	for _, p := range ps {
		if !p.gone {
			b.join(p)
		}
	}
}

// rests reports that a block is in nobody's hands, and nobody is in its line.
func (k *key) rests(b *reserve) bool {
	t := k.term
	return t != nil && t.reserve == b && !t.open && t.flight.ops == 0 && len(b.line) == 0
}

// join puts a place at the end of the line.
func (b *reserve) join(p *place) {
	b.line = append(b.line, p)
	p.reserve = b
	p.keep(p.until)
}

// stand puts a block's own place where the block begins.
func (k *key) stand(now Now, b *reserve, r LockRef) {
	b.own = &place{k: k, ref: r, phase: waiting, reserve: b, since: now.Boot}
	b.own.timer.who = b.own
	k.insert(b.own)
}

// own reports that the place stands for a block.
func (p *place) own() bool { return p.reserve != nil && p.reserve.own == p }

// takeIn puts those who wait for references that are a block's now into its line.
// Their numbers, and those of who has given his back, are not given again.
func (k *key) takeIn(b *reserve) {
	i, _ := k.search(b.first)
	j, _ := k.search(b.last + 1)
	for _, p := range k.queued[i:j] {
		b.next = p.ref + 1
		if !p.gone || k.endedHow(p.ref) == 0 {
			p.reserve = b
			b.line = append(b.line, p)
		}
	}
	b.named = len(b.line)
	k.queued = slices.Delete(k.queued, i, j)
}

// find returns who waits in the line for a reference.
func (b *reserve) find(r LockRef) *place {
	i, ok := slices.BinarySearchFunc(b.line[:b.named], r, func(p *place, r LockRef) int { return cmp.Compare(p.ref, r) })
	if !ok {
		return nil
	}
	return b.line[i]
}

// leave takes a place out of the line.
func (b *reserve) leave(p *place) {
	if p.ref != 0 {
		b.named--
	}
	b.line = without(b.line, p)
}

// number gives a place in a line its reference, and those before it theirs: it is
// told before it is granted.
func (p *place) number() {
	b := p.reserve
	if b == nil || p.ref != 0 {
		return
	}
	for b.named < len(b.line) && p.ref == 0 {
		b.line[b.named].ref = b.next
		b.next++
		b.named++
	}
}

// lineUp lets who asks wait for a block's next reference instead of for one of
// their own, in their order.
func (k *key) lineUp() {
	if len(k.reserves) == 0 {
		return
	}
	b := k.reserves[len(k.reserves)-1]
	for len(k.asking) > 0 && k.joins(b, k.asking[0]) {
		b.join(k.asking[0])
		k.asking = k.asking[1:]
	}
}

// joins reports that a block has a reference for one more. Who is known to wait
// behind the block comes first.
func (k *key) joins(b *reserve, p *place) bool {
	if b.shut || b.plain || b.next+LockRef(len(b.line)-b.named) > b.last {
		return false
	}
	return k.rests(b) || !p.nowait && !p.atOnce && k.view.row.Guard <= b.last && len(k.riders) == 0
}

// inherits reports that a drained tenure may go to another reference, or be kept
// for one: what is unsettled after all tries ends it, dirty.
func (t *term) inherits() bool {
	b := t.reserve
	return b != nil && !b.plain && (b.named > 0 || b.next <= b.last) && !t.unsettled && !t.broken
}

// lingers reports that a drained tenure is kept: somebody is in its line, or
// could come within Options.Retain.
func (t *term) lingers(now Now) bool {
	return t.inherits() && (len(t.reserve.line) > 0 || (!t.reserve.shut && now.Boot < t.reserve.until))
}

// handOver gives the tenure to the next in the line, without an LWT: nothing of
// the reference before is in flight, and all else is inherited (docs/protocol.md 3.17, Blocks).
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
	k.answerUnlock(StateReleased)
	k.passSilent(b)
	if len(b.line) == 0 || !k.c.self.Valid(now) {
		return
	}
	p := b.line[0]
	p.number()
	b.line, b.named, p.reserve = b.line[1:], b.named-1, nil
	if k.front() == t.place {
		k.pop()
	}
	k.insert(p)
	k.grant(now, p)
}

// passSilent passes over those whose turn it is and whose clients have been silent
// for too long.
func (k *key) passSilent(b *reserve) {
	for b.named > 0 && b.line[0].gone {
		p := b.line[0]
		b.line, b.named = b.line[1:], b.named-1
		k.record(p.ref, StateLost)
		p.phase = over
	}
}

// fix makes the present holder of a block plain, so that it outlives this
// session: who holds for longer than a block is kept may be waiting for something,
// and whoever holds while the proxy is drained goes on elsewhere (docs/protocol.md 3.19, Shutdown). Nothing is handed over once that Renew is sent.
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
	k.disband(t.reserve, t.reserve.named)
}

// disband sends the line away, from its i-th place on, behind those who know their
// reference: who stands there asks for one of its own.
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

// moves reports that a block's references go from hand to hand now: its line can
// be told them. What stands still may outlive this session only in references of
// their own.
func (k *key) moves(b *reserve) bool {
	t := k.term
	return t != nil && t.reserve != nil && !t.reserve.plain && (t.reserve == b || !k.othersBehind())
}

// lined counts those in the lines.
func (k *key) lined() int {
	n := 0
	for _, r := range k.reserves {
		n += len(r.line)
	}
	return n
}

// drop forgets a block that has ended: who knew a reference of it has lost that,
// the others ask anew.
func (k *key) drop(b *reserve) {
	k.disband(b, b.named)
	for _, p := range b.line {
		k.losePlace(p)
	}
	b.line, b.named = nil, 0
	k.reserves = slices.DeleteFunc(k.reserves, func(r *reserve) bool { return r == b })
}

// brief notes, when a reference ends, whether sections are short here: only then
// is the key worth keeping.
func (k *key) brief(now Now, p *place, how State) {
	if how == StateReleased && now.Boot-p.since < k.c.opts.Retain {
		k.spare, k.long = max(k.spare, 1), 0
	} else {
		k.spare, k.long = 0, k.long+1
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
