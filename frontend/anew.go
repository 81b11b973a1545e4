package frontend

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/message"

	"music/frontend/traffic"
	"music/frontend/wire"
	"music/rewrite"
)

// readJSON is ReadJSON; a statement that is written anew is not the prepared one any more.
func (s *lockStatement) readJSON() *wire.Failure {
	written, f := s.ReadJSON()
	if written {
		s.prepared = nil
	}
	return f
}

// each is Each, after readJSON.
func (s *lockStatement) each() ([]lockStatement, *wire.Failure) {
	if f := s.readJSON(); f != nil {
		return nil, f
	}
	if !s.KeysByIn() {
		return []lockStatement{*s}, nil
	}
	ones, f := s.Each()
	var all []lockStatement
	for _, one := range ones {
		part := *s
		part.Statement, part.prepared = one, nil
		all = append(all, part)
	}
	return all, f
}

// anew has a write name its one key by values: where it does not, batch is what carries it out for all of
// its keys.
func (a *lockExecution) anew() (batch *lockedBatch, f *wire.Failure) {
	s := &a.lock
	if f := s.readJSON(); f != nil || !s.KeysByIn() {
		return nil, f
	}
	if s.Auto() && s.Parsed.Verb == rewrite.Batch {
		return a.message()
	}
	all, f := s.each()
	switch {
	case f != nil:
		return nil, f
	case len(all) == 1:
		*s = all[0]
		return nil, nil
	}
	b := a.batch(rewrite.UnloggedBatch) // as Cassandra carries it out
	b.children = all
	b.count()
	return b, nil
}

// anew has each statement of the batch name its one key by values.
func (b *lockedBatch) anew() *wire.Failure {
	var all []lockStatement
	for i := range b.children {
		if b.children[i].plain != nil {
			all = append(all, b.children[i])
			continue
		}
		ones, f := b.children[i].each()
		if f != nil {
			return f
		}
		all = append(all, ones...)
	}
	if b.children = all; len(all) > math.MaxUint16 {
		return wire.Invalid("MUSIC_REFUSED: one batch has %d statements at most, one for each key that IN names", math.MaxUint16)
	}
	b.count()
	return nil
}

// count has the message say how many statements it has.
func (b *lockedBatch) count() {
	b.before = binary.BigEndian.AppendUint16(slices.Clone(b.before[:1]), uint16(len(b.children)))
}

// nothing answers a write that names no key, as IN of an empty list: Cassandra does nothing.
func (b *lockedBatch) nothing() *wire.Failure {
	c := b.conn
	c.server.Stats.Count(c.id, b.header.OpCode, traffic.Answered)
	c.post(c.message(b.header.Stream, &message.VoidResult{}))
	return nil
}

// executeSeveral executes a batch's text over several tables, of writes without a lock: as the BATCH message
// that says the same.
func (c *conn) executeSeveral(e wire.Envelope, a lockExecution) error {
	b, f := a.message()
	switch {
	case f != nil:
	case b.served() && slices.ContainsFunc(b.children, func(s lockStatement) bool { return s.plain == nil }):
		f = b.run(true)
	default:
		f = b.withoutLock(e).run()
	}
	if f != nil {
		return c.answer(e, f)
	}
	return nil
}
