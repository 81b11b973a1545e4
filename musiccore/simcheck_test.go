package musiccore

import "fmt"

// checker records the whole history of a run and reports what must not happen: violations of the
// invariants I1 to I12 of docs/protocol.md 5, and of the oracle's E1 to E9.
type checker struct {
	s      *sim
	keys   map[Key]*history
	values []value // by number; 0: no value
	overs  int     // how many puts have ended
	dead   map[SessionID]bool
}

// value is what a put or a plain write wrote. Values are ordered by the stamp of the mutation that
// first wrote them.
type value struct {
	key      Key
	stamp    Stamp
	excluded bool // an answer showed that it was not written
	over     int  // when its put ended, as checker.overs counts; 0: it has not
}

// issue identifies a ticket of a key. The tickets of a loan have one number, the loan's.
type issue struct {
	epoch  Stamp
	number uint64
	op     OpID // of a ticket of a loan
}

func issueOf(tk Ticket) issue {
	if tk.Loan == 0 {
		return issue{epoch: tk.Epoch, number: tk.Number}
	}
	return issue{tk.Epoch, tk.Number, tk.Op}
}

// history is what has happened to one key.
type history struct {
	windows  map[Stamp]*windowHistory
	stamps   map[Stamp]bool
	lastBase Stamp
	lastUsed Stamp
	opened   LockRef // the highest reference that was granted
	grants   int
	holder   map[LockRef]SessionID
	passed   map[LockRef]bool      // references that a borrower passed the lock on to
	excused  map[LockRef]SessionID // granted by a process whose clocks had stood still, on an outdated lock row: not counted as a fault
	kept     []Block               // what sessions reserved for themselves
	entered  LockRef               // the highest reference that got a ticket or began a Synch
	last     Stamp                 // the highest epoch that did
	epoch    int                   // how often the table was closed
	issued   map[issue]int         // for each ticket, how often the table had been closed when it was given
	began    map[issue]int         // for each ticket, checker.overs when it was given
	acked    Stamp                 // the highest stamp of an acknowledged put
	answered Stamp                 // the highest stamp that an answer showed
	root     Stamp                 // the root of the latest term of which a client was told an outcome
	ended    []int                 // puts that are over, not acknowledged and not excluded
	puts     int
	lastGet  lastGet
	lost     map[LockRef]bool // references that a client was told are lost
	late     map[issue]bool   // tickets that were given after that
	doubtful map[issue]bool   // loans of a process whose clocks had stood still
	once     map[LockRef]bool // references that were released when they were enqueued
}

// windowHistory is what happened to one epoch: which term used it, and how it ended.
type windowHistory struct {
	root     Stamp // the first epoch of the term
	ref      LockRef
	session  SessionID
	end      Stamp // the epoch that followed; 0: none yet
	synced   bool
	once     bool // of a reference that was released when it was enqueued
	unfenced bool // the term began with the lock row, or on an unfenced one
}

// lastGet is the last answer that a holder got while no put was in flight.
type lastGet struct {
	ref   LockRef
	value int
	puts  int
}

// getting is what was known when a get began: which answers it may have.
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

// named returns a value as text.
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
			windows: map[Stamp]*windowHistory{}, issued: map[issue]int{}, began: map[issue]int{}, stamps: map[Stamp]bool{}, holder: map[LockRef]SessionID{}, excused: map[LockRef]SessionID{},
			lost: map[LockRef]bool{}, late: map[issue]bool{}, doubtful: map[issue]bool{}, once: map[LockRef]bool{}, passed: map[LockRef]bool{},
		}
		c.keys[k] = h
	}
	return h
}

func (c *checker) window(k Key, epoch Stamp) *windowHistory {
	h := c.key(k)
	if h.windows[epoch] == nil {
		h.windows[epoch] = &windowHistory{root: epoch}
	}
	return h.windows[epoch]
}

