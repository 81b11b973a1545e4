package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// role is a server that this program can be in place of the benchmark. It serves at a listener
// until that is closed, when ctx ends; to is the server behind it.
type role func(ctx context.Context, l net.Listener, to string) error

// overTLS after the name of a role means the same role for clients with TLS.
const overTLS = "+TLS"

// roles returns all roles by name.
func roles() map[string]role {
	plain := map[string]role{
		"mock":    func(_ context.Context, l net.Listener, _ string) error { return new(mock).serve(l) },
		"relay":   func(_ context.Context, l net.Listener, to string) error { return (&relay{to: to}).serve(l) },
		"proxy":   serveProxy,
		"music":   serveMusic,
		"witness": witness,
	}
	all := maps.Clone(plain)
	for name, serve := range plain {
		all[name+overTLS] = func(ctx context.Context, l net.Listener, to string) error {
			secure, err := secured(l)
			if err != nil {
				return err
			}
			return serve(ctx, secure, to)
		}
	}
	return all
}

// beRole serves in a role on a free port of loopback, whose address it prints, until its input
// ends, which happens when its parent ends. It answers each line of input with a line.
func beRole(name, to string) error {
	raiseLimits()
	address := "127.0.0.1:0"
	if name == "mock" {
		address = to // there is nothing behind it
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() { _ = l.Close() })
	fmt.Println(l.Addr())
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Print(answer(lines.Text()))
		}
		end()
		time.Sleep(endLimit)
		os.Exit(1)
	}()
	if err := roles()[name](ctx, l, to); ctx.Err() == nil {
		return err
	}
	return nil // told to end
}

// The questions that a role answers.
const (
	askPauses  = "pauses"  // those of the garbage collector so far: the longest in microseconds, how many were long, how many there were
	askCollect = "collect" // garbage, now: when that began and ended
	askFree    = "free"    // give memory back that is not in use, now and not in some minutes; answered when it is done
)

// answer returns the answer to a question.
func answer(question string) string {
	switch question {
	case askPauses:
		p := pausesSoFar()
		return fmt.Sprintln(p.longest.Microseconds(), p.long, p.all)
	case askCollect:
		return collected()
	case askFree:
		debug.FreeOSMemory()
	}
	return "\n"
}

// endLimit is how long a role may take to end in good order.
const endLimit = 5 * time.Second

// pauses are the times for which the garbage collector has stopped the world.
type pauses struct {
	longest   time.Duration // its upper bound
	long, all int           // how many were longer than longPause, and how many there were
}

// longPause is a pause that a client could notice.
const longPause = time.Millisecond

// pausesSoFar returns the pauses of this process.
func pausesSoFar() (p pauses) {
	read := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}}
	metrics.Read(read)
	h := read[0].Value.Float64Histogram()
	for i, count := range h.Counts {
		if count == 0 {
			continue
		}
		p.all += int(count) //nolint:gosec // G115: nobody waits for so many
		p.longest = time.Duration(min(h.Buckets[i+1], h.Buckets[i]*2) * float64(time.Second))
		if p.longest > longPause {
			p.long += int(count) //nolint:gosec // G115: likewise
		}
	}
	return p
}

// raiseLimits allows as many open files as possible, and returns how many: a proxy needs two for
// each client.
func raiseLimits() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	const enough = 1 << 17
	if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: enough, Max: max(limit.Max, enough)}) == nil {
		return enough
	}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit.Max, Max: limit.Max}) // as it is, then
	return int(limit.Max)                                                                //nolint:gosec // G115: nobody has so many
}

// child is a process of this program in one of its roles.
type child struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	stdout  *bufio.Reader
	address string
}

// traced has a child write its garbage collector's trace to a file.
func traced(to *os.File) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Env, cmd.Stderr = append(os.Environ(), "GODEBUG=gctrace=1"), to }
}

// startChild starts a child, perhaps with changes of its command.
func startChild(role, to string, change ...func(*exec.Cmd)) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "role", role, to) //nolint:gosec,noctx // ourselves; it ends with us
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, c := range change {
		c(cmd)
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: in, stdout: bufio.NewReader(out)}
	address, err := c.stdout.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s does not start: %w", role, err)
	}
	c.address = strings.TrimSpace(address)
	return c, nil
}

// stop ends the process.
func (c *child) stop() {
	_ = c.stdin.Close()
	_ = c.cmd.Wait() // however it ends
}

// ask returns the answer to a question.
func (c *child) ask(question string) (string, error) {
	if _, err := fmt.Fprintln(c.stdin, question); err != nil {
		return "", err
	}
	return c.stdout.ReadString('\n')
}

// pauses asks for the pauses of the garbage collector.
func (c *child) pauses() (p pauses, err error) {
	text, err := c.ask(askPauses)
	if err != nil {
		return p, err
	}
	var us int64
	_, err = fmt.Sscan(text, &us, &p.long, &p.all)
	p.longest = time.Duration(us) * time.Microsecond
	return p, err
}

// target returns the child as a target.
func (c *child) target(name string) target {
	return target{name: name, address: c.address, cpu: c.cpu}
}

// cpu returns the processor time that the process has used.
func (c *child) cpu() time.Duration { return cpuOf(c.cmd.Process.Pid) }

// cpuOf reads the processor-time clock of a process, whose number is the kernel's
// (MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED).
func cpuOf(pid int) time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|2), &ts) != nil { //nolint:gosec // G115: process ids are small
		return 0
	}
	return time.Duration(ts.Nano())
}

// resident returns the memory of the process in bytes, after it has returned what it does not use.
func (c *child) resident() int64 {
	_, _ = c.ask(askFree) // an error: it has ended, and has none
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", c.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	var size, pages int64
	_, _ = fmt.Sscan(string(text), &size, &pages)
	return pages * int64(os.Getpagesize())
}
