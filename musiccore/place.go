package musiccore

import (
	"cmp"
	"slices"
	"time"
)

// phase is how far a place has come.
type phase uint8

const (
	nameless phase = iota // no reference yet
	waiting               // a reference, never a term
	holding               // a term
	over                  // never again (C15)
)

// place is one local reference from LOCK to its end: a place in the queue,
// then the lock. It belongs to no connection; op is the operation that waits
// for it at the moment.
type place struct {
	k       *key
	ref     LockRef
	op      OpID
	until   time.Duration // op is answered, or silence ends it
	lease   time.Duration
	owner   string
	by      Client
	since   time.Duration // of the LOCK; then of the grant
	token   [16]byte
	phase   phase
	gone    bool // abandoned: released when it becomes the head
	nowait  bool
	atOnce  bool
	leased  bool     // lease is the client's or the table's, not the one that nobody has asked for
	died    bool     // the holder before did not give the lock back
	guest   bool     // the reference is of another session, which is dead
	taken   Stamp    // the base that the guest's own Takeover made
	begins  []begin  // operations that wait for the guest's term
	forced  bool     // ended by force, though its session lives: the table is strict
	reserve *reserve // in whose line it waits; of the block's own place the block
	timer   timer
}

// due is the place's timer.
func (p *place) due(now Now) {
	k := p.k
	switch {
	case p.phase == over || p.gone:
		return
	case p.reserve != nil && p.ref == 0 && p.op != 0 && now.Boot >= p.tellAt() && !k.moves(p.reserve):
		k.tell(p)
	case p.ref == 0 && p.op != 0 && now.Boot < p.until && now.Boot >= p.tellAt():
		k.c.timers.set(&p.timer, p.until)
	case now.Boot < p.until:
		k.c.timers.set(&p.timer, p.until)
		return
	case p.phase == holding:
		k.expire(now)
	case p.op != 0:
		k.putOff(now, p)
	default:
		k.abandon(p, 0)
	}
	k.step(now)
}

// keep moves the end of silence, or the time of the answer.
func (p *place) keep(until time.Duration) {
	p.until = until
	if p.ref == 0 {
		until = p.tellAt()
	}
	p.k.c.timers.set(&p.timer, until)
}

// attach lets an operation wait for the place until a moment.
func (p *place) attach(now Now, op OpID, q Request) {
	k := p.k
	if p.op != 0 {
		k.answer(p, k.standing(now, p))
	}
	if lease := cmp.Or(q.Lease, p.usual(q)); lease > 0 {
		p.lease, p.leased = lease, true
	}
	if q.By != (Client{}) {
		p.by = q.By
	}
	if p.phase == holding {
		p.keep(now.Boot + p.lease)
		k.c.answer(Answer{Op: op, Grant: k.standing(now, p)})
		return
	}
	p.op, p.atOnce = op, q.AtOnce
	if q.NoWait && q.Ref != 0 || q.AtOnce && p.ref != 0 || k.c.draining {
		k.putOff(now, p)
		return
	}
	k.c.waits(op, k, p)
	p.keep(now.Boot + k.c.patience(q))
}

// usual is the lease of a LOCK that gives none: the table's for a place that has none yet, else 0. A place keeps what it has.
func (p *place) usual(q Request) time.Duration {
	if p.leased {
		return 0
	}
	return q.Usual
}

// standing is the row that tells where a place stands.
func (k *key) standing(now Now, p *place) Grant {
	if p.phase == holding {
		return Grant{Applied: true, Ref: p.ref, State: StateHeld, Holder: p.owner, Lease: p.until - now.Boot, OwnerDied: p.died}
	}
	return Grant{Ref: p.ref, State: StateQueued, Position: k.position(p), Holder: k.holder()}
}

// occupied is the row for who would not wait: nothing is left behind.
func (k *key) occupied() Grant { return Grant{State: StateBusy, Holder: k.holder()} }

// holder is what the present holder calls itself, where it holds here.
func (k *key) holder() string {
	if k.term != nil && k.term.open {
		return k.term.place.owner
	}
	return ""
}

// answer ends the wait of the operation at a place.
func (k *key) answer(p *place, g Grant) {
	k.refuse(p, g, nil)
}

