package musiccore

import (
	"errors"
	"fmt"
	"time"
)

// checker knows the whole history of a run and says what must not be: the
// invariants I1 to I12 of docs/protocol.md 5 and the oracle E1 to E9.
type checker struct {
	s      *sim
	keys   map[Key]*history
	values []value // by number; 0 is "no value"
	dead   map[SessionID]bool
}

// value is a put's, or a plain write's. Values are compared by the stamp of
// the mutation that first wrote them.
type value struct {
	key      Key
	stamp    Stamp
	excluded bool // an answer said that it did not happen
}

// issue is a ticket of a key.
type issue struct {
	base   Stamp
	number uint64
}

// history is what happened at one key.
type history struct {
	windows  map[Stamp]*window1
	stamps   map[Stamp]bool
	lastBase Stamp
	lastUsed Stamp
	opened   LockRef // the highest reference that was granted
	grants   int
	holder   map[LockRef]SessionID
	kept     []Block       // what sessions reserved for themselves
	entered  LockRef       // the highest reference that got a ticket or began a Synch
	last     Stamp         // … and the highest epoch
	epoch    int           // how often the table was closed
	issued   map[issue]int // in which epoch each ticket was given
	acked    Stamp         // the highest stamp of an acknowledged put
	answered Stamp         // the highest stamp that an answer showed
	root     Stamp         // of the latest term of which something was told
	ended    []int         // puts that are over, not acknowledged and not excluded
	puts     int
	lastGet  lastGet
	lost     map[LockRef]bool // references that somebody was told are lost
	late     map[issue]bool   // tickets that were given after that
}

// window1 is one epoch: whose it is, and how it ended.
type window1 struct {
	root    Stamp // the first epoch of the term
	ref     LockRef
	session SessionID
	end     Stamp // the epoch that followed
	synced  bool
}

// lastGet is the answer that a holder got last, while no put was under way.
type lastGet struct {
	ref   LockRef
	value int
	puts  int
}

// getting is what was known when a get began.
type getting struct {
	floor Stamp
	over  []int
	epoch int
	puts  int
	still bool // no put in flight
}

func newChecker(s *sim) *checker {
	return &checker{s: s, keys: map[Key]*history{}, values: make([]value, 1), dead: map[SessionID]bool{}}
}

// named is a value for people.
func (c *checker) named(v int) string {
	if v == 0 {
		return "nothing"
	}
	return fmt.Sprintf("value %d (stamp %d)", v, c.values[v].stamp-t0)
}

func (c *checker) key(k Key) *history {
	h := c.keys[k]
	if h == nil {
		h = &history{
			windows: map[Stamp]*window1{}, issued: map[issue]int{}, stamps: map[Stamp]bool{}, holder: map[LockRef]SessionID{},
			lost: map[LockRef]bool{}, late: map[issue]bool{},
		}
		c.keys[k] = h
	}
	return h
}

func (c *checker) window(k Key, base Stamp) *window1 {
	h := c.key(k)
	if h.windows[base] == nil {
		h.windows[base] = &window1{root: base}
	}
	return h.windows[base]
}

// row is a decided LWT: I1, I7, I12, and I6 where it leaves a clean row.
func (c *checker) row(k Key, from, to *Row, l *sent) {
	h := c.key(k)
	if from != nil {
		c.forward(k, from, to)
	}
	for _, b := range l.swap.Set.Row.Queue {
		if b.Retained && (from == nil || !from.retained(b.First)) {
			h.kept = append(h.kept, b)
		}
	}
	if !l.swap.Set.T {
		return
	}
	if l.why == purposePreempt {
		c.passing(from, to)
	}
	w := c.window(k, to.Epoch)
	if from != nil {
		old := c.window(k, from.Epoch)
		old.end = to.Epoch
		switch {
		case l.why == purposeRenew:
			w.root, w.synced = old.root, old.synced || !from.DirtySince(c.s.closed)
		case !to.Dirty:
			// Who has not heard of closed yet goes by its own, which may lie below it: it has synchronised above the plain writes.
			w.synced = old.synced
		}
		clean := !to.Dirty && to.Epoch >= c.s.closed
		if clean && from.DirtySince(c.s.closed) && !old.synced {
			c.s.fail("I7: %v becomes clean without a Synch: %s -> %s", k.PK, brief(from), brief(to))
		}
		if clean && l.why != purposeRenew {
			c.settled(k, "I6: clean")
		}
	}
	if to.Epoch <= h.lastUsed {
		c.s.fail("I12: epoch %d is not above stamp %d", to.Epoch, h.lastUsed)
	}
	h.lastBase = to.Epoch
}

