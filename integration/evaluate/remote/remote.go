// Package remote is for systems whose client is a program of its own, since it is in Java or needs a module of its own. The program
// reads requests from its standard input and writes answers to its standard output; [Start] starts one and is its [section.Client],
// [Serve] is the loop of such a program in Go, and Sections.java that of one in Java.
//
// A request is the number of the request, an operation, the number of the section, and what the operation needs, as length and
// bytes; numbers and lengths have four bytes, the greatest first. An answer is the number of the request, a status, and bytes in
// the same form. A section has the number of the request that entered it. The first answer, to the request 0, comes when the
// program is ready.
package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"music/integration/child"
	"music/integration/evaluate/section"
)

// The operations.
const (
	enter  = 'e' // a key
	cancel = 'c' // the Enter of the section's number
	get    = 'g'
	put    = 'p' // a value
	renew  = 'r'
	leave  = 'l'
)

// The statuses.
const (
	done    = iota // with the value of a get
	noValue        // section.ErrNoValue
	lost           // section.ErrLost, with a text
	failed         // another error, with its text
)

// request is one, without what it needs; the field for that is its length.
type request struct {
	ID      uint32
	Op      byte
	Section uint32
	Length  uint32
}

// answer is one, without its bytes.
type answer struct {
	ID     uint32
	Status byte
	Length uint32
}

// reply is an answer with its bytes.
type reply struct {
	status byte
	text   []byte
}

// err is the error that a reply stands for.
func (r reply) err() error {
	switch r.status {
	case done:
		return nil
	case noValue:
		return section.ErrNoValue
	case lost:
		return fmt.Errorf("%w: %s", section.ErrLost, r.text)
	}
	return errors.New(string(r.text))
}

// Client is a program under way.
type Client struct {
	process *child.Process
	out     io.WriteCloser
	ready   chan reply

	writing sync.Mutex // while a request is written

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]chan reply
	ended   bool
}

// errEnded is the error of every request to a program that has ended.
var errEnded = errors.New("the program has ended")

// starting is how long a program may take until it is ready.
const starting = 2 * time.Minute

// Start starts a program, the first words of a command line, with further arguments, and returns when it is ready. It is in the
// process group of the caller, so that who stops or kills the group as a whole meets the program, too. It ends by Close.
func Start(program []string, args ...string) (*Client, error) {
	words := slices.Concat(program, args)
	cmd := exec.Command(words[0], words[1:]...) //nolint:gosec,noctx // our own words; it ends by Close
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pgid: syscall.Getpgrp()}
	c := newClient(in)
	if c.process, err = child.Start(cmd); err != nil {
		return nil, err
	}
	go c.read(out)
	if err := c.begun(); err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", cmd.Path, err)
	}
	return c, nil
}

// newClient is a client that writes its requests to out.
func newClient(out io.WriteCloser) *Client {
	c := &Client{out: out, waiting: map[uint32]chan reply{}, ready: make(chan reply, 1)}
	c.waiting[0] = c.ready
	return c
}

// begun waits until the program is ready.
func (c *Client) begun() error {
	select {
	case r := <-c.ready:
		return r.err()
	case <-time.After(starting):
		return context.DeadlineExceeded
	}
}

// Close kills the program, which is like the death of a client.
func (c *Client) Close() {
	if c.process != nil {
		c.process.Kill()
	}
	_ = c.out.Close() // nobody reads it any more
}

// Pid is the number of the program's process.
func (c *Client) Pid() int { return c.process.Pid() }

// read hands out the answers, until there are no more.
func (c *Client) read(from io.Reader) {
	in := bufio.NewReader(from)
	for {
		var a answer
		if binary.Read(in, binary.BigEndian, &a) != nil {
			break
		}
		text := make([]byte, a.Length)
		if _, err := io.ReadFull(in, text); err != nil {
			break
		}
		c.mu.Lock()
		to := c.waiting[a.ID]
		delete(c.waiting, a.ID)
		c.mu.Unlock()
		if to != nil {
			to <- reply{a.Status, text}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	for id, to := range c.waiting {
		to <- reply{failed, []byte(errEnded.Error())}
		delete(c.waiting, id)
	}
}

// send sends a request, and returns its number and the channel with its reply.
func (c *Client) send(op byte, of uint32, text []byte) (uint32, chan reply, error) {
	to := make(chan reply, 1)
	c.mu.Lock()
	if c.ended {
		c.mu.Unlock()
		return 0, nil, errEnded
	}
	c.last++
	id := c.last
	c.waiting[id] = to
	c.mu.Unlock()
	c.writing.Lock()
	defer c.writing.Unlock()
	frame, err := binary.Append(nil, binary.BigEndian, request{id, op, of, uint32(len(text))}) //nolint:gosec // G115: values are small
	if err == nil {
		_, err = c.out.Write(append(frame, text...))
	}
	return id, to, err
}

// do carries out an operation of a section. If ctx ends first, its outcome is unknown.
func (c *Client) do(ctx context.Context, op byte, of uint32, text []byte) ([]byte, error) {
	_, to, err := c.send(op, of, text)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-to:
		return r.text, r.err()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Enter implements section.Client. One that is given up is cancelled, and left where that came too late.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	id, to, err := c.send(enter, 0, []byte(key))
	if err != nil {
		return nil, err
	}
	h := &held{c, id}
	select {
	case r := <-to:
		if err := r.err(); err != nil {
			return nil, fmt.Errorf("enter %q: %w", key, err)
		}
		return h, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), h.giveUp(to))
	}
}

// givingUp is how long a program may take to give up.
const givingUp = 20 * time.Second

// held is a section.
type held struct {
	c  *Client
	id uint32
}

// giveUp cancels an Enter.
func (h *held) giveUp(entered chan reply) error {
	ctx, end := context.WithTimeout(context.Background(), givingUp)
	defer end()
	if _, err := h.c.do(ctx, cancel, h.id, nil); err != nil {
		return err
	}
	select {
	case r := <-entered:
		if r.status != done {
			return nil
		}
		return h.Leave(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Get implements section.Held.
func (h *held) Get(ctx context.Context) ([]byte, error) { return h.c.do(ctx, get, h.id, nil) }

// Put implements section.Held.
func (h *held) Put(ctx context.Context, value []byte) error {
	_, err := h.c.do(ctx, put, h.id, value)
	return err
}

// Renew implements section.Renewer; a system without renewal does nothing.
func (h *held) Renew(ctx context.Context) error {
	_, err := h.c.do(ctx, renew, h.id, nil)
	return err
}

// Leave implements section.Held.
func (h *held) Leave(ctx context.Context) error {
	_, err := h.c.do(ctx, leave, h.id, nil)
	return err
}