func (k *key) refuse(p *place, g Grant, err error) {
	if p.op == 0 {
		return
	}
	k.c.answer(Answer{Op: p.op, Grant: g, Err: err})
	p.op = 0
}

// putOff answers a LOCK whose time is up (docs/design.md 5): QUEUED, BUSY, or that
// the lock row could not even be read.
func (k *key) putOff(now Now, p *place) {
	switch {
	case p.nowait:
		k.answer(p, k.occupied())
		k.abandon(p, 0)
	case p.phase == nameless && k.view.known == unread:
		k.refuse(p, Grant{}, unavailable(k.view.cause))
		k.abandon(p, 0)
	default:
		p.number()
		k.answer(p, k.standing(now, p))
		p.keep(now.Boot + k.c.opts.QueuedLease)
		if p.ref == 0 && p.token == ([16]byte{}) {
			// Nobody can ever name it again.
			k.abandon(p, 0)
		}
	}
}

// abandon gives a place up. Without a reference it leaves nothing behind;
// with one it is released when it becomes the head (C8: no abandon LWT); how
// is 0 where its client was silent, and may still come back before that.
func (k *key) abandon(p *place, how State) {
	p.gone = true
	k.record(p.ref, how)
	k.unname(p)
	k.askBegins(p)
	k.c.timers.stop(&p.timer)
	if p.ref == 0 {
		k.asking = without(k.asking, p)
	}
	if p.reserve != nil && (p.ref == 0 || how != 0) && !p.own() {
		p.reserve.leave(p)
	}
}

func (k *key) unname(p *place) {
	if k.tokens[p.token] == p {
		delete(k.tokens, p.token)
	}
}

// without takes a place out of a slice that nobody else has, in place: of thousands whose time is up
// at once each would cost a copy else.
func without(ps []*place, gone *place) []*place {
	switch i := slices.Index(ps, gone); i {
	case -1:
		return ps
	case 0: // the first is the commonest
		ps[0] = nil
		return ps[1:]
	default:
		return slices.Delete(ps, i, i+1)
	}
}

// losePlace ends a place that somebody else ended.
func (k *key) losePlace(p *place) {
	if p.phase == over {
		return
	}
	k.finish(p, StateLost)
	k.answer(p, Grant{Ref: p.ref, State: StateLost})
	if p.own() {
		k.drop(p.reserve)
	}
}

// finish is the end of a place, for ever; how is 0 where its reference may go
// on elsewhere.
func (k *key) finish(p *place, how State) {
	if !p.gone {
		k.record(p.ref, how)
	}
	if p.phase == holding {
		k.note(endOf(how), p, how)
	}
	p.phase = over
	k.unname(p)
	k.askBegins(p)
	k.c.timers.stop(&p.timer)
}

// live answers the place of a reference that somebody may still use.
func (k *key) live(r LockRef) *place {
	if p := k.find(r); p != nil && !p.gone && p.phase != over && !p.own() {
		return p
	}
	return nil
}

// find answers the place of a reference that lives in the lock row.
func (k *key) find(r LockRef) *place {
	for _, b := range k.reserves {
		if p := b.find(r); p != nil {
			return p
		}
	}
	if i, ok := k.search(r); ok {
		return k.queued[i]
	}
	return nil
}

func (k *key) search(r LockRef) (int, bool) {
	return slices.BinarySearchFunc(k.queued, r, func(p *place, r LockRef) int { return cmp.Compare(p.ref, r) })
}

// granted is what is told of a place that gets its term.
func (p *place) granted() NoteKind {
	if p.guest {
		return NoteTakenOver
	}
	return NoteGranted
}

// insert puts a place among those that live in the lock row, where its
// reference belongs: a guest may be known before an own reference ahead of it.
func (k *key) insert(p *place) {
	i, _ := k.search(p.ref)
	k.queued = slices.Insert(k.queued, i, p)
}

// enqueued gives the places of an applied Enqueue their references, and
// answers those who would not wait behind somebody.
func (k *key) enqueued(now Now, ps []*place, b Block) {
	if b.Retained {
		k.reserved(now, ps, b)
		return
	}
	busy := k.busy()
	for i, p := range ps {
		p.ref = b.First + LockRef(i)
		p.phase = waiting
		k.insert(p)
		if p.atOnce && p.op != 0 && busy {
			k.putOff(now, p)
		}
		busy = busy || !p.gone
	}
}

