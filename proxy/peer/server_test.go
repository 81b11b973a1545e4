package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/musiccore"
	"music/proxy/certs/certstest"
)

// send sends a request by hand and returns the status and the text of its answer.
func send(t *testing.T, p *proxy, method, path string, header http.Header, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.address+path, strings.NewReader(body))
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

// What is no question of a proxy to this session is answered as such, and the core is not asked.
func TestQuestionsThatAreNone(t *testing.T) {
	p := newCluster(t).start(config.Peers{})
	ask := `{"session":"` + uuid.UUID(p.id).String() + `"`
	for _, tc := range []struct {
		method, path, version, body string
		status                      int
		told                        string
	}{
		{"POST", pathBegin, "0", ask + `}`, http.StatusUpgradeRequired, "this proxy speaks versions 3 and 4 of the peer protocol"},
		{"POST", pathBegin, "", ask + `}`, http.StatusUpgradeRequired, "peer protocol"},
		{"POST", pathBegin, spoken, `{`, http.StatusBadRequest, "malformed"},
		{"POST", pathBegin, spoken, strings.Repeat(" ", maxQuestion+1), http.StatusBadRequest, "too large"},
		{"POST", pathBegin, spoken, `{}`, http.StatusOK, ErrOtherSession.Error()},
		{"POST", pathLock, spoken, ask + `}`, http.StatusOK, musiccore.ErrNotHeld.Error()},
		{"POST", pathLock, spoken, ask + `,"ref":0,"lock":{}}`, http.StatusOK, musiccore.ErrNotHeld.Error()},
		{"POST", pathLock, spoken, ask + `,"ref":-1,"lock":{"Ref":0}}`, http.StatusOK, musiccore.ErrNotHeld.Error()},
		{"POST", pathEnd, spoken, ask + `}`, http.StatusOK, "{"},
		{"POST", "/nothing", spoken, ask + `}`, http.StatusNotFound, ""},
		{"GET", pathList, spoken, "", http.StatusMethodNotAllowed, ""},
	} {
		status, told := send(t, p, tc.method, tc.path, http.Header{headerVersion: {tc.version}}, tc.body)
		assert.Equal(t, tc.status, status, "%v", tc)
		assert.Contains(t, told, tc.told, "%v", tc)
	}
	assert.Empty(t, p.core.take())
}

// A ticket that is lent to nobody any more is ended as never used: what it would leave unsettled
// held up the owner's next operations.
func TestTicketLentToNobodyIsEnded(t *testing.T) {
	a, b := two(t)
	asked := make(chan struct{})
	a.core.begin = func(ctx context.Context) {
		close(asked)
		<-ctx.Done() // the client has hung up; the core answers all the same
	}
	ctx, hangUp := context.WithCancel(t.Context())
	borrowed := make(chan error, 1)
	go func() {
		_, err := b.client.Begin(ctx, Reference{a.id, testKey("x"), 1}, musiccore.Put, musiccore.SessionID{})
		borrowed <- err
	}()
	<-asked
	hangUp()
	require.ErrorIs(t, <-borrowed, ErrAway)
	want := []string{"begin 1", ended(musiccore.OutcomeRefused)}
	var got []string
	require.Eventually(t, func() bool { got = append(got, a.core.take()...); return len(got) == len(want) }, 20*time.Second, time.Millisecond)
	assert.Equal(t, want, got)

	a.core.begin = nil
	require.NoError(t, b.borrow(t, a))
	assert.Equal(t, []string{"begin 1"}, a.core.take(), "the ticket of a client that waits is not ended")
}

// A loan that comes with a grant which nobody waits for any more is ended, too: until it was over the line stood, and
// the references of its run were lost. The lock is released as well if its client cannot come back for it.
func TestGrantToNobodyLendsNothing(t *testing.T) {
	a, b := two(t)
	for name, lock := range map[string]struct {
		musiccore.Request
		Asker
		want string
	}{
		"of a reference": {musiccore.Request{Ref: 1}, Asker{}, ended(musiccore.OutcomeRefused)},
		"with a token":   {musiccore.Request{Place: musiccore.PlaceBlock}, Asker{}, ended(musiccore.OutcomeRefused)},
		"with none":      {musiccore.Request{Place: musiccore.PlaceBlock}, Asker{OwnToken: true}, fmt.Sprintf("unlock 1 by , 3 comes back as %d, lent by 00", musiccore.OutcomeRefused)},
	} {
		asked := make(chan struct{})
		a.core.lock = func(ctx context.Context) {
			close(asked)
			<-ctx.Done()
		}
		ctx, hangUp := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() {
			_, err := b.client.Lock(ctx, a.id, testKey("x"), lock.Request, lock.Asker)
			waited <- err
		}()
		<-asked
		hangUp()
		require.ErrorIs(t, <-waited, ErrAway)
		want := []string{fmt.Sprintf("lock %d", lock.Ref), lock.want}
		var got []string
		require.Eventually(t, func() bool { got = append(got, a.core.take()...); return len(got) == len(want) }, 20*time.Second, time.Millisecond, name)
		assert.Equal(t, want, got, name)
	}
}

