package relay

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// Inbound reads one socket into a buffer in which the bytes are looked at where they lie. It
// belongs to one goroutine.
type Inbound struct {
	conn    net.Conn
	raw     syscall.RawConn // nil where the socket is wrapped (TLS, net.Pipe)
	first   [1]byte         // of a wrapped socket: read while there is no buffer
	buffers *Buffers

	buf  []byte // of buffers, unless an envelope was too large for that
	r, w int    // the window is buf[r:w]

	account Account // of buf, while the rest of a message is waited for

	n        int // result of the last attempt
	err      error
	readable func(fd uintptr) bool // attempt, bound once: a closure for each read would allocate
}

// NewInbound returns the reader of a socket. It holds no buffer until the first bytes arrive; what
// it holds then is taken of the account.
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

// Window returns what has been read and not yet consumed. It is valid until the next Fill.
func (in *Inbound) Window() []byte { return in.buf[in.r:in.w] }

// Fill blocks until at least one more byte is in the window. want is how many bytes are needed in
// all, more than there are: room for them is made as they arrive, never by what a header claims. It
// returns io.EOF when the peer has closed, or the error of the socket.
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
	return nil
}

// fillWrapped reads a socket that cannot be asked whether there is something to read. Where more
// than one byte is waited for, which is so between two messages, it waits for the first of them
// without a buffer. In the middle of one a single byte would be passed on alone.
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

// attempt reads without blocking, and lets the buffer go where there is nothing to read yet: the
// goroutine will wait.
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

// makeRoom moves the window to the front, and finds a larger buffer when it is full and still too
// small, as soon as the budget has room for it. It returns false where the connection has ended
// first.
func (in *Inbound) makeRoom(want int) bool {
	if in.r == in.w {
		in.r, in.w = 0, 0
		if len(in.buf) > smallSize {
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

// hold takes a buffer if there is none.
func (in *Inbound) hold() {
	if in.buf == nil {
		in.buf = in.buffers.borrow(smallSize)
	}
}

// release gives the buffer back if there is nothing in it.
func (in *Inbound) release() {
	if in.buf != nil && in.w == 0 {
		in.buffers.giveBack(in.buf)
		in.buf = nil
		in.account.clear()
	}
}

// close gives the buffer back. The socket is its owner's to close.
func (in *Inbound) close() {
	in.r, in.w = 0, 0
	in.release()
}
