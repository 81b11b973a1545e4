package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"music/client"
)

// Exit statuses of `music lock` besides those of its command.
const (
	statusNotAcquired = 75               // EX_TEMPFAIL: the lock was not acquired, or not to the end
	statusNoRun       = 126              // the command cannot be run
	statusNoCommand   = 127              // there is no such command
	statusBySignal    = 128              // and the number of the signal that ended the command
	releaseTime       = 10 * time.Second // to give the lock back; at most what is left of the lease, after which it is free anyway
	shortestLease     = time.Second
	lockRefVariable   = "LOCK_REF"
	lockTableVariable = "LOCK_TABLE"
)

// Why no lock is requested.
var (
	errNoCommand  = errors.New("the command is missing: music lock NAME -- COMMAND, or music lock TABLE KEY... -- COMMAND")
	errShortLease = errors.New("--lease is shorter than 1s: it could not be renewed in time")
	errWaitBelow  = errors.New("--wait is below 0")
)

// ended is the end of a command with its exit status; everything about it has been printed.
type ended int

// Error implements error; it is not printed.
func (e ended) Error() string { return "status " + strconv.Itoa(int(e)) }

// lockRun is one call of `music lock`.
type lockRun struct {
	program
	login  login
	asking client.Asking
	key    []string
	path   string // of the command
	args   []string
}

func (p program) lockCommand() *cobra.Command {
	r := &lockRun{program: p}
	command := &cobra.Command{
		Use: "lock [flags] NAME -- COMMAND... | lock [flags] TABLE KEY... -- COMMAND...", Short: "Run a command while holding a lock",
		Long: "Run a command while holding a lock: that of a name, or of a key of a critical table. KEY is the value of the partition key, or\n" +
			"column=value for each column of the key. The command finds the reference in LOCK_REF, for statements USING LOCK, and the table\n" +
			"in LOCK_TABLE.\n\n" +
			"The lease is renewed while the command runs. Where it cannot be, the command's process group gets SIGTERM when a fifth of the\n" +
			"lease is left, and SIGKILL before its end. The lock is released whenever the command ends.\n\n" +
			"Ends with the status of the command (128 and the signal that ended it), or with 75 where the lock was not acquired, or was lost before\n" +
			"the end of a command that itself ended with 0.",
		Example: "  music lock nightly-report --wait 0s -- ./report.sh\n" +
			"  music lock bank.accounts branch=zurich --lease 20s -- sh -c 'cqlsh -e \"UPDATE bank.accounts USING LOCK $LOCK_REF SET …\"'",
		DisableFlagsInUseLine: true, // behind the command they would be its own
	}
	r.login.flags(command.Flags())
	command.Flags().DurationVar(&r.asking.Wait, "wait", 0, "how long to wait for the lock; 0s: not at all; without it: for as long as it takes")
	command.Flags().DurationVar(&r.asking.Lease, "lease", 0, "silence after which the lock is lost, at most the table's; without it: the table's")
	command.Flags().StringVar(&r.asking.As, "as", "", "who holds it, for people; without it: host and process")
	command.RunE = func(_ *cobra.Command, args []string) error {
		r.asking.Forever = !command.Flags().Changed("wait")
		return r.read(args, command.ArgsLenAtDash())
	}
	return command
}

// read parses the arguments, of which n are before --, and runs.
func (r *lockRun) read(args []string, before int) error {
	switch {
	case before < 1 || before == len(args):
		return errNoCommand
	case r.asking.Lease != 0 && r.asking.Lease < shortestLease:
		return errShortLease
	case r.asking.Wait < 0:
		return errWaitBelow
	}
	r.key, r.args = args[:before], args[before:]
	if r.asking.As == "" {
		host, _ := os.Hostname()
		r.asking.As = fmt.Sprintf("music lock at %s, process %d", host, os.Getpid())
	}
	var err error
	if r.path, err = exec.LookPath(r.args[0]); err != nil {
		r.say(err.Error())
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return ended(statusNoCommand)
		}
		return ended(statusNoRun)
	}
	return r.run()
}