// row checks a decided LWT: I1, I7, I12, and I6 if it leaves a clean or an unfenced row.
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
	w.unfenced = from == nil || to.UnfencedSince(c.s.closed) || l.why == purposeRenew && c.window(k, from.Epoch).unfenced
	if from == nil && to.Empty() {
		c.enqueuedOnce(k, to)
	}
	if to.UnfencedSince(c.s.closed) {
		c.unfenced(k, from, to, l.why)
	}
	if from != nil {
		old := c.window(k, from.Epoch)
		old.end = to.Epoch
		switch {
		case l.why == purposeRenew:
			w.root, w.synced = old.root, old.synced || !from.DirtySince(c.s.closed)
		case !to.Dirty:
			// A proxy that does not know closed yet uses its own, which may be lower: it has
			// synchronised above the plain writes.
			w.synced = old.synced
		}
		clean := !to.Dirty && to.Epoch >= c.s.closed
		if clean && from.DirtySince(c.s.closed) && !old.synced {
			c.s.fail("I7: %v becomes clean without a Synch: %s -> %s", k.PK, brief(from), brief(to))
		}
		c.s.metIf(clean && from.Dirty && l.why == purposeEnqueue, onceSettled)
		if clean && l.why != purposeRenew {
			c.settled(k, "I6: clean")
		}
	}
	if to.Epoch <= h.lastUsed {
		c.s.fail("I12: epoch %d is not above stamp %d", to.Epoch, h.lastUsed)
	}
	h.lastBase = to.Epoch
}

// unfenced checks an LWT that leaves an unfenced row: it is the owner's, and the key has had no other
// terms than such that left it so (I7); nothing of these can still surface, and no plain write lies
// above the epoch (I6).
func (c *checker) unfenced(k Key, from, to *Row, why purpose) {
	others := why == purposePreempt || why == purposeTakeover || why == purposeReap
	if from == nil || others || !c.window(k, from.Epoch).unfenced {
		c.s.fail("I7: %v becomes unfenced: %s -> %s", k.PK, brief(from), brief(to))
		return
	}
	h, d := c.key(k), c.s.store.data(k)
	for _, m := range d.pending {
		if m.left > 0 && (m.root == 0 && m.stamp >= to.Epoch || m.root != 0 && d.absorbed(m) < c.s.store.quorum) {
			c.s.fail("I6: unfenced, but %v may still land", c.named(m.value))
		}
	}
	all := d.sees(1<<c.s.store.replicas - 1)
	for _, q := range c.s.store.quorums {
		if seen := d.sees(q); h.stamps[all.stamp] && seen.stamp != all.stamp || h.stamps[all.dead] && seen.dead != all.dead {
			c.s.fail("I6: unfenced, but a quorum does not show what a term wrote at %d or deleted at %d", all.stamp, all.dead)
		}
	}
	if !h.stamps[all.stamp] && all.stamp >= to.Epoch {
		c.s.fail("I6: unfenced, but a plain write at %d is not below the epoch", all.stamp)
	}
	c.s.metIf(from.Dirty && !from.Unfenced && to.Head <= to.Guard && from.Empty(), onceUnfenced)
}

// enqueuedOnce takes a lock row that was made with its reference released: the window of that
// reference ends with the epoch of the row.
func (c *checker) enqueuedOnce(k Key, row *Row) {
	old, epoch := c.window(k, row.Epoch-onceWindow), row.Epoch
	old.end, old.once, old.unfenced = epoch, true, true
	c.window(k, epoch).root = old.root
	c.key(k).once[row.Head-1] = true
}

// fenced takes an acknowledged FencedPut, which is as good as a Synch.
func (c *checker) fenced(tk Ticket) {
	h, w := c.key(tk.Key), c.window(tk.Key, tk.Epoch)
	if h.issued[issueOf(tk)] != h.epoch || tk.Fence < c.s.plain && tk.Epoch < c.s.closed {
		return
	}
	for _, o := range h.windows {
		o.synced = o.synced || o.root == w.root
	}
}

func (c *checker) forward(k Key, from, to *Row) {
	if to.Guard < from.Guard || to.Head < from.Head || to.Epoch < from.Epoch || to.Head > to.Guard+1 {
		c.s.fail("I1: %v %s -> %s", k.PK, brief(from), brief(to))
	}
	if !to.sameTerm(*from) && to.Epoch <= from.Epoch {
		c.s.fail("I1: a term change without a higher epoch: %s -> %s", brief(from), brief(to))
	}
}

