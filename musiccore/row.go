package musiccore

import "slices"

// LockRef numbers the references of one key: 1, 2, 3 …, or from the first reference of the table's
// generation on (Core.FirstReference). It is a client's place in the key's queue, and its fencing
// token (paper §III, createLockRef; docs/protocol.md 2.1). There are no gaps while any reference is
// live. 0 is no reference.
type LockRef int64

// Stamp is a write timestamp of the store in microseconds. Stamps are compared with each other and
// never with time: the paper's v2s(lockRef, t) with the epoch taken from the lock row. 0 is no
// stamp.
type Stamp int64

// SessionID identifies a session in music.sessions. The zero value is no session.
type SessionID [16]byte

// Key names what one lock covers: one partition of one critical table.
type Key struct {
	Table [16]byte // id of the data table
	PK    string   // wire bytes of the routing key
}

// Block is one block of the queue: N references from First on, all enqueued by one LWT of one
// session. Req tells two Enqueues of a session apart. Retained marks references that the session
// hands out in memory (docs/protocol.md 3.17).
type Block struct {
	First    LockRef
	N        int32
	Session  SessionID
	Req      int64
	Retained bool
}

// Last returns the highest reference of the block.
func (b Block) Last() LockRef { return b.First + LockRef(b.N) - 1 }

// Row is the lock row of one key: the registers Q = (Guard, Queue) and T = (Epoch, Head, Dirty and
// Unfenced, Owner) of docs/protocol.md 2.1. Live references are Head..Guard. A Row is a value: a
// Queue must not be modified once made.
type Row struct {
	Guard, Head LockRef
	Queue       []Block
	Epoch       Stamp
	Dirty       bool
	Unfenced    bool // of a dirty row: no put of a term can still surface (docs/protocol.md 2.3)
	Owner       SessionID
}

// Empty reports whether nobody holds and nobody waits. It is also false if the head is further up:
// then the registers have different ages, with an older queue, and it is unknown.
func (r Row) Empty() bool { return r.Head == r.Guard+1 }

// Holder returns the head and the session that holds it: T.Owner if set, else the session that
// enqueued it (docs/protocol.md 2.1). ok is false for an empty queue, and for a row whose registers
// have such different ages that the queue does not contain the head: then only a QUORUM read can
// tell.
func (r Row) Holder() (LockRef, SessionID, bool) {
	if r.Empty() {
		return 0, SessionID{}, false
	}
	if r.Owner != (SessionID{}) {
		return r.Head, r.Owner, true
	}
	s, ok := r.Session(r.Head)
	return r.Head, s, ok
}

// Session returns the session that enqueued a reference; that never changes.
func (r Row) Session(ref LockRef) (SessionID, bool) {
	for _, b := range r.Queue {
		if b.First <= ref && ref <= b.Last() {
			return b.Session, true
		}
	}
	return SessionID{}, false
}

// retained reports whether a reference is in a block that its session hands out in memory and has
// not made plain (docs/protocol.md 3.17).
func (r Row) retained(ref LockRef) bool {
	if ref == r.Head && r.Owner != (SessionID{}) {
		return false
	}
	for _, b := range r.Queue {
		if b.First <= ref && ref <= b.Last() {
			return b.Retained
		}
	}
	return false
}

// endOfBlock returns the last reference of the term that ref begins: ref itself, or the last one of
// its retained block, which is always one term (docs/protocol.md 3.17).
func (r Row) endOfBlock(ref LockRef) LockRef {
	for _, b := range r.Queue {
		if b.Retained && b.First <= ref && ref <= b.Last() {
			return b.Last()
		}
	}
	return ref
}

// withOwnBlock returns the queue with consecutive references of session s, beginning at from,
// joined into one retained block. It ends at the next reference that belongs to another session or
// to a retained block; only the last block of the queue may be retained, since it is new.
func (r Row) withOwnBlock(from LockRef, s SessionID) []Block {
	queue := make([]Block, 0, len(r.Queue)+1)
	open := false // the last block of queue takes the next one in
	for i, b := range r.Queue {
		own := b.Session == s && (!b.Retained || i == len(r.Queue)-1)
		if own && b.First < from && from <= b.Last() {
			ended := b
			ended.N = int32(from - b.First)
			queue = append(queue, ended)
			b.First, b.N = from, b.N-ended.N
		}
		switch {
		case own && b.First == from:
			b.Retained, open = true, true
		case own && open:
			first := &queue[len(queue)-1]
			first.N, first.Req = first.N+b.N, b.Req
			continue
		default:
			open = false
		}
		queue = append(queue, b)
	}
	return queue
}

