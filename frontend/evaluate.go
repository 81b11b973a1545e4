package frontend

import (
	"math"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/statement"
	"music/frontend/wire"
)

// whenEvaluated has Cassandra evaluate the terms of q, on the client's own connection and the
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
	body := p.AppendTo(longString(slices.Concat([]byte("SELECT "), q.Text, []byte(" FROM system.local"))), c.version)
	asked.emit(ownRequest(h, primitive.OpCodeQuery, body))
	return nil
}

// evaluated puts values in the place of the terms that Ask adds. The statement is no longer
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

// maxQuestion is how long a question about a batch is, in bytes, before no further statement is asked
// about with it.
const maxQuestion = 64 << 10

// ask returns a question about statements of the batch, and how many of its terms are of each; nil if
// there is nothing to ask. The last ones may be left for another question.
func (b *lockedBatch) ask() (q statement.Query, terms []int) {
	for i := range b.children {
		s := &b.children[i]
		if len(q.Text) > maxQuestion || len(q.Values)+len(s.Values) > math.MaxUint16 {
			break
		}
		if n := s.Ask(&q); n > 0 {
			if terms == nil {
				terms = make([]int, len(b.children))
			}
			terms[i] = n
		}
	}
	return q, terms
}

// evaluated puts values in the place of the terms that ask has counted.
func (b *lockedBatch) evaluated(values [][]byte, terms []int) *wire.Failure {
	for i, n := range terms {
		if n == 0 {
			continue
		}
		before := b.children[i].size()
		if f := b.children[i].evaluated(values[:n]); f != nil {
			return f
		}
		if f := b.grows(b.children[i].size() - before); f != nil {
			return f
		}
		values = values[n:]
	}
	return nil
}
