package frontend

import (
	"music/frontend/wire"
)

// countKept adds n to the bytes of requests that wait for the core. When there are too many,
// nothing more is read from the client.
func (c *conn) countKept(n int) {
	c.waitingBytes.Add(int64(n))
	c.server.memory.Give(-n)
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

// memory returns about how many bytes a statement of a batch takes beside the message.
func (s *lockStatement) memory() int {
	n := childMemory + valueMemory*len(s.Values)
	if s.Parsed != nil && s.prepared == nil {
		n += treeMemory + s.Parsed.Memory
	}
	return n
}

// memory returns about how many bytes the statements take beside the message.
func (b *lockedBatch) memory() (n int) {
	for i := range b.children {
		n += b.children[i].memory()
	}
	return n
}

// tooManyParts returns the error for a batch whose statements would take more than maxBatchMemory.
func tooManyParts() *wire.Failure {
	return wire.Invalid("MUSIC_REFUSED: the statements of the batch would take more than %d bytes of the proxy's memory: send several batches, of prepared statements if need be", maxBatchMemory)
}
