package musiccore

// Condition is what an LWT compares. It determines which registers the LWT writes; Set repeats that
// for readers.
type Condition uint8

// The four shapes of an LWT in docs/protocol.md 3. The column of the epoch is named base.
const (
	IfAbsent     Condition = iota + 1 // INSERT … IF NOT EXISTS             writes Q and T
	IfGuard                           // UPDATE … IF guard=?                writes Q
	IfGuardEpoch                      // UPDATE … IF guard=? AND base=?     writes Q and T
	IfEpoch                           // UPDATE … IF base=?                 writes T
)

// If is the condition of an LWT. Guard and Epoch are never 0 where they are compared: the store
// would apply `= null` to a missing row (docs/protocol.md 2.1).
type If struct {
	What  Condition
	Guard LockRef // for IfGuard and IfGuardEpoch
	Epoch Stamp   // for IfEpoch and IfGuardEpoch
}

// Set is what an LWT writes: whole registers of Row, never parts of one.
type Set struct {
	Q   bool // guard, queue
	T   bool // epoch, head, dirty and unfenced, owner
	Row Row  // only the registers named above count
}

// Swap is one LWT on one lock row. It holds every literal, so sending it again sends the same
// bytes; guard and epoch make that harmless: each Swap is applied at most once (docs/protocol.md
// 6, H3).
type Swap struct {
	If  If
	Set Set
}

// Enqueue appends b.N references to the queue of row r; nil is a key without a lock row. It
// chooses b.First: the number behind the guard, and, if the queue is empty, at least the one given.
// If the queue is empty, the first reference HOLDS when the Swap is applied (docs/protocol.md
// 3.4, Enqueue; paper §IV createLockRef).
func Enqueue(r *Row, b Block, closed, clk Stamp) Swap {
	if r == nil {
		b.First = max(b.First, 1)
		row := Row{Guard: b.Last(), Queue: []Block{b}, Epoch: max(clk, 1), Head: b.First, Dirty: true}
		return Swap{If{What: IfAbsent}, Set{Q: true, T: true, Row: row}}
	}
	if r.Empty() {
		b.First = max(b.First, r.Guard+1)
		row := Row{Guard: b.Last(), Queue: []Block{b}}
		row.Epoch, row.Head, row.Dirty = max(r.Epoch+1, clk), b.First, r.DirtySince(closed)
		row.Unfenced = r.UnfencedSince(closed)
		return Swap{If{What: IfGuardEpoch, Guard: r.Guard, Epoch: r.Epoch}, Set{Q: true, T: true, Row: row}}
	}
	b.First = r.Guard + 1
	row := Row{Guard: b.Last(), Queue: make([]Block, 0, len(r.Queue)+1)}
	for _, old := range r.Queue {
		if old.Last() >= r.Head {
			row.Queue = append(row.Queue, old)
		}
	}
	row.Queue = append(row.Queue, b)
	return Swap{If{What: IfGuard, Guard: r.Guard}, Set{Q: true, Row: row}}
}

// Release ends the term of r's epoch: the reference behind it becomes the head, on an epoch above
// every stamp used (docs/protocol.md 3.11, Release; paper §IV releaseLock). used is the term's
// seq, at least 2, or the window W if it is not known.
func Release(r Row, used Stamp, dirty bool, clk Stamp) Swap {
	return termSwap(r, Row{Epoch: max(r.Epoch+used, clk), Head: r.endOfBlock(r.Head) + 1, Dirty: dirty})
}

// withUnfenced returns a Release that leaves a dirty row unfenced, or not.
func (s Swap) withUnfenced(unfenced bool) Swap {
	s.Set.Row.Unfenced = unfenced
	return s
}

// dirtyIfFar returns a Release that leaves the row dirty, and not unfenced, on an epoch that a later
// closed may lie below: nobody could tell by the epoch that plain writes came after it.
func (s Swap) dirtyIfFar(now Now) Swap {
	if now.far(s.Set.Row.Epoch) {
		s.Set.Row.Dirty, s.Set.Row.Unfenced = true, false
	}
	return s
}

