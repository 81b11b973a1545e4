package peer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend"
	"music/musiccore"
	"music/proxy/certs"
)

// spoken is the version as messages carry it.
var spoken = strconv.Itoa(Version)

// secret is that of a cluster.
const secret = "a secret that nobody guesses"

// ticket is what the fake core lends.
func ticket() musiccore.Ticket {
	return musiccore.Ticket{Key: testKey("x"), Ref: 1, Stamp: 7, Kind: musiccore.Put, Number: 3}
}

// testKey returns a key whose bytes are not text.
func testKey(name string) musiccore.Key {
	return musiccore.Key{Table: uuid.MustParse("00000000-0000-0000-0000-00000000abcd"), PK: "\x00\xff" + name}
}

// fakeCore carries out everything, and notes what it was asked.
type fakeCore struct {
	begin func(context.Context) // called by Begin before it answers; may be nil
	lock  func(context.Context) // likewise for Lock, which then grants with a ticket
	long  int                   // how many locks of the longest keys List returns instead of one

	mu    sync.Mutex
	asked []string
	heard []musiccore.Hint
}

func (c *fakeCore) note(format string, values ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, fmt.Sprintf(format, values...))
}

// take returns what was asked since the last call.
func (c *fakeCore) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.asked
	c.asked = nil
	return all
}

// hints returns the hints that have arrived.
func (c *fakeCore) hints() []musiccore.Hint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]musiccore.Hint(nil), c.heard...)
}

// Lock implements Sections.
func (c *fakeCore) Lock(ctx context.Context, _ musiccore.Key, q musiccore.Request, _ musiccore.SessionID) musiccore.Answer {
	c.note("lock %d", q.Ref)
	if c.lock != nil {
		c.lock(ctx)
		return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 1, State: musiccore.StateHeld}, Ticket: ticket()}
	}
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: q.Ref}}
}

// Unlock implements Sections.
func (c *fakeCore) Unlock(_ context.Context, k musiccore.Key, r musiccore.LockRef, by musiccore.Client, back musiccore.Return) musiccore.Answer {
	if back.Ticket.OK() && back.Ticket.Key == k {
		c.note("unlock %d by %s, %d comes back as %d, lent by %x", r, by.Role, back.Ticket.Number, back.Outcome, back.Ticket.Lender[:1])
	} else {
		c.note("unlock %d by %s", r, by.Role)
	}
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: r}}
}

// Begin implements Sections.
func (c *fakeCore) Begin(ctx context.Context, _ musiccore.Key, r musiccore.LockRef, _ musiccore.Kind, _ musiccore.SessionID) musiccore.Answer {
	c.note("begin %d", r)
	if c.begin != nil {
		c.begin(ctx)
	}
	return musiccore.Answer{Ticket: ticket()}
}

// End implements Sections.
func (c *fakeCore) End(t musiccore.Ticket, o musiccore.Outcome) musiccore.Verdict {
	c.note("end %d as %d, lent by %x", t.Number, o, t.Lender[:1])
	return musiccore.VerdictTell
}

// ended is what the fake core notes when its own ticket comes back.
func ended(o musiccore.Outcome) string { return fmt.Sprintf("end 3 as %d, lent by 00", o) }

// Force implements Queues.
func (c *fakeCore) Force(_ context.Context, _ musiccore.Key, r musiccore.LockRef, f frontend.Force) musiccore.Answer {
	c.note("force %d by %s", r, f)
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: r}}
}

// List implements Queues.
func (c *fakeCore) List(only musiccore.Key, _ int) []musiccore.Listing {
	c.note("list")
	if c.long > 0 {
		return slices.Repeat([]musiccore.Listing{{Key: musiccore.Key{PK: strings.Repeat("x", 1<<16)}, Ref: 1}}, c.long)
	}
	return []musiccore.Listing{{Key: only, Ref: 1}}
}

