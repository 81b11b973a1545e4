package musiccore

import (
	"slices"
	"time"
)

// One LWT that gives a key back enqueues all who ask for it: at its own proxy, and
// at others that have asked it to take them along. Where several proxies want a
// key nobody else changes the row then. Otherwise a far proxy, whose LWTs take
// longer, may lose against near ones again and again.

const (
	// returnFor is how soon a client that comes back at all asks again after it
	// has given its lock back.
	returnFor = 5 * time.Millisecond
	// rideAfter is how many Enqueues in a row are refused before a proxy asks
	// others to take along who asks there.
	rideAfter = 2
	// ridersMax bounds the sessions that a Release takes along.
	ridersMax = 64
)

// along is what a key knows of who comes back and who goes along.
type along struct {
	left     time.Duration // when a Release was sent last
	returns  bool          // … and a client came back right behind it, or would have
	refusals int           // Enqueues in a row that were
	ride     ride          // of this session
	riders   []rider       // of other sessions, which the next Release here is to enqueue
}

// rider is a block that another session wants to have in the queue, by the Release
// of a tenure that ends at last or before. After until its session has found
// another way.
type rider struct {
	block Block
	last  LockRef
	until time.Duration
}

// ride is a block that others were asked to enqueue for this session; one without a
// Req is none. It is kept until it is certain that it has come or never will (H3):
// nobody else knows of its references.
type ride struct {
	block Block
	last  LockRef       // up to which the tenures go whose sessions were asked
	until time.Duration // who asks here waits for it so long
	after CommandID     // not 0: those tenures have ended, and a read at QUORUM after this one tells
}

// out reports that there is one.
func (r ride) out() bool { return r.block.Req != 0 }

// takeAlong lets a Release enqueue all who ask: those elsewhere first. Its
// condition is that the queue is the one seen here, so no rider is in it twice.
func (k *key) takeAlong(now Now, l *lwt) {
	row := k.view.row
	var all []Block
	for _, r := range k.riders {
		if _, there := row.Find(r.block.Session, r.block.Req); !there && k.term.last <= r.last {
			all = append(all, r.block)
		}
	}
	ps, own := k.gather(now, row.Guard == k.term.last && len(all) == 0)
	k.riders = nil
	joins := k.regroups(len(ps), len(all))
	if joins {
		own, l.joined = k.roomFor(own), k.term.last+1
	}
	if joins || len(ps) > 0 {
		l.places, l.req = ps, own.Req
		all = append(all, own)
	}
	if len(all) == 0 {
		return
	}
	queue := Enqueue(&row, all[0], k.closed, now.Clk)
	for _, b := range all[1:] {
		queue = queue.and(b)
	}
	if joins {
		queue.Set.Row.Queue = queue.Set.Row.joined(l.joined, k.c.self.id)
	}
	l.swap = both(queue, l.swap)
}

// regroups reports that a Release is to make one block of the references of this
// session that come next: sections were short before the last one, and some wait
// with references of their own, which would cost an LWT each. asking are those
// whom the Release enqueues here, riders the blocks of others before them.
func (k *key) regroups(asking, riders int) bool {
	if k.c.opts.Retain == 0 || k.long > 1 || k.term.broken || k.c.draining {
		return false
	}
	end := k.term.last
	for _, b := range k.view.row.Queue {
		if b.First <= end+1 && end < b.Last() && b.Session == k.c.self.id && !b.Retained {
			end = b.Last()
		}
	}
	waits := 0
	for _, p := range k.queued {
		if p.ref > k.term.last && p.ref <= end && !p.gone {
			waits++
		}
	}
	if asking == 0 && (riders > 0 || end < k.view.row.Guard) {
		return waits > 2 // what is reserved for it stands behind others, and costs an LWT, too
	}
	return waits > 0 && waits+asking > 1
}

// roomFor returns the block of those who ask, or a new one, as the end of what a
// Release makes one block.
func (k *key) roomFor(own Block) Block {
	if own.N == 0 {
		k.c.last.request++
		own = Block{N: 1, Session: k.c.self.id, Req: k.c.last.request}
	}
	own.N, own.Retained = max(own.N, min(k.spare, 8*own.N)), true
	return own
}

// regrouped takes the blocks that a Release has made.
func (k *key) regrouped(now Now, l *lwt, own Block) {
	queue := l.swap.Set.Row.Queue
	first := queue[slices.IndexFunc(queue, func(b Block) bool { return b.First == l.joined })]
	if first != own {
		k.reserved(now, nil, first)
	}
	k.reserved(now, l.places, own)
}

// awaitsReturn reports that a Release behind which others wait is to wait for the
// client that has just ended its section, since the last one here came back at
// once: it goes along then, and does not enqueue against those whose turn it is.
func (k *key) awaitsReturn(now Now) bool {
	t := k.term
	if !k.returns || k.c.draining || t.unlock.op != 0 || len(k.asking) > 0 || !k.othersBehind() {
		return false
	}
	k.returns = now.Boot < t.shut+returnFor
	return k.returns
}

// othersBehind reports that other sessions are known to want what comes behind the
// tenure.
func (k *key) othersBehind() bool { return len(k.riders) > 0 || k.othersFrom(k.term.last+1) }

