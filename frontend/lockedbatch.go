package frontend

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/relay"
	"music/frontend/statement"
	"music/frontend/traffic"
	"music/frontend/wire"
	"music/musiccore"
)

// lockedBatch is a BATCH message that is carried out under locks. It does not refer to the read
// buffer.
type lockedBatch struct {
	conn       *conn
	header     wire.Header
	before     []byte // the beginning of the body: batch type and number of statements
	children   []lockStatement
	parameters wire.Parameters
	permitted  []*catalog.Table // tables that the client may write, as Cassandra has just confirmed
	grown      int              // see grows
}

// executeBatch is the action that executes a BATCH message that names a critical table.
type executeBatch struct{}

// String implements action.
func (executeBatch) String() string { return "execute a batch under a lock" }

// perform implements action.
func (executeBatch) perform(c *conn, e wire.Envelope) error {
	body, err := c.requestBody(&e)
	if err != nil {
		return c.answerUnreadable(e, err)
	}
	b, f := c.readLockedBatch(e.Header, bytes.Clone(body))
	switch {
	case f != nil && c.server.Tables.Version() != c.decidedAt:
		return c.decideAgain(e)
	case f == nil && b.unlocked() && !b.served():
		f = b.withoutLock(e).run()
	case f == nil && !b.unlocked() && slices.ContainsFunc(b.children, func(s lockStatement) bool { return s.FollowsTable() }):
		f = mixedBatch()
	case f == nil:
		f = b.run(true)
	}
	if f != nil {
		return c.answer(e, f)
	}
	return nil
}

// decideAgain decides again about a held request after one of its tables has changed, and acts on
// the new decision.
func (c *conn) decideAgain(e wire.Envelope) error {
	r := (*requests)(c)
	verdict, err := r.Decide(&e)
	switch {
	case err != nil:
		return err
	case verdict == relay.Forward:
		c.up.Emit(e.Raw)
		return nil
	case verdict == relay.Intercept:
		return r.Perform(e)
	}
	return c.answer(e, &wire.Failure{Code: primitive.ErrorCodeOverloaded, Text: "MUSIC_UNAVAILABLE: the schema has just changed: nothing was done, try again"})
}

// readLockedBatch reads all statements of a BATCH body. It keeps body.
func (c *conn) readLockedBatch(h wire.Header, body []byte) (*lockedBatch, *wire.Failure) {
	cur := wire.Cursor{Body: body, At: 3}
	n := int(binary.BigEndian.Uint16(body[1:]))
	own, err := c.batchKeyspace(cur, n)
	if err != nil {
		return nil, unreadableFailure(h.OpCode, err)
	}
	b, memory := &lockedBatch{conn: c, header: h.Rewritten(), before: body[:3:3]}, 0
	for range n {
		s, f := c.readChild(&cur, own)
		if f != nil {
			return b, f
		}
		for n := cur.Short(); n > 0 && !cur.Bad; n-- {
			s.Values = append(s.Values, cur.Bound(c.version))
		}
		if s.unlockedChild == nil && len(s.Values) != s.Parsed.Markers {
			return b, wire.Invalid("MUSIC_SYNTAX: %d bind markers, %d values in a statement of the batch: bind one value to each", s.Parsed.Markers, len(s.Values))
		}
		if memory += s.memory(); memory > maxBatchMemory {
			return b, tooManyParts()
		}
		b.children = append(b.children, s)
	}
	b.parameters = wire.ReadParameters(&cur, c.version)
	if cur.Bad {
		return b, unreadableFailure(h.OpCode, wire.ErrShort)
	}
	if b.firstLocked() == nil {
		return b, mixedBatch()
	}
	return b, nil
}

// run carries out the batch. Unless the client's permissions on each critical table are known, it
// asks Cassandra for them first, one table after another.
func (b *lockedBatch) run(inPlace bool) *wire.Failure {
	s := b.unpermitted()
	if s == nil {
		return b.runPermitted(inPlace)
	}
	rest := *b
	rest.permitted = append(slices.Clip(b.permitted), s.Table)
	return b.conn.whenPermitted(b.asksFirst(inPlace), s, b.permissions(s.Table), func() *wire.Failure { return rest.run(false) })
}

// asksFirst returns the request as one that waits for what the proxy asks for it.
func (b *lockedBatch) asksFirst(inPlace bool) askedFirst {
	return askedFirst{b.header, b.conn.sender(inPlace), b.size()}
}