// withPlain returns the queue with the given references, which ascend, taken out of their retained
// blocks, so that they are no longer handed out in memory.
func (r Row) withPlain(refs []LockRef) []Block {
	queue := make([]Block, 0, len(r.Queue)+2)
	for _, b := range r.Queue {
		for b.N > 0 {
			part := b.upTo(refs)
			queue = append(queue, part)
			b.First, b.N = part.Last()+1, b.N-part.N
		}
	}
	return queue
}

// upTo returns the longest part from the beginning of a block whose references are either all among
// refs, which ascend, or all not. In the first case the part is not retained.
func (b Block) upTo(refs []LockRef) Block {
	_, plain := slices.BinarySearch(refs, b.First)
	n := int32(1)
	for ; n < b.N; n++ {
		if _, next := slices.BinarySearch(refs, b.First+LockRef(n)); next != plain {
			break
		}
	}
	b.N, b.Retained = n, b.Retained && !plain
	return b
}

// Find returns the block that a session enqueued under a request number, and whether there is one
// (docs/protocol.md 3.1, lwt).
func (r Row) Find(s SessionID, req int64) (Block, bool) {
	for _, b := range r.Queue {
		if b.Session == s && b.Req == req {
			return b, true
		}
	}
	return Block{}, false
}

// Next returns the head that a Preempt leaves: the first reference above the term of the head that
// is not passed over, else guard+1 (docs/protocol.md 3.12, Preempt).
func (r Row) Next(passable func(LockRef, SessionID) bool) LockRef {
	for ref := r.endOfBlock(r.Head) + 1; ref <= r.Guard; ref++ {
		if s, ok := r.Session(ref); !ok || !passable(ref, s) {
			return ref
		}
	}
	return r.Guard + 1
}

// DirtySince is D of docs/protocol.md 2.3: the row says dirty, or its epoch is older than the
// moment when the table was closed to plain writes.
func (r Row) DirtySince(closed Stamp) bool { return r.Dirty || r.Epoch < closed }

// UnfencedSince reports whether the row is dirty only because no term has ever fenced the key: what
// can still surface are plain writes from below closed, and they lie below the epoch.
func (r Row) UnfencedSince(closed Stamp) bool { return r.Dirty && r.Unfenced && r.Epoch >= closed }

// leftOpen reports whether a term before, or a plain write above the epoch, may have left something
// that can still surface. Only then does opening a term depend on who else has seen the row (M6).
func (r Row) leftOpen(closed Stamp) bool { return r.DirtySince(closed) && !r.UnfencedSince(closed) }

// sameTerm reports whether two rows show the same T register.
func (r Row) sameTerm(o Row) bool {
	return r.Epoch == o.Epoch && r.Head == o.Head && r.Dirty == o.Dirty && r.Unfenced == o.Unfenced && r.Owner == o.Owner
}

// before reports whether one of the row's registers is older than in another view.
func (r Row) before(o Row) bool { return r.Epoch < o.Epoch || r.Guard < o.Guard }

// newer joins two views of one lock row register by register: a replica may have missed a commit,
// so in either view either register may be the older one. ok is false if one epoch shows two
// different terms, which no history of LWTs can produce (I1).
func newer(a, b Row) (Row, bool) {
	if b.Epoch == a.Epoch && !b.sameTerm(a) {
		return a, false
	}
	if b.Guard > a.Guard {
		a.Guard, a.Queue = b.Guard, b.Queue
	}
	if b.Epoch > a.Epoch {
		a.Epoch, a.Head, a.Dirty, a.Unfenced, a.Owner = b.Epoch, b.Head, b.Dirty, b.Unfenced, b.Owner
	}
	return a, true
}
