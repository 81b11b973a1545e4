// Package clients plays one table of stories with the helpers of every language: what a client
// does, which statements that sends, what the proxy answers, and what the client is told. The proxy
// is scripted.
package clients

import (
	"bufio"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"go.yaml.in/yaml/v3"
)

// lineLimit is how long a line of a story may take. No result depends on it.
const lineLimit = 30 * time.Second

// Story is one case of the table.
type Story struct {
	Name   string   `yaml:"name"`
	Why    string   `yaml:"why"`
	Server string   `yaml:"server"` // "cassandra" = no proxy
	Alone  bool     `yaml:"alone"`  // the player is paused: it plays nothing else meanwhile
	Not    []string `yaml:"not"`    // languages that cannot do what it tells
	Lines  []string `yaml:"lines"`
}

// aloneIn reports whether a story needs a player of its own: one that is paused, or one of Python
// that is interrupted, which only its main thread can be.
func (s Story) aloneIn(language string) bool {
	return s.Alone || language == "python" && slices.Contains(s.Lines, "> a cancel")
}

//go:embed stories.yaml
var table []byte

// Stories returns the table.
func Stories() ([]Story, error) {
	var all []Story
	err := yaml.Unmarshal(table, &all)
	return all, err
}

// Player is a program that does what stories tell a client to do.
type Player struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // its output has ended

	mu   sync.Mutex
	told map[string]chan string // lines of each story
}

// Start starts a player.
func Start(cmd *exec.Cmd) (*Player, error) {
	p := &Player{cmd: cmd, done: make(chan struct{}), told: map[string]chan string{}}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			id, line, _ := strings.Cut(lines.Text(), " ")
			p.of(id) <- line
		}
	}()
	return p, nil
}

// of returns the results of a story.
func (p *Player) of(id string) chan string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told[id] == nil {
		p.told[id] = make(chan string, 100)
	}
	return p.told[id]
}

// Tell gives a command: "a hold wait=5000".
func (p *Player) Tell(id, command string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := fmt.Fprintln(p.in, id, command)
	return err
}

// Hear waits for the result of a command.
func (p *Player) Hear(id string) (string, error) {
	select {
	case line := <-p.of(id):
		return line, nil
	case <-p.done:
		return "", errors.New("the player has ended")
	case <-time.After(lineLimit):
		return "", errors.New("the player says nothing")
	}
}

// Close ends the player.
func (p *Player) Close() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.cmd.Wait()
}

// stage is a story that is being played.
type stage struct {
	id       string
	player   *Player
	server   *server
	standing map[string]string // answers to statements that may come again
	heard    []string
	owed     []request // not answered yet
	sent     []request // came before their line
	told     []string  // the same
}

// Play plays a story, and returns how it differed from what the story says.
func Play(p *Player, id string, story Story) error {
	s, err := newServer(story.Server != "cassandra")
	if err != nil {
		return err
	}
	defer s.close()
	g := &stage{id: id, player: p, server: s, standing: map[string]string{}}
	for _, line := range append([]string{"> a open " + s.address() + " bank.accounts", "< a open"}, story.Lines...) {
		if err := g.line(line); err != nil {
			return fmt.Errorf("%s\n%w; so far:\n  %s", line, err, strings.Join(g.heard, "\n  "))
		}
		g.heard = append(g.heard, line)
	}
	return g.over()
}

// over reports statements and results that are not in the story.
func (g *stage) over() error {
	for len(g.server.requests) > 0 {
		g.sent = append(g.sent, <-g.server.requests)
	}
	g.sent = slices.DeleteFunc(g.sent, func(r request) bool { return g.standing[r.text] != "" })
	if len(g.sent)+len(g.told) > 0 {
		return fmt.Errorf("after the end came %q, and the client told %q", texts(g.sent), g.told)
	}
	return nil
}