// permissions returns the permissions on t that the statements need; none if Cassandra has just
// confirmed them.
func (b *lockedBatch) permissions(t *catalog.Table) permission {
	if slices.Contains(b.permitted, t) {
		return 0
	}
	need := permissionModify
	for i := range b.children {
		if b.children[i].Table == t && b.children[i].unlockedChild == nil {
			need |= b.children[i].permissions()
		}
	}
	return need
}

// runPermitted has Cassandra evaluate what it must, and carries out the batch for a client that has
// the permissions. inPlace means that its request is being performed.
func (b *lockedBatch) runPermitted(inPlace bool) *wire.Failure {
	if f := cmp.Or(b.checkWaits(), b.checkNow()); f != nil {
		return f
	}
	if q, terms := b.ask(); terms != nil {
		return b.conn.whenEvaluated(b.asksFirst(inPlace), q, func(values [][]byte) *wire.Failure {
			if f := b.evaluated(values, terms); f != nil {
				return f
			}
			return b.runPermitted(false)
		})
	}
	return b.runEvaluated(inPlace)
}

// runEvaluated carries out a batch whose terms the proxy can read.
func (b *lockedBatch) runEvaluated(inPlace bool) *wire.Failure {
	if f := b.perKey(); f != nil {
		return f
	}
	several, f := b.severalSections()
	if f == nil {
		f = b.checkTexts(several)
	}
	switch {
	case f != nil:
		return f
	case len(b.children) == 0:
		return b.nothing()
	case several:
		return b.inSections()
	}
	return b.runOnKey(inPlace)
}

// runOnKey carries out a batch on one key. It needs one stamp, since it is one mutation.
func (b *lockedBatch) runOnKey(inPlace bool) *wire.Failure {
	var named int64
	k := lockedOperation{header: b.header, request: lockedRequest{parameters: b.parameters}}
	for i := range b.children {
		s := &b.children[i]
		key, f := s.Key()
		if f := cmp.Or(f, s.CheckTimestamps()); f != nil {
			return f
		}
		k.sent.warnings = append(k.sent.warnings, b.conn.timestampWarning(s)...)
		if s.prepared != nil {
			k.sent.ids = append(k.sent.ids, idPair{s.prepared.backendID, s.prepared.id})
		}
		n, f := s.Ref()
		switch {
		case f != nil:
			return f
		case i == 0:
			named, k.request.key, k.request.local = n, key, s.Critical.Local
			k.sent.table, k.sent.key, k.sent.critical = s.Table, key, s.Critical
		case key != k.request.key || n != named:
			return wire.Invalid("MUSIC_REFUSED: a batch under a lock must stay within one %s of one table, %s, under one lock_ref: send one batch for each", s.Critical.Unit(), k.sent.table)
		}
	}
	k.body = b.body(statement.RequestStamps)
	first := &b.children[0]
	ref, f := b.conn.readReference(first.Critical, first.Table, k.request.key, named)
	if f != nil {
		return f
	}
	k.request.ref = ref
	if slices.ContainsFunc(b.children, func(s lockStatement) bool { return s.Parsed.Conditional }) {
		return b.writeIf(k)
	}
	if first.Auto() {
		return b.conn.putInOwnSection(&k, first, b.kind(), primitive.WriteTypeBatch, inPlace)
	}
	return b.conn.sendUnderLock(&k, b.kind(), inPlace)
}

// kind returns the kind of operation that the batch is for the core; it must have no IF.
func (b *lockedBatch) kind() musiccore.Kind {
	for i := range b.children {
		if b.children[i].Kind() != musiccore.BlindPut {
			return musiccore.Put
		}
	}
	return musiccore.BlindPut
}

// writeIf carries out a batch with IF. write is sent if all conditions hold.
func (b *lockedBatch) writeIf(write lockedOperation) *wire.Failure {
	x, f := readConditional(&b.children[0], b.statements(), true)
	if f != nil {
		return f
	}
	x.write, x.kept = write, b.size()
	x.put = func(sums []statement.Sum) {
		for _, sum := range sums {
			b.children[sum.Part].Put(sum)
		}
		x.write.body = b.body(statement.RequestStamps)
	}
	if x.DeletesRange() {
		x.write.dated = func(stamp int64) []byte { return b.body(statement.BelowWrites(stamp)) }
	}
	x.readsOf(b.header, &x.first.Statement, write.request)
	return b.conn.startConditional(x, nil)
}

// statements returns the statements of the batch.
func (b *lockedBatch) statements() []statement.Statement {
	all := make([]statement.Statement, len(b.children))
	for i := range all {
		all[i] = b.children[i].Statement
	}
	return all
}

