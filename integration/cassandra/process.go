package cassandra

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"music/integration/child"
)

// process is a child that may be paused.
type process struct{ *child.Process }

// spawn starts cmd as a child.
func spawn(cmd *exec.Cmd) (*process, error) {
	p, err := child.Start(cmd)
	return &process{p}, err
}

// alive reports whether the child has not been waited for yet.
func (p *process) alive() bool {
	select {
	case <-p.Gone():
		return false
	default:
		return true
	}
}

// signal sends sig. A child that is gone gives an error wrapping ErrNotRunning, and no other process that has its pid now is signalled.
func (p *process) signal(sig os.Signal) error {
	err := p.Signal(sig)
	if errors.Is(err, os.ErrProcessDone) {
		return ErrNotRunning
	}
	if err != nil {
		return fmt.Errorf("send %v to %d: %w", sig, p.Pid(), err)
	}
	return nil
}

// kill ends the child at once and returns when it is reaped.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil && !errors.Is(err, ErrNotRunning) {
		return err
	}
	<-p.Gone()
	return nil
}

// pause stops all threads of the child and returns when they have stopped.
func (p *process) pause() error {
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		// Without WNOWAIT this would take the news away from others; without WEXITED it cannot reap in place of cmd.Wait.
		err := unix.Waitid(unix.P_PID, p.Pid(), nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait until %d has stopped: %w", p.Pid(), errors.Join(ErrNotRunning, err))
		}
		return nil
	}
}
