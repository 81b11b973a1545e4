package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"music/integration/evaluate/section"
)

// server is a program's side.
type server struct {
	client section.Client
	out    io.Writer

	writing sync.Mutex // while an answer is written

	mu       sync.Mutex
	sections map[uint32]section.Held
	entering map[uint32]context.CancelFunc
}

// Serve carries out the requests of a [Client] with another client, until there are no more.
func Serve(client section.Client, in io.Reader, out io.Writer) error {
	s := &server{client: client, out: out, sections: map[uint32]section.Held{}, entering: map[uint32]context.CancelFunc{}}
	s.reply(0, nil, nil)
	for from := bufio.NewReader(in); ; {
		var r request
		if err := binary.Read(from, binary.BigEndian, &r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("a request: %w", err)
		}
		text := make([]byte, r.Length)
		if _, err := io.ReadFull(from, text); err != nil {
			return fmt.Errorf("a request: %w", err)
		}
		ctx := context.Background()
		if r.Op == enter {
			var give context.CancelFunc
			ctx, give = context.WithCancel(ctx)
			s.mu.Lock()
			s.entering[r.ID] = give
			s.mu.Unlock()
		}
		go func() {
			value, err := s.do(ctx, r, text)
			s.reply(r.ID, value, err)
		}()
	}
}

// do carries out a request.
func (s *server) do(ctx context.Context, r request, text []byte) ([]byte, error) {
	switch r.Op {
	case enter:
		return nil, s.enter(ctx, r.ID, string(text))
	case cancel:
		s.mu.Lock()
		give := s.entering[r.Section]
		s.mu.Unlock()
		if give != nil {
			give()
		}
		return nil, nil
	}
	s.mu.Lock()
	h := s.sections[r.Section]
	s.mu.Unlock()
	if h == nil {
		return nil, section.ErrLost
	}
	switch r.Op {
	case get:
		return h.Get(ctx)
	case put:
		return nil, h.Put(ctx, text)
	case renew:
		if h, is := h.(section.Renewer); is {
			return nil, h.Renew(ctx)
		}
		return nil, nil
	case leave:
		s.mu.Lock()
		delete(s.sections, r.Section)
		s.mu.Unlock()
		return nil, h.Leave(ctx)
	}
	return nil, fmt.Errorf("no operation %q", r.Op)
}

// enter enters a section.
func (s *server) enter(ctx context.Context, id uint32, key string) error {
	h, err := s.client.Enter(ctx, key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entering[id]()
	delete(s.entering, id)
	if err == nil {
		s.sections[id] = h
	}
	return err
}

// reply answers a request.
func (s *server) reply(id uint32, value []byte, err error) {
	a := answer{ID: id, Status: done}
	switch {
	case err == nil:
	case errors.Is(err, section.ErrNoValue):
		a.Status = noValue
	case errors.Is(err, section.ErrLost):
		a.Status, value = lost, []byte(err.Error())
	default:
		a.Status, value = failed, []byte(err.Error())
	}
	a.Length = uint32(len(value)) //nolint:gosec // G115: values are small
	s.writing.Lock()
	defer s.writing.Unlock()
	frame, err := binary.Append(nil, binary.BigEndian, a)
	if err == nil {
		_, _ = s.out.Write(append(frame, value...)) // a parent that is gone takes this process along
	}
}
