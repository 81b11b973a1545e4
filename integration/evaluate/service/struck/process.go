package struck

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"music/integration/evaluate/service"
)

// process is one of a service: a child that is started again, under another number, after it was killed.
type process struct {
	name  string
	words []string // program and flags, but for the number
	env   []string
	relay *relay

	cmd  *exec.Cmd
	id   int
	gone chan struct{} // closed when it has ended, and all that it said was heard
	end  error
	said strings.Builder // its standard error
}

// start starts it. Each line that it writes goes to hear, one after another.
func (p *process) start(id int, hear func(service.Line)) error {
	p.id, p.gone, p.said = id, make(chan struct{}), strings.Builder{}
	p.cmd = exec.Command(p.words[0], append(p.words[1:], "-id", fmt.Sprint(id))...) //nolint:gosec,noctx // our own words; it ends by kill or finish
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stderr = &p.said
	// With its parent's death it ends, too, however that comes.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	started := make(chan error)
	go p.live(started, out, hear)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", p.name, err)
	}
	return nil
}

// live starts the process and stays until it has ended, on one thread: the kernel takes the end of that for the parent's death.
func (p *process) live(started chan<- error, out io.Reader, hear func(service.Line)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	defer close(p.gone)
	for d := json.NewDecoder(out); ; {
		var l service.Line
		if err := d.Decode(&l); err != nil {
			break // it has ended; a line that is torn tells nothing
		}
		hear(l)
	}
	p.end = p.cmd.Wait()
}

// signal sends a signal.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

// kill ends it at once.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.gone
}

// finish has it end in order, and returns why it did not.
func (p *process) finish() error {
	p.signal(syscall.SIGTERM)
	<-p.gone
	if p.end != nil {
		return errors.Join(fmt.Errorf("%s: %w", p.name, p.end), errors.New(p.said.String()))
	}
	return nil
}