// passing checks a Preempt: it may pass over references of dead sessions only (I11).
func (c *checker) passing(from, to *Row) {
	c.s.metIf(from.retained(from.Head), keptPassed)
	for r := from.Head; r < to.Head; r++ {
		id, _ := from.Session(r)
		if from.Owner != (SessionID{}) && r == from.Head {
			id = from.Owner
		}
		if p := c.s.bySession[id]; p != nil && p.session.id == id && p.valid() && !c.s.wild && !p.suspect() {
			c.s.fail("I11: reference %d of the living session %x is passed over", r, id[:2])
		}
	}
}

// settled checks I6: all quorums read the same, now and later.
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

// termOf returns the first reference of the term that a reference is of.
func (h *history) termOf(r LockRef) LockRef {
	for _, b := range h.kept {
		if b.First <= r && r <= b.Last() {
			return b.First
		}
	}
	return r
}

// entering checks a ticket or a Synch of a reference: I2.
func (c *checker) entering(p *proxy, k Key, r LockRef, epoch Stamp) *windowHistory {
	h := c.key(k)
	h.entered, h.last = max(h.entered, r), max(h.last, epoch)
	w := c.window(k, epoch)
	if w.ref != 0 && (h.termOf(w.ref) != h.termOf(r) || r < w.ref || w.session != p.session.id) {
		c.s.fail("I2: window %d of %v is used by %d of %x and %d of %x", epoch, k.PK, w.ref, w.session[:2], r, p.session.id[:2])
	}
	w.ref, w.session = r, p.session.id
	return w
}

// ticketed checks a ticket: E5 and I2.
func (c *checker) ticketed(p *proxy, tk Ticket) {
	if !p.valid() {
		c.s.fail("E5/C12: a ticket without a valid session")
	}
	c.entering(p, tk.Key, tk.Ref, tk.Epoch)
	if tk.Lent != nil {
		c.key(tk.Key).doubtful[issueOf(tk)] = p.suspect()
		return
	}
	if tk.Kind == Put {
		t := p.core.keys[tk.Key].term
		c.s.metIf(!t.clean(), putUnfenced)
		c.s.metIf(!t.clean() && t.unfenced, putUnfencedAgain)
	}
	c.issued(tk)
}

// loanUsed checks a ticket of a loan.
func (c *checker) loanUsed(p *proxy, tk Ticket) {
	c.s.met(loanUsed)
	h, w := c.key(tk.Key), c.window(tk.Key, tk.Epoch)
	taken := !h.granted(tk.Ref, tk.Lender) && !p.suspect() // over, by another session
	if w.session != tk.Lender || h.termOf(w.ref) != h.termOf(tk.Ref) || taken {
		c.s.fail("I2: a ticket of %d under a loan of window %d of %v, which %d of %x has", tk.Ref, tk.Epoch, tk.Key.PK, w.ref, w.session[:2])
	}
	w.ref, h.entered, h.last = max(w.ref, tk.Ref), max(h.entered, tk.Ref), max(h.last, tk.Epoch)
	if !p.valid() {
		c.s.fail("E5/C12: a ticket without a valid session")
	}
	c.issued(tk)
}

// passedOn takes a borrower's word that the lock goes from one reference to the next of its run: that is
// the grant, and the lender hears of it later.
func (c *checker) passedOn(p *proxy, k Key, from, to LockRef) {
	h := c.key(k)
	c.s.met(passedOn)
	c.s.tell("proxy %d PASSES %s from %d to %d", p.n, k.PK, from, to)
	if h.opened > from && !c.s.wild && !p.suspect() {
		c.s.fail("E1: the lock is passed from %d to %d after %d was granted", from, to, h.opened)
	}
	h.opened = max(h.opened, to)
	h.holder[to], h.passed[to] = h.holder[from], true
}

// issued records a ticket, and checks its stamps.
func (c *checker) issued(tk Ticket) {
	h, i := c.key(tk.Key), issueOf(tk)
	h.issued[i], h.began[i] = h.epoch, c.overs
	if h.lost[tk.Ref] {
		h.late[i] = true
	}
	if tk.Kind == Put {
		h.puts++
		c.stamp(tk.Key, tk.Stamp, tk.Epoch)
	}
	if tk.Fence != 0 {
		c.stamp(tk.Key, tk.Fence, tk.Epoch)
	}
}

