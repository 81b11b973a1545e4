package frontend

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/musiccore"
)

// madeStatement is a text that the proxy sends in the place of a client's prepared statement, and
// Cassandra's ids of it.
type madeStatement struct {
	body []byte // of a QUERY, before its parameters
	id   executedID
}

// madeStatements are those of one client's statement. They are found by their text: when the table
// changes so that another text is sent, that has to be prepared first. They are safe for concurrent
// use.
type madeStatements struct {
	prepared atomic.Pointer[[]madeStatement]
}

// maxMade bounds their number. A statement has a read, a write, and perhaps one for a key without
// rows; of a BATCH text with several conditions there is one read for each number of rows.
const maxMade = 4

// all returns those whose id is known. It must not be modified.
func (m *madeStatements) all() []madeStatement {
	if prepared := m.prepared.Load(); prepared != nil {
		return *prepared
	}
	return nil
}

// idOf returns the ids of a text, or the zero value.
func (m *madeStatements) idOf(body []byte) executedID {
	for _, s := range m.all() {
		if bytes.Equal(s.body, body) {
			return s.id
		}
	}
	return executedID{}
}

// add notes the ids of a text. Of two that are added at once one may be lost: it is prepared again.
func (m *madeStatements) add(s madeStatement) {
	others := m.all()
	next := append(slices.Clone(others[max(0, len(others)-maxMade+1):]), s)
	m.prepared.Store(&next)
}

// forget removes the text with an id that Cassandra does not know any more.
func (m *madeStatements) forget(id []byte) {
	next := slices.DeleteFunc(slices.Clone(m.all()), func(s madeStatement) bool { return bytes.Equal(s.id.statement, id) })
	m.prepared.Store(&next)
}

// whenPrepared calls act once Cassandra has prepared the texts of operations, which it is asked for
// one after another if it has not yet. An operation whose text it does
// not prepare stays a QUERY, to which Cassandra may say why.
func (c *conn) whenPrepared(q askedFirst, m *madeStatements, all []*lockedOperation, act func() *wire.Failure) *wire.Failure {
	for i, k := range all {
		if k.executes(m.idOf(k.body)) {
			continue
		}
		h := k.header
		if !c.streams.Begin(h.Stream, true) {
			return inUse(h.Stream)
		}
		c.watch(h.Stream, &watch{kind: watchMade, kept: q.kept, values: func(e wire.Envelope) error {
			result, _, err := c.decodePrepared(e)
			if err != nil {
				return err
			}
			if result != nil {
				k.executes(executedID{result.PreparedQueryId, result.ResultMetadataId})
				m.add(madeStatement{k.body, k.prepared})
			}
			if f := c.whenPrepared(q.again(c), m, all[i+1:], act); f != nil {
				c.reject(h, f)
			}
			return nil
		}})
		q.emit(c.prepareRequest(h, k.body[4:]))
		return nil
	}
	return act()
}

// executes has an operation sent as an EXECUTE of these ids, if there are any.
func (k *lockedOperation) executes(id executedID) bool {
	if id.statement == nil {
		return false
	}
	k.prepared, k.header.OpCode = id, primitive.OpCodeExecute
	return true
}

// sendAsText continues a conditional write of which Cassandra has forgotten what it had prepared:
// with the same operation as text. A write that also makes its key's fence can only be the first
// one, so what follows is the read of a key that has rows. It returns false if the operation was no
// such statement. The forgotten one has done nothing.
func (c *conn) sendAsText(f *sentOperation, forgotten []byte) bool {
	x := f.condition
	i := slices.IndexFunc(x.made, func(k *lockedOperation) bool {
		return len(forgotten) > 0 && bytes.Equal(k.prepared.statement, forgotten)
	})
	if i < 0 {
		return false
	}
	x.first.prepared.made.forget(forgotten)
	x.made[i].prepared, x.made[i].header.OpCode = executedID{}, primitive.OpCodeQuery
	next, kind := x.read, musiccore.Get
	if x.made[i] == &x.write {
		next, kind = x.write, musiccore.Put
	}
	if f := c.sendUnderLock(&next, kind, false); f != nil {
		c.rejectUnsent(&next, f)
	}
	return true
}
