package musiccore

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// rowRaces is one lock row, all that it ever was, and those who change it from what they once read of it: LWTs arrive in
// any order, twice or never, and who has lost its term does not know.
type rowRaces struct {
	rows    []*Row
	onWay   []sending
	w       Stamp
	tenures []*rowTerm
	bases   []Stamp            // of all T registers, ascending
	owners  map[Stamp]*rowTerm // who uses a window
	entered map[LockRef]bool   // a reference gets one term by Poll, ever (C15)
	highest map[Stamp]Stamp    // by epoch: the highest stamp used
	gone    map[LockRef]bool   // its owner has released it without a term
}

// sending is an LWT on its way, and whose it is.
type sending struct {
	swap  Swap
	to    *rowTerm // that ends or moves with it
	taker bool     // a new term begins with it
	renew bool
}

// rowTerm is a term as its holder remembers it.
type rowTerm struct {
	ref        LockRef
	epoch, seq Stamp
	moved      Stamp // its Renew was applied, and the holder does not know yet
	busy       bool  // its Renew is on its way
	over       bool  // its Release is on its way, or it knows that it is lost
}

func newRaces(t *rapid.T) *rowRaces {
	h := &rowRaces{
		rows: []*Row{rows(t)}, w: rapid.SampledFrom([]Stamp{16, 64, w}).Draw(t, "W"),
		owners: map[Stamp]*rowTerm{}, entered: map[LockRef]bool{}, highest: map[Stamp]Stamp{}, gone: map[LockRef]bool{},
	}
	if r := h.rows[0]; r != nil {
		h.bases = []Stamp{r.Epoch}
	}
	return h
}

func (h *rowRaces) now() *Row { return h.rows[len(h.rows)-1] }

// seen is the row as somebody read it: mostly as it is, at times as it was.
func (h *rowRaces) seen(t *rapid.T) *Row {
	return h.rows[max(0, len(h.rows)-1-max(0, rapid.IntRange(-3, 4).Draw(t, "age")))]
}

func (h *rowRaces) clk(t *rapid.T) Stamp {
	r := h.now()
	if r == nil || rapid.Bool().Draw(t, "any clock") {
		return Stamp(rapid.Int64Range(1, 1<<52).Draw(t, "clk"))
	}
	return max(1, r.Epoch+Stamp(rapid.Int64Range(-40, 40).Draw(t, "clk near epoch")))
}

func (h *rowRaces) send(s sending) { h.onWay = append(h.onWay, s) }

// enqueue is of anybody, from any row.
func (h *rowRaces) enqueue(t *rapid.T) {
	b := Block{N: int32(rapid.IntRange(1, 3).Draw(t, "n")), Session: session(byte(rapid.IntRange(1, 3).Draw(t, "who"))), Req: int64(len(h.onWay))}
	h.send(sending{swap: Enqueue(h.seen(t), b, 0, h.clk(t))})
}

// takeAway is a Preempt or a Takeover of anybody, from any row.
func (h *rowRaces) takeAway(t *rapid.T) {
	r := h.seen(t)
	if r == nil || r.Empty() {
		return
	}
	if rapid.Bool().Draw(t, "takeover") {
		h.send(sending{swap: Takeover(*r, session(9), h.w, h.clk(t)), taker: true})
		return
	}
	next := r.Next(func(_ LockRef, s SessionID) bool { return s == session(2) })
	h.send(sending{swap: Preempt(*r, next, h.w, h.clk(t))})
}

// poll is the owner of a reference that sees it at the head: it enters, or gives it back without ever having had a term.
func (h *rowRaces) poll(t *rapid.T) {
	r := h.seen(t)
	if r == nil || r.Empty() || r.Owner != (SessionID{}) || h.entered[r.Head] || h.gone[r.Head] {
		return
	}
	switch rapid.IntRange(0, 3).Draw(t, "poll") {
	case 0: // abandoned
		h.gone[r.Head] = true
		h.send(sending{swap: Release(*r, 2, true, h.clk(t))})
	case 1: // memory does not know it
		h.gone[r.Head] = true
		h.send(sending{swap: Release(*r, h.w, true, h.clk(t))})
	default:
		h.entered[r.Head] = true
		h.enter(t, &rowTerm{ref: r.Head, epoch: r.Epoch, seq: 2})
	}
}