// Preempt ends the term of a session that is dead and makes next the head,
// a whole window above (docs/protocol.md 3.12, Preempt; paper §IV forcedRelease).
func Preempt(r Row, next LockRef, w, clk Stamp) Swap {
	return termSwap(r, Row{Epoch: max(r.Epoch+w, clk), Head: next, Dirty: true})
}

// Takeover moves the head's term to another session, dirty and a whole window
// above (docs/protocol.md 3.13, Takeover).
func Takeover(r Row, to SessionID, w, clk Stamp) Swap {
	return termSwap(r, Row{Epoch: max(r.Epoch+w, clk), Head: r.Head, Dirty: true, Owner: to})
}

// Renew gives the same holder a fresh window (docs/protocol.md 3.10, Renew). floor is
// clk(), or one above the highest stamp that a Synch met.
func Renew(r Row, owner SessionID, dirty bool, w, floor Stamp) Swap {
	return termSwap(r, Row{Epoch: max(r.Epoch+w, floor), Head: r.Head, Dirty: dirty, Owner: owner})
}

// combine returns one LWT for an Enqueue behind others and a change of the term. Its effect is that
// of the two in sequence, with nothing between them.
func combine(q, t Swap) Swap {
	row := t.Set.Row
	row.Guard, row.Queue = q.Set.Row.Guard, q.Set.Row.Queue
	return Swap{If{What: IfGuardEpoch, Guard: q.If.Guard, Epoch: t.If.Epoch}, Set{Q: true, T: true, Row: row}}
}

// termSwap has the shape of every change of a term: IF base = <the epoch read> (C1, C3, C4).
func termSwap(r, to Row) Swap {
	return Swap{If{What: IfEpoch, Epoch: r.Epoch}, Set{T: true, Row: to}}
}

// Apply returns the row after a Swap, and whether the condition was true. nil is a missing row. It
// defines the meaning of a Swap, for tests and the simulation.
func (s Swap) Apply(r *Row) (Row, bool) {
	if r == nil {
		return s.Set.Row, s.If.What == IfAbsent
	}
	if !s.If.holds(*r) {
		return *r, false
	}
	return s.onto(*r), true
}

// holds reports whether the condition is true of an existing row.
func (i If) holds(r Row) bool {
	switch i.What {
	case IfGuard:
		return r.Guard == i.Guard
	case IfGuardEpoch:
		return r.Guard == i.Guard && r.Epoch == i.Epoch
	case IfEpoch:
		return r.Epoch == i.Epoch
	}
	return false
}

// onto returns a row with the registers of the Swap written over it, unconditionally.
func (s Swap) onto(r Row) Row {
	if s.Set.Q {
		r.Guard, r.Queue = s.Set.Row.Guard, s.Set.Row.Queue
	}
	if s.Set.T {
		t := s.Set.Row
		r.Epoch, r.Head, r.Dirty, r.Unfenced, r.Owner = t.Epoch, t.Head, t.Dirty, t.Unfenced, t.Owner
	}
	return r
}

// sound checks I1 for an LWT about to be sent: compared with the row it was made from, guard and
// head do not fall and the epoch rises, only a dirty row is unfenced, and no comparison is with 0.
func (s Swap) sound(from *Row) bool {
	to := s.Set.Row
	if from == nil {
		if len(to.Queue) != 1 {
			return false
		}
		b := to.newestBlock()
		begins := to.Head == b.First || (b.N == 1 && to.Empty() && to.Dirty)
		return s.If.What == IfAbsent && begins && !to.Unfenced && to.Guard == b.Last() && b.First >= 1 && to.Guard >= b.First && to.Epoch > 0
	}
	ok := s.Set.Q || s.Set.T
	if s.Set.Q {
		ok = ok && s.If.Guard > 0 && to.Guard > from.Guard
	}
	if s.Set.T {
		ok = ok && (to.Dirty || !to.Unfenced) && s.If.Epoch > 0 && to.Epoch > from.Epoch && to.Head >= from.Head && to.Head <= max(to.Guard, from.Guard)+1
	}
	return ok
}
