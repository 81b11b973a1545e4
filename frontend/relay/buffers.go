package relay

import "sync"

const (
	// smallSize is the size of a pooled read buffer: two hundred small envelopes, and one 8 KB
	// value with room to spare.
	smallSize = 32 << 10
	// largeSize is the size of a pooled buffer for messages that do not fit into a small one: it
	// holds any segment of protocol 5, compressed or not.
	largeSize = 144 << 10
)

// Buffers is a pool of read buffers. A socket has one only while there is something to read. The
// zero value is ready for use, by any goroutine.
type Buffers struct{ small, large sync.Pool }

// smallBuffer and largeBuffer are arrays because a pointer to an array can be put into a sync.Pool
// without an allocation, and a slice cannot.
type (
	smallBuffer [smallSize]byte
	largeBuffer [largeSize]byte
)

// borrow returns a buffer of at least size bytes, but never more than largeSize.
func (p *Buffers) borrow(size int) []byte {
	if size <= smallSize {
		if b, ok := p.small.Get().(*smallBuffer); ok {
			return b[:]
		}
		return make([]byte, smallSize)
	}
	if b, ok := p.large.Get().(*largeBuffer); ok {
		return b[:]
	}
	return make([]byte, largeSize)
}

// giveBack returns a buffer to the pool. One that did not come from borrow is left to the garbage
// collector.
func (p *Buffers) giveBack(b []byte) {
	switch b = b[:cap(b)]; len(b) {
	case smallSize:
		p.small.Put((*smallBuffer)(b))
	case largeSize:
		p.large.Put((*largeBuffer)(b))
	}
}