// body returns the body of the message before its parameters.
func (b *lockedBatch) body(stamp statement.Stamps) []byte {
	body := bytes.Clone(b.before)
	for i := range b.children {
		body = b.children[i].appendChild(body, stamp)
	}
	return body
}

// readChild reads one statement of a batch up to its values. own is the keyspace in the batch's
// parameters.
func (c *conn) readChild(cur *wire.Cursor, own string) (s lockStatement, f *wire.Failure) {
	start, plain, names := cur.At, false, [][2]string(nil)
	if cur.Byte() == 1 {
		p := c.statement(cur.ShortBytes())
		switch {
		case p == nil:
			return s, mixedBatch()
		case p.ordinary():
			plain, names = true, p.written()
		case p.lock == nil:
			return s, mixedBatch()
		default:
			s, f = p.lock.current()
		}
	} else {
		text := cur.LongString()
		r := c.classify(text, own)
		if plain = r.Kind == classify.Writes; !plain && r.Kind != classify.Critical {
			return s, mixedBatch()
		}
		if names = [][2]string{r.Name.Names()}; !plain {
			s, plain, f = readLockStatement(r, text, true)
		}
	}
	if plain && f == nil {
		return lockStatement{unlockedChild: cur.Body[start:cur.At], unlockedTables: names}, nil
	}
	if f == nil && !s.IsWrite() {
		f = wire.Invalid("MUSIC_REFUSED: a batch can hold only INSERT, UPDATE and DELETE: send the others by themselves")
	}
	return s, f
}

// mixedBatch returns the error for a batch of which only a part is under a lock.
func mixedBatch() *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: all statements of a batch under a lock must be under that lock, on one key of one table: write BEGIN BATCH USING LOCK <ref>, or send the others by themselves")
}

// appendChild appends a statement of a batch in wire form: without its condition and lock clauses,
// and with the stamp, if stamp returns one.
func (s *lockStatement) appendChild(dst []byte, stamp statement.Stamps) []byte {
	if s.unlockedChild != nil {
		return appendValues(append(dst, s.unlockedChild...), s.Values)
	}
	if s.prepared != nil && !s.Parsed.Conditional && !s.Timed() && stamp(&s.Statement) == 0 {
		dst = append(dst, 1)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(s.prepared.backendID)))
		dst = append(dst, s.prepared.backendID...)
		return appendValues(dst, s.sentValues())
	}
	q := s.Write(stamp)
	dst = append(dst, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(q.Text)))
	return appendValues(append(dst, q.Text...), q.Values)
}

// sentValues returns the values of a prepared statement without those of its lock clauses.
func (s *lockStatement) sentValues() (values [][]byte) {
	for i, v := range s.Values {
		if !s.Parsed.OwnMarker(i) {
			values = append(values, v)
		}
	}
	return values
}

// appendValues appends the values of a batch's statement.
func appendValues(dst []byte, values [][]byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(values)))
	for _, v := range values {
		dst = append(dst, v...)
	}
	return dst
}

// perKey rewrites the statements so that each names one key by values: INSERT JSON as INSERT, and a
// write with IN as one statement per key.
func (b *lockedBatch) perKey() *wire.Failure {
	var all []lockStatement
	split := 0
	for i := range b.children {
		if b.children[i].unlockedChild != nil {
			all = append(all, b.children[i])
			continue
		}
		before := b.children[i].size()
		ones, f := b.children[i].each()
		if f == nil && len(ones) == 1 {
			f = b.grows(ones[0].size() - before)
		}
		if f != nil {
			return f
		}
		for k := range ones[min(1, len(ones)):] {
			split += ones[k].Size()
		}
		switch all = append(all, ones...); {
		case len(all) > math.MaxUint16:
			return wire.Invalid("MUSIC_REFUSED: one batch can have at most %d statements, with one for each key that IN names", math.MaxUint16)
		case split > statement.MaxSplit:
			return statement.TooMuchSplit()
		}
	}
	b.children = all
	b.count()
	return nil
}

// count writes the number of statements into before.
func (b *lockedBatch) count() {
	b.before = binary.BigEndian.AppendUint16(slices.Clone(b.before[:1]), uint16(len(b.children)))
}

// nothing answers a write that names no key because its IN has an empty list, as Cassandra does.
func (b *lockedBatch) nothing() *wire.Failure {
	c := b.conn
	c.server.Stats.Count(c.id, b.header.OpCode, traffic.Answered)
	c.post(c.message(b.header.Stream, &message.VoidResult{}))
	return nil
}
