// Package peer is the channel between the proxies of a cluster. If one proxy has given a lock, the
// others ask it before their clients do anything under that lock (docs/protocol.md 3.15, Remote).
// Messages are JSON over HTTP. Proxies authenticate each other by certificates or by a shared
// secret; on loopback they need not.
package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"music/frontend"
	"music/musiccore"
	"music/proxy/certs"
)

// ListLimit is how long other proxies may take to list their locks.
const ListLimit = time.Second

const (
	dialLimit   = time.Second            // for a connection to another proxy
	unusedLimit = time.Minute            // how long an idle connection is kept
	sparesKept  = 64                     // idle connections to one proxy
	maxReply    = 16 << 20               // bytes
	endPause    = 50 * time.Millisecond  // before a ticket is returned once more
	networkTime = 300 * time.Millisecond // added to the time that an operation may take at the other proxy
)

// Directory finds the proxies of sessions.
type Directory interface {
	// Address returns the host:port at which the proxy of a session answers others, and the version
	// of the peer protocol that it speaks. Its errors wrap ErrNotAsked.
	Address(ctx context.Context, id musiccore.SessionID) (address string, version int, err error)
}

// Channel configures how the proxies of a cluster authenticate each other, and how long one waits
// for another.
type Channel struct {
	Secret    string        // empty = none
	Certs     *certs.Source // nil = no encryption
	Wait      time.Duration // how long a LOCK without WAIT may wait
	OpTimeout time.Duration // how long the stamp of an operation may take
}

// Client asks other proxies. It is safe for concurrent use.
type Client struct {
	channel   Channel
	directory Directory
	seal      seal
	scheme    string
	http      *http.Client
	log       zerolog.Logger
	asked     *prometheus.CounterVec
	hinted    *prometheus.CounterVec
	hints     hints
}

// NewClient returns a client and registers its metrics. log should be sampled: a proxy that does
// not answer is asked again and again.
func NewClient(c Channel, d Directory, log zerolog.Logger, r prometheus.Registerer) *Client {
	dialer := &net.Dialer{Timeout: dialLimit}
	transport := &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: sparesKept, IdleConnTimeout: unusedLimit, DisableCompression: true,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&tls.Dialer{NetDialer: dialer, Config: c.Certs.Config()}).DialContext(ctx, network, address)
		},
	}
	p := &Client{
		channel: c, directory: d, seal: seal(c.Secret), scheme: "http", http: &http.Client{Transport: transport}, log: log,
		hints: hints{queues: map[musiccore.SessionID]*hintQueue{}},
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "music_peer_requests_total", Help: "Questions to other proxies, by kind and whether they were answered.",
		}, []string{"asked", "answered"}),
		hinted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "music_hints_total", Help: "Hints for other proxies, by whether they were queued to be sent or dropped; only speed depends on them.",
		}, []string{"taken"}),
	}
	if c.Certs != nil {
		p.scheme = "https"
	}
	for _, path := range []string{pathLock, pathUnlock, pathBegin, pathEnd, pathForce, pathList, pathHint} {
		p.asked.WithLabelValues(path[1:], "no") // Prometheus sees no increase from a missing series to 1
	}
	for _, taken := range []bool{true, false} {
		p.hinted.WithLabelValues(strconv.FormatBool(taken))
	}
	r.MustRegister(p.asked, p.hinted)
	return p
}

// Close blocks until no hint is being sent, and closes the connections. No method may be called
// after it.
func (p *Client) Close() {
	p.hints.running.Wait()
	p.http.CloseIdleConnections()
}

// ask asks the proxy of a session. It blocks until the reply, for at most limit. Its errors wrap
// ErrAway.
func (p *Client) ask(ctx context.Context, at musiccore.SessionID, path string, q question, limit time.Duration) (reply, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r, err := p.exchange(ctx, at, path, q)
	p.asked.WithLabelValues(path[1:], map[bool]string{true: "yes", false: "no"}[err == nil]).Inc()
	if err == nil {
		return r, nil
	}
	p.log.Warn().Err(err).Str("asked", path).Hex("session", at[:]).Msg("another proxy does not answer")
	var op *net.OpError
	switch {
	case errors.Is(err, errVersion):
		return r, errVersion
	case errors.Is(err, ErrNoAddress):
		return r, ErrNoAddress
	case errors.Is(err, ErrNotAsked), errors.As(err, &op) && op.Op == "dial":
		return r, ErrNotAsked
	}
	return r, ErrAway
}

// exchange sends a question and reads its reply.
func (p *Client) exchange(ctx context.Context, at musiccore.SessionID, path string, q question) (r reply, err error) {
	address, version, err := p.directory.Address(ctx, at)
	if err != nil {
		return r, err
	}
	q.Session = uuid.UUID(at)
	body, err := json.Marshal(q)
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.scheme+"://"+address+path, bytes.NewReader(body))
	if err != nil {
		return r, fmt.Errorf("%w: %w", ErrNotAsked, err)
	}
	request.Header.Set(headerVersion, strconv.Itoa(min(version, Version)))
	p.seal.request(request, body)
	response, err := p.http.Do(request)
	if err != nil {
		return r, err
	}
	told, err := io.ReadAll(io.LimitReader(response.Body, maxReply+1))
	_ = response.Body.Close()
	if err != nil {
		return r, err
	}
	err = p.understand(request, response, told, &r)
	return r, err
}

