package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend"
	"music/musiccore"
)

// hintsSent is how many hints a proxy has got rid of.
func hintsSent(t *testing.T, s *station) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, s.peers.asked.WithLabelValues("hint", "yes").Write(&m))
	return m.GetCounter().GetValue()
}

// Every field of a ticket travels: what a core needs to know its own ticket by must come back.
func TestTicketsTravelWhole(t *testing.T) {
	var lent musiccore.Ticket
	v := reflect.ValueOf(&lent).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		require.True(t, f.CanSet(), "%s does not travel", v.Type().Field(i).Name)
		switch f.Kind() {
		case reflect.Int64:
			f.SetInt(1<<62 + int64(i)) // more than a float64 has room for
		case reflect.Uint8, reflect.Uint64:
			f.SetUint(200 + uint64(i))
		case reflect.Array:
			f.Index(0).SetUint(7)
		case reflect.Bool:
			f.SetBool(true)
		}
	}
	lent.Key = keyOf("x")
	told, err := json.Marshal(replyTo(musiccore.Answer{Ticket: lent}))
	require.NoError(t, err)
	assert.NotContains(t, string(told), "Key")
	var r reply
	require.NoError(t, json.Unmarshal(told, &r))
	from := musiccore.SessionID{9}
	want := lent
	want.Lender = from
	assert.Equal(t, want, r.answer(lent.Key, from).Ticket)
}

// … and every field of a hint.
func TestHintsTravelWhole(t *testing.T) {
	sent := musiccore.Hint{
		Key: keyOf("x"), To: musiccore.SessionID{9}, Kind: musiccore.HintPiggyback, Last: 7,
		Block: musiccore.Block{First: 6, N: 5, Session: musiccore.SessionID{4}, Req: 3, Retained: true},
	}
	for i, v := 0, reflect.ValueOf(sent); i < v.NumField(); i++ {
		require.False(t, v.Field(i).IsZero(), v.Type().Field(i).Name)
	}
	h := hints{queues: map[musiccore.SessionID]*hintQueue{sent.To: {waiting: []musiccore.Hint{sent}, senders: 1}}}
	told, err := json.Marshal(question{Hints: h.take(sent.To)})
	require.NoError(t, err)
	var q question
	require.NoError(t, json.Unmarshal(told, &q))
	assert.Equal(t, sent, q.Hints[0].hint(sent.To))
	assert.NotContains(t, string(told), "To")
}

// An error means the same at both ends.
func TestErrorsTravel(t *testing.T) {
	for _, want := range append(faults(), &musiccore.ElsewhereError{Session: musiccore.SessionID{3}}) {
		sent := replyTo(musiccore.Answer{Err: fmt.Errorf("%w: and why", want)})
		got := sent.err()
		if errors.Is(want, musiccore.ErrElsewhere) {
			assert.Equal(t, want, got)
			continue
		}
		assert.ErrorIs(t, got, want)
		assert.Equal(t, want.Error()+": and why", got.Error())
	}
	short := &frontend.ShortError{Text: "Cannot achieve", Consistency: 4, Required: 2, Alive: 1}
	sent := replyTo(musiccore.Answer{Err: fmt.Errorf("%w: %w", musiccore.ErrSynchronising, short)})
	told, err := json.Marshal(sent)
	require.NoError(t, err)
	var heard reply
	require.NoError(t, json.Unmarshal(told, &heard))
	require.ErrorIs(t, heard.err(), musiccore.ErrSynchronising)
	var got *frontend.ShortError
	require.ErrorAs(t, heard.err(), &got)
	assert.Equal(t, short, got)
	unknown := replyTo(musiccore.Answer{Err: errGone})
	assert.ErrorIs(t, unknown.err(), musiccore.ErrUnavailable)
	assert.NoError(t, new(reply).err())
}

// secretly is a channel with a secret.
func secretly(secret string) config.Peers { return config.Peers{Secret: config.Secret(secret)} }

