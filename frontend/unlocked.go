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
)

// unlockedWrite is a write without a lock that is held back because a table that it writes has
// unlocked=auto. What its tables give it is looked up again when it is carried out: they may have
// changed since it was decided about.
type unlockedWrite struct {
	conn   *conn
	e      wire.Envelope    // as received; in memory of its own once it has waited
	tables []*catalog.Table // that it writes
	until  time.Time        // the client's driver waits no longer
	size   int              // bytes that it takes while it waits; 0 until it has memory of its own

	inPlace bool // its request is being performed
	// serve carries the write out in a section of its own.
	serve func(now *catalog.Critical, inPlace bool) *wire.Failure
	// detach puts what serve needs into memory of its own, and returns its size.
	detach func() (size int)
}

// given is what a table gives a write without a lock, from the most to the least.
type given uint8

const (
	givenWay     given = iota // it goes on as it was received
	givenSection              // a section of its own
	givenLater                // a section, but not yet
	givenNothing
)

// gives returns what a table in a state gives a write without a lock.
func gives(now *catalog.Critical) given {
	switch {
	case now == nil || now.Unlocked == catalog.Allow:
		return givenWay
	case now.Unlocked != catalog.Auto || now.Refused != "" && !now.Passing:
		return givenNothing
	case now.Refused != "":
		return givenLater
	}
	return givenSection
}

// strictest returns the table that gives the least, and its state.
func (w *unlockedWrite) strictest() (table *catalog.Table, now *catalog.Critical) {
	for _, t := range w.tables {
		if critical := t.Critical(); table == nil || gives(critical) > gives(now) {
			table, now = t, critical
		}
	}
	return table, now
}

// run carries the write out as its tables are now, or has it wait for them.
func (w *unlockedWrite) run() *wire.Failure {
	for {
		t, now := w.strictest()
		done, f := true, (*wire.Failure)(nil)
		switch gives(now) {
		case givenWay:
			done, f = w.forward()
		case givenSection:
			f = w.serve(now, w.inPlace)
		case givenLater:
			done, f = w.wait(t, now)
		default:
			f = statement.WithoutLock(t)
		}
		if done {
			return f
		}
	}
}

// forward sends the write as it was received. done is false, and nothing is sent, where a table has
// changed before the stream counted as open (Outstanding).
func (w *unlockedWrite) forward() (done bool, f *wire.Failure) {
	c := w.conn
	if !c.streams.Begin(w.e.Stream, false) {
		return true, inUse(w.e.Stream)
	}
	if _, now := w.strictest(); gives(now) != givenWay {
		c.streams.End(w.e.Stream)
		return false, nil
	}
	c.server.Stats.Count(c.id, w.e.OpCode, traffic.Forwarded)
	c.sender(w.inPlace)(w.e.Raw)
	return true, nil
}

// wait has the write wait until its table changes, which is about to be served. done is false, and
// nothing waits, where the table has changed already.
func (w *unlockedWrite) wait(table *catalog.Table, now *catalog.Critical) (done bool, f *wire.Failure) {
	c := w.conn
	left := time.Until(w.until)
	if left <= 0 || w.size == 0 && c.checkWaits() != nil {
		return true, refusal.TryAgain(table, refusal.StillBecoming)
	}
	if w.size == 0 {
		w.e.Raw = bytes.Clone(w.e.Raw)
		w.size = len(w.e.Raw) + w.detach()
		w.inPlace = false
	}
	t := &tableWait{write: w, table: table, operation: c.begin(w.e.Stream)}
	if !t.begin(now, left) {
		t.operation.end()
		return false, nil
	}
	t.operation.onCancel(t.cancel)
	return true, nil
}

// tableWait is the wait of a write for its table. It ends once: by a change of the table, by its
// time, or with the connection.
type tableWait struct {
	write     *unlockedWrite
	table     *catalog.Table
	operation operation

	mu    sync.Mutex
	over  bool
	leave func() // ends the wait for a change
	timer *time.Timer
}

// begin starts the wait, and reports whether it did: it does not where the table has changed already.
func (t *tableWait) begin(was *catalog.Critical, limit time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	leave, ok := t.table.AwaitChange(was, t.end)
	if !ok {
		return false
	}
	t.leave, t.timer = leave, time.AfterFunc(limit, t.end)
	t.write.conn.countKept(t.write.size)
	return true
}

