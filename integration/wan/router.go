package wan

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// router moves packets between devices: that of site k is the k-th, and the machine's own is the first.
type router struct {
	devices []*tun
	links   map[[2]int]*link
}

// newRouter returns a router without devices.
func newRouter(o Options) *router {
	r := &router{links: map[[2]int]*link{}}
	for from := 1; from <= o.Sites; from++ {
		for to := 1; to <= o.Sites; to++ {
			r.links[[2]int{from, to}] = &link{to: to, wake: make(chan struct{}, 1), done: make(chan struct{})}
		}
	}
	for _, l := range o.RTT {
		for _, pair := range [][2]int{{l.A, l.B}, {l.B, l.A}} {
			r.links[pair].delay = max(0, int64(l.RTT/2-o.Off))
		}
	}
	return r
}

func (r *router) link(from, to int) *link { return r.links[[2]int{from, to}] }

// start routes in goroutines that are counted in running.
func (r *router) start(running *sync.WaitGroup) {
	for _, l := range r.links {
		running.Go(func() { l.deliver(r.devices[l.to]) })
	}
	for from := range r.devices {
		running.Go(func() { r.read(from) })
	}
}

// close ends the goroutines.
func (r *router) close() {
	past := time.Unix(1, 0)
	for _, t := range r.devices {
		_ = t.file.SetReadDeadline(past)
	}
	for _, l := range r.links {
		close(l.done)
	}
}

func (r *router) closeDevices() {
	for _, t := range r.devices {
		_ = t.file.Close()
	}
	r.devices = nil
}

// read takes packets from a device until it is closed.
func (r *router) read(from int) {
	precise()
	buffer := make([]byte, maxPacket)
	for {
		n, err := r.devices[from].file.Read(buffer)
		if err != nil {
			return
		}
		r.route(from, buffer[:n])
	}
}

// route sends a packet to its link; the machine itself has no delay to any site.
func (r *router) route(from int, packet []byte) {
	const destination = vnetHeader + 16
	if len(packet) < vnetHeader+20 || packet[vnetHeader]>>4 != 4 {
		return
	}
	to, ours := site([4]byte(packet[destination : destination+4]))
	switch {
	case !ours || to == from || to >= len(r.devices):
	case from == 0 || to == 0:
		_, _ = r.devices[to].file.Write(packet) // what does not arrive is lost, as on any network
	default:
		r.link(from, to).push(append([]byte(nil), packet...))
	}
}

// link is one direction between two sites: packets leave a fixed time after they arrived, in order.
type link struct {
	to    int
	delay int64        // nanoseconds
	loss  atomic.Int64 // packets of a million
	lost  atomic.Int64 // packets, to a cut or by loss
	cut   atomic.Bool

	mu    sync.Mutex
	queue []held
	wake  chan struct{}
	done  chan struct{}
}

// held is a packet with the time at which it leaves.
type held struct {
	packet []byte
	due    int64
}

// maxHeld bounds the packets in flight; further ones are dropped.
const maxHeld = 1 << 14

// push adds a packet.
func (l *link) push(packet []byte) {
	if l.cut.Load() || rand.Int64N(1e6) < l.loss.Load() { //nolint:gosec // G404: chance, not secrets
		l.lost.Add(1)
		return
	}
	l.mu.Lock()
	if len(l.queue) < maxHeld {
		l.queue = append(l.queue, held{packet, monotonic() + l.delay})
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pop removes the next packet.
func (l *link) pop() []held {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.queue
	l.queue = nil
	return queue
}

// deliver writes packets when they are due. It sleeps in the kernel on a thread of its own, since
// Go's timers are precise to a millisecond only.
func (l *link) deliver(to *tun) {
	precise()
	for {
		for _, h := range l.pop() {
			wait := unix.NsecToTimespec(h.due)
			for monotonic() < h.due {
				_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &wait, nil) // interrupted: again
			}
			if l.cut.Load() {
				l.lost.Add(1)
				continue
			}
			_, _ = to.file.Write(h.packet) // what does not arrive is lost
		}
		select {
		case <-l.wake:
		case <-l.done:
			return
		}
	}
}

// precise locks the goroutine to a thread of its own whose sleeps end on time, with priority over
// ordinary programs if that is allowed.
func precise() {
	runtime.LockOSThread() // for good: the thread ends with the goroutine
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 5}, 0)
}