// tampered is a proxy between two others that changes what passes.
type tampered struct {
	http.RoundTripper
	request  func(*http.Request, []byte) []byte
	response func(*http.Response)
}

// RoundTrip implements http.RoundTripper.
func (x tampered) RoundTrip(r *http.Request) (*http.Response, error) {
	var body bytes.Buffer
	if _, err := body.ReadFrom(r.Body); err != nil {
		return nil, err
	}
	changed := body.Bytes()
	if x.request != nil {
		changed = x.request(r, changed)
	}
	r.Body, r.ContentLength, r.GetBody = http.NoBody, int64(len(changed)), nil
	if len(changed) > 0 {
		r.Body = readCloser{bytes.NewReader(changed)}
	}
	w, err := x.RoundTripper.RoundTrip(r)
	if err == nil && x.response != nil {
		x.response(w)
	}
	return w, err
}

type readCloser struct{ *bytes.Reader }

// Close implements io.Closer.
func (readCloser) Close() error { return nil }

// asks borrows a ticket of another proxy, once, and tells the channel's error.
func (s *station) asks(other *station, k musiccore.Key, ref musiccore.LockRef) error {
	_, err := s.peers.begin(s.t.Context(), other.life.self.Load().ID(), k, ref, musiccore.Put)
	return err
}

func TestSecret(t *testing.T) {
	const secret = "a secret that nobody guesses"
	c := newCluster()
	a := startStation(t, c, secretly(secret))
	k := keyOf("x")
	ref := a.held(k)
	friend := startStation(t, c, secretly(secret))
	friend.put(k, ref)
	for name, channel := range map[string]config.Peers{"none": {}, "another": secretly("a secret that somebody guessed")} {
		assert.ErrorIs(t, startStation(t, c, channel).asks(a, k, ref), errPeer, name)
	}
	plain := friend.peers.client.Transport
	for name, x := range map[string]tampered{
		"body": {request: func(_ *http.Request, b []byte) []byte {
			return bytes.Replace(b, []byte(`"ref":1`), []byte(`"ref":2`), 1)
		}},
		"path": {request: func(r *http.Request, b []byte) []byte { r.URL.Path = askUnlock; return b }},
		"time": {request: func(r *http.Request, b []byte) []byte {
			r.Header.Set(headerTime, strconv.FormatInt(time.Now().Add(time.Second).UnixMilli(), 10))
			return b
		}},
		"seal": {request: func(r *http.Request, b []byte) []byte { r.Header.Del(headerSeal); return b }},
		"answer": {response: func(w *http.Response) {
			w.Body = readCloser{bytes.NewReader([]byte(`{"ticket":{"Stamp":9,"Kind":1}}`))}
		}},
		"status": {response: func(w *http.Response) { w.StatusCode = http.StatusBadRequest }},
	} {
		x.RoundTripper = plain
		friend.peers.client.Transport = x
		assert.ErrorIs(t, friend.asks(a, k, ref), errPeer, name)
	}
	friend.peers.client.Transport = plain
	friend.put(k, ref)
	assert.ErrorIs(t, a.begin(k, ref+1, musiccore.Put).Err, musiccore.ErrNotHeld, "nothing was carried out")
}

