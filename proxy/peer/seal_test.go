package peer

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend"
	"music/musiccore"
)

// Nothing is carried out for a proxy with another secret or none, nor where a message was changed
// on its way.
func TestSecret(t *testing.T) {
	c := newCluster(t)
	a, known := c.start(sealed(secret)), c.start(sealed(secret))
	require.NoError(t, known.borrow(t, a))
	a.core.take()
	for name, p := range map[string]config.Peers{"none": {}, "another": sealed("a secret that somebody guessed")} {
		assert.ErrorIs(t, c.start(p).borrow(t, a), ErrAway, name)
	}
	for name, x := range map[string]tampered{
		"body": {request: func(_ *http.Request, b []byte) []byte {
			return bytes.Replace(b, []byte(`"ref":1`), []byte(`"ref":2`), 1)
		}},
		"path": {request: func(r *http.Request, b []byte) []byte { r.URL.Path = pathUnlock; return b }},
		"time": {request: func(r *http.Request, b []byte) []byte {
			r.Header.Set(headerTime, strconv.FormatInt(time.Now().Add(time.Second).UnixMilli(), 10))
			return b
		}},
		"seal": {request: func(r *http.Request, b []byte) []byte { r.Header.Del(headerSeal); return b }},
	} {
		known.tamper(x)
		assert.ErrorIs(t, known.borrow(t, a), ErrAway, name)
	}
	assert.Empty(t, a.core.take(), "nothing was carried out")
	for name, x := range map[string]tampered{
		"answer": {response: func(w *http.Response) {
			w.Body = readCloser{bytes.NewReader([]byte(`{"ticket":{"Stamp":9,"Kind":1}}`))}
		}},
		"status": {response: func(w *http.Response) { w.StatusCode = http.StatusBadRequest }},
	} {
		known.tamper(x)
		assert.ErrorIs(t, known.borrow(t, a), ErrAway, name)
	}
	known.tamper(tampered{})
	require.NoError(t, known.borrow(t, a))
}

// An answer that was right once is not the answer to another question.
func TestAnswersAreNotReplayed(t *testing.T) {
	s := seal(secret)
	request := func(body string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+pathBegin, nil)
		require.NoError(t, err)
		s.request(r, []byte(body))
		return r
	}
	one, other := request("one"), request("other")
	told := http.Header{}
	told.Set(headerSeal, s.response(one.Header, 200, []byte("yes")))
	assert.NoError(t, s.checkResponse(one.Header, told, 200, []byte("yes")))
	assert.ErrorIs(t, s.checkResponse(other.Header, told, 200, []byte("yes")), errSeal)
	assert.ErrorIs(t, s.checkResponse(one.Header, told, 401, []byte("yes")), errSeal)

	require.NoError(t, s.checkRequest(one, []byte("one")))
	old := strconv.FormatInt(time.Now().Add(-time.Minute).UnixMilli(), 10)
	one.Header.Set(headerTime, old)
	one.Header.Set(headerSeal, s.ofRequest(one, []byte("one")))
	assert.ErrorIs(t, s.checkRequest(one, []byte("one")), errSeal, "too old")
}

// A recorded request of one proxy to another cannot be repeated.
func TestQuestionsAreNotReplayed(t *testing.T) {
	c := newCluster(t)
	a, b := c.start(sealed(secret)), c.start(sealed(secret))
	type sent struct {
		header http.Header
		body   []byte
	}
	heard := map[string]sent{}
	b.tamper(tampered{request: func(r *http.Request, body []byte) []byte {
		heard[r.URL.Path] = sent{r.Header.Clone(), body}
		return body
	}})
	ctx, k, by := t.Context(), testKey("x"), musiccore.Client{Role: "anna", Address: "10.0.0.9:1234"}
	lent, err := b.client.Begin(ctx, Reference{a.id, k, 1}, musiccore.Put, musiccore.SessionID{})
	require.NoError(t, err)
	assert.Equal(t, musiccore.VerdictTell, b.client.End(ctx, lent.Ticket, musiccore.OutcomeAcked))
	_, err = b.client.Lock(ctx, a.id, k, musiccore.Request{Ref: 1}, Asker{})
	require.NoError(t, err)
	_, _, err = b.client.List(ctx, a.id, k)
	require.NoError(t, err)
	_, err = b.client.Unlock(ctx, Reference{a.id, k, 1}, by, musiccore.Return{})
	require.NoError(t, err)
	_, err = b.client.Force(ctx, a.id, k, 1, frontend.Force{By: by, Reason: "stuck"})
	require.NoError(t, err)
	b.client.Hint(ctx, []musiccore.Hint{{Key: k, To: a.id, Kind: musiccore.HintWaiting}})
	b.client.hints.running.Wait()
	assert.Equal(t, []string{"begin 1", ended(musiccore.OutcomeAcked), "lock 1", "list", "unlock 1 by anna", "force 1 by anna at 10.0.0.9:1234: stuck"}, a.core.take())
	require.Len(t, a.core.hints(), 1)

	assert.Len(t, heard, 7)
	for path, s := range heard {
		status, told := send(t, a, http.MethodPost, path, s.header, string(s.body))
		assert.Equal(t, http.StatusUnauthorized, status, "%s: %s", path, told)
	}
	assert.Empty(t, a.core.take())
	assert.Len(t, a.core.hints(), 1)
}

// A request is remembered for longer than it is accepted, whatever arrives meanwhile.
func TestNonces(t *testing.T) {
	var n nonces
	start := time.Now()
	for step := range 200 {
		now := start.Add(time.Duration(step) * time.Second)
		assert.True(t, n.first(fmt.Sprint(step), now))
		for ago := 0; ago <= min(step, int(2*sealFor/time.Second)); ago++ {
			assert.False(t, n.first(fmt.Sprint(step-ago), now))
		}
		assert.LessOrEqual(t, len(n.now)+len(n.before), 4*int(sealFor/time.Second)+4)
	}
}
