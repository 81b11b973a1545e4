package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/statement"
	"music/frontend/wire"
)

// whenEvaluated has Cassandra evaluate terms of a write, on the client's own connection and the
// stream of its request, and calls act with their values; nil for null. If Cassandra refuses the
// question, the client gets that error; no lock has been taken then.
func (c *conn) whenEvaluated(asked askedFirst, q statement.Query, act func(values [][]byte) *wire.Failure) *wire.Failure {
	h := asked.header
	if !c.streams.Begin(h.Stream, true) {
		return inUse(h.Stream)
	}
	c.watch(h.Stream, &watch{kind: watchValues, kept: asked.kept, values: func(e wire.Envelope) error {
		decoded, err := c.decode(e)
		if err != nil {
			return err
		}
		rows, ok := decoded.Body.Message.(*message.RowsResult)
		if !ok || len(rows.Data) != 1 {
			c.reject(h, wire.Invalid("MUSIC_REFUSED: Cassandra has not evaluated the functions of this write: nothing was done: give their values as literals, or bind them"))
			return nil
		}
		if f := act(rows.Data[0]); f != nil {
			c.reject(h, f)
		}
		return nil
	}})
	p := wire.Parameters{Consistency: primitive.ConsistencyLevelOne, Values: q.Values}
	if len(q.Values) > 0 {
		p.Flags = primitive.QueryFlagValues
	}
	body := p.AppendTo(queryBody(q.Text), c.version)
	h = wire.Header{Version: h.Version, Stream: h.Stream, OpCode: primitive.OpCodeQuery, Length: uint32(len(body))}
	asked.emit(append(h.AppendTo(make([]byte, 0, wire.HeaderSize+len(body))), body...))
	return nil
}

// evaluated puts values in the place of the terms that Question asks for. The statement is no longer
// the prepared one.
func (s *lockStatement) evaluated(values [][]byte) (f *wire.Failure) {
	s.Statement, f = s.Answered(values)
	s.prepared = nil
	return f
}

// runWith carries out the statement with the values of its terms.
func (a *lockExecution) runWith(values [][]byte) *wire.Failure {
	if f := a.lock.evaluated(values); f != nil {
		return f
	}
	return a.runEvaluated()
}

// question returns the first question of a statement of the batch, and the index of that statement.
func (b *lockedBatch) question() (int, statement.Query) {
	for i := range b.children {
		if s := &b.children[i]; s.unlockedChild == nil {
			if q := s.Question(); len(q.Text) > 0 {
				return i, q
			}
		}
	}
	return 0, statement.Query{}
}
