package proxy

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"music/musiccore"
)

// maxClockLead is how far base timestamps may run ahead of the cluster's clock.
const maxClockLead = time.Second

// clock reads the clocks of docs/protocol.md 2.4. The zero value knows nothing of the cluster's
// clock and gives no clk.
type clock struct {
	known atomic.Bool
	ahead atomic.Int64 // how far the cluster's clock is ahead of ours, ns
}

// now reads all clocks at once.
func (c *clock) now() musiccore.Now { return c.from(time.Now()) }

// from reads all clocks but the wall clock, which has just shown wall.
func (c *clock) from(wall time.Time) musiccore.Now {
	n := instant()
	n.Wall = musiccore.Stamp(wall.UnixMicro())
	ahead := time.Duration(c.ahead.Load())
	if c.known.Load() && ahead.Abs() <= musiccore.ClockGap {
		n.Clk = musiccore.Stamp(wall.Add(min(0, ahead+maxClockLead)).UnixMicro())
	}
	return n
}

// observe notes the cluster's clock as it stood somewhere between two readings of ours.
func (c *clock) observe(before, after, cluster time.Time) {
	c.ahead.Store(int64(cluster.Sub(before.Add(after.Sub(before) / 2))))
	c.known.Store(true)
}

// instant reads the clocks by which leases are judged (docs/protocol.md 6, C12).
func instant() musiccore.Now {
	return musiccore.Now{Boot: boottime(), Raw: monotonic(unix.CLOCK_MONOTONIC_RAW)}
}

// boottime reads CLOCK_BOOTTIME, which goes on while the machine is suspended: Go's own monotonic
// clock stops, and a lease judged by it would outlive itself.
func boottime() time.Duration { return monotonic(unix.CLOCK_BOOTTIME) }

// monotonic reads a clock. CLOCK_MONOTONIC_RAW is the one that nobody slews: all others may run
// faster or slower by a tenth, for as long as a daemon takes to correct them.
func monotonic(clock int32) time.Duration {
	var ts unix.Timespec
	// A raw call: it does not block, so Go's scheduler need not hear of it.
	if _, _, err := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&ts)), 0); err != 0 { //nolint:gosec // G103: as x/sys/unix calls it
		panic(fmt.Sprintf("clock %d: %v", clock, err)) // Linux has had these since 2.6.39
	}
	return time.Duration(ts.Nano())
}