// say writes a message for people to read.
func (r *lockRun) say(text string) {
	_, _ = fmt.Fprintf(r.stderr, "music lock: %s\n", strings.ReplaceAll(text, "\n", "; "))
}

// run acquires the lock, runs the command, and releases the lock.
func (r *lockRun) run() error {
	signals, stop := r.signals()
	defer stop()
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE) // nobody listens any more: no reason to leave a command without its lock; not ignored, which it would inherit
	defer signal.Stop(broken)
	session, held, err := r.acquire(signals)
	if session != nil {
		defer session.Close()
	}
	if err != nil {
		var usage *usageError
		if errors.As(err, &usage) {
			return usage.error
		}
		r.say(err.Error())
		return ended(statusNotAcquired)
	}
	for _, warning := range held.Grant.Warnings {
		if !strings.Contains(warning, "WAIT") { // which is not what was asked for here
			r.say("warning: " + printable(warning))
		}
	}
	if held.Grant.OwnerDied {
		r.say("the holder before did not release the lock: its work may be half done")
	}
	status, lost := r.under(held, signals)
	if lost == nil {
		ctx, cancel := context.WithTimeout(context.Background(), max(shortestLease, min(releaseTime, held.End-client.Boottime())))
		defer cancel()
		lost = held.Release(ctx)
	}
	switch {
	case errors.Is(lost, client.ErrLost):
		r.say(lost.Error())
	case lost != nil:
		r.say("the lock could not be released, and ends with its lease: " + lost.Error())
	}
	if errors.Is(lost, client.ErrLost) && status == 0 {
		status = statusNotAcquired
	}
	return ended(status)
}

// signals returns the signals that are passed on to the command, until stop is called: not one that
// this program was started to ignore, as by nohup.
func (r *lockRun) signals() (passedOn <-chan os.Signal, stop func()) {
	signals := make(chan os.Signal, 8)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	return signals, func() { signal.Stop(signals) }
}

// usageError is an error in the arguments, for which there is an exit status.
type usageError struct{ error }

// acquire waits for the lock; a signal ends the wait.
func (r *lockRun) acquire(signals <-chan os.Signal) (*client.Session, *client.Held, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	var listening sync.WaitGroup
	listening.Go(func() {
		select {
		case sig := <-signals:
			cancel(fmt.Errorf("signal %v", sig))
		case <-ctx.Done():
		}
	})
	s, held, err := r.ask(ctx)
	cancel(nil)
	listening.Wait()
	if why := context.Cause(ctx); held != nil && !errors.Is(why, context.Canceled) { // a signal, just when the lock was given
		limited, over := context.WithTimeout(context.Background(), releaseTime)
		defer over()
		return s, nil, errors.Join(why, held.Release(limited))
	}
	return s, held, err
}

// ask connects to a proxy and requests the lock.
func (r *lockRun) ask(ctx context.Context) (*client.Session, *client.Held, error) {
	o, err := r.login.options()
	if err != nil {
		return nil, nil, &usageError{err}
	}
	s, err := client.Open(ctx, o)
	if err != nil {
		return s, nil, err
	}
	k, err := keyWords(ctx, s, r.key)
	switch {
	case errors.As(err, new(failed)):
		return s, nil, err
	case err != nil:
		return s, nil, &usageError{err}
	}
	if err := s.Discover(ctx); err != nil {
		return s, nil, err
	}
	told := false
	r.asking.Waiting = func(g client.Grant) {
		if !told && terminal(r.stderr) {
			r.say("waits: held by " + printable(g.Holder))
			told = true
		}
	}
	held, err := s.Acquire(ctx, k, r.asking)
	return s, held, err
}

