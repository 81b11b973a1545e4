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
	began atomic.Int64 // what the cluster's clock showed when BOOTTIME was 0, in ns. Nobody sets BOOTTIME, as one may set the wall clock between two observations
}

// now reads all clocks at once.
func (c *clock) now() musiccore.Now { return c.from(time.Now()) }

// from is now for a wall clock that has just been read.
func (c *clock) from(wall time.Time) musiccore.Now {
	n := instant()
	n.Wall = musiccore.Stamp(wall.UnixMicro())
	ahead := c.ahead(wall, n.Boot)
	if c.known.Load() && ahead.Abs() <= musiccore.ClockGap {
		n.Clk = musiccore.Stamp(wall.Add(min(0, ahead+maxClockLead)).UnixMicro())
	}
	return n
}

// ahead returns how far the cluster's clock is ahead of this machine's, which shows wall at a moment of
// BOOTTIME; 0 before the first observation.
func (c *clock) ahead(wall time.Time, boot time.Duration) time.Duration {
	if !c.known.Load() {
		return 0
	}
	return time.Unix(0, c.began.Load()).Add(boot).Sub(wall)
}

// when returns the moment of BOOTTIME at which the cluster's clock showed a time in microseconds; ok is false before the
// first observation.
func (c *clock) when(written int64) (boot time.Duration, ok bool) {
	return time.Duration(written)*time.Microsecond - time.Duration(c.began.Load()), c.known.Load()
}

// observe stores the cluster's clock, which was read within the time before now.
func (c *clock) observe(within time.Duration, cluster time.Time) {
	c.began.Store(cluster.UnixNano() - int64(boottime()-within/2))
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
