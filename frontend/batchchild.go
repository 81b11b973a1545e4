package frontend

import (
	"encoding/binary"
	"slices"

	"music/frontend/wire"
	"music/rewrite"
)

// parts returns the statements of a batch's text, or the statement itself.
func (s *lockStatement) parts() []lockStatement {
	if s.statement.Verb != rewrite.Batch {
		return []lockStatement{*s}
	}
	parts := make([]lockStatement, len(s.statement.Children))
	for i := range parts {
		parts[i] = *s
		parts[i].statement = &s.statement.Children[i]
	}
	return parts
}

// conditional reports whether the statement, or one of a batch's text, has an IF.
func (s *lockStatement) conditional() bool {
	return slices.ContainsFunc(s.parts(), func(part lockStatement) bool { return part.statement.Conditional })
}

// readChild reads the kind and the text or id of a statement.
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
		r, _ := c.read(text, true, own)
		if plain = r.meaning == meaningWrites; !plain && r.meaning != meaningCritical {
			return s, mixedBatch()
		}
		r.execute = true
		if names = [][2]string{r.name.names()}; !plain {
			s, plain, f = readLockStatement(r, text)
		}
	}
	if plain && f == nil {
		return lockStatement{plain: cur.Body[start:cur.At], names: names}, nil
	}
	if f == nil && !s.isWrite() {
		f = wire.Invalid("MUSIC_REFUSED: only INSERT, UPDATE and DELETE stand in a batch: send the others by themselves")
	}
	return s, f
}

// mixedBatch returns the error for a batch of which a part is under a lock.
func mixedBatch() *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: every statement of a batch under a lock carries USING LOCK, on one key of one table: write BEGIN BATCH USING LOCK <ref>, or send the others by themselves")
}

// appendChild appends a statement of a batch in the form that Cassandra reads, without its
// condition.
func (s *lockStatement) appendChild(dst []byte, stamp stamps) []byte {
	if s.plain != nil {
		return appendValues(append(dst, s.plain...), s.values)
	}
	values := s.writeValues()
	if s.prepared != nil && !s.statement.Conditional && !s.timed() && stamp(s) == 0 {
		dst = append(dst, 1)
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(s.prepared.backendID)))
		dst = append(dst, s.prepared.backendID...)
	} else {
		text := s.writeText(stamp)
		dst = append(dst, 0)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(text)))
		dst = append(dst, text...)
	}
	return appendValues(dst, values)
}

// appendValues appends the values of a batch's statement.
func appendValues(dst []byte, values [][]byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(values)))
	for _, v := range values {
		dst = append(dst, v...)
	}
	return dst
}