func (c *checker) forward(k Key, from, to *Row) {
	if to.Guard < from.Guard || to.Head < from.Head || to.Epoch < from.Epoch || to.Head > to.Guard+1 {
		c.s.fail("I1: %v %s -> %s", k.PK, brief(from), brief(to))
	}
	if !to.sameTerm(*from) && to.Epoch <= from.Epoch {
		c.s.fail("I1: a term change without a higher epoch: %s -> %s", brief(from), brief(to))
	}
}

// passing is a Preempt: only the dead are passed over (I11).
func (c *checker) passing(from, to *Row) {
	c.s.metIf(from.retained(from.Head), keptPassed)
	for r := from.Head; r < to.Head; r++ {
		id, _ := from.Session(r)
		if from.Owner != (SessionID{}) && r == from.Head {
			id = from.Owner
		}
		if p := c.s.born[id]; p != nil && p.session.id == id && p.valid() && !c.s.wild && !p.suspect() {
			c.s.fail("I11: reference %d of the living session %x is passed over", r, id[:2])
		}
	}
}

// settled is I6: no quorum reads anything else than another, now or later.
func (c *checker) settled(k Key, what string) {
	st := c.s.store
	d := st.data(k)
	first := d.sees(st.quorums[0]).visible()
	for _, q := range st.quorums[1:] {
		if v := d.sees(q).visible(); v != first {
			c.s.fail("%s, but a quorum shows %v and another %v", what, c.named(first), c.named(v))
		}
	}
	for _, m := range d.pending {
		if m.left > 0 && d.absorbed(m) < st.quorum {
			c.s.fail("%s, but %v may still land", what, c.named(m.value))
		}
	}
}

// tenure answers the first reference of the tenure that a reference is of: those
// of a block share one.
func (h *history) tenure(r LockRef) LockRef {
	for _, b := range h.kept {
		if b.First <= r && r <= b.Last() {
			return b.First
		}
	}
	return r
}

// entering is a ticket or a Synch of a reference: I2.
func (c *checker) entering(p *proxy, k Key, r LockRef, base Stamp) *window1 {
	h := c.key(k)
	h.entered, h.last = max(h.entered, r), max(h.last, base)
	w := c.window(k, base)
	if w.ref != 0 && (h.tenure(w.ref) != h.tenure(r) || r < w.ref || w.session != p.session.id) {
		c.s.fail("I2: window %d of %v is used by %d of %x and %d of %x", base, k.PK, w.ref, w.session[:2], r, p.session.id[:2])
	}
	w.ref, w.session = r, p.session.id
	return w
}

// ticketed is a ticket: E5 and I2.
func (c *checker) ticketed(p *proxy, tk Ticket) {
	if !p.valid() {
		c.s.fail("E5/C12: a ticket without a valid session")
	}
	c.entering(p, tk.Key, tk.Ref, tk.Epoch)
	h := c.key(tk.Key)
	h.issued[issue{tk.Epoch, tk.Number}] = h.epoch
	if h.lost[tk.Ref] {
		h.late[issue{tk.Epoch, tk.Number}] = true
	}
	if tk.Kind == Put {
		h.puts++
		c.stamp(tk.Key, tk.Stamp, tk.Epoch)
	}
}