// stamp checks I2 and I12: the stamp is unique, in its window, and below every later epoch.
func (c *checker) stamp(k Key, s, epoch Stamp) {
	h := c.key(k)
	if h.stamps[s] {
		c.s.fail("I2: stamp %d is used twice", s)
	}
	end := c.window(k, epoch).end
	if s <= epoch+1 || s >= epoch+c.s.opts.Window || (end != 0 && s >= end) {
		c.s.fail("I12: stamp %d is not in the window of %d", s, epoch)
	}
	h.stamps[s] = true
	h.lastUsed = max(h.lastUsed, s)
}

// synching checks a Synch that a term sends. It returns the term's root, and a function to be
// called when the Synch is acknowledged.
func (c *checker) synching(p *proxy, k Key, a Synch) (root Stamp, done func()) {
	t := p.core.keys[k].term
	r := t.holder.ref
	if last := c.window(k, t.window.epoch).ref; c.key(k).passed[last] {
		r = max(r, last) // the Synch is for what was done under the loan, too
	}
	w := c.entering(p, k, r, t.window.epoch)
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

// noted checks the core's notes; of a grant C15, E1, and that the lock row agrees at this moment.
func (c *checker) noted(p *proxy, n Note) {
	h, s := c.key(n.Key), c.s
	switch n.Kind {
	case NoteGranted, NoteTakenOver:
		c.granted(p, h, n)
	case NotePreempted:
		s.met(passedOver)
	case NoteForced:
		from := h.holder[n.Ref]
		o := s.bySession[from]
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
	if h.passed[n.Ref] {
		return // it was checked then
	}
	row := s.store.row(n.Key).latest()
	once := c.window(n.Key, t.window.epoch).once
	s.metIf(once, onceGranted)
	passed := h.termOf(row.Head) != h.termOf(n.Ref) || c.window(n.Key, row.Epoch).root != c.window(n.Key, t.window.epoch).root
	if p.suspect() && (passed || n.Ref < h.opened) {
		h.excused[n.Ref] = p.session.id
		return
	}
	back := s.wild && n.Kind == NoteTakenOver && c.dead[p.session.id] // from one that took it although this session is valid
	if by, twice := h.holder[n.Ref]; twice && ((by == p.session.id && !back) || (n.Kind == NoteGranted && !s.wild)) {
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
	if s.wild || s.strict || once { // a strict table's living holder may be ended by anybody: its operations will show
		h.opened = max(h.opened, n.Ref)
		return
	}
	if n.Ref < h.opened || (n.Ref == h.opened && n.Kind == NoteGranted) {
		s.fail("E1: reference %d is granted after %d", n.Ref, h.opened)
	}
	h.opened = n.Ref
	inside := h.termOf(n.Ref) != n.Ref
	s.metIf(inside, handedOver)
	s.metIf(inside && t.dirty && !t.synced, handedDirty)
	s.metIf(inside && c.window(n.Key, t.window.epoch).root != t.window.epoch, handedRenewed)
	if passed {
		s.fail("I2/E1: reference %d is granted on epoch %d, but the row is %s", n.Ref, t.window.epoch-t0, brief(row))
	}
	s.metIf(t.dirty, grantedDirty)
	s.metIf(t.unfenced && p.core.keys[n.Key].view.quorumEpoch != t.window.epoch, grantedUnfenced)
}

// takenOver records which kind of session a reference was taken over from: one that ended, or one
// whose process still runs.
func (c *checker) takenOver(h *history, n Note) {
	s := c.s
	s.met(tookOver)
	from, held := h.holder[n.Ref]
	s.metIf(!held, tookOverWaiting)
	s.metIf(held && s.store.beats[from] == EndedBeat, tookOverEnded)
	p := s.bySession[from]
	s.metIf(held && p.session.id == from && !p.quit, tookOverPaused)
}

// sending records what an LWT is like that a core sends for the first time.
func (c *checker) sending(p *proxy, k Key, w Swap) {
	t, s := p.core.keys[k].term, c.s
	s.metIf(w.If.What == IfAbsent && p.core.keys[k].view.read.began == 0, onceUnread)
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
		s.metIf(w.Set.Row.Unfenced, releasedUnfenced)
		s.metIf(w.Set.Row.Unfenced && t.unfenced && t.window.seq > 2, releasedUnfencedAgain)
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