// Hear implements Queues.
func (c *fakeCore) Hear(h musiccore.Hint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = append(c.heard, h)
}

// directory has the addresses of sessions.
type directory struct {
	mu     sync.Mutex
	at     map[musiccore.SessionID]string
	speaks map[musiccore.SessionID]int // another version than this one's
}

// Address implements Directory.
func (d *directory) Address(_ context.Context, id musiccore.SessionID) (address string, version int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.at[id] == "" {
		return "", 0, ErrNoAddress
	}
	return d.at[id], cmp.Or(d.speaks[id], Version), nil
}

func (d *directory) set(id musiccore.SessionID, address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at[id] = address
}

// proxy is one end of the channel: a server of a fake core, and a client.
type proxy struct {
	id      musiccore.SessionID
	address string
	core    *fakeCore
	server  *Server
	client  *Client
}

// cluster makes proxies that know each other's addresses.
type cluster struct {
	t         *testing.T
	directory *directory
	last      byte
}

func newCluster(t *testing.T) *cluster {
	return &cluster{t: t, directory: &directory{at: map[musiccore.SessionID]string{}, speaks: map[musiccore.SessionID]int{}}}
}

// start starts a proxy; it ends with the test. p says how it knows others and is known by them.
func (c *cluster) start(p config.Peers) *proxy {
	c.t.Helper()
	c.last++
	source, err := certs.Proxies(p, zerolog.Nop())
	require.NoError(c.t, err)
	p.Listen = "127.0.0.1:0"
	ln, address, err := Listen(c.t.Context(), p, source)
	require.NoError(c.t, err)
	x := &proxy{id: musiccore.SessionID{c.last}, address: address, core: &fakeCore{}}
	c.directory.set(x.id, address)
	channel := Channel{Secret: string(p.Secret), Certs: source, Wait: musiccore.Defaults().Wait, OpTimeout: musiccore.Defaults().OpTimeout}
	x.client = NewClient(channel, c.directory, zerolog.Nop(), prometheus.NewRegistry())
	x.server = NewServer(channel.Secret, func() musiccore.SessionID { return x.id }, x.core, x.core, zerolog.Nop())
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { x.server.Serve(ctx, ln) })
	c.t.Cleanup(func() {
		x.client.Close()
		cancel()
		serving.Wait()
	})
	return x
}

// two returns two proxies that know each other by nothing: they are on loopback.
func two(t *testing.T) (a, b *proxy) {
	t.Helper()
	c := newCluster(t)
	return c.start(config.Peers{}), c.start(config.Peers{})
}

// sealed is the configuration of a proxy with a secret.
func sealed(secret string) config.Peers { return config.Peers{Secret: config.Secret(secret)} }

// borrow borrows a ticket of another proxy, and returns the channel's error.
func (p *proxy) borrow(t *testing.T, other *proxy) error {
	t.Helper()
	_, err := p.client.Begin(t.Context(), Reference{other.id, testKey("x"), 1}, musiccore.Put, musiccore.SessionID{})
	return err
}

// tampered changes what passes between a client and the others.
type tampered struct {
	http.RoundTripper
	request  func(*http.Request, []byte) []byte
	response func(*http.Response)
}

// tamper has all that a client sends and receives changed, until another call.
func (p *proxy) tamper(x tampered) {
	x.RoundTripper = p.client.http.Transport
	if before, ok := x.RoundTripper.(tampered); ok {
		x.RoundTripper = before.RoundTripper
	}
	p.client.http.Transport = x
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

// CloseIdleConnections is what http.Client looks for.
func (x tampered) CloseIdleConnections() {
	x.RoundTripper.(*http.Transport).CloseIdleConnections()
}

type readCloser struct{ *bytes.Reader }

// Close implements io.Closer.
func (readCloser) Close() error { return nil }

// unreachable is an address on which nobody listens: a test may not take the port.
const unreachable = "127.0.0.1:1"