// stamp is I2 and I12: unique, in its window, below every later epoch.
func (c *checker) stamp(k Key, s, base Stamp) {
	h := c.key(k)
	if h.stamps[s] {
		c.s.fail("I2: stamp %d is used twice", s)
	}
	end := c.window(k, base).end
	if s <= base+1 || s >= base+c.s.opts.Window || (end != 0 && s >= end) {
		c.s.fail("I12: stamp %d is not in the window of %d", s, base)
	}
	h.stamps[s] = true
	h.lastUsed = max(h.lastUsed, s)
}

// synching is a Synch sent by a term. It answers what is called when the Synch
// was acknowledged, and the term's root.
func (c *checker) synching(p *proxy, k Key, a Synch) (root Stamp, done func()) {
	t := p.core.keys[k].term
	w := c.entering(p, k, t.holder.ref, t.window.epoch)
	c.stamp(k, a.Fence, t.window.epoch)
	c.stamp(k, a.Fence+1, t.window.epoch)
	if t.ops.flight.puts > 0 {
		c.s.fail("I7/C7: a Synch with a put in flight")
	}
	c.s.metIf(t.synch.tries > 0, synchRepeated)
	c.s.metIf(t.unsettled && t.open, synchOfUnsettled)
	c.s.metIf(t.unsettled && !t.open, settledAtRelease)
	c.s.tell("proxy %d Synch of %s by %d, fence %d", p.n, k.PK, t.holder.ref, a.Fence-t0)
	epoch := c.key(k).epoch
	return w.root, func() {
		if h := c.key(k); h.epoch == epoch && a.Fence >= c.s.plain {
			for _, o := range h.windows { // a Renew may have moved the term meanwhile
				o.synced = o.synced || o.root == w.root
			}
		}
	}
}

// moment is how far a key had come.
type moment struct {
	entered, opened LockRef
	last            Stamp
}

func (c *checker) moment(k Key) moment {
	h := c.key(k)
	return moment{h.entered, h.opened, h.last}
}

// told is an operation whose client is told its outcome. It counts when the
// store's answer came: what is told of a strict table later was true then. I3, E2, C5, C12. It
// is false where the rates of clocks exempt it.
func (c *checker) told(p *proxy, tk Ticket, h moment) bool {
	other := c.window(tk.Key, h.last).session != c.window(tk.Key, tk.Epoch).session
	switch after := max(h.entered, h.opened); {
	case (after > tk.Ref || other) && c.s.wild && !c.s.strict:
		c.s.met(wildTold)
		return false
	case (after > tk.Ref || other) && p.suspect() && !c.s.strict:
		return false
	case h.entered > tk.Ref:
		c.s.fail("I3: reference %d is told an outcome after %d has entered", tk.Ref, h.entered)
	case other:
		c.s.fail("I3: reference %d is told an outcome after it has entered elsewhere", tk.Ref)
	case h.opened > tk.Ref:
		c.s.fail("E2: reference %d is told an outcome after %d was granted", tk.Ref, h.opened)
	}
	if !p.valid() && !c.s.strict {
		c.s.fail("C5/C12: an outcome is told without a valid session")
	}
	if c.s.strict || !p.suspect() {
		c.final(tk)
	}
	return true
}

// final is E9: nothing succeeds under a reference that somebody was told is lost. Of a strict table that is what has begun
// since: whoever ended the reference need not have waited for what was under way.
func (c *checker) final(tk Ticket) {
	h := c.key(tk.Key)
	if h.late[issue{tk.Epoch, tk.Number}] || (h.lost[tk.Ref] && !c.s.strict) {
		c.s.fail("E9: reference %d was told to be lost, and then an outcome is told", tk.Ref)
	}
}

// lost is an answer that a reference is lost.
func (c *checker) lost(k Key, r LockRef) {
	if r != 0 && !c.s.wild {
		c.key(k).lost[r] = true
	}
}

