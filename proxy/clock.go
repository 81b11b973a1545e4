package proxy

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"music/musiccore"
)

// maxClockLead is how far epochs may be ahead of the cluster's clock.
const maxClockLead = time.Second

// clock reads the clocks of docs/protocol.md 2.4. Until observe is called it does not know the
// cluster's clock, and Now.Clk is 0. It is safe for concurrent use.
type clock struct {
	known atomic.Bool
	ahead atomic.Int64 // how far the cluster's clock is ahead of this machine's, in ns
}

// now reads all clocks at once.
func (c *clock) now() musiccore.Now { return c.from(time.Now()) }

// from is now for a wall clock that has just been read.
func (c *clock) from(wall time.Time) musiccore.Now {
	n := instant()
	n.Wall = musiccore.Stamp(wall.UnixMicro())
	ahead := time.Duration(c.ahead.Load())
	if c.known.Load() && ahead.Abs() <= musiccore.ClockGap {
		n.Clk = musiccore.Stamp(wall.Add(min(0, ahead+maxClockLead)).UnixMicro())
	}
	return n
}

// observe stores the cluster's clock, which was read between two readings of this machine's.
func (c *clock) observe(before, after, cluster time.Time) {
	c.ahead.Store(int64(cluster.Sub(before.Add(after.Sub(before) / 2))))
	c.known.Store(true)
}

// instant reads the clocks by which leases are measured (docs/protocol.md 6, C12).
func instant() musiccore.Now {
	return musiccore.Now{Boot: boottime(), Raw: monotonic(unix.CLOCK_MONOTONIC_RAW)}
}

// boottime reads CLOCK_BOOTTIME, which goes on while the machine is suspended. Go's monotonic clock
// stops then, and a lease measured by it would last too long.
func boottime() time.Duration { return monotonic(unix.CLOCK_BOOTTIME) }

// monotonic reads a clock of the kernel. CLOCK_MONOTONIC_RAW is the only one that is not slewed: a
// daemon that corrects the others may make them run faster or slower by a tenth for a while.
func monotonic(clock int32) time.Duration {
	var ts unix.Timespec
	// A raw call: it does not block, so Go's scheduler need not be told.
	if _, _, err := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&ts)), 0); err != 0 { //nolint:gosec // G103: as x/sys/unix calls it
		panic(fmt.Sprintf("clock %d: %v", clock, err)) // Linux has had these since 2.6.39
	}
	return time.Duration(ts.Nano())
}
