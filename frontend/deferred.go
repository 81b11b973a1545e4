package frontend

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"music/frontend/catalog"
	"music/frontend/refusal"
	"music/frontend/statement"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/rewrite"
)

// deferredRequest is a request that is held back because a table may not serve it yet: a plain write on one
// with unlocked=auto, or a request for a lock. What becomes of it is decided again when it is
// carried out, since its tables may have changed.
type deferredRequest struct {
	conn   *conn
	e      wire.Envelope    // the request; in memory of its own once it has waited
	tables []*catalog.Table // the tables that it writes
	locks  bool             // it asks for a lock
	until  time.Time        // when the client's driver stops waiting, or before
	size   int              // the memory that it takes while it waits, in bytes; 0 until it has memory of its own

	inPlace bool // its request is being performed
	// serve carries the request out under a lock: a plain write in a section of its own.
	serve func(now *catalog.Critical, inPlace bool) *wire.Failure
	// detach copies what serve needs into memory of its own, and returns its size in bytes.
	detach func() (size int)
}

// access is what a table allows a plain write, from the most to the least.
type access uint8

const (
	accessForward   access = iota // it is forwarded
	accessInSection               // it is carried out in a section of its own
	accessLater                   // likewise, but the table is not ready yet
	accessNone                    // it is refused
)

// access returns what a table in this state allows the request.
func (w *deferredRequest) access(now *catalog.Critical) access {
	switch {
	case !w.locks:
		return plainWriteAccess(now)
	case now == nil, now.Refused != "" && !now.Passing:
		return accessNone
	case now.Refused != "":
		return accessLater
	}
	return accessInSection
}

// refuse returns the error for the request where its table does not allow it.
func (w *deferredRequest) refuse(t *catalog.Table, now *catalog.Critical) *wire.Failure {
	switch {
	case !w.locks && w.access(now) == accessLater:
		return refusal.TryAgain(t, refusal.StillBecoming)
	case !w.locks:
		return statement.WithoutLock(t)
	case now == nil:
		return wire.Invalid("MUSIC_REFUSED: %s is not critical any more: it has no locks until ALTER TABLE … WITH comment = '@critical'", t)
	}
	return cannotLock(t, now)
}

// plainWriteAccess returns what a table in this state allows a plain write.
func plainWriteAccess(now *catalog.Critical) access {
	switch {
	case now == nil || now.Unlocked == catalog.Allow:
		return accessForward
	case now.Unlocked != catalog.Auto || now.Refused != "" && !now.Passing:
		return accessNone
	case now.Refused != "":
		return accessLater
	}
	return accessInSection
}

// strictest returns the table that allows the least, and its state.
func (w *deferredRequest) strictest() (table *catalog.Table, now *catalog.Critical) {
	for _, t := range w.tables {
		if critical := t.Critical(); table == nil || w.access(critical) > w.access(now) {
			table, now = t, critical
		}
	}
	return table, now
}

// run carries the request out as its tables allow now, or has it wait for them.
func (w *deferredRequest) run() *wire.Failure {
	for {
		t, now := w.strictest()
		done, f := true, (*wire.Failure)(nil)
		switch w.access(now) {
		case accessForward:
			done, f = w.forward()
		case accessInSection:
			f = w.serve(now, w.inPlace)
		case accessLater:
			done, f = w.wait(t, now)
		default:
			f = w.refuse(t, now)
		}
		if done {
			return f
		}
	}
}

// forward forwards the write. done is false, and nothing is sent, if a table changed before the
// stream was open: Server.Outstanding may not have seen the stream then.
func (w *deferredRequest) forward() (done bool, f *wire.Failure) {
	c := w.conn
	if !c.streams.Begin(w.e.Stream, false) {
		return true, inUse(w.e.Stream)
	}
	t, now := w.strictest()
	if plainWriteAccess(now) != accessForward {
		c.streams.End(w.e.Stream)
		return false, nil
	}
	if unlistedOf(w.tables) != nil { // it was dropped, and may come back as a critical one
		c.streams.End(w.e.Stream)
		return true, refusal.TryAgain(t, refusal.StillBecoming)
	}
	c.server.Stats.Count(c.id, w.e.OpCode, traffic.Forwarded)
	c.sender(w.inPlace)(w.e.Raw)
	return true, nil
}

