package struck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"music/integration/child"
	"music/integration/evaluate/service"
)

// process is one of a service: a child that is started again, under another number, after it was killed.
type process struct {
	name  string
	words []string // program and flags, but for the number
	env   []string
	relay *relay

	child *child.Process // nil before the first
	id    int
	said  strings.Builder // its standard error
}

// start starts it. Each line that it writes goes to hear, one after another.
func (p *process) start(id int, hear func(service.Line)) error {
	p.id, p.said = id, strings.Builder{}
	cmd := exec.Command(p.words[0], append(p.words[1:], "-id", fmt.Sprint(id))...) //nolint:gosec,noctx // our own words; it ends by kill or finish
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = &lines{hear: hear}, &p.said
	started, err := child.Start(cmd)
	if err != nil {
		return err
	}
	p.child = started
	return nil
}

// lines hands on what a process writes, line by line. A line that is torn at its end is left out.
type lines struct {
	hear func(service.Line)
	rest []byte
}

// Write implements io.Writer.
func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, whole := bytes.Cut(l.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		l.rest = rest
		var said service.Line
		if err := json.Unmarshal(line, &said); err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		l.hear(said)
	}
}

// signal sends a signal, if it has not ended.
func (p *process) signal(s syscall.Signal) { _ = p.child.Signal(s) }

// kill ends it at once, and returns when all that it said was heard.
func (p *process) kill() { p.child.Kill() }

// finish has it end in order, and returns why it did not.
func (p *process) finish() error {
	p.signal(syscall.SIGTERM)
	if err := p.child.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, err, &p.said)
	}
	return nil
}
