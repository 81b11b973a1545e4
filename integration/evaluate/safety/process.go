package safety

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"

	"music/integration/child"
	"music/integration/evaluate/judge"
)

// process is that of a client, in a group with a program that it starts. It dies with this one.
type process struct {
	child *child.Process
	stdin io.WriteCloser
	gone  sync.WaitGroup
	heard chan struct{} // closed when it has said whether it is connected, or can say nothing any more

	absent string // what it has not done to be one of its trial; to be read after end
}

// greeting is the first that a client writes: that it is connected, or why it is not.
type greeting struct{ Refused string }

// start starts client k.
func (t *trial) start(k int, r role) error {
	text, err := json.Marshal(assignment{t.system.Name, r, k, t.key, t.seed, t.fault.ahead[k], t.world.place(1 + (k-1)%sites)})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command("ip", "netns", "exec", t.world.network.Namespace(sites+1+(k-1)%sites), self) //nolint:gosec,noctx // ourselves; it ends by signal
	cmd.Env = append(os.Environ(), assigned+"="+string(text))
	log, err := os.OpenFile(filepath.Join(t.world.dir, "clients.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, log
	p := &process{heard: make(chan struct{})}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if p.child, err = child.Start(cmd); err != nil {
		return err
	}
	p.gone.Go(func() { p.listen(out, &t.history) })
	p.gone.Go(func() {
		<-p.child.Gone()
		_ = in.Close() // it never fails
	})
	t.clients[k] = p
	return nil
}

// listen reads all that a client writes, until it ends, however.
func (p *process) listen(from io.Reader, history *judge.History) {
	p.absent = "had not connected when the trial ended"
	words := json.NewDecoder(from)
	var first greeting
	if words.Decode(&first) == nil {
		p.absent = ""
		if first.Refused != "" {
			p.absent = "could not connect: " + first.Refused
		}
	}
	close(p.heard)
	_ = history.Read(io.MultiReader(words.Buffered(), from))
	_, _ = io.Copy(io.Discard, from) // what is no history must not hold it up
}

// met reports whether all clients that were started have said whether they are connected.
func (t *trial) met() bool {
	for _, p := range t.clients {
		select {
		case <-p.heard:
		default:
			return false
		}
	}
	return true
}

// signal signals the process and what it has started; one that is gone hears nothing.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.child.Pid(), s) }

// tell sends a command.
func (p *process) tell(command string) { _, _ = fmt.Fprintln(p.stdin, command) }

// end kills the process, and returns when all that it wrote was read.
func (p *process) end() {
	p.signal(syscall.SIGKILL)
	p.gone.Wait()
}
