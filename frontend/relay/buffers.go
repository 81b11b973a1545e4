package relay

import "sync"

const (
	// smallSize is the size of a pooled read buffer: two hundred small envelopes, and one 8 KB
	// value with room to spare.
	smallSize = 32 << 10
	// largeSize is that of the buffer for what does not fit: it holds any segment of protocol 5,
	// compressed or not.
	largeSize = 144 << 10
)

// Buffers is a pool of read buffers, which sockets take only while they have something to read. The
// zero value is ready.
type Buffers struct{ small, large sync.Pool }

// smallBuffer and largeBuffer are arrays, since a pool takes a pointer without allocating but not a
// slice.
type (
	smallBuffer [smallSize]byte
	largeBuffer [largeSize]byte
)

// borrow returns a buffer of at least size bytes, or of largeSize where size is more than that.
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

// giveBack puts a buffer of borrow back into the pool. Any other is left to the garbage collector.
func (p *Buffers) giveBack(b []byte) {
	switch b = b[:cap(b)]; len(b) {
	case smallSize:
		p.small.Put((*smallBuffer)(b))
	case largeSize:
		p.large.Put((*largeBuffer)(b))
	}
}