// wait has the request wait until its table, which is about to be ready, changes. It does not block.
// done is false if the table has already changed.
func (w *deferredRequest) wait(table *catalog.Table, now *catalog.Critical) (done bool, f *wire.Failure) {
	c := w.conn
	left := time.Until(w.until)
	if left <= 0 || w.size == 0 && c.checkWaits() != nil {
		return true, w.refuse(table, now)
	}
	if w.size == 0 {
		w.e.Raw = bytes.Clone(w.e.Raw)
		w.size = len(w.e.Raw) + w.detach()
		w.inPlace = false
	}
	t := &tableWait{request: w, table: table, operation: c.begin(w.e.Stream)}
	if !t.begin(now, left) {
		t.operation.end()
		return false, nil
	}
	t.operation.onCancel(t.cancel)
	return true, nil
}

// tableWait is the wait of a request for its table. It ends once: by a change of the table, by its
// time limit, or with the connection.
type tableWait struct {
	request   *deferredRequest
	table     *catalog.Table
	operation operation

	mu    sync.Mutex
	over  bool
	leave func() // ends the wait for a change
	timer *time.Timer
}

// begin starts the wait. It returns false if the table has already changed.
func (t *tableWait) begin(was *catalog.Critical, limit time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	leave, ok := t.table.AwaitChange(was, t.end)
	if !ok {
		return false
	}
	t.leave, t.timer = leave, time.AfterFunc(limit, t.end)
	t.request.conn.countKept(t.request.size)
	return true
}

// end ends the wait, and runs the request again.
func (t *tableWait) end() {
	t.stop(func() { t.operation.finishLater(t.resume) })
}

// cancel ends the wait because the connection has ended.
func (t *tableWait) cancel() { t.stop(func() {}) }

// stop ends the wait and calls last, once. The connection cancels its operations before it waits
// for its goroutines, so none is started after that.
func (t *tableWait) stop(last func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	t.leave()
	t.timer.Stop()
	t.request.conn.countKept(-t.request.size)
	last()
}

// resume continues the request, unless the connection has ended.
func (t *tableWait) resume() {
	t.operation.free()
	if t.operation.cancelled() {
		return
	}
	if f := t.request.run(); f != nil {
		t.request.conn.reject(t.request.e.Header, f)
	}
}

// executeLater executes a statement whose table does not serve it now.
func (c *conn) executeLater(e wire.Envelope, a lockExecution) error {
	patience, f := a.patience()
	if f == nil {
		f = a.deferred(time.Now().Add(patience)).run()
	}
	if f != nil {
		return c.answer(e, f)
	}
	return nil
}

// patience returns how long the statement may wait for its table: no longer than its WAIT.
func (a *lockExecution) patience() (time.Duration, *wire.Failure) {
	longest, st := a.conn.longestWait(), a.lock.Parsed
	switch {
	case st.NoWait || st.SkipLocked:
		return 0, nil
	case st.Wait.Kind == rewrite.NoTerm:
		return longest, nil
	}
	wait, f := a.lock.Duration(st.Wait, "WAIT")
	return min(wait, longest), f
}

// deferred returns the execution as a request that may wait for its table until then.
func (a *lockExecution) deferred(until time.Time) *deferredRequest {
	return &deferredRequest{
		conn: a.conn, e: a.envelope, tables: []*catalog.Table{a.lock.Table}, locks: a.lock.asks(), until: until, inPlace: a.inPlace,
		serve: func(now *catalog.Critical, inPlace bool) *wire.Failure {
			a.inPlace = inPlace
			if f := a.lock.refresh(now); f != nil {
				return f
			}
			return a.run()
		},
		detach: func() int {
			*a = a.detached()
			a.lock.until = until
			return a.size()
		},
	}
}