// ackedPut is a put whose client is told of success.
func (c *checker) ackedPut(p *proxy, tk Ticket, v int, at moment) {
	h := c.key(tk.Key)
	c.s.tally.acks++
	if !c.told(p, tk, at) || h.issued[issue{tk.Epoch, tk.Number}] != h.epoch {
		return
	}
	h.acked, h.root = max(h.acked, tk.Stamp), max(h.root, c.window(tk.Key, tk.Epoch).root)
	if c.values[v].excluded {
		c.s.fail("I4/E4: an excluded put is acknowledged: %v", c.named(v))
	}
}

// over is a put that has ended: an answer without it excludes it for ever.
func (c *checker) over(k Key, v int) {
	h := c.key(k)
	h.ended = append(h.ended, v)
}

// gets notes what is known when a get begins.
func (c *checker) gets(tk Ticket, still bool) getting {
	h := c.key(tk.Key)
	kept := h.ended[:0]
	for _, v := range h.ended {
		if c.values[v].stamp > h.acked && !c.values[v].excluded {
			kept = append(kept, v)
		}
	}
	h.ended = kept
	return getting{max(h.acked, h.answered), append([]int(nil), kept...), h.issued[issue{tk.Epoch, tk.Number}], h.puts, still}
}

// answeredGet is a get whose client is told a value: I4, E3, E4.
func (c *checker) answeredGet(p *proxy, tk Ticket, v int, g getting, at moment) {
	h := c.key(tk.Key)
	c.s.tally.gets++
	if !c.told(p, tk, at) || g.epoch != h.epoch {
		return
	}
	s := c.values[v].stamp
	if s < g.floor {
		c.s.fail("I4/E3: a get answers %v, below stamp %d", c.named(v), g.floor)
	}
	if c.values[v].excluded {
		c.s.fail("E4/C9: a value has come back after an answer without it: %v", c.named(v))
	}
	if l := h.lastGet; l.ref == tk.Ref && l.puts == h.puts && g.puts == h.puts && l.value != v {
		c.s.fail("E3: two gets without a put between differ: %v, %v", c.named(l.value), c.named(v))
	}
	for _, o := range g.over {
		if c.values[o].stamp > s {
			c.values[o].excluded = true
		}
	}
	h.lastGet = lastGet{}
	if g.still && g.puts == h.puts {
		h.lastGet = lastGet{tk.Ref, v, h.puts}
	}
	h.answered, h.root = max(h.answered, s), max(h.root, c.window(tk.Key, tk.Epoch).root)
}

// reset is a table that was not critical for a while: what was told before
// binds nobody.
func (c *checker) reset(k Key) {
	h := c.key(k)
	h.epoch++
	h.acked, h.answered, h.root, h.ended, h.lastGet = 0, 0, 0, nil, lastGet{}
	for _, w := range h.windows {
		w.synced = false
	}
}

// landing is a mutation's arrival: I5, I8, and that no quorum ever shows less
// than what was told.
func (c *checker) landing(k Key, m *mutation, i int) {
	st, h := c.s.store, c.key(k)
	d := st.data(k)
	older := m.root < h.root
	if !older && m.dead == 0 {
		d.cells[i].take(m)
		return
	}
	var before [10]int
	for n, q := range st.quorums {
		before[n] = d.sees(q).visible()
	}
	was := d.cells[i].visible()
	d.cells[i].take(m)
	if was != 0 && m.value != 0 && d.cells[i].visible() == 0 {
		c.s.fail("I8: a Synch hides %v on a replica", c.named(was))
	}
	for n, q := range st.quorums {
		v := d.sees(q).visible()
		if older && v != before[n] {
			c.s.fail("I5: a mutation of an older term changes a read from %v to %v", c.named(before[n]), c.named(v))
		}
		if c.values[v].stamp < max(h.acked, h.answered) {
			c.s.fail("I8/I4: a quorum shows %v, below stamp %d", c.named(v), max(h.acked, h.answered))
		}
	}
	c.s.metIf(older && m.value != 0 && m.dead == 0, oldPutLanded)
	c.s.metIf(older && m.dead != 0, oldSynchLanded)
}