// enter is I2: one epoch, one sequencer.
func (h *rowRaces) enter(t *rapid.T, n *rowTerm) {
	if other := h.owners[n.epoch]; other != nil && other != n {
		require.Fail(t, "two write in one window", "references %d and %d, %d", other.ref, n.ref, n.epoch)
	}
	h.owners[n.epoch] = n
	if !slices.Contains(h.tenures, n) {
		h.tenures = append(h.tenures, n)
	}
}

// holder draws one of those who believe that they hold.
func (h *rowRaces) holder(t *rapid.T) *rowTerm {
	live := slices.DeleteFunc(slices.Clone(h.tenures), func(n *rowTerm) bool { return n.over })
	if len(live) == 0 {
		return nil
	}
	return rapid.SampledFrom(live).Draw(t, "holder")
}

// write takes stamps for puts and fences. A holder whose Renew has been applied learns of it, or not yet.
func (h *rowRaces) write(t *rapid.T) {
	n := h.holder(t)
	if n == nil {
		return
	}
	if n.moved != 0 && rapid.Bool().Draw(t, "learns") {
		n.epoch, n.seq, n.moved, n.busy = n.moved, 2, 0, false
		h.enter(t, n)
	}
	n.seq = min(h.w, n.seq+Stamp(rapid.IntRange(1, 20).Draw(t, "stamps")))
	if n.seq == 2 {
		return
	}
	h.highest[n.epoch] = n.epoch + n.seq - 1
}

// end is Release and Renew, by who believes that it holds. One LWT of a key at a time.
func (h *rowRaces) end(t *rapid.T) {
	n := h.holder(t)
	if n == nil || n.busy || n.moved != 0 {
		return
	}
	held := Row{Guard: n.ref, Head: n.ref, Epoch: n.epoch}
	if rapid.Bool().Draw(t, "renew") {
		n.busy = true
		h.send(sending{swap: Renew(held, session(1), true, h.w, h.clk(t)), to: n, renew: true})
		return
	}
	s := Release(held, n.seq, rapid.Bool().Draw(t, "dirty"), h.clk(t))
	if r := h.seen(t); r != nil && !r.Empty() && rapid.Bool().Draw(t, "takes along") {
		s = combine(Enqueue(r, Block{N: 1, Session: session(1), Req: int64(len(h.onWay))}, 0, h.clk(t)), s)
	}
	n.over = true
	h.send(sending{swap: s, to: n})
}

// arrive decides one LWT; it may have been decided before.
func (h *rowRaces) arrive(t *rapid.T) {
	if len(h.onWay) == 0 {
		return
	}
	s := h.onWay[rapid.IntRange(0, len(h.onWay)-1).Draw(t, "LWT")]
	before := h.now()
	row, applied := s.swap.Apply(before)
	if !applied {
		if s.renew && s.to.moved == 0 && s.to.busy { // lost
			s.to.over = true
		}
		return
	}
	h.rows = append(h.rows, &row)
	h.moved(t, before, row)
	if s.taker {
		h.enter(t, &rowTerm{ref: row.Head, epoch: row.Epoch, seq: 2})
	}
	if s.renew {
		s.to.moved = row.Epoch
	}
}

// moved is I1 for a decided LWT.
func (h *rowRaces) moved(t *rapid.T, from *Row, to Row) {
	if from != nil && (to.Guard < from.Guard || to.Head < from.Head || to.Epoch < from.Epoch) {
		require.Fail(t, "I1: fell", "%+v -> %+v", *from, to)
	}
	if from == nil || !to.sameTerm(*from) {
		if from != nil && to.Epoch == from.Epoch {
			require.Fail(t, "I1: T changed on one epoch", "%+v -> %+v", *from, to)
		}
		h.bases = append(h.bases, to.Epoch)
	}
	if to.Head > to.Guard+1 {
		require.Fail(t, "the head is beyond the queue", "%+v", to)
	}
	for ref := to.Head; ref <= to.Guard; ref++ {
		if _, known := to.Session(ref); !known {
			require.Fail(t, "nobody knows whose it is", "reference %d of %+v", ref, to)
		}
	}
}

