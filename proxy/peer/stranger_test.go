package peer

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"

	"music/musiccore"
	"music/proxy/connlimit"
)

// slowBody is a question that does not arrive.
type slowBody struct {
	begun *atomic.Int32 // how many of them are being read
	gone  <-chan struct{}
}

// Read implements io.Reader.
func (b slowBody) Read([]byte) (int, error) {
	b.begun.Add(1)
	<-b.gone
	return 0, io.ErrUnexpectedEOF
}

// pipes accepts one connection after the other.
type pipes struct{ net.Listener }

// Accept implements net.Listener.
func (pipes) Accept() (net.Conn, error) {
	here, _ := net.Pipe()
	return here, nil
}

// Until it is known who asks, few large questions are read at once, or of a size that is not said: what
// strangers send would be in memory, a thousand times the largest question. The others wait. A small one
// does not, nor does one on a connection on which a proxy has asked before.
func TestStrangersHaveLittleRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(secret, func() musiccore.SessionID { return musiccore.SessionID{1} }, &fakeCore{}, &fakeCore{}, zerolog.Nop())
		l := connlimit.New(pipes{}, connlimit.Limits{Untrusted: maxUntrusted, PerAddress: maxEach, Trusted: maxTrusted})
		gone, begun := make(chan struct{}), new(atomic.Int32)
		ask := func(body io.Reader, size int64, trusted bool) (status int) {
			conn, err := l.Accept()
			assert.NoError(t, err)
			ctx := connlimit.ConnContext(context.Background(), conn)
			if trusted {
				assert.True(t, connlimit.Trust(ctx))
			}
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, pathBegin, body)
			r.ContentLength = size
			w := httptest.NewRecorder()
			s.answer(w, r, s.begin)
			return w.Code
		}
		statuses := make(chan int, 2*largeAtOnce)
		for i := range 2 * largeAtOnce {
			size := int64(smallQuestion + 1)
			if i%2 == 0 {
				size = -1 // not said
			}
			go func() { statuses <- ask(slowBody{begun, gone}, size, false) }()
		}
		synctest.Wait()
		assert.EqualValues(t, largeAtOnce, begun.Load())
		assert.Equal(t, http.StatusUpgradeRequired, ask(strings.NewReader("{}"), 2, false), "a small one is read")
		assert.Equal(t, http.StatusUpgradeRequired, ask(strings.NewReader(strings.Repeat(" ", maxQuestion)), maxQuestion, true), "one of a proxy is read")
		close(gone)
		for range cap(statuses) {
			assert.Equal(t, http.StatusBadRequest, <-statuses)
		}
		assert.EqualValues(t, 2*largeAtOnce, begun.Load(), "each gets its turn")
		assert.Equal(t, http.StatusUpgradeRequired, ask(strings.NewReader(strings.Repeat(" ", maxQuestion)), maxQuestion, false))

		gone = make(chan struct{})
		for range largeAtOnce {
			go func() { ask(slowBody{begun, gone}, -1, false) }()
		}
		synctest.Wait()
		assert.Equal(t, http.StatusBadRequest, ask(strings.NewReader(""), -1, false), "who gets none in time is told so")
		close(gone)
	})
}
