package frontend

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/refusal"
	"music/frontend/statement"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/musiccore"
	"music/rewrite"
)

// batchSections is a plain batch without conditions that writes several keys of tables with
// unlocked=auto, and perhaps tables that are not critical or have unlocked=allow. It takes the
// locks of all these keys one after another, in an order that is the same for all such batches.
// Then it is sent as one batch, in which each statement has the stamp of its own key.
type batchSections struct {
	*lockedBatch
	keys []*sectionKey // in the order in which they are locked
	of   []*sectionKey // for each statement its key; nil if it needs no lock

	ended sync.Once
}

// sectionKey is a key of a batch, with the state of its section.
type sectionKey struct {
	first  *lockStatement // the first statement that names the key
	key    musiccore.Key
	ref    musiccore.LockRef // 0 until a reference is given
	ticket musiccore.Ticket
}

// severalSections reports whether a BATCH text is a plain write of more than one key, or of keys that IN names.
func (s *lockStatement) severalSections() (bool, *wire.Failure) {
	if s.Parsed.Verb != rewrite.Batch || !s.Auto() {
		return false, nil
	}
	if s.KeysByIn() {
		return true, nil
	}
	keys := map[musiccore.Key]bool{}
	for i := range s.Parsed.Children {
		k, f := s.KeyOf(&s.Parsed.Children[i])
		if f != nil {
			return false, f
		}
		keys[k] = true
	}
	return len(keys) > 1, nil
}

// severalSections reports whether the BATCH message is a plain write of more than one key, or also
// writes tables whose writes need no lock.
func (b *lockedBatch) severalSections() (bool, *wire.Failure) {
	keys, plain, locked := map[musiccore.Key]bool{}, false, false
	for i := range b.children {
		s := &b.children[i]
		switch {
		case s.unlockedChild != nil:
			plain = true
		case s.Auto():
			k, f := s.Key()
			if f != nil {
				return false, f
			}
			keys[k] = true
		default:
			locked = true
		}
	}
	if locked && (plain || len(keys) > 0) {
		return false, mixedBatch()
	}
	return plain || len(keys) > 1, nil
}

// inSections carries out the batch in a section of each of its keys.
func (b *lockedBatch) inSections() *wire.Failure {
	own := *b
	own.parameters = b.parameters.Clone()
	m := &batchSections{lockedBatch: &own}
	if f := cmp.Or(m.checkConditions(), m.readKeys()); f != nil {
		return f
	}
	c, o := b.conn, b.conn.begin(b.header.Stream)
	o.keeps(m.size())
	o.finishLater(func() {
		if f := m.run(o); f != nil {
			m.end()
			o.free()
			c.reject(b.header, f)
		}
	})
	return nil
}

// checkConditions refuses conditions in a batch over several keys, in Cassandra's words.
func (m *batchSections) checkConditions() *wire.Failure {
	conditional, tables := false, map[*catalog.Table]bool{}
	for i := range m.children {
		s := &m.children[i]
		conditional = conditional || s.unlockedChild == nil && s.Parsed.Conditional
		tables[s.Table] = true
	}
	switch {
	case !conditional:
		return nil
	case len(tables) > 1:
		return wire.Invalid("Batch with conditions cannot span multiple tables")
	}
	return wire.Invalid("Batch with conditions cannot span multiple partitions")
}

// readKeys reads the key of each statement. It refuses a batch that cannot be carried out in
// sections.
func (m *batchSections) readKeys() *wire.Failure {
	known := map[musiccore.Key]*sectionKey{}
	m.of = make([]*sectionKey, len(m.children))
	for i := range m.children {
		s := &m.children[i]
		if s.unlockedChild != nil {
			continue
		}
		k, f := s.Key()
		if f = cmp.Or(f, s.CheckTimestamps()); f != nil {
			return f
		}
		if known[k] == nil {
			known[k] = &sectionKey{first: s, key: k}
			m.keys = append(m.keys, known[k])
		}
		if m.of[i] = known[k]; s.Critical.Local != m.keys[0].first.Critical.Local {
			return wire.Invalid("MUSIC_REFUSED: all tables of a batch must have the same scope: that of %s differs from that of %s: send one batch for each", s.Table, m.keys[0].first.Table)
		}
	}
	if len(m.keys) == 0 {
		return &wire.Failure{Code: primitive.ErrorCodeOverloaded, Text: "MUSIC_UNAVAILABLE: the tables of the batch have just changed: nothing was written, try again"}
	}
	if len(m.keys) > statement.MaxKeys {
		return wire.Invalid("MUSIC_REFUSED: one batch can write at most %d keys of critical tables: send several batches", statement.MaxKeys)
	}
	slices.SortFunc(m.keys, func(a, b *sectionKey) int {
		return cmp.Or(bytes.Compare(a.key.Table[:], b.key.Table[:]), strings.Compare(a.key.PK, b.key.PK))
	})
	return nil
}

// run takes the locks and sends the batch when it has all of them. It blocks for at most
// longestWait, less what it has waited for its tables, and then until the keys are synchronised.
func (m *batchSections) run(o operation) *wire.Failure {
	end := m.children[0].until // all have the same
	if end.IsZero() {
		end = time.Now().Add(m.conn.longestWait())
	}
	limit, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	for _, k := range m.keys {
		if f := m.lock(limit, k); f != nil {
			return f
		}
	}
	if o.cancelled() {
		m.end()
		return nil
	}
	for i, k := range m.keys {
		a := m.conn.beginAndWait(k.key, k.ref)
		if k.ticket = a.Ticket; a.Err != nil {
			m.giveBack(m.keys[:i])
			return refusal.OfSection(a.Err, k.first.Table)
		}
	}
	o.free()
	return m.send()
}

