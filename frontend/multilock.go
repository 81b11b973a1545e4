package frontend

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"

	"music/frontend/catalog"
	"music/frontend/grant"
	"music/frontend/refusal"
	"music/frontend/statement"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// grantColumns returns the columns of the answer to LOCK and UNLOCK. With IN they end with those of
// the key.
func (s *lockStatement) grantColumns() []*message.ColumnMetadata {
	columns := grant.Columns(s.Table)
	if !s.SeveralKeys() {
		return columns
	}
	for _, column := range s.Critical.Key {
		columns = append(columns, &message.ColumnMetadata{Keyspace: s.Table.Keyspace, Table: s.Table.Name, Name: column.Name, Type: keyType(column.Type)})
	}
	return columns
}

// multiLockKey is one key of a LOCK … IN, with its state.
type multiLockKey struct {
	statement.NamedKey
	grant musiccore.Grant
	asked bool // the core has been asked for it: the answer has a row for it
}

// lockManyKeys carries out LOCK … IN.
func (a *lockExecution) lockManyKeys() *wire.Failure {
	c, s := a.conn, &a.lock
	if s.Parsed.Verb == rewrite.Unlock {
		return wire.Invalid("MUSIC_SYNTAX: a lock_ref belongs to one key: UNLOCK each key with its own")
	}
	named, f := s.Keys()
	if f != nil {
		return f
	}
	keys := make([]*multiLockKey, len(named))
	for i := range keys {
		keys[i] = &multiLockKey{NamedKey: named[i]}
	}
	q, f := a.request(0)
	if f != nil {
		return f
	}
	r := multiLock{
		conn: c, stream: a.envelope.Stream, table: s.Table, columns: s.grantColumns(), keys: keys, most: len(keys),
		skip: s.Parsed.SkipLocked, request: q, warnings: a.warnings, generation: s.Critical.Generation, id: s.Critical.ID,
	}
	if s.Parsed.Limit.Kind != rewrite.NoTerm {
		n, f := s.Integer(s.Parsed.Limit, "LIMIT")
		if f != nil || n < 1 {
			return wire.Invalid("MUSIC_SYNTAX: LIMIT must be a number of keys, 1 or more")
		}
		r.most = int(min(n, statement.MaxKeys))
	}
	c.server.Stats.Count(c.id, a.envelope.OpCode, traffic.Answered)
	o := c.begin(r.stream)
	o.keeps(r.size())
	o.finishLater(func() { r.run(o) })
	return nil
}

// keyMemory is what a key of a LOCK on several keys takes beside its bytes, with its row in the answer.
const keyMemory = 512

// size returns how many bytes the keys take while they are waited for.
func (r *multiLock) size() (n int) {
	for _, w := range r.keys {
		n += keyMemory + len(w.Key.PK)
	}
	return n
}

// multiLock is one LOCK on several keys. The keys are locked one after another, in an order that is
// the same for every client, so that two clients never wait for each other; with SKIP LOCKED, which
// does not wait, several at a time.
type multiLock struct {
	conn    *conn
	stream  int16
	table   *catalog.Table
	columns []*message.ColumnMetadata
	keys    []*multiLockKey // in the order of the text
	most    int             // how many of keys to lock: LIMIT
	skip    bool            // SKIP LOCKED: keys that are not free are left out
	request musiccore.Request

	warnings   []string // about clauses whose values were reduced to a limit
	generation [16]byte // of the table
	id         [16]byte // likewise
}

// run takes the locks and answers the client. It blocks for at most patience.
func (r *multiLock) run(o operation) {
	limit, cancel := context.WithTimeout(context.Background(), r.patience())
	defer cancel()
	var got []*multiLockKey
	var failure *wire.Failure
	if free, ok := r.conn.server.tokens.take(tokenName{r.id, r.request.Token}, limit.Done(), r.conn.done); ok {
		defer free()
		got, failure = r.lockKeys(limit)
	}
	if failure != nil || !r.skip && !r.complete(got) {
		r.releaseKeys(got)
	}
	switch {
	case failure != nil:
		o.answer(r.conn.failureEnvelope(r.stream, failure))
	case o.cancelled():
		r.releaseKeys(got)
	default:
		o.answer(r.conn.warned(r.conn.rows(r.stream, r.columns, r.rows()...), r.warnings))
	}
}

// patience returns the time that the whole LOCK may take.
func (r *multiLock) patience() time.Duration {
	if r.request.NoWait || r.request.AtOnce {
		return r.conn.longestWait()
	}
	if r.request.Wait == 0 {
		return r.conn.server.MaxWait
	}
	return r.request.Wait
}

// lockKeys locks the keys that are asked for. Last it renews the leases of those that it has, which
// have run meanwhile.
func (r *multiLock) lockKeys(limit context.Context) (got []*multiLockKey, f *wire.Failure) {
	lock := r.lockAll
	if r.skip {
		lock = r.lockFree
	}
	if got, f = lock(limit); f != nil {
		return got, f
	}
	for _, w := range got {
		if f := r.lockKey(w, musiccore.Request{Ref: w.grant.Ref, Lease: r.request.Lease, AtOnce: true}, nil); f != nil {
			return got, f
		}
	}
	return got, nil
}

// lockAll locks one key after another, sorted, until it has enough of them or one cannot be had.
func (r *multiLock) lockAll(limit context.Context) (got []*multiLockKey, f *wire.Failure) {
	order := slices.Clone(r.keys)
	slices.SortFunc(order, func(a, b *multiLockKey) int { return strings.Compare(a.Key.PK, b.Key.PK) })
	for _, w := range order[:min(len(order), r.most)] {
		if f := r.lockKey(w, r.within(limit), limit.Done()); f != nil || w.grant.State != musiccore.StateHeld {
			return got, f
		}
		got = append(got, w)
	}
	return got, nil
}