// noted is a grant: C15, E1, and that it is true at this moment.
func (c *checker) noted(p *proxy, n Note) {
	h, s := c.key(n.Key), c.s
	switch n.Kind {
	case NoteGranted, NoteTakenOver:
		c.granted(p, h, n)
	case NotePreempted:
		s.met(passedOver)
	case NoteForced:
		from := h.holder[n.Ref]
		o := s.born[from]
		s.metIf(o != nil && o != p && o.session.id == from && o.valid(), forcedLiving)
	case NoteEnded:
		s.metIf(n.State == StateLost, holderLost)
		s.tell("proxy %d reference %d of %s ends: %v", p.n, n.Ref, n.Key.PK, n.State)
	}
}

func (c *checker) granted(p *proxy, h *history, n Note) {
	s, t := c.s, p.core.keys[n.Key].term
	s.tally.grants++
	if t == nil {
		s.fail("E1: reference %d is granted and has no term", n.Ref)
		return
	}
	s.tell("proxy %d GRANTS %s to %d, epoch %d, dirty %v", p.n, n.Key.PK, n.Ref, t.window.epoch-t0, t.dirty)
	row := s.store.row(n.Key).latest()
	passed := h.tenure(row.Head) != h.tenure(n.Ref) || c.window(n.Key, row.Epoch).root != c.window(n.Key, t.window.epoch).root
	if p.suspect() && (passed || n.Ref < h.opened) {
		return
	}
	if by, twice := h.holder[n.Ref]; twice && (by == p.session.id || (n.Kind == NoteGranted && !s.wild)) {
		s.fail("C15/E1: reference %d is granted twice", n.Ref)
	}
	if n.Kind == NoteTakenOver {
		c.takenOver(h, n)
	}
	h.holder[n.Ref] = p.session.id
	h.grants++
	if !p.valid() {
		s.fail("I9: a grant without a valid session")
	}
	if s.wild || s.strict { // a strict table's living holder may be ended by anybody: its operations will show
		h.opened = max(h.opened, n.Ref)
		return
	}
	if n.Ref < h.opened || (n.Ref == h.opened && n.Kind == NoteGranted) {
		s.fail("E1: reference %d is granted after %d", n.Ref, h.opened)
	}
	h.opened = n.Ref
	inside := h.tenure(n.Ref) != n.Ref
	s.metIf(inside, handedOver)
	s.metIf(inside && t.dirty && !t.synced, handedDirty)
	s.metIf(inside && c.window(n.Key, t.window.epoch).root != t.window.epoch, handedRenewed)
	if passed {
		s.fail("I2/E1: reference %d is granted on epoch %d, but the row is %s", n.Ref, t.window.epoch-t0, brief(row))
	}
	s.metIf(t.dirty, grantedDirty)
}

// takenOver says from whom: one that is dead, or may think that it lives.
func (c *checker) takenOver(h *history, n Note) {
	s := c.s
	s.met(tookOver)
	from, held := h.holder[n.Ref]
	s.metIf(!held, tookOverWaiting)
	s.metIf(held && s.store.beats[from] == EndedBeat, tookOverEnded)
	p := s.born[from]
	s.metIf(held && p.session.id == from && !p.quit, tookOverPaused)
}

// answer is what an operation is told: nobody holds who was not granted.
func (c *checker) answer(p *proxy, k Key, ref LockRef, a Answer) {
	if a.Ticket.OK() {
		c.ticketed(p, a.Ticket)
	}
	switch {
	case errors.Is(a.Err, ErrLost), a.Verdict == VerdictLost:
		c.lost(k, ref)
	case a.Grant.State == StateLost:
		c.lost(k, a.Grant.Ref)
	case a.Err == nil && a.Grant.State == StateHeld && c.key(k).lost[a.Grant.Ref] && !c.s.strict && !p.suspect():
		c.s.fail("E9: reference %d was told to be lost, and then HELD", a.Grant.Ref)
	}
	if a.Grant.State == StateQueued && a.Grant.Ref != 0 && p.core.keys[k] != nil {
		at := p.core.keys[k].findEntry(a.Grant.Ref)
		c.s.metIf(at != nil && at.block != nil && !at.standsForBlock(), toldInLine)
	}
	if a.Err == nil && a.Grant.State == StateHeld && c.key(k).holder[a.Grant.Ref] != p.session.id && !c.s.wild && !p.suspect() {
		c.s.fail("E1: reference %d is told HELD and was not granted", a.Grant.Ref)
	}
}

