package frontend

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/refusal"
	"music/frontend/wire"
	"music/musiccore"
)

// ownSection is the section of a plain write: a lock that is taken for this write alone. It holds
// the state of all steps in one allocation.
type ownSection struct {
	waiting operation // the client's request, until first is sent
	key     musiccore.Key
	ref     musiccore.LockRef // 0 until a reference is given
	ended   atomic.Bool

	first   lockedOperation // the first operation to send under the lock; empty once it was sent
	kind    musiccore.Kind
	granted func()           // called before first is sent; may be nil
	onEmpty *lockedOperation // the put to send instead if the key has no row; nil if there is none
	group   *group           // that waits for the lock, too; nil: none
	begun   begunOperation   // first, once it has begun

	inPlace bool // the client's request is being performed

	asking sync.Mutex // held until Lock has returned and first is in memory of its own
}

// ownSectionLease is the longest lease of a section of one write, twice as long as an operation may take.
// A client that does not read its answers keeps the proxy from seeing Cassandra's, and with the lease of
// its table it would keep the key for as long.
const ownSectionLease = 10 * time.Second

// inOwnSection carries out a plain write in a section of its own: it takes the lock, sends the
// first operation under it, and releases the lock when the answer has come.
func (c *conn) inOwnSection(w *ownSection, s *lockStatement) *wire.Failure {
	a := lockExecution{conn: c, lock: *s}
	q, f := a.request(0)
	if f != nil {
		return f
	}
	q.By.OneWrite, q.Lease = true, min(ownSectionLease, s.Critical.MaxLease)
	if w.kind == musiccore.BlindPut || w.onEmpty != nil {
		q.Once = w.kind
	}
	w.waiting, w.key = c.begin(w.first.header.Stream), w.first.request.key
	answer, cancel := w.ask(q)
	if cancel != nil {
		w.waiting.onCancel(cancel)
		return nil
	}
	w.waiting.finish(func() { w.lockAnswered(answer, w.inPlace) })
	return nil
}

// ask asks for the lock, see Locker.Lock. The first operation is copied if it has to wait.
func (w *ownSection) ask(q musiccore.Request) (musiccore.Answer, func()) {
	w.asking.Lock()
	defer w.asking.Unlock()
	answer, cancel := w.waiting.conn.server.Locks.Lock(w.key, q, w.answered)
	if cancel != nil {
		w.first = w.first.clone()
		w.waiting.keeps(w.size())
	}
	return answer, cancel
}

// size returns how many bytes the write takes while it waits.
func (w *ownSection) size() int {
	if x := w.first.sent.condition; x != nil {
		return x.size()
	}
	return w.first.size()
}

// answered is called with the answer to the LOCK if that did not come at once.
func (w *ownSection) answered(a musiccore.Answer) {
	w.asking.Lock()
	defer w.asking.Unlock()
	w.waiting.finish(func() { w.lockAnswered(a, false) })
}

// lockAnswered continues with the answer to the LOCK.
func (w *ownSection) lockAnswered(a musiccore.Answer, inPlace bool) {
	f := w.lockGranted(a, inPlace)
	if f == nil {
		return
	}
	if a.Err != nil && !w.waiting.cancelled() {
		w.group.refuse(f)
	} else {
		w.group.withoutFirst()
	}
	w.waiting.conn.reject(w.first.header, f)
}

// lockGranted sends the first operation if the lock was granted.
func (w *ownSection) lockGranted(a musiccore.Answer, inPlace bool) *wire.Failure {
	table := w.first.sent.table
	if a.Err != nil {
		return refusal.OfSection(a.Err, table)
	}
	w.ref = a.Grant.Ref
	waits := !w.waiting.cancelled()
	if !waits || a.Grant.State != musiccore.StateHeld {
		w.end()
		if waits {
			return refusal.TryAgain(table, refusal.OthersWrite)
		}
		w.group.withoutFirst()
		return nil
	}
	w.first.request.ref = w.ref
	if w.granted != nil {
		w.granted()
	}
	if a.Grant.Empty && w.onEmpty != nil {
		w.first, w.kind = *w.onEmpty, musiccore.FencedPut
	}
	w.begun.sent = w.first.sent
	f := w.waiting.conn.beginUnderLock(&w.begun, &w.first, w.kind, inPlace)
	if f != nil {
		w.end()
		return f
	}
	w.first = lockedOperation{} // it was sent, or copied, and its answer may be long in coming
	return nil
}

// end releases the lock. It may be called more than once.
func (w *ownSection) end() {
	if w.ref != 0 && !w.ended.Swap(true) {
		w.waiting.conn.release(w.key, w.ref)
	}
}

// writeInOwnSection carries out the plain write on key k in a section of its own.
func (a *lockExecution) writeInOwnSection(k musiccore.Key) *wire.Failure {
	put := a.conn.newLockedOperation(a.envelope.Header, &a.lock, lockedRequest{key: k, parameters: a.parameters})
	return a.conn.putInOwnSection(&put, &a.lock, a.lock.Kind(), a.lock.writeType(), a.inPlace)
}

// putInOwnSection carries out put in a section of its own. put may refer to the client's request if
// that is being performed (inPlace). alone is the write type for errors.
func (c *conn) putInOwnSection(put *lockedOperation, s *lockStatement, kind musiccore.Kind, alone primitive.WriteType, inPlace bool) *wire.Failure {
	w := &ownSection{first: *put, kind: kind, inPlace: inPlace}
	w.first.sent.ownSectionType, w.first.sent.section = alone, w
	return c.inOwnSection(w, s)
}