// freeAtOnce is how many keys SKIP LOCKED asks for at a time.
const freeAtOnce = 32

// lockFree locks those keys that are free, in the order of the text, until it has enough of them:
// so many at a time as are still lacking, so it never has to give one back.
func (r *multiLock) lockFree(limit context.Context) (got []*multiLockKey, f *wire.Failure) {
	for rest := r.keys; f == nil && len(rest) > 0 && len(got) < r.most && !r.conn.over(); {
		some := rest[:min(len(rest), r.most-len(got), freeAtOnce)]
		rest = rest[len(some):]
		q := r.within(limit)
		faults := make([]*wire.Failure, len(some))
		var asking sync.WaitGroup
		for i, w := range some {
			asking.Go(func() { r.conn.guard(func() { faults[i] = r.lockKey(w, q, limit.Done()) }) })
		}
		asking.Wait()
		for _, w := range some {
			if w.grant.State == musiccore.StateHeld {
				got = append(got, w)
			}
		}
		f = cmp.Or(faults...)
	}
	return got, f
}

// within returns the request for one key, which may wait for what is left of the limit.
func (r *multiLock) within(limit context.Context) musiccore.Request {
	q := r.request
	end, _ := limit.Deadline()
	q.Wait = max(time.Until(end), time.Millisecond)
	return q
}

// complete reports whether as many keys are held as were asked for.
func (r *multiLock) complete(got []*multiLockKey) bool {
	return len(got) == min(r.most, len(r.keys)) && !slices.ContainsFunc(got, func(w *multiLockKey) bool { return w.grant.State != musiccore.StateHeld })
}

// lockKey asks for the lock of one key. It blocks until the answer or until limit is closed; nil
// means no limit. If the lock is not held then, its reference has been released.
func (r *multiLock) lockKey(w *multiLockKey, q musiccore.Request, limit <-chan struct{}) *wire.Failure {
	w.asked = true
	a, ok := r.conn.lockUntil(w.Key, q, limit)
	switch {
	case !ok, a.Err == musiccore.ErrUnavailable: //nolint:errorlint // if it wraps a cause, more than time was lacking
		r.conn.unlock(w.Key, q.Ref) // the one that was to be renewed
		w.grant = musiccore.Grant{State: musiccore.StateBusy}
	case a.Err != nil:
		return refusal.OfOperation(a.Err, r.table, r.shown(w))
	default:
		w.grant = a.Grant
	}
	if w.grant.State == musiccore.StateQueued {
		r.conn.unlock(w.Key, w.grant.Ref)
		w.grant = musiccore.Grant{State: musiccore.StateBusy, Holder: w.grant.Holder}
	}
	return nil
}

// releaseKeys releases the held locks, and sets the state of all rows accordingly.
func (r *multiLock) releaseKeys(got []*multiLockKey) {
	for _, w := range got {
		if w.grant.State == musiccore.StateHeld {
			r.conn.unlock(w.Key, w.grant.Ref)
			w.grant = musiccore.Grant{Ref: w.grant.Ref, State: musiccore.StateReleased}
		}
	}
	for _, w := range r.keys {
		if !w.asked {
			w.asked, w.grant = true, musiccore.Grant{State: musiccore.StateBusy}
		}
	}
}

// rows returns the rows of the keys that were asked for, in the order of the text.
func (r *multiLock) rows() []message.Row {
	var rows []message.Row
	for _, w := range r.keys {
		if w.asked {
			rows = append(rows, append(grant.Row(w.grant, r.shown(w)), w.Parts...))
		}
	}
	return rows
}

// shown returns the reference of a key as the client sees it.
func (r *multiLock) shown(w *multiLockKey) int64 {
	return r.conn.server.shown(r.generation, w.Key, w.grant.Ref)
}

// lockUntil asks for a lock and blocks until the answer. If limit is closed or the connection ends
// before, ok is false, and a lock that is granted nevertheless is released. One with a TOKEN is not, as another LOCK with that gets
// the same reference: the answer to what is cancelled is waited for, which comes at once, and if it is a grant ok is true.
func (c *conn) lockUntil(k musiccore.Key, q musiccore.Request, limit <-chan struct{}) (a musiccore.Answer, ok bool) {
	var mu sync.Mutex
	late := false
	answered := make(chan musiccore.Answer, 1)
	a, cancel := c.server.Locks.Lock(k, q, func(a musiccore.Answer) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !late:
			answered <- a
		case a.Err == nil && q.Ref == 0:
			c.release(k, a.Grant.Ref)
		}
	})
	if cancel == nil {
		return a, true
	}
	select {
	case a = <-answered:
		return a, true
	case <-limit:
	case <-c.done:
	}
	if q.Token != [16]byte{} {
		cancel()
		a = <-answered
		return a, a.Err == nil
	}
	mu.Lock()
	late = true
	mu.Unlock()
	cancel()
	select {
	case a = <-answered:
		return a, true
	default:
		return a, false
	}
}

// unlock releases a reference and blocks until the answer, or until the connection ends.
func (c *conn) unlock(k musiccore.Key, ref musiccore.LockRef) {
	if ref == 0 {
		return
	}
	done := make(chan struct{})
	if _, ok := c.server.Locks.Unlock(k, ref, c.auditClient(), func(musiccore.Answer) { close(done) }); ok {
		return
	}
	select {
	case <-done:
	case <-c.done:
	}
}