// verdicts are the sessions that a process has found dead: I9.
func (c *checker) verdicts(p *proxy) {
	f := p.core.deadSessions
	for ; p.fallen < len(f); p.fallen++ {
		x := f[p.fallen]
		owner := c.s.born[x]
		c.dead[x] = true
		c.s.tell("proxy %d finds session %x dead", p.n, x[:2])
		if owner.session.id != x || !owner.valid() {
			continue
		}
		if owner.suspect() {
			c.s.met(frozenDead)
			continue
		}
		if !c.s.wild {
			c.s.fail("I9: session %x is found dead and is valid", x[:2])
		}
		c.s.met(wildDead)
	}
}

// sending is an LWT that a core sends for the first time.
func (c *checker) sending(p *proxy, k Key, w Swap) {
	t, s := p.core.keys[k].term, c.s
	if t == nil {
		return
	}
	switch p.core.keys[k].lwt.purpose {
	case purposeRelease:
		s.metIf(t.block != nil && t.lastRef == p.core.keys[k].view.row.Guard, givenUpIdle)
		s.metIf(t.block != nil && t.lastRef < p.core.keys[k].view.row.Guard, givenUpWanted)
		s.metIf(w.Set.Q, tookAlong)
		s.metIf(p.core.keys[k].lwt.blockFrom != 0, madeBlock)
		s.metIf(w.Set.Row.Head <= t.lastRef, wentOnAsBlock)
		places := p.core.keys[k].lwt.entries
		s.metIf(len(places) > 0 && places[0].since > t.closedAt, tookReturned)
		s.metIf(t.noPiggyback, wentAlone)
		s.metIf(w.Set.Row.Dirty, releasedDirty)
		s.metIf(t.unsettled, releasedUnsettled)
		if !w.Set.Row.Dirty && t.ops.flight.ops > 0 {
			s.fail("I7: a clean release with operations in flight")
		}
	case purposeRenew:
		s.metIf(t.block != nil && w.Set.Row.Owner != (SessionID{}), madePlain)
		s.metIf(t.ops.flight.puts > 0, renewedInFlight)
		s.metIf(len(t.ops.waiting) > 0, renewedWaiting)
	}
}

// local is what LOCAL_ONE showed.
func (c *checker) local(r *lockRow, v version) {
	n := len(r.commits)
	c.s.metIf(max(v.q, v.t) < n, staleLocal)
	c.s.metIf(v.q != 0 && v.t != 0 && v.q < v.t && r.commits[v.t-1].row.Guard != r.commits[v.q-1].row.Guard, gapLocal)
}

func (c *checker) served() map[Key]int {
	n := map[Key]int{}
	for k, h := range c.keys {
		n[k] = h.grants
	}
	return n
}

func (c *checker) allServed(before map[Key]int) bool {
	for _, k := range c.s.keys {
		if c.key(k).grants <= before[k] {
			return false
		}
	}
	return true
}

// waited is E6: once the faults have ended nobody waits for longer than any
// answer may take.
func (c *checker) waited(within time.Duration) {
	for _, p := range c.s.proxies {
		for op, w := range p.waits {
			if since := max(w.since, p.paused, c.s.healed); !p.quit && c.s.now-since > within {
				c.s.fail("E6: operation %d of proxy %d has no answer after %v", op, p.n, c.s.now-since)
			}
		}
	}
}
