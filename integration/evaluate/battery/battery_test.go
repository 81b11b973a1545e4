package battery

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"music/integration/evaluate/section"

	"github.com/stretchr/testify/assert"
)

// memory is a system in the memory of the test, perhaps with a fault.
type memory struct {
	open    bool // everybody enters
	one     bool // all keys have one lock
	forgets bool // a value is kept for its section only
	stale   bool // a put does nothing to a value that is there
	orphan  bool // an Enter that is given up gets in nevertheless
	deaf    bool // forcing does nothing
	equal   bool // tokens do not rise

	mu     sync.Mutex
	locks  map[string]chan struct{}
	values map[string]string
	token  int64
}

// lock returns the lock of a key: the client that can send to it holds it.
func (m *memory) lock(key string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.one {
		key = ""
	}
	if m.locks == nil {
		m.locks, m.values = map[string]chan struct{}{}, map[string]string{}
	}
	if m.locks[key] == nil {
		m.locks[key] = make(chan struct{}, 1)
	}
	return m.locks[key]
}

func (m *memory) Close() {}

func (m *memory) Enter(ctx context.Context, key string) (section.Held, error) {
	lock := m.lock(key)
	if m.open {
		return &inside{m, key, 0}, nil
	}
	select {
	case lock <- struct{}{}:
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.equal {
			m.token++
		}
		return &inside{m, key, m.token}, nil
	case <-ctx.Done():
	}
	if m.orphan {
		go func() { lock <- struct{}{} }()
	}
	return nil, ctx.Err()
}

func (m *memory) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	if !m.open && len(m.lock(key)) > 0 {
		return nil, false, nil
	}
	held, err := m.Enter(ctx, key)
	return held, err == nil, err
}

func (m *memory) Force(_ context.Context, key string) error {
	if !m.deaf && !m.open {
		<-m.lock(key)
	}
	return nil
}

// inside is a section of memory.
type inside struct {
	*memory
	key   string
	token int64
}

func (h *inside) Token() int64 { return h.token }

func (h *inside) Get(context.Context) ([]byte, error) {
	time.Sleep(time.Millisecond) // of the bubble's clock: others come in between
	h.mu.Lock()
	defer h.mu.Unlock()
	value, ok := h.values[h.key]
	if !ok {
		return nil, section.ErrNoValue
	}
	return []byte(value), nil
}

func (h *inside) Put(_ context.Context, value []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stale && h.values[h.key] != "" {
		return nil
	}
	h.values[h.key] = string(value)
	return nil
}

func (h *inside) Leave(context.Context) error {
	if h.forgets {
		h.mu.Lock()
		delete(h.values, h.key)
		h.mu.Unlock()
	}
	if !h.open {
		<-h.lock(h.key)
	}
	return nil
}

// results runs the battery over a system in memory, and returns the name of each check that fails.
func results(t *testing.T, m func() *memory) (failed []string) {
	t.Helper()
	for _, c := range checks() {
		synctest.Test(t, func(t *testing.T) {
			system := m()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r := &run{system: System{Clients: 2, Goroutines: 2, Sections: 2}, key: "k", open: func() section.Client { return system }}
			if err := c.do(ctx, r); err != nil {
				t.Logf("%s: %v", c.name, err)
				failed = append(failed, c.name)
			}
			for _, lock := range system.locks { // whoever still waits gets in
				for synctest.Wait(); len(lock) > 0; synctest.Wait() {
					<-lock
				}
			}
		})
	}
	return failed
}

// A correct system passes every check, and each fault fails the check for it.
func TestBatteryFails(t *testing.T) {
	const kept, exclude, apart, cancelled, more = "a value is kept", "sections exclude each other", "keys do not disturb each other", "a cancelled Enter leaves nothing", "what else it can do"
	for name, c := range map[string]struct {
		system func() *memory
		want   []string
	}{
		"right":   {func() *memory { return new(memory) }, nil},
		"open":    {func() *memory { return &memory{open: true} }, []string{exclude, cancelled, more}},
		"one":     {func() *memory { return &memory{one: true} }, []string{apart}},
		"forgets": {func() *memory { return &memory{forgets: true} }, []string{kept, exclude, cancelled}},
		"stale":   {func() *memory { return &memory{stale: true} }, []string{kept, exclude}},
		"orphan":  {func() *memory { return &memory{orphan: true} }, []string{cancelled}},
		"deaf":    {func() *memory { return &memory{deaf: true} }, []string{more}},
		"equal":   {func() *memory { return &memory{equal: true} }, []string{more}},
	} {
		got := results(t, c.system)
		assert.Equal(t, fmt.Sprint(c.want), fmt.Sprint(got), "%s fails %q, not %q", name, got, c.want)
	}
}

// Run names the system.
func TestRun(t *testing.T) {
	var m memory
	Run(t, System{Name: "memory", New: func(testing.TB) section.Client { return &m }, Clients: 2})
	for key := range m.locks {
		assert.True(t, strings.HasPrefix(key, "memory"), "key %q", key)
	}
}