// lock takes the lock of one key.
func (m *batchSections) lock(limit context.Context, k *sectionKey) *wire.Failure {
	c := m.conn
	end, _ := limit.Deadline()
	q := musiccore.Request{By: c.auditClient(), Closed: k.first.Critical.Closed, Wait: max(time.Until(end), time.Millisecond)}
	q.By.OneWrite, q.Lease = true, min(ownSectionLease+q.Wait, k.first.Critical.MaxLease) // the other keys are waited for under it
	a, ok := c.lockUntil(k.key, q, limit.Done())
	switch {
	case !ok:
		return refusal.TryAgain(k.first.Table, "others are writing a key of the batch")
	case a.Err != nil:
		return refusal.OfSection(a.Err, k.first.Table)
	}
	if k.ref = a.Grant.Ref; a.Grant.State != musiccore.StateHeld {
		return refusal.TryAgain(k.first.Table, "others are writing a key of the batch")
	}
	return nil
}

// beginAndWait asks the core for the ticket of a write, and blocks until it has an answer.
func (c *conn) beginAndWait(k musiccore.Key, ref musiccore.LockRef) musiccore.Answer {
	later := make(chan musiccore.Answer, 1)
	if a, ok := c.server.Locks.Begin(k, ref, musiccore.Put, func(a musiccore.Answer) { later <- a }); ok {
		return a
	}
	return <-later
}

// giveBack ends the tickets of keys whose operation was not sent.
func (m *batchSections) giveBack(keys []*sectionKey) {
	for _, k := range keys {
		m.conn.server.Locks.End(k.ticket, musiccore.OutcomeRefused)
	}
}

// end releases the locks of the keys, also those still waited for. It may be called more than once.
func (m *batchSections) end() {
	m.ended.Do(func() {
		for _, k := range m.keys {
			m.conn.release(k.key, k.ref)
		}
	})
}

// send sends the batch under the tickets of all keys. It is not sent if the table of a statement
// that needed no lock has become critical. That is looked up after the stream has been opened, so
// that Server.Outstanding either sees the batch or the batch sees the change.
func (m *batchSections) send() *wire.Failure {
	c, first, stream := m.conn, m.keys[0], m.header.Stream
	fenceParameters(&m.parameters, 0, first.first.Critical.Local)
	k := lockedOperation{header: m.header, body: m.stamped(), request: lockedRequest{parameters: m.parameters}}
	b := &begunOperation{sent: sentOperation{
		ticket: first.ticket, table: first.first.Table, key: first.key, critical: first.first.Critical,
		severalMutations: true, ownSectionType: m.writeType(), section: m,
	}}
	for _, other := range m.keys[1:] {
		b.sent.otherTickets = append(b.sent.otherTickets, other.ticket)
	}
	for i := range m.children {
		if m.of[i] != nil {
			b.sent.warnings = append(b.sent.warnings, c.timestampWarning(&m.children[i])...)
		}
	}
	raw := k.appendTo(nil, c.version)
	if f := c.expectUnderLock(stream, b); f != nil {
		m.giveBack(m.keys)
		return f
	}
	if f := m.closed(); f != nil {
		if c.takeBack(stream) {
			m.giveBack(m.keys)
		}
		return f
	}
	c.server.Stats.Count(c.id, m.header.OpCode, traffic.Fenced)
	m.forget()
	c.send(raw)
	return nil
}

// forget drops all but the locks, since the answer may be long in coming.
func (m *batchSections) forget() {
	m.header.Payload, m.children, m.of = nil, nil, nil
	for _, k := range m.keys {
		k.first = nil
	}
}

// closed returns an error if a table whose writes needed no lock when the batch was read needs one now, or
// may need one, since it was dropped and made anew, or if that of another statement is not what it was read by.
func (m *batchSections) closed() *wire.Failure {
	for i := range m.children {
		if s := &m.children[i]; m.of[i] != nil {
			if !readAlike(s.Table, s.Critical) {
				return refusal.TryAgain(s.Table, refusal.JustAltered)
			}
			continue
		}
		for _, name := range m.children[i].unlockedTables {
			key := catalog.Key(name[0], name[1])
			if name[0] != "" && !m.conn.server.Tables.InSchema(key) {
				return notRead(name)
			}
			if t := m.conn.server.Tables.Find(key); t != nil && plainWriteAccess(t.Critical()) != accessForward {
				return refusal.TryAgain(t, "it has just become critical")
			}
		}
	}
	return nil
}

// stamped returns the body of the message before its parameters, with the stamp of its key in each
// statement.
func (m *batchSections) stamped() []byte {
	body := bytes.Clone(m.before)
	for i := range m.children {
		body = m.children[i].appendChild(body, func(*statement.Statement) int64 { return int64(m.of[i].ticket.Stamp) })
	}
	return body
}

// writeType returns the write type of the batch in Cassandra's errors.
func (m *batchSections) writeType() primitive.WriteType {
	if rewrite.BatchKind(m.before[0]) == rewrite.UnloggedBatch {
		return primitive.WriteTypeUnloggedBatch
	}
	return primitive.WriteTypeBatch
}