// A proxy that shuts down lends no more and takes no more waits, but takes back what it has lent.
func TestDrainingServer(t *testing.T) {
	a, b := two(t)
	a.server.Drain()
	for _, ask := range []func() (musiccore.Answer, error){
		func() (musiccore.Answer, error) {
			return b.client.Begin(t.Context(), Reference{a.id, testKey("x"), 1}, musiccore.Put, musiccore.SessionID{})
		},
		func() (musiccore.Answer, error) {
			return b.client.Lock(t.Context(), a.id, testKey("x"), musiccore.Request{Ref: 1}, Asker{})
		},
	} {
		answer, err := ask()
		require.NoError(t, err)
		assert.ErrorIs(t, answer.Err, musiccore.ErrDraining)
	}
	lent := ticket()
	lent.Lender = a.id
	assert.Equal(t, musiccore.VerdictTell, b.client.End(t.Context(), lent, musiccore.OutcomeAcked))
	assert.Equal(t, []string{ended(musiccore.OutcomeAcked)}, a.core.take())
}

// However many connections there are on which nothing is said, or what may not be asked, a proxy
// gets its answers.
func TestStrangersDoNotLockProxiesOut(t *testing.T) {
	c := newCluster(t)
	a, before := c.start(sealed(secret)), c.start(sealed(secret))
	require.NoError(t, before.borrow(t, a))
	for i := range 1100 {
		conn, err := net.Dial("tcp", a.address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if i%4 > 0 {
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s: %d\r\nContent-Length: 2\r\n\r\n{}", pathBegin, headerVersion, i%4)
		}
	}
	assert.NoError(t, before.borrow(t, a))
	assert.NoError(t, c.start(sealed(secret)).borrow(t, a))
}

// A refusal ends the connection.
func TestRefusalEndsTheConnection(t *testing.T) {
	a := newCluster(t).start(sealed(secret))
	for _, version := range []string{spoken, "0"} {
		conn, err := net.Dial("tcp", a.address)
		require.NoError(t, err)
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Length: 2\r\n\r\n{}", pathBegin, headerVersion, version)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
		_, err = io.Copy(io.Discard, conn)
		assert.NoError(t, err, "it is closed, and not only answered")
		_ = conn.Close()
	}
}

// settings are those of a proxy with a certificate of an authority.
func settings(own certstest.Pair, authority string) config.Peers {
	return config.Peers{TLSCert: own.Cert, TLSKey: own.Key, TLSCA: authority}
}

// Proxies believe each other by certificates of their own authority, for their addresses and in
// their time; by what the files say now.
func TestCertificates(t *testing.T) {
	ours, theirs := certstest.NewAuthority(t), certstest.NewAuthority(t)
	here, elsewhere := net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 9)
	soon, past := time.Now().Add(30*time.Minute), time.Now().Add(-time.Minute)
	c, dir := newCluster(t), t.TempDir()
	a, b := c.start(settings(ours.Issue(dir, here, soon), ours.Path)), c.start(settings(ours.Local(), ours.Path))
	require.NoError(t, b.borrow(t, a))
	asks := func(name string, p config.Peers, want error) {
		t.Helper()
		assert.ErrorIs(t, c.start(p).borrow(t, a), want, name)
	}
	asks("expired", settings(ours.Issue(t.TempDir(), here, past), ours.Path), ErrAway)
	foreign := theirs.Local()
	asks("of another authority", settings(foreign, theirs.Path), ErrAway)
	asks("of another authority, believing ours", settings(foreign, ours.Path), ErrAway)
	asks("none", config.Peers{}, ErrAway)
	named := c.start(settings(ours.Issue(t.TempDir(), elsewhere, soon), ours.Path))
	assert.ErrorIs(t, b.borrow(t, named), ErrAway, "its certificate is for another address")

	conn, err := tls.Dial("tcp", a.address, &tls.Config{MaxVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	require.Error(t, err, "%v", conn)
	assert.Contains(t, err.Error(), "protocol version")
	bare := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+a.address+pathList, strings.NewReader("{}"))
	require.NoError(t, err)
	_, err = bare.Do(r)
	assert.ErrorContains(t, err, "certificate required")

	// Files are replaced under a running proxy: from then on the new authority's are believed, and
	// no others.
	require.NoError(t, os.Rename(theirs.Path, ours.Path))
	theirs.Issue(dir, here, soon)
	asks("new files", settings(theirs.Local(), ours.Path), nil)
	b.client.http.CloseIdleConnections()
	assert.ErrorIs(t, b.borrow(t, a), ErrAway, "its authority is not believed any more")
}