// board takes a rider of another session, one of each. Hints may overtake each
// other.
func (k *key) board(now Now, h Hint) {
	b, last := h.Block, h.Last
	k.riders = slices.DeleteFunc(k.riders, func(old rider) bool {
		if old.block == b {
			last = max(last, old.last)
		}
		return old.block.Session == b.Session
	})
	if b.N > 0 && b.N <= blockMax && len(k.riders) < ridersMax {
		k.riders = append(k.riders, rider{b, last, now.Boot + k.rideFor()})
	}
}

// leaveBehind forgets riders whose sessions have found another way.
func (k *key) leaveBehind(now Now) {
	k.riders = slices.DeleteFunc(k.riders, func(r rider) bool { return now.Boot >= r.until })
}

// mayRide reports that who asks here is to ask others to enqueue it: Enqueues of
// its own were refused, so that the row is changed all the time.
func (k *key) mayRide(now Now) bool {
	return k.refusals >= rideAfter && k.othersHead() && !k.pressed(now)
}

// othersHead reports that others can be asked to enqueue a block: one of them has
// the head and lives, and none was asked for another block.
func (k *key) othersHead() bool {
	s, foreign := k.stranger()
	return foreign && k.c.opts.Retain > 0 && !k.ride.out() && !k.c.dead(s)
}

// hasten asks others for the block of an Enqueue that takes long: Paxos tries again
// and again where others change the row. Either is applied, since both need the
// queue without it.
func (k *key) hasten(now Now) {
	l := k.lwt
	if l == nil || l.why != enqueueing || l.swap.If.What != IfGuard || now.Boot < l.began+k.c.opts.Retain || !k.othersHead() {
		return
	}
	if b, ok := k.view.row.Find(k.c.self.id, l.req); ok {
		k.seat(now, b)
		return
	}
	b := l.swap.Set.Row.newest()
	b.First = 0
	k.setOut(now, b)
}

// rideFor is how long a ride is worth waiting for: some tenures of short sections.
func (k *key) rideFor() time.Duration { return 4 * k.c.opts.Retain }

// setOut begins a ride.
func (k *key) setOut(now Now, b Block) {
	k.ride.until = now.Boot + k.rideFor()
	k.askAlong(b)
}

// askAlong asks all who are in the queue to enqueue a block: the first may have
// sent its Release by the time that the word is there.
func (k *key) askAlong(b Block) {
	row := k.view.row
	var asked []SessionID
	for _, t := range row.Queue {
		if t.Last() >= row.Head && t.First > k.ride.last && t.Session != k.c.self.id && !k.c.dead(t.Session) && !slices.Contains(asked, t.Session) {
			asked = append(asked, t.Session)
			k.c.out.Hints = append(k.c.out.Hints, Hint{Key: k.id, To: t.Session, Kind: HintPiggyback, Block: b, Last: row.Guard})
		}
	}
	k.ride.block, k.ride.last, k.ride.after = b, row.Guard, 0
}

// rideWanted reports that somebody waits for the ride.
func (k *key) rideWanted() bool {
	return len(k.asking) > 0 || (k.lwt != nil && k.lwt.req == k.ride.block.Req)
}

// rideNear reports that who asks waits for a block that others were asked for.
func (k *key) rideNear(now Now) bool { return k.ride.out() && now.Boot < k.ride.until }

// alight takes what others have enqueued for this session, or asks those who have
// come into the queue meanwhile, while somebody waits for it.
func (k *key) alight(now Now) {
	if !k.ride.out() || k.view.known != present {
		return
	}
	row := k.view.row
	b, ok := row.Find(k.c.self.id, k.ride.block.Req)
	switch {
	case ok && b.First >= row.Head:
		k.ride = ride{}
		k.seat(now, b)
	case ok:
		k.ride = ride{}
		k.want(now) // the rest of it, if there is any, is a stray
	case k.rideNear(now) && row.Guard > k.ride.last && k.rideWanted():
		k.askAlong(k.ride.block)
	case k.ride.after == 0 && row.Head > k.ride.last:
		k.ride.after = k.c.last.command
		k.view.next = 0
	}
}

// seat gives the references of a block to those who ask. What they do not need is
// released in its turn. An Enqueue of the same block, whoever's was applied, needs a
// guard that is no more: it is definite.
func (k *key) seat(now Now, b Block) {
	if l := k.lwt; l != nil && l.req == b.Req {
		delete(k.c.running, l.cmd)
		k.done(now)
		return
	}
	n := min(len(k.asking), int(b.N))
	if i := slices.IndexFunc(k.asking[:n], func(p *place) bool { return p.pressed(now) }); b.Retained && i >= 0 {
		n = i
	}
	ps := slices.Clone(k.asking[:n])
	k.asking = k.asking[n:]
	for !b.Retained && len(ps) < int(b.N) {
		p := &place{k: k, gone: true}
		p.timer.who = p
		ps = append(ps, p)
	}
	k.enqueued(now, ps, b)
}

// strand ends a ride that a row read at QUORUM does not show, though the tenures
// are over whose Releases could have enqueued it: none of them can be applied any
// more.
func (k *key) strand(id CommandID, r *Row) {
	if k.ride.after == 0 || id <= k.ride.after || r == nil || r.Head <= k.ride.last {
		return
	}
	if _, ok := r.Find(k.c.self.id, k.ride.block.Req); !ok {
		k.ride = ride{}
	}
}
