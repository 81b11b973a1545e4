// Package child runs the servers of the evaluation as children of this process.
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

// Process is a child. It dies with this process, however that ends, and the terminal's Ctrl-C does
// not reach it.
type Process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
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

// live starts the child and stays until it is gone, on one thread: the kernel counts the end of the
// thread that forked as the death of the parent.
func (p *Process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // how it ended stays in ProcessState
	close(p.gone)
}

// Signal sends a signal, SIGSTOP and SIGCONT among others.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the child at once, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.gone
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
