package remote

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/section"
)

// shelf is a system in memory.
type shelf struct {
	mu     sync.Mutex
	locks  map[string]chan struct{} // one place each
	values map[string][]byte
}

func newShelf() *shelf { return &shelf{locks: map[string]chan struct{}{}, values: map[string][]byte{}} }

func (s *shelf) Close() {}

func (s *shelf) lock(key string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.locks[key] == nil {
		s.locks[key] = make(chan struct{}, 1)
	}
	return s.locks[key]
}

func (s *shelf) Enter(ctx context.Context, key string) (section.Held, error) {
	select {
	case s.lock(key) <- struct{}{}:
		return &book{s, key}, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// book is a section of a shelf.
type book struct {
	s   *shelf
	key string
}

func (b *book) Get(context.Context) ([]byte, error) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	if v, is := b.s.values[b.key]; is {
		return v, nil
	}
	return nil, section.ErrNoValue
}

func (b *book) Put(_ context.Context, v []byte) error {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	switch string(v) {
	case "lost":
		return section.ErrLost
	case "fails":
		return errors.New("as it was asked to")
	}
	b.s.values[b.key] = v
	return nil
}

func (b *book) Leave(context.Context) error {
	<-b.s.lock(b.key)
	return nil
}

// connected returns a client whose program is a goroutine.
func connected(t testing.TB, s section.Client) *Client {
	t.Helper()
	requests, toProgram := io.Pipe()
	answers, fromProgram := io.Pipe()
	var program sync.WaitGroup
	program.Go(func() {
		assert.NoError(t, Serve(s, requests, fromProgram))
		_ = fromProgram.Close()
	})
	t.Cleanup(program.Wait)
	c := newClient(toProgram)
	program.Go(func() { c.read(answers) })
	require.NoError(t, c.begun())
	t.Cleanup(c.Close)
	return c
}

// A system is what it was, through a program.
func TestBattery(t *testing.T) {
	s := newShelf()
	battery.Run(t, battery.System{Name: "remote", New: func(t testing.TB) section.Client { return connected(t, s) }})
}

// Errors keep their meaning, and after the end of the program there are only errors.
func TestErrors(t *testing.T) {
	c := connected(t, newShelf())
	h, err := c.Enter(t.Context(), "k")
	require.NoError(t, err)
	_, err = h.Get(t.Context())
	require.ErrorIs(t, err, section.ErrNoValue)
	require.ErrorIs(t, h.Put(t.Context(), []byte("lost")), section.ErrLost)
	require.ErrorContains(t, h.Put(t.Context(), []byte("fails")), "as it was asked to")
	require.NoError(t, h.(section.Renewer).Renew(t.Context()))
	require.NoError(t, h.Leave(t.Context()))
	require.ErrorIs(t, h.Put(t.Context(), nil), section.ErrLost)
	c.Close()
	_, err = h.Get(t.Context())
	require.Error(t, err)
}

// What is no request ends a program.
func TestServeRefuses(t *testing.T) {
	require.ErrorContains(t, Serve(newShelf(), strings.NewReader("half"), io.Discard), "a request")
}