// check is I12 and v2s: the stamps of every window lie above its epoch and below the next one, whenever they were taken.
func (h *rowRaces) check(t *rapid.T) {
	for i, b := range h.bases {
		top, used := h.highest[b]
		if used && (top <= b || top >= b+h.w || (i+1 < len(h.bases) && top >= h.bases[i+1])) {
			require.Fail(t, "a stamp in the next window", "stamp %d of window %d, and the next begins at %v", top, b, h.bases[i+1:])
		}
	}
}

// often checks as many times a hundred cases.
func often(t *testing.T, times int, property func(*rapid.T)) {
	t.Helper()
	for range times {
		rapid.Check(t, property)
	}
}

// Over any order of enqueues, releases, preempts, takeovers and renewals from any row, no two terms
// share a stamp, and stamps rise with the terms (I1, I2, I12; C1 to C4, H3).
func TestNoTwoTermsShareAStamp(t *testing.T) {
	often(t, 5, func(t *rapid.T) {
		h := newRaces(t)
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": h.enqueue, "take away": h.takeAway, "poll": h.poll, "write": h.write, "end": h.end,
			"arrive": h.arrive, "arrives": h.arrive, "": h.check,
		})
	})
}

// A change of a term rises by at most a window above the higher of epoch and clock, and never
// overflows: sound refuses it at 2^63. Epochs begin below 2^62 (ErrPoisoned, and no clock is there
// yet), so a key has room for 2^42 terms.
func TestWindowsEndBelowTwoToThe63(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rows(t)
		if r == nil || r.Empty() {
			return
		}
		r.Epoch = Stamp(rapid.OneOf(
			rapid.Int64Range(1, math.MaxInt64), rapid.Int64Range(math.MaxInt64-int64(2*w), math.MaxInt64), rapid.Int64Range(1<<62-4, 1<<62+4),
		).Draw(t, "epoch"))
		clk := Stamp(rapid.OneOf(rapid.Int64Range(1, 1<<52), rapid.Int64Range(1, 1<<62)).Draw(t, "clk"))
		used := Stamp(rapid.Int64Range(2, int64(w)).Draw(t, "used"))
		for name, c := range map[string]struct {
			swap  Swap
			above Stamp
		}{
			"release":  {Release(*r, used, true, clk), used},
			"preempt":  {Preempt(*r, r.Head+1, w, clk), w},
			"takeover": {Takeover(*r, session(3), w, clk), w},
			"renew":    {Renew(*r, session(1), true, w, clk), w},
		} {
			to, fits := c.swap.Set.Row.Epoch, r.Epoch <= math.MaxInt64-c.above
			switch {
			case c.swap.sound(r) != fits:
				require.Fail(t, "wrongly sound, or not", "%s of epoch %d: sound is %v: %+v", name, r.Epoch, !fits, c.swap)
			case fits && (to-r.Epoch < c.above || to > max(r.Epoch+c.above, clk)):
				require.Fail(t, "another epoch", "%s of epoch %d at %d went to %d", name, r.Epoch, clk, to)
			}
		}
	})
}

// chain draws a history without races: each row is made from the one before.
func chain(t *rapid.T) []Row {
	r := rows(t)
	var all []Row
	if r != nil {
		all = append(all, *r)
	}
	for range rapid.IntRange(1, 12).Draw(t, "changes") {
		next, ok := changes(t, r).Apply(r)
		if !ok {
			require.Fail(t, "refused on its own row", "%+v", r)
		}
		all = append(all, next)
		r = &next
	}
	return all
}

// glimpse draws what a replica may show of a chain: each register as it was at some time.
func glimpse(t *rapid.T, all []Row) Row {
	q, v := rapid.SampledFrom(all).Draw(t, "Q"), rapid.SampledFrom(all).Draw(t, "T")
	v.Guard, v.Queue = q.Guard, q.Queue
	return v
}

