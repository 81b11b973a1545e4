package relay

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Inbound reads one socket into a buffer, and gives its reader access to the buffer without a copy.
// It is not safe for concurrent use.
type Inbound struct {
	conn    net.Conn
	raw     syscall.RawConn // nil where the socket is wrapped (TLS, net.Pipe)
	first   [1]byte         // for the first byte of a wrapped socket, which is read without a buffer
	buffers *Buffers

	buf  []byte // from buffers, unless an envelope was too large for those
	r, w int    // the window is buf[r:w]
	full bool   // the last read has filled buf: more is there

	account Account // counts buf while the rest of a message is waited for

	n        int // bytes read by the last attempt
	err      error
	readable func(fd uintptr) bool // attempt, bound once: a closure per read would allocate
}

// NewInbound returns the reader of a socket. It has no buffer until the first bytes arrive; the
// buffer is counted in the account.
func NewInbound(conn net.Conn, buffers *Buffers, account Account) *Inbound {
	in := &Inbound{conn: conn, buffers: buffers, account: account}
	if sc, ok := conn.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			in.raw = raw
		}
	}
	in.readable = in.attempt
	return in
}

// Window returns the bytes that have been read and not yet consumed. They are valid until the next
// Fill.
func (in *Inbound) Window() []byte { return in.buf[in.r:in.w] }

// Fill blocks until at least one more byte is in the window. want is how many bytes the window
// needs in all, and must be more than it has. The buffer grows as bytes arrive, never by what a
// header claims. Fill returns io.EOF when the peer has closed, net.ErrClosed when the account's
// wait for memory was ended, or the error of the socket.
func (in *Inbound) Fill(want int) error {
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
	in.full = in.w == len(in.buf)
	return nil
}

// size returns the size of the buffer for an empty window: a large answer takes fewer reads and
// writes with a large one.
func (in *Inbound) size() int {
	if in.full {
		return largeSize
	}
	return smallSize
}

// fillWrapped reads a socket that offers no way to ask whether there is something to read. Between
// two messages, where want is more than 1, it waits for the first byte without a buffer. Inside a
// message it does not, since that one byte would be forwarded by a write of its own.
func (in *Inbound) fillWrapped(want int) error {
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
		in.account.note(len(in.buf))
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

// attempt reads without blocking. If there is nothing to read it gives the buffer back and returns
// false, upon which the goroutine waits.
func (in *Inbound) attempt(fd uintptr) bool {
	in.hold()
	for {
		n, err := syscall.Read(int(fd), in.buf[in.w:])
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			in.release()
			if in.buf != nil {
				in.account.note(len(in.buf))
			}
			return false
		}
		in.n, in.err = max(n, 0), err
		return true
	}
}

// makeRoom moves the window to the front of the buffer. If the buffer is full it takes a larger
// one, for which it blocks until the budget has room. It returns false if the connection ended
// first.
func (in *Inbound) makeRoom(want int) bool {
	if in.r == in.w {
		in.r, in.w = 0, 0
		if len(in.buf) != in.size() {
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
	if !in.account.grow(size) {
		return false
	}
	var grown []byte
	if size == largeSize {
		grown = in.buffers.borrow(largeSize)
	} else {
		grown = make([]byte, size)
	}
	copy(grown, in.buf[:in.w])
	in.buffers.giveBack(in.buf)
	in.buf = grown
	return true
}

// hold takes a buffer from the pool if there is none.
func (in *Inbound) hold() {
	if in.buf == nil {
		in.buf = in.buffers.borrow(in.size())
	}
}

// release gives the buffer back if it is empty.
func (in *Inbound) release() {
	if in.buf != nil && in.w == 0 {
		in.buffers.giveBack(in.buf)
		in.buf = nil
		in.account.clear()
	}
}

// close gives the buffer back. It does not close the socket.
func (in *Inbound) close() {
	in.r, in.w = 0, 0
	in.release()
}