// An answer that was right once is not the answer to another question.
func TestAnswersAreNotReplayed(t *testing.T) {
	s := seal("a secret that nobody guesses")
	request := func(body string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://x"+askBegin, nil)
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

// post sends a question by hand and returns the status and the text of its answer.
func post(t *testing.T, s *station, method, path, version, body string) (int, string) {
	t.Helper()
	return send(t, s, method, path, http.Header{headerVersion: {version}}, body)
}

// send is post with headers of the test's own.
func send(t *testing.T, s *station, method, path string, header http.Header, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.address+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header = header
	w, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = w.Body.Close() }()
	var told bytes.Buffer
	_, err = told.ReadFrom(w.Body)
	require.NoError(t, err)
	return w.StatusCode, told.String()
}

func TestQuestionsThatAreNone(t *testing.T) {
	c := newCluster()
	s := startStation(t, c, config.Peers{})
	self := uuid.UUID(s.life.self.Load().ID()).String()
	ask := `{"session":"` + self + `"`
	for _, tc := range []struct {
		method, path, version, body string
		status                      int
		told                        string
	}{
		{"POST", askBegin, "0", ask + `}`, http.StatusUpgradeRequired, "this proxy speaks version 2 of the peer protocol"},
		{"POST", askBegin, "", ask + `}`, http.StatusUpgradeRequired, "peer protocol"},
		{"POST", askBegin, peerVersion, `{`, http.StatusBadRequest, "cannot be read"},
		{"POST", askBegin, peerVersion, strings.Repeat(" ", maxQuestion+1), http.StatusBadRequest, "too large"},
		{"POST", askBegin, peerVersion, `{}`, http.StatusOK, errStranger.Error()},
		{"POST", askBegin, peerVersion, ask + `}`, http.StatusOK, musiccore.ErrNotHeld.Error()},
		{"POST", askBegin, peerVersion, ask + `,"ref":1,"kind":77}`, http.StatusOK, musiccore.ErrNotHeld.Error()},
		{"POST", askLock, peerVersion, ask + `}`, http.StatusOK, musiccore.ErrNotHeld.Error()},
		{"POST", askLock, peerVersion, ask + `,"ref":0,"lock":{}}`, http.StatusOK, musiccore.ErrNotHeld.Error()},
		{"POST", askLock, peerVersion, ask + `,"ref":-1,"lock":{"Ref":0}}`, http.StatusOK, musiccore.ErrNotHeld.Error()},
		{"POST", askEnd, peerVersion, ask + `}`, http.StatusOK, "{"},
		{"POST", askEnd, peerVersion, ask + `,"ticket":{"Term":1,"Number":99},"outcome":1}`, http.StatusOK, "{"},
		{"POST", askUnlock, peerVersion, ask + `,"ref":-5}`, http.StatusOK, musiccore.ErrNotHeld.Error()},
		{"POST", askHint, peerVersion, ask + `,"hints":[{},{"Kind":99}]}`, http.StatusOK, "{"},
		{"POST", "/nothing", peerVersion, ask + `}`, http.StatusNotFound, ""},
		{"GET", askList, peerVersion, "", http.StatusMethodNotAllowed, ""},
	} {
		status, told := post(t, s, tc.method, tc.path, tc.version, tc.body)
		assert.Equal(t, tc.status, status, "%v", tc)
		assert.Contains(t, told, tc.told, "%v", tc)
		assert.NotContains(t, told, fmt.Sprintf(`"verdict":%d`, musiccore.VerdictTell), "%v", tc)
	}
	assert.Empty(t, s.listHere(musiccore.Key{}), "nothing was given to anybody")
}

// A proxy of another release is told of as such, and not asked for anything.
func TestAnotherVersionAnswers(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	b.peers.client.Transport = tampered{
		RoundTripper: b.peers.client.Transport,
		response:     func(w *http.Response) { w.Header.Set(headerVersion, "3") },
	}
	err := b.begin(k, ref, musiccore.Put).Err
	assert.ErrorIs(t, err, errPeer)
	assert.ErrorContains(t, err, "another version")
}

// A reply has a bound: who sends more than that is not listened to.
func TestReplyIsBounded(t *testing.T) {
	a, b := two(t)
	b.peers.client.Transport = tampered{
		RoundTripper: b.peers.client.Transport,
		response:     func(w *http.Response) { w.Body = readCloser{bytes.NewReader(make([]byte, maxReply+1))} },
	}
	_, err := b.peers.ask(context.Background(), a.life.self.Load().ID(), askList, question{}, 20*time.Second)
	assert.ErrorIs(t, err, errPeer)
}