// understand checks a reply and reads it into r.
func (p *Client) understand(request *http.Request, response *http.Response, told []byte, r *reply) error {
	if version := response.Header.Get(headerVersion); version != request.Header.Get(headerVersion) {
		return fmt.Errorf("%w: %q", errVersion, version)
	}
	if err := p.seal.checkResponse(request.Header, response.Header, response.StatusCode, told); err != nil {
		return err
	}
	switch {
	case response.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %s: %s", ErrAway, response.Status, told)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: %s: %s", ErrNotAsked, response.Status, told)
	}
	if len(told) > maxReply {
		return fmt.Errorf("a reply of more than %d bytes", maxReply)
	}
	if err := json.Unmarshal(told, r); err != nil {
		return fmt.Errorf("read a reply: %w", err)
	}
	return nil
}

// Asker is who asks for a LOCK.
type Asker struct {
	Session musiccore.SessionID // that takes loans; zero: none does
	// OwnToken says that the token is of the asking proxy's making: its client gave none, and cannot come
	// back for a grant of which it did not hear.
	OwnToken bool
}

// Lock asks for LOCK … USING LOCK with the reference in q, or without one for a place in a block; the
// answer then has a loan to the asker's session, unless the key is to be synchronised first. The errors of
// this and the following methods wrap ErrAway; those of the other proxy's core are in the answer.
func (p *Client) Lock(ctx context.Context, at musiccore.SessionID, k musiccore.Key, q musiccore.Request, by Asker) (musiccore.Answer, error) {
	wait := p.channel.Wait
	if !q.NoWait && q.Wait > 0 {
		wait = q.Wait
	}
	r, err := p.ask(ctx, at, pathLock, question{Key: toWire(k), Ref: q.Ref, Lock: &q, LendTo: borrower(by.Session), OwnToken: by.OwnToken}, wait+networkTime)
	return r.answer(k, at), err
}

// borrower returns a session for a question; nil for none.
func borrower(s musiccore.SessionID) *uuid.UUID {
	if s == (musiccore.SessionID{}) {
		return nil
	}
	id := uuid.UUID(s)
	return &id
}

// Reference is a reference at another proxy.
type Reference struct {
	At  musiccore.SessionID
	Key musiccore.Key
	Ref musiccore.LockRef
}

// Unlock releases a reference. If back has a ticket, it is the loan that is given back before, if it is one of
// that session: to another, which may have taken the reference over, its numbers are those of an operation of its own.
func (p *Client) Unlock(ctx context.Context, r Reference, by musiccore.Client, back musiccore.Return) (musiccore.Answer, error) {
	q := question{Key: toWire(r.Key), Ref: r.Ref, By: by}
	if back.Ticket.OK() && back.Ticket.Lender == r.At {
		q.Ticket, q.Outcome = &wireTicket{Ticket: back.Ticket}, back.Outcome
	}
	told, err := p.ask(ctx, r.At, pathUnlock, q, p.channel.Wait+networkTime)
	return told.answer(r.Key, r.At), err
}

// Begin borrows a ticket, or, if to is not zero, perhaps a loan to that session. After an error nothing
// may be sent to Cassandra, even though the other proxy may have lent a ticket.
func (p *Client) Begin(ctx context.Context, r Reference, kind musiccore.Kind, to musiccore.SessionID) (musiccore.Answer, error) {
	told, err := p.ask(ctx, r.At, pathBegin, question{Key: toWire(r.Key), Ref: r.Ref, Kind: kind, LendTo: borrower(to)}, p.channel.OpTimeout+networkTime)
	return told.answer(r.Key, r.At), err
}

// Force ends the lock of a key if ref still holds it when the question arrives.
func (p *Client) Force(ctx context.Context, at musiccore.SessionID, k musiccore.Key, ref musiccore.LockRef, f frontend.Force) (musiccore.Answer, error) {
	r, err := p.ask(ctx, at, pathForce, question{Key: toWire(k), Ref: ref, By: f.By, Reason: f.Reason}, p.channel.Wait+networkTime)
	return r.answer(k, at), err
}

// List returns the locks of another proxy; more reports whether it has more than these.
func (p *Client) List(ctx context.Context, at musiccore.SessionID, only musiccore.Key) (all []musiccore.Listing, more bool, err error) {
	r, err := p.ask(ctx, at, pathList, question{Key: toWire(only)}, ListLimit)
	for _, l := range r.Locks {
		l.Listing.Key = l.Key.key()
		all = append(all, l.Listing)
	}
	return all, r.More, err
}

// End returns a borrowed ticket, and returns what the client may be told. If there is no reply that
// is VerdictUncertain, or VerdictTell for an operation that Cassandra has refused. For as long as a LOCK
// may wait the question is repeated: who has lent waits for what does not come back, and a run of
// references would be lost. That is safe: the answer is VerdictUncertain if two of them arrive.
func (p *Client) End(ctx context.Context, t musiccore.Ticket, o musiccore.Outcome) musiccore.Verdict {
	q := question{Key: toWire(t.Key), Ref: t.Ref, Ticket: &wireTicket{Ticket: t}, Outcome: o}
	limit := p.channel.Wait + networkTime
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ctx.Err() == nil {
		r, err := p.ask(ctx, t.Lender, pathEnd, q, limit)
		if err == nil && r.err() == nil {
			return r.Verdict
		}
		if err == nil {
			break // another session is there
		}
		select {
		case <-ctx.Done():
		case <-time.After(endPause):
		}
	}
	if o == musiccore.OutcomeRefused {
		return musiccore.VerdictTell
	}
	return musiccore.VerdictUncertain
}