// asks reports whether the statement asks for a new lock. It waits where its table cannot be locked
// yet; what has a reference does not, since what a client sends under one keeps its order.
func (s *lockStatement) asks() bool {
	return s.Parsed.Lock.Kind == rewrite.NoTerm && (s.Parsed.Verb == rewrite.Lock || s.Parsed.ForUpdate)
}

// mayWait reports whether the statement can wait for a table that cannot be locked now.
func (s *lockStatement) mayWait() bool {
	return s.Critical.Passing && (s.PlainWrite() || s.asks())
}

// servedInSection reports whether the plain write can be carried out in a section of its own now.
func (s *lockStatement) servedInSection() bool {
	return plainWriteAccess(s.Critical) == accessInSection
}

// refresh gives the statement the present state of its table, and checks it again if the state has
// changed. A prepared one is refused if its table is gone, and another one has its name.
func (s *lockStatement) refresh(now *catalog.Critical) *wire.Failure {
	same := s.Critical == now
	s.Critical = now
	if same && (s.origin == nil || !s.origin.refused) {
		return nil
	}
	if s.origin != nil && s.origin.remade() {
		return wire.Unprepared(s.origin.id[:])
	}
	if s.Parsed.Verb == rewrite.Lock {
		return s.CheckVerb()
	}
	return s.CheckUnderLock()
}

// unlocked reports whether all statements of the batch are plain writes.
func (b *lockedBatch) unlocked() bool {
	return !slices.ContainsFunc(b.children, func(s lockStatement) bool { return s.unlockedChild == nil && !s.FollowsTable() })
}

// firstLocked returns the first statement of the batch that needs a lock; nil if there is none.
func (b *lockedBatch) firstLocked() *lockStatement {
	for i := range b.children {
		if s := &b.children[i]; s.unlockedChild == nil {
			return s
		}
	}
	return nil
}

// checkNow is the function checkNow for a batch, of which a statement needs a lock.
func (b *lockedBatch) checkNow() *wire.Failure {
	if s := b.firstLocked(); s != nil {
		return checkNow(&b.parameters, s.Table)
	}
	return nil
}

// served reports whether the plain batch can be carried out in sections of its own now.
func (b *lockedBatch) served() bool {
	return !slices.ContainsFunc(b.children, func(s lockStatement) bool { return s.unlockedChild == nil && !s.servedInSection() })
}

// withoutLock returns the execution of a batch of plain writes.
func (b *lockedBatch) withoutLock(e wire.Envelope) *deferredRequest {
	until := time.Now().Add(b.conn.longestWait())
	w := &deferredRequest{
		conn: b.conn, e: e, until: until, inPlace: true,
		serve: func(_ *catalog.Critical, inPlace bool) *wire.Failure {
			if f := b.refresh(); f != nil {
				return f
			}
			return b.run(inPlace)
		},
		detach: func() int {
			for i := range b.children {
				b.children[i].until = until
			}
			return b.size()
		},
	}
	for i := range b.children {
		w.tables = append(w.tables, b.tables(&b.children[i])...)
	}
	return w
}

// tables returns the tables that a statement of the batch writes; a name without a keyspace is that of none.
func (b *lockedBatch) tables(s *lockStatement) (all []*catalog.Table) {
	if s.unlockedChild == nil {
		return []*catalog.Table{s.Table}
	}
	for _, name := range s.unlockedTables {
		if name[0] != "" {
			all = append(all, b.conn.server.Tables.Of(name[0], name[1]))
		}
	}
	return all
}

// refresh gives the statements of a plain batch the present states of their tables. It returns an
// error if a table allows something else than when the batch was read.
func (b *lockedBatch) refresh() *wire.Failure {
	for i := range b.children {
		s, want := &b.children[i], accessInSection
		if s.unlockedChild != nil {
			want = accessForward
		}
		for _, t := range b.tables(s) {
			now := t.Critical()
			if plainWriteAccess(now) != want {
				return refusal.TryAgain(t, refusal.StillBecoming)
			}
			if s.unlockedChild != nil {
				continue
			}
			if f := s.refresh(now); f != nil {
				return f
			}
		}
	}
	return nil
}
