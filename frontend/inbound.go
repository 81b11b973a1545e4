package frontend

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
)

const (
	// blockSize is the size of a pooled read buffer: two hundred small envelopes, and one 8 KB value with room to spare.
	blockSize = 32 << 10
	// largeSize is that of the buffer for what does not fit: it holds any segment of protocol 5, compressed or not.
	largeSize = 144 << 10
)

// blocks lends buffers to sockets that have something to read, so that an idle one holds none.
// The zero value is ready.
type blocks struct{ small, large sync.Pool }

// smallBlock and largeBlock are how a pool takes a buffer without allocating.
type (
	smallBlock [blockSize]byte
	largeBlock [largeSize]byte
)

// borrow lends a buffer of at least size bytes, but none larger than largeSize.
func (p *blocks) borrow(size int) []byte {
	if size <= blockSize {
		if b, ok := p.small.Get().(*smallBlock); ok {
			return b[:]
		}
		return make([]byte, blockSize)
	}
	if b, ok := p.large.Get().(*largeBlock); ok {
		return b[:]
	}
	return make([]byte, largeSize)
}

// giveBack takes a buffer that borrow has lent. Any other is left to the garbage collector.
func (p *blocks) giveBack(b []byte) {
	switch b = b[:cap(b)]; len(b) {
	case blockSize:
		p.small.Put((*smallBlock)(b))
	case largeSize:
		p.large.Put((*largeBlock)(b))
	}
}

// inbound reads one socket into a window of bytes that are looked at where they lie. Not for concurrent use.
type inbound struct {
	conn   net.Conn
	raw    syscall.RawConn // nil where the socket is wrapped (TLS, net.Pipe)
	first  [1]byte         // of a wrapped socket: read while there is no buffer
	blocks *blocks

	buf  []byte // of blocks, unless an envelope was too large for that
	r, w int    // the window is buf[r:w]

	account // of buf, where a message that has begun is waited for

	n        int // result of the last attempt
	err      error
	readable func(fd uintptr) bool // attempt, bound once: a closure for each read would allocate
}

// newInbound makes the reader of a socket. It holds no buffer until the first bytes arrive. What it then holds is taken of its account.
func newInbound(conn net.Conn, blocks *blocks) *inbound {
	in := &inbound{conn: conn, blocks: blocks}
	if sc, ok := conn.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			in.raw = raw
		}
	}
	in.readable = in.attempt
	return in
}

// window is what has been read and not yet consumed. It is valid until the next fill.
func (in *inbound) window() []byte { return in.buf[in.r:in.w] }

// fill blocks until at least one more byte is in the window. want is how many are waited for, more than there are: room for
// them is made as they arrive, never by what a header claims. It returns io.EOF when the peer has closed, or the error of the socket.
func (in *inbound) fill(want int) error {
	if !in.makeRoom(want) {
		return net.ErrClosed
	}
	if in.raw == nil {
		return in.fillWrapped(want)
	}
	in.n, in.err = 0, nil
	if err := in.raw.Read(in.readable); err != nil {
		return err
	}
	if in.err != nil {
		return in.err
	}
	if in.n == 0 {
		return io.EOF
	}
	in.w += in.n
	return nil
}

// fillWrapped reads a socket that cannot be asked whether there is something to read. Where more than one byte is waited for, which is
// so between two messages, it waits for the first of them without a buffer. In the middle of one a single byte would be passed on alone.
func (in *inbound) fillWrapped(want int) error {
	into := in.first[:]
	if want > 1 {
		in.release()
	} else {
		in.hold()
	}
	if in.buf != nil {
		into = in.buf[in.w:]
	}
	if in.w > 0 {
		in.note(len(in.buf))
	}
	n, err := in.conn.Read(into)
	if n == 0 {
		return err
	}
	if in.buf == nil {
		in.hold()
		copy(in.buf, into)
	}
	in.w += n
	return nil
}

// attempt reads without blocking, and lets the buffer go where there is nothing to read yet: the goroutine will wait.
func (in *inbound) attempt(fd uintptr) bool {
	in.hold()
	for {
		n, err := syscall.Read(int(fd), in.buf[in.w:])
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			in.release()
			if in.buf != nil {
				in.note(len(in.buf))
			}
			return false
		}
		in.n, in.err = max(n, 0), err
		return true
	}
}

// makeRoom moves the window to the front, and finds a larger buffer when it is full and still too small, as soon as the budget has room
// for it. It is false where the connection has ended first.
func (in *inbound) makeRoom(want int) bool {
	if in.r == in.w {
		in.r, in.w = 0, 0
		if len(in.buf) > blockSize {
			in.release()
		}
		return true
	}
	if in.r > 0 {
		copy(in.buf, in.buf[in.r:in.w])
		in.r, in.w = 0, in.w-in.r
	}
	if in.w < len(in.buf) {
		return true
	}
	size := largeSize
	if len(in.buf) >= largeSize {
		size = max(min(2*len(in.buf), want), largeSize+1)
	}
	if !in.grow(size) {
		return false
	}
	var grown []byte
	if size == largeSize {
		grown = in.blocks.borrow(largeSize)
	} else {
		grown = make([]byte, size)
	}
	copy(grown, in.buf[:in.w])
	in.blocks.giveBack(in.buf)
	in.buf = grown
	return true
}

func (in *inbound) hold() {
	if in.buf == nil {
		in.buf = in.blocks.borrow(blockSize)
	}
}

// release lets the buffer go if there is nothing in it.
func (in *inbound) release() {
	if in.buf != nil && in.w == 0 {
		in.blocks.giveBack(in.buf)
		in.buf = nil
		in.clear()
	}
}

// close gives the buffer back. The socket is its owner's to close.
func (in *inbound) close() {
	in.r, in.w = 0, 0
	in.release()
}