// line plays one line.
func (g *stage) line(line string) error {
	switch words := strings.Fields(line); words[0] {
	case ">":
		return g.player.Tell(g.id, strings.Join(words[1:], " "))
	case "<":
		return g.hear(strings.Join(words[1:], " "))
	case "down":
		g.server.down()
		return nil
	case "up":
		return g.server.up(g.server.address())
	case "freeze":
		return g.freeze()
	case "thaw":
		return g.thaw(words[1])
	case "answer":
		r := g.owed[0]
		g.owed = g.owed[1:]
		return g.answer(r, strings.Join(words[1:], " "))
	}
	text, answer, found := strings.Cut(line, " => ")
	if !found {
		return errors.New("this line says nothing")
	}
	return g.expect(text, answer)
}

// freeze pauses the player, and returns when all its threads have stopped.
func (g *stage) freeze() error {
	if err := g.player.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(g.player.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		return fmt.Errorf("the player does not stand still: %w", err)
	}
	return nil
}

// thaw resumes the player after a while.
func (g *stage) thaw(after string) error {
	d, err := time.ParseDuration(after)
	if err != nil {
		return err
	}
	time.Sleep(d) // what the story is about
	return g.player.cmd.Process.Signal(syscall.SIGCONT)
}

// hear waits for a result of the client.
func (g *stage) hear(want string) error {
	limit := time.After(lineLimit)
	for {
		if len(g.told) > 0 {
			got := g.told[0]
			g.told = g.told[1:]
			if got != want {
				return fmt.Errorf("the client told %q", got)
			}
			return nil
		}
		if err := g.next(limit, "the client tells nothing"); err != nil {
			return err
		}
	}
}

// expect waits for a statement and answers it. With "*" at the end, the statement may come any
// number of times from then on.
func (g *stage) expect(text, answer string) error {
	if standing, may := strings.CutSuffix(answer, " *"); may {
		g.standing[text] = standing
		return nil
	}
	limit := time.After(lineLimit)
	for {
		for len(g.sent) > 0 {
			r := g.sent[0]
			g.sent = g.sent[1:]
			if r.text == text {
				return g.answer(r, answer)
			}
			if err := g.stand(r, "another statement was due"); err != nil {
				return err
			}
		}
		if err := g.next(limit, "no statement comes"); err != nil {
			return err
		}
	}
}

// next waits for a statement or a result of the client. These come on two channels, so one may be
// early.
func (g *stage) next(limit <-chan time.Time, otherwise string) error {
	select {
	case r := <-g.server.requests:
		if g.standing[r.text] != "" && len(g.sent) == 0 {
			return g.answer(r, g.standing[r.text])
		}
		g.sent = append(g.sent, r)
	case got := <-g.player.of(g.id):
		g.told = append(g.told, got)
	case <-g.player.done:
		return errors.New("the player has ended")
	case <-limit:
		return fmt.Errorf("%s; what was told is %q, what was sent %q", otherwise, g.told, texts(g.sent))
	}
	return nil
}

// texts returns the statements of requests.
func texts(all []request) []string {
	var found []string
	for _, r := range all {
		found = append(found, r.text)
	}
	return found
}

// stand answers a statement that may be repeated.
func (g *stage) stand(r request, due string) error {
	answer, known := g.standing[r.text]
	if !known {
		return fmt.Errorf("%s; what came was %s", due, r.text)
	}
	return g.answer(r, answer)
}

// answer answers a statement: with a message, by closing the connections, later or never.
func (g *stage) answer(r request, answer string) error {
	switch answer {
	case "killed":
		r.hangUp()
		return nil
	case "silence":
		return nil
	case "later":
		g.owed = append(g.owed, r)
		return nil
	}
	m, err := reply(strings.Fields(answer))
	if err != nil {
		return err
	}
	if rows, ok := m.(*message.RowsResult); ok && r.skip {
		rows.Metadata = &message.RowsMetadata{ColumnCount: rows.Metadata.ColumnCount}
	}
	r.answer(m)
	return nil
}