// end ends the wait, and asks again what the write gets.
func (t *tableWait) end() {
	t.stop(func() { t.operation.finishLater(t.resume) })
}

// cancel ends the wait with the connection.
func (t *tableWait) cancel() { t.stop(func() {}) }

// stop ends the wait and calls last, once. The connection waits for what last starts: it cancels its
// operations before it waits, and from then on nothing is started.
func (t *tableWait) stop(last func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	t.over = true
	t.leave()
	t.timer.Stop()
	t.write.conn.countKept(-t.write.size)
	last()
}

// resume goes on with the write, unless its client has gone or been told that the connection ends.
func (t *tableWait) resume() {
	if t.operation.cancelled() {
		return
	}
	if f := t.write.run(); f != nil {
		t.write.conn.reject(t.write.e.Header, f)
	}
}

// executeUnlocked executes a write without a lock whose table does not give it a section just now.
func (c *conn) executeUnlocked(e wire.Envelope, a lockExecution) error {
	if f := a.unlocked().run(); f != nil {
		return c.answer(e, f)
	}
	return nil
}

// unlocked returns the execution of a write without a lock.
func (a *lockExecution) unlocked() *unlockedWrite {
	until := time.Now().Add(a.conn.longestWait())
	return &unlockedWrite{
		conn: a.conn, e: a.envelope, tables: []*catalog.Table{a.lock.Table}, until: until, inPlace: a.inPlace,
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
			return len(a.lock.Text) + a.parameters.Size()
		},
	}
}

// served reports whether a write without a lock has a section of its own, of a table that can be
// locked now.
func (s *lockStatement) served() bool {
	return gives(s.Critical) == givenSection
}

// refresh gives a write without a lock the present state of its table, and checks it anew where
// that may change what is served.
func (s *lockStatement) refresh(now *catalog.Critical) *wire.Failure {
	same := s.Critical == now
	s.Critical = now
	if same && (s.prepared == nil || !s.prepared.refused) {
		return nil
	}
	return s.CheckFenced()
}

// cannotLock returns the error for the statement where its table cannot be locked now.
func (s *lockStatement) cannotLock() *wire.Failure {
	if s.PlainWrite() && s.Critical.Passing {
		return refusal.TryAgain(s.Table, refusal.StillBecoming)
	}
	return cannotLock(s.Table, s.Critical)
}

// unlocked reports whether all statements of the batch are writes without a lock.
func (b *lockedBatch) unlocked() bool {
	return !slices.ContainsFunc(b.children, func(s lockStatement) bool { return s.plain == nil && !s.FollowsTable() })
}

// served reports whether the batch has sections of its own, of tables that can be locked now.
func (b *lockedBatch) served() bool {
	return !slices.ContainsFunc(b.children, func(s lockStatement) bool { return s.plain == nil && !s.served() })
}

// withoutLock returns the execution of a batch of writes without a lock.
func (b *lockedBatch) withoutLock(e wire.Envelope) *unlockedWrite {
	until := time.Now().Add(b.conn.longestWait())
	w := &unlockedWrite{
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
			return len(e.Raw)
		},
	}
	for i := range b.children {
		w.tables = append(w.tables, b.tables(&b.children[i])...)
	}
	return w
}

// tables returns the tables that a statement of the batch writes.
func (b *lockedBatch) tables(s *lockStatement) (all []*catalog.Table) {
	if s.plain == nil {
		return []*catalog.Table{s.Table}
	}
	for _, name := range s.names {
		all = append(all, b.conn.server.Tables.Of(name[0], name[1]))
	}
	return all
}

// refresh gives the statements of a batch without a lock the present state of their tables. It
// returns an error where a table gives a statement something else than when the batch was read.
func (b *lockedBatch) refresh() *wire.Failure {
	for i := range b.children {
		s, want := &b.children[i], givenSection
		if s.plain != nil {
			want = givenWay
		}
		for _, t := range b.tables(s) {
			now := t.Critical()
			if gives(now) != want {
				return refusal.TryAgain(t, refusal.StillBecoming)
			}
			if s.plain != nil {
				continue
			}
			if f := s.refresh(now); f != nil {
				return f
			}
		}
	}
	return nil
}