// enqueue asks for references for all who have none: one LWT, one block.
func (k *key) enqueue(now Now) {
	if len(k.asking) == 0 || k.releaseNear(now) || (k.rideNear(now) && !k.pressed(now)) || k.glances(now) {
		return
	}
	r := k.view.pointer()
	rides := k.mayRide(now)
	ps, b := k.gather(now, r == nil || r.Empty())
	if len(ps) == 0 {
		return
	}
	if rides {
		k.asking = ps
		k.refusals = 0
		k.setOut(now, b)
		return
	}
	k.start(now, lwt{why: enqueueing, swap: Enqueue(r, b, k.closed, now.Clk), req: b.Req, places: ps})
}

// releaseNear reports that who asks may wait for the Release of the tenure that
// is here, which takes them along: it comes within Options.Retain by all
// experience, and they need not be told anything before.
func (k *key) releaseNear(now Now) bool {
	t := k.term
	if t == nil || k.spare == 0 || now.Boot >= t.place.since+k.c.opts.Retain {
		return false
	}
	return !slices.ContainsFunc(k.asking, func(p *place) bool { return !p.early(now) })
}

// pressed reports that somebody who asks cannot wait for others to enqueue him.
func (k *key) pressed(now Now) bool { return anyPressed(now, k.asking) }

// anyPressed reports that the client of one of them is to be told a reference now.
func anyPressed(now Now, ps []*place) bool {
	return slices.ContainsFunc(ps, func(p *place) bool { return p.pressed(now) })
}

// pressed: its client is to be told a reference now.
func (p *place) pressed(now Now) bool { return p.atOnce || (p.op != 0 && now.Boot >= p.tellAt()) }

// gather takes all who have no reference, and makes the block to enqueue for
// them. vacant: its first reference is to be the head at once.
func (k *key) gather(now Now, vacant bool) ([]*place, Block) {
	if len(k.asking) == 0 || k.c.draining || !k.c.self.Valid(now) || (vacant && now.Clk == 0) {
		return nil, Block{}
	}
	k.refuseHasty(now)
	ps := k.asking
	if len(ps) == 0 {
		return nil, Block{}
	}
	k.asking = nil
	k.c.last.request++
	b := Block{
		First: k.c.facts[k.id.Table].first, N: int32(len(ps)), Session: k.c.self.id, Req: k.c.last.request,
		Retained: k.retains(now, vacant, ps),
	}
	if b.Retained && vacant {
		b.N = max(b.N, k.spare)
	} else if b.Retained {
		b.N = max(b.N, min(k.spare, 8*b.N)) // others come behind it
	}
	return ps, b
}

// refuseHasty answers BUSY to those who do not want to wait, where somebody is
// ahead of them.
func (k *key) refuseHasty(now Now) {
	patient := make([]*place, 0, len(k.asking))
	for _, p := range k.asking {
		if p.nowait && (len(patient) > 0 || k.busy()) {
			k.answer(p, k.occupied())
			k.finish(p, StateLost)
			k.want(now)
			continue
		}
		patient = append(patient, p)
	}
	k.asking = patient
}

// want keeps an eye on the head for those who only ever say NOWAIT: if it is a
// dead stranger's, or an own one that memory does not know, somebody must
// find out.
func (k *key) want(now Now) {
	if x, foreign := k.stranger(); foreign || k.stray() {
		k.wanted = now.Boot + 2*k.c.deadAfter(x)
	}
}

// busy reports that somebody with a claim is ahead of a newcomer. References
// that were given back and wait for their LWT do not count: who unlocks and
// then locks NOWAIT finds no one.
func (k *key) busy() bool {
	for _, p := range k.queued {
		if !p.gone && p.phase != over {
			return true
		}
	}
	return len(k.riders) > 0 || (k.view.known == present && k.othersFrom(k.view.row.Head))
}

// othersFrom reports that another session is known to have a reference from that
// one on.
func (k *key) othersFrom(r LockRef) bool {
	return slices.ContainsFunc(k.view.row.Queue, func(b Block) bool { return b.Last() >= r && b.Session != k.c.self.id })
}
