package frontend

import (
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
	"music/rewrite"
)

// countKept adds n to the bytes of requests that wait: for the core, for their turn, or for what
// Cassandra is asked first. When there are too many, nothing more is read from the client.
func (c *conn) countKept(n int) {
	c.waitingBytes.Add(int64(n))
	c.server.memory.Give(-n)
}

// countAnswer is countKept for answers that wait for the core.
func (c *conn) countAnswer(n int) {
	c.keptAnswers.Add(int64(n))
	c.server.answers.Give(-n)
}

// memory returns about how many bytes the watch of a forwarded request keeps of it until the answer
// comes. A node may owe many such answers, and a statement takes many times as many bytes as its text.
func (w *watch) memory() (n int) {
	if w.preparing != nil {
		n = w.preparing.memory() + pairMemory*len(w.preparing.names) + len(w.preparing.body) + textOf(w.preparing.lockClauseError)
	}
	if w.topology != nil {
		n += min(textMemory*w.topology.Size(), w.topology.Size()+rewrite.MaxMemory)
	}
	return n + textOf(w.lockClauseError)
}

// textOf returns the length of an error's text, which quotes the request; 0 for nil.
func textOf(f *wire.Failure) int {
	if f == nil {
		return 0
	}
	return len(f.Text)
}

// maxBatchMemory is how many bytes the statements of a BATCH message on critical tables may take,
// once they are read, beside the message. Each takes many times as many as in the message, and a
// message has room for 65,535.
const maxBatchMemory = 16 << 20

// What a statement of a batch takes beside its text and its values: that of each, of its syntax tree,
// and of each value.
const (
	childMemory = 256
	treeMemory  = 1024
	valueMemory = 24
)

// memory returns about how many bytes a statement of a batch takes beside the message. A rewritten one has a text of
// its own.
func (s *lockStatement) memory() int {
	n := childMemory + valueMemory*len(s.Values)
	if s.Parsed != nil && s.prepared == nil {
		n += treeMemory + s.Parsed.Memory
	}
	if s.Fixed {
		n += len(s.Text)
	}
	return n
}

// size returns how many bytes the statement takes while it waits.
func (s *lockStatement) size() int {
	n := s.memory() + len(s.unlockedChild)
	if s.prepared == nil && !s.Fixed {
		n += len(s.Text)
	}
	for _, v := range s.Values {
		n += len(v)
	}
	return n
}

// size returns how many bytes the execution takes while it waits.
func (a *lockExecution) size() int {
	return a.lock.size() + len(a.parameters.PagingState) + len(a.envelope.Payload)
}

// size returns how many bytes the batch takes while it waits.
func (b *lockedBatch) size() int {
	n := b.parameters.Size() + len(b.header.Payload)
	for i := range b.children {
		n += b.children[i].size()
	}
	return n
}

// grows counts n more bytes that a statement of the batch takes since it was rewritten: a prepared one is a text of
// its own then, with all columns of its table if it is INSERT JSON. It returns an error once those of all
// statements are more than maxBatchMemory.
func (b *lockedBatch) grows(n int) *wire.Failure {
	if b.grown += max(0, n); b.grown > maxBatchMemory {
		return tooManyParts()
	}
	return nil
}

// checkTexts refuses a batch whose prepared statements take more than maxBatchMemory as text, as they are sent with
// stamps of their own, or without their IF, whose conditions are kept besides. In the message each has an id.
func (b *lockedBatch) checkTexts(stamped bool) *wire.Failure {
	n := 0
	for i := range b.children {
		s := &b.children[i]
		if s.prepared == nil {
			continue
		}
		if s.Parsed.Conditional {
			n += treeMemory + s.Parsed.Memory
		}
		if stamped || s.Parsed.Conditional || s.Timed() {
			n += len(s.Text)
		}
		if n > maxBatchMemory {
			return tooManyParts()
		}
	}
	return nil
}

// checkWaits is conn.checkWaits for a batch, unless it has waited for its table, and so has a place.
func (b *lockedBatch) checkWaits() *wire.Failure {
	f := b.conn.checkWaits()
	if f == nil || slices.ContainsFunc(b.children, func(s lockStatement) bool { return !s.until.IsZero() }) {
		return nil
	}
	if b.unlocked() {
		f.Code = primitive.ErrorCodeOverloaded
	}
	return f
}

// tooManyParts returns the error for a batch whose statements would take more than maxBatchMemory.
func tooManyParts() *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: the statements of the batch would take more than %d bytes of the proxy's memory: send several batches, of prepared statements if need be", maxBatchMemory)
}
