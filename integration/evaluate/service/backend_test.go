package service

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"music/integration/evaluate/section"
)

// oneKey is a system with one user. before is called before a section is entered.
type oneKey struct {
	Sections
	Plain
	before  func()
	entered int
	value   []byte
}

func (o *oneKey) Enter(context.Context, string) (section.Held, error) {
	o.before()
	o.entered++
	return &oneHeld{o}, nil
}
func (o *oneKey) Get(context.Context, string) ([]byte, error) { return nil, section.ErrNoValue }
func (o *oneKey) Put(context.Context, string, []byte) error   { return nil }

// oneHeld is a section of a oneKey.
type oneHeld struct{ *oneKey }

func (h *oneHeld) Get(context.Context) ([]byte, error) { return h.value, nil }
func (h *oneHeld) Leave(context.Context) error         { return nil }
func (h *oneHeld) Put(_ context.Context, v []byte) error {
	h.value = v
	return nil
}

// A replica that comes to own a user when its caller does not wait any more keeps it, and has changed nothing.
func TestWhatIsOwnedTooLateIsKept(t *testing.T) {
	gone, giveUp := context.WithCancel(t.Context())
	system := &oneKey{before: giveUp}
	b := NewBackEnd(System{Sections: system, Plain: system, Lease: time.Minute}, 1, func(Line) {}, "b0", time.Minute)
	handler := http.NewServeMux()
	handler.Handle("/{user}", b)
	put := func(ctx context.Context, role string) int {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodPut, "/u", strings.NewReader(role)))
		return answer.Code
	}

	assert.Equal(t, http.StatusServiceUnavailable, put(gone, `{"change": 1}`))
	assert.Nil(t, system.value)
	assert.Equal(t, http.StatusOK, put(t.Context(), `{"change": 2}`))
	assert.Contains(t, string(system.value), `"change":2`)
	assert.Equal(t, 1, system.entered)
}
