package cassandra

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a child of ours, from its start until it is reaped.
type process struct {
	cmd    *exec.Cmd
	reaped chan struct{} // closed once cmd.Wait has returned; cmd.ProcessState is set then
}

// spawn starts cmd as a child that dies with this process, even if that is killed, and that a Ctrl-C at the terminal
// does not reach: whoever owns the node may still need it to end in good order.
func spawn(cmd *exec.Cmd) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, reaped: make(chan struct{})}
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// live starts the child and stays until it is gone, on one thread: the kernel sends the parent-death signal when the
// THREAD that forked ends, and Go ends threads as it likes. Locked here, this one lives as long as the child.
func (p *process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // how it ended stays in ProcessState
	close(p.reaped)
}

// alive tells whether the child still has to be reaped.
func (p *process) alive() bool {
	select {
	case <-p.reaped:
		return false
	default:
		return true
	}
}

// signal sends sig. A child that is gone gives an error wrapping ErrNotRunning, and no stranger with its pid is hit.
func (p *process) signal(sig os.Signal) error {
	err := p.cmd.Process.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return ErrNotRunning
	}
	if err != nil {
		return fmt.Errorf("send %v to %d: %w", sig, p.cmd.Process.Pid, err)
	}
	return nil
}

// kill ends the child at once and returns when it is reaped.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	<-p.reaped
	return nil
}

// pause stops all threads of the child and returns when they have stopped.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		// Without WNOWAIT this would take the news away from others; without WEXITED it cannot reap in place of cmd.Wait.
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait until %d has stopped: %w", p.cmd.Process.Pid, errors.Join(ErrNotRunning, err))
		}
		return nil
	}
}