// under runs the command under a lock that is held. The error is why the lock was lost before the
// command's end, if it was.
func (r *lockRun) under(held *client.Held, signals <-chan os.Signal) (status int, lost error) {
	// The kernel kills the command when the thread ends that has started it: so it must end with
	// this process and not before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	front := inFront()
	if front {
		signal.Ignore(syscall.SIGTTOU) // the terminal is given to the command, and taken back
		defer takeBack()
	}
	command := r.command(held, front)
	if err := command.Start(); err != nil {
		r.say(err.Error())
		return statusNoRun, nil
	}
	group := -command.Process.Pid
	ctx, over := context.WithCancel(context.Background())
	ending := false
	keeper := &client.Keeper{
		Lease: held.Lease, End: held.End, Clock: client.Boottime, Renew: held.Renew,
		Terminate: func(why error) {
			ending = true
			r.say("the command is ended: " + why.Error())
			tell(group, syscall.SIGTERM)
		},
		Kill: func() { _ = syscall.Kill(group, syscall.SIGKILL) },
	}
	var beside sync.WaitGroup
	beside.Go(func() { lost = keeper.Keep(ctx) })
	beside.Go(func() { passOn(ctx, signals, group) })
	for awaitChange(command.Process.Pid, front) {
		r.say("the command goes on: stopped, it would keep the lock, and nothing would resume it")
		_ = syscall.Kill(group, syscall.SIGCONT)
	}
	over()
	beside.Wait()
	if ending {
		_ = syscall.Kill(group, syscall.SIGKILL) // its number is nobody else's before Wait
	}
	_ = command.Wait() // its status is what is told
	return statusOf(command.ProcessState), lost
}

// command returns the command, in a process group of its own; front = it gets the terminal.
func (r *lockRun) command(held *client.Held, front bool) *exec.Cmd {
	command := exec.Command(r.path, r.args[1:]...) //nolint:gosec,noctx // what the user has typed; it ends with its lock, not with a context
	command.Args[0] = r.args[0]
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, r.stdout, r.stderr
	command.Env = append(os.Environ(), lockRefVariable+"="+strconv.FormatInt(held.Ref, 10), lockTableVariable+"="+held.Table())
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Foreground: front}
	return command
}

// passOn sends signals to a process group until ctx ends.
func passOn(ctx context.Context, signals <-chan os.Signal, group int) {
	for {
		select {
		case sig := <-signals:
			tell(group, sig.(syscall.Signal)) //nolint:forcetypeassert // what Notify was asked for
		case <-ctx.Done():
			return
		}
	}
}

// tell sends a signal to a process group, also to one that stands still.
func tell(group int, sig syscall.Signal) {
	_ = syscall.Kill(group, sig)
	_ = syscall.Kill(group, syscall.SIGCONT)
}

// inFront reports whether this process group reads from the terminal.
func inFront() bool {
	group, err := unix.IoctlGetInt(int(os.Stdin.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// takeBack gives the terminal back to this process group, since a script may continue afterwards.
func takeBack() {
	_ = unix.IoctlSetPointerInt(int(os.Stdin.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
}

// childStopped is CLD_STOPPED of Linux.
const childStopped = 5

// awaitChange waits for the end of a child, without reaping it, or, if it has the terminal (front),
// until it is stopped. Ctrl-Z there stops the child alone.
func awaitChange(pid int, front bool) (stopped bool) {
	changes := unix.WEXITED
	if front {
		changes |= unix.WSTOPPED
	}
	var info unix.Siginfo
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Waitid(unix.P_PID, pid, &info, changes|unix.WNOWAIT, nil)
	}
	if stopped = info.Code == childStopped; stopped {
		_ = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOHANG, nil) // this stop is not reported again
	}
	return stopped
}

// statusOf returns the exit status of a command as a shell does.
func statusOf(state *os.ProcessState) int {
	if wait, ok := state.Sys().(syscall.WaitStatus); ok && wait.Signaled() {
		return statusBySignal + int(wait.Signal())
	}
	return state.ExitCode()
}