// Views of one history join to the same result in any order and number: the latest of each register
// that was seen.
func TestNewerIsAJoin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := chain(t)
		a, b, c := glimpse(t, all), glimpse(t, all), glimpse(t, all)
		join := func(a, b Row) Row {
			r, ok := newer(a, b)
			if !ok {
				require.Fail(t, "one history, told to be two", "%+v and %+v", a, b)
			}
			return r
		}
		ab := join(a, b)
		if !equal(ab, join(b, a)) || !equal(join(ab, c), join(a, join(b, c))) || !equal(join(ab, b), ab) || !equal(join(a, a), a) {
			require.Fail(t, "not a join", "%+v, %+v, %+v", a, b, c)
		}
		if ab.Guard != max(a.Guard, b.Guard) || ab.Epoch != max(a.Epoch, b.Epoch) {
			require.Fail(t, "not the newer", "%+v of %+v and %+v", ab, a, b)
		}
	})
}

// The holder is a function of register T: any Q that is seen beside it names the same holder, or
// none.
func TestHolderIsAFunctionOfT(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := chain(t)
		one := glimpse(t, all)
		q := glimpse(t, all)
		other := one
		other.Guard, other.Queue = q.Guard, q.Queue
		ref, who, ok := one.Holder()
		ref2, who2, ok2 := other.Holder()
		if ok && ok2 && (ref != ref2 || who != who2) {
			require.Fail(t, "two holders", "%d %x and %d %x hold by %+v and %+v", ref, who[:1], ref2, who2[:1], one, other)
		}
		if ok && ref != one.Head || !one.Empty() && one.Owner != (SessionID{}) && who != one.Owner {
			require.Fail(t, "another holder", "%d %x holds by %+v", ref, who[:1], one)
		}
	})
}

// sound accepts every LWT that is made from a row, and none in which one value was changed.
func TestSoundTellsLegalFromSpoilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := chain(t)
		r := &all[len(all)-1]
		s := changes(t, r)
		if !s.sound(r) {
			require.Fail(t, "not sound", "%+v on %+v", s, *r)
		}
		by := rapid.OneOf(rapid.Int64Range(0, 1), rapid.Int64Range(0, 1<<40)).Draw(t, "by")
		type spoiler func(*Swap)
		spoil := []spoiler{func(s *Swap) { s.Set.Q, s.Set.T = false, false }}
		if s.Set.Q {
			spoil = append(spoil,
				func(s *Swap) { s.Set.Row.Guard = r.Guard - LockRef(by) },
				func(s *Swap) { s.If.Guard = -LockRef(by) })
		}
		if s.Set.T {
			spoil = append(spoil,
				func(s *Swap) { s.Set.Row.Epoch = r.Epoch - Stamp(by) },
				func(s *Swap) { s.If.Epoch = -Stamp(by) },
				func(s *Swap) { s.Set.Row.Head = r.Head - 1 - LockRef(by) },
				func(s *Swap) { s.Set.Row.Head = max(r.Guard, s.Set.Row.Guard) + 2 + LockRef(by) })
		}
		i := rapid.IntRange(0, len(spoil)-1).Draw(t, "what")
		if spoil[i](&s); s.sound(r) {
			require.Fail(t, "spoilt, and sound", "%d: %+v on %+v", i, s, *r)
		}
	})
}

// sound checks the INSERT that makes a row, also one whose only reference is released.
func TestSoundOfANewRow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Block{N: int32(rapid.IntRange(1, 9).Draw(t, "n")), Session: session(1)}
		clk := Stamp(rapid.Int64Range(-5, 1<<52).Draw(t, "clk"))
		s := Enqueue(nil, b, 0, clk)
		if released := EnqueueReleased(b, clk); !s.sound(nil) || released.sound(nil) != (b.N == 1) {
			require.Fail(t, "not sound", "%+v, %+v", s, released)
		}
		by := LockRef(rapid.Int64Range(0, 1<<40).Draw(t, "by"))
		for i, spoil := range []func(*Swap){
			func(s *Swap) { s.If.What = IfGuard },
			func(s *Swap) { s.If.What = IfEpoch },
			func(s *Swap) { s.Set.Row.Head, s.Set.Row.Dirty = 2+by, false },
			func(s *Swap) { s.Set.Row.Head = 3 + by },
			func(s *Swap) { s.Set.Row.Guard = -by },
			func(s *Swap) { s.Set.Row.Epoch = -Stamp(by) },
		} {
			spoilt := s
			if spoil(&spoilt); spoilt.sound(nil) {
				require.Fail(t, "spoilt, and sound", "%d: %+v", i, spoilt)
			}
		}
	})
}
