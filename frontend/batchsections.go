package frontend

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
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

// batchSections is a batch without a lock and without conditions that writes several keys of tables
// with unlocked=auto, and perhaps tables that let writes through: it holds the locks of all these
// keys, taken one after another in one order that all such batches keep, and goes out as one batch,
// in which each statement has the stamp of its own key.
type batchSections struct {
	*lockedBatch
	keys []*sectionKey // in the order in which they are locked
	of   []*sectionKey // the key of each statement; nil where no lock concerns it

	ended sync.Once
}

// sectionKey is a key of a batch, and how far it has come.
type sectionKey struct {
	first  *lockStatement // that names it
	key    musiccore.Key
	ref    musiccore.LockRef // 0 while nothing has been given for it
	ticket musiccore.Ticket
}

// severalSections reports whether a batch's text is a write without a lock that is of more than one
// key.
func (s *lockStatement) severalSections() (bool, *wire.Failure) {
	if s.Parsed.Verb != rewrite.Batch || !s.Auto() {
		return false, nil
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

// severalSections reports whether the batch, a write without a lock, is of more than one key, or of
// tables that let writes through too.
func (b *lockedBatch) severalSections() (bool, *wire.Failure) {
	keys, plain := map[musiccore.Key]bool{}, false
	for i := range b.children {
		s := &b.children[i]
		switch {
		case s.plain != nil:
			plain = true
		case s.Auto():
			k, f := s.Key()
			if f != nil {
				return false, f
			}
			keys[k] = true
		case plain || len(keys) > 0:
			return false, mixedBatch()
		default:
			return false, b.allLocked()
		}
	}
	return plain || len(keys) > 1, nil
}

// allLocked returns an error unless every statement of a batch under a lock is of a critical table.
func (b *lockedBatch) allLocked() *wire.Failure {
	if slices.ContainsFunc(b.children, func(s lockStatement) bool { return s.plain != nil }) {
		return mixedBatch()
	}
	return nil
}

// inSections carries out a batch's text that is of more than one key.
func (a *lockExecution) inSections() *wire.Failure {
	b, f := a.message()
	if f != nil {
		return f
	}
	return b.run(false)
}

// message returns a batch's text as the BATCH message that says the same, in memory of its own.
func (a *lockExecution) message() (*lockedBatch, *wire.Failure) {
	s, b := a.lock.clone(), a.batch(a.lock.Parsed.Kind)
	own := s.Parsed.Timestamp
	if f := s.CheckTimestampPlaces(); f != nil {
		return nil, f
	}
	if own.Kind != rewrite.NoTerm {
		stamp, f := s.Integer(own, "TIMESTAMP")
		if f != nil {
			return nil, f
		}
		b.parameters.Flags |= primitive.QueryFlagDefaultTimestamp // of what no lock concerns
		b.parameters.Timestamp = stamp
	}
	at := len(s.Values)
	for _, child := range s.Parsed.Children {
		at -= child.Markers // the batch's own stand before those of its statements
	}
	for i, child := range s.Parsed.Children {
		part, f := a.conn.batchPart(child.Whole.Of(s.Text), s.Names[i], s.Values[at:at+child.Markers])
		if f == nil && own.Kind != rewrite.NoTerm && part.plain == nil && !part.Critical.Ignore {
			f = statement.TimestampRefused(part.Table)
		}
		if f != nil {
			return nil, f
		}
		at += child.Markers
		b.children = append(b.children, part)
	}
	b.count()
	return b, nil
}

// batch returns a BATCH message without statements in the place of the request.
func (a *lockExecution) batch(kind rewrite.BatchKind) *lockedBatch {
	b, p := &lockedBatch{conn: a.conn, header: a.envelope.Header.Rewritten(), before: []byte{byte(kind)}}, a.parameters.Clone()
	b.header.OpCode = primitive.OpCodeBatch
	const kept = primitive.QueryFlagSerialConsistency | primitive.QueryFlagDefaultTimestamp | primitive.QueryFlagWithKeyspace
	b.parameters = wire.Parameters{Consistency: p.Consistency, Flags: p.Flags & kept, Serial: p.Serial, Timestamp: p.Timestamp, Keyspace: p.Keyspace, Rest: p.Rest}
	return b
}

// batchPart reads a statement of a batch's text by itself: name is its table's.
func (c *conn) batchPart(text []byte, name [2]string, values [][]byte) (s lockStatement, f *wire.Failure) {
	parsed, err := rewrite.Parse(text)
	if err != nil {
		return s, wire.Invalid("MUSIC_SYNTAX: %v", err)
	}
	s.Statement = statement.Statement{Parsed: &parsed, Text: text, Table: c.lookup(tableKey(name[0] + "\x00" + name[1])), Values: values}
	if s.Table != nil {
		s.Critical = s.Table.Critical()
	}
	switch {
	case s.Critical == nil, s.Critical.Unlocked == catalog.Allow:
		return lockStatement{Statement: statement.Statement{Values: values}, plain: plainChild(text, &parsed, name[0]), names: [][2]string{name}}, nil
	case s.Critical.Refused != "" && !s.Critical.Passing:
		return s, s.cannotLock()
	}
	s.fixKey()
	return s, s.CheckFenced()
}

// plainChild returns a statement that no lock concerns as it stands in a BATCH message, its table with
// its keyspace: the connection may be in another one than the statement was prepared in.
func plainChild(text []byte, st *rewrite.Statement, keyspace string) []byte {
	if st.Keyspace.Empty() && keyspace != "" {
		at := st.Table.Start
		text = rewrite.Replace(nil, text, []rewrite.Edit{{Span: rewrite.Span{Start: at, End: at}, Text: rewrite.Quote(keyspace) + "."}})
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// inSections has the batch make a section of each of its keys.
func (b *lockedBatch) inSections() *wire.Failure {
	own := *b
	own.parameters = b.parameters.Clone()
	m := &batchSections{lockedBatch: &own}
	if f := cmp.Or(m.checkConditions(), m.readKeys()); f != nil {
		return f
	}
	c, o := b.conn, b.conn.begin(b.header.Stream)
	n := len(m.body(statement.RequestStamps)) + m.parameters.Size()
	c.countKept(n)
	o.finishLater(func() {
		defer c.countKept(-n)
		if f := m.run(o); f != nil {
			m.release()
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
		conditional = conditional || s.plain == nil && s.Parsed.Conditional
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

// readKeys reads the key of each statement; it refuses a batch that cannot be done in sections.
func (m *batchSections) readKeys() *wire.Failure {
	known := map[musiccore.Key]*sectionKey{}
	m.of = make([]*sectionKey, len(m.children))
	for i := range m.children {
		s := &m.children[i]
		if s.plain != nil {
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
			return wire.Invalid("MUSIC_REFUSED: a batch writes tables of one scope: %s has another than %s", s.Table, m.keys[0].first.Table)
		}
	}
	if len(m.keys) == 0 {
		return &wire.Failure{Code: primitive.ErrorCodeOverloaded, Text: "MUSIC_UNAVAILABLE: the tables of the batch have just changed: nothing was written, try again"}
	}
	if len(m.keys) > statement.MaxKeys {
		return wire.Invalid("MUSIC_REFUSED: one batch writes %d keys of critical tables at most", statement.MaxKeys)
	}
	slices.SortFunc(m.keys, func(a, b *sectionKey) int {
		return cmp.Or(bytes.Compare(a.key.Table[:], b.key.Table[:]), strings.Compare(a.key.PK, b.key.PK))
	})
	return nil
}

// run takes the locks, and sends the batch when it has all of them. It blocks for as long as a LOCK
// without WAIT may, and until the keys are synchronised.
func (m *batchSections) run(o operation) *wire.Failure {
	limit, cancel := context.WithTimeout(context.Background(), m.conn.longestWait())
	defer cancel()
	for _, k := range m.keys {
		if f := m.lock(limit, k); f != nil {
			return f
		}
	}
	if o.cancelled() {
		m.release()
		return nil
	}
	for i, k := range m.keys {
		a := m.conn.beginAndWait(k.key, k.ref)
		if k.ticket = a.Ticket; a.Err != nil {
			m.giveBack(m.keys[:i])
			return refusal.OfSection(a.Err, k.first.Table)
		}
	}
	return m.send()
}

// lock takes the lock of one key.
func (m *batchSections) lock(limit context.Context, k *sectionKey) *wire.Failure {
	c, most := m.conn, k.first.Critical.MaxLease
	end, _ := limit.Deadline()
	q := musiccore.Request{By: c.auditClient(), Closed: k.first.Critical.Closed, Usual: most, Wait: max(time.Until(end), time.Millisecond)}
	q.By.OneWrite = true
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

// beginAndWait asks for the ticket of a write and blocks for it.
func (c *conn) beginAndWait(k musiccore.Key, ref musiccore.LockRef) musiccore.Answer {
	later := make(chan musiccore.Answer, 1)
	if a, ok := c.server.Locks.Begin(k, ref, musiccore.Put, func(a musiccore.Answer) { later <- a }); ok {
		return a
	}
	return <-later
}

// giveBack ends the tickets of some keys for an operation that was not sent.
func (m *batchSections) giveBack(keys []*sectionKey) {
	for _, k := range keys {
		m.conn.server.Locks.End(k.ticket, musiccore.OutcomeRefused)
	}
}

// end gives back what has been given for the keys. It may be called again.
func (m *batchSections) end() { m.ended.Do(m.release) }

// release gives back what has been given for the keys.
func (m *batchSections) release() {
	for _, k := range m.keys {
		if k.ref != 0 {
			m.conn.server.Locks.Unlock(k.key, k.ref, m.conn.auditClient(), func(musiccore.Answer) {})
		}
	}
}

// send sends the batch under the tickets of all keys. It is not sent where the table of one of its
// statements without a lock is critical now, which is looked up once the stream counts as open
// (Outstanding).
func (m *batchSections) send() *wire.Failure {
	c, first, stream := m.conn, m.keys[0], m.header.Stream
	fenceParameters(&m.parameters, 0, first.first.Critical.Local)
	k := lockedOperation{header: m.header, body: m.stamped(), request: lockedRequest{parameters: m.parameters}}
	b := &begunOperation{sent: sentOperation{
		ticket: first.ticket, table: first.first.Table, key: first.key, generation: first.first.Critical.Generation,
		parts: true, alone: m.writeType(), section: m,
	}}
	for _, other := range m.keys[1:] {
		b.sent.beside = append(b.sent.beside, other.ticket)
	}
	for i := range m.children {
		if m.of[i] != nil {
			b.sent.warnings = append(b.sent.warnings, c.timestampWarning(&m.children[i])...)
		}
	}
	raw := k.appendTo(nil, c.version)
	if f := c.expectFenced(stream, b); f != nil {
		m.giveBack(m.keys)
		return f
	}
	if t := m.closed(); t != nil {
		if c.watches.remove(stream).sent != nil {
			m.giveBack(m.keys)
		}
		c.streams.End(stream)
		return refusal.TryAgain(t, "it has just become critical")
	}
	c.server.Stats.Count(c.id, m.header.OpCode, traffic.Fenced)
	c.send(raw)
	return nil
}

// closed returns a table that let the batch's writes through when they were read and does not now, or
// nil.
func (m *batchSections) closed() *catalog.Table {
	for i := range m.children {
		if m.of[i] != nil {
			continue
		}
		for _, name := range m.children[i].names {
			t := m.conn.lookup(tableKey(name[0] + "\x00" + name[1]))
			if t == nil {
				continue
			}
			if now := t.Critical(); now != nil && now.Unlocked != catalog.Allow {
				return t
			}
		}
	}
	return nil
}

// stamped returns the body of the message up to its parameters, with the stamps of the keys.
func (m *batchSections) stamped() []byte {
	body := bytes.Clone(m.before)
	for i := range m.children {
		body = m.children[i].appendChild(body, func(*statement.Statement) int64 { return int64(m.of[i].ticket.Stamp) })
	}
	return body
}

// writeType returns what Cassandra calls the write in its errors.
func (m *batchSections) writeType() primitive.WriteType {
	if rewrite.BatchKind(m.before[0]) == rewrite.UnloggedBatch {
		return primitive.WriteTypeUnloggedBatch
	}
	return primitive.WriteTypeBatch
}
