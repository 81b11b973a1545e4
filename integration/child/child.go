// Package child runs programs as children of this process.
package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a child. It dies with this process, even if that is killed, and a Ctrl-C at the terminal
// does not reach it: its parent ends it in good order.
type Process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
	err  error         // of its end
}

// Start starts a command. What else is in its SysProcAttr stays.
func Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
	p := &Process{cmd: cmd, gone: make(chan struct{})}
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// live starts the child and stays until it is gone, on one thread: the kernel sends the parent-death
// signal when the thread that forked ends, and Go ends threads as it likes.
func (p *Process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.gone)
}

// Pid returns the number of the process, which may have ended.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal, SIGSTOP and SIGCONT among others. Of a child that has ended it returns
// os.ErrProcessDone, and no other process with its number is hit.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the child at once, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
}

// Gone returns a channel that is closed when the child has ended and was reaped.
func (p *Process) Gone() <-chan struct{} { return p.gone }

// Wait returns when the child has ended, with nil where it ended well.
func (p *Process) Wait() error {
	<-p.gone
	return p.err
}

// errEnded says that a child did not become ready.
var errEnded = errors.New("the process has ended")

// Ready calls ready until it returns no error, and gives up when the child or ctx ends.
func (p *Process) Ready(ctx context.Context, ready func(context.Context) error) error {
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.gone:
			return errors.Join(errEnded, err)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
