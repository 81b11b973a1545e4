package proxy

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
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"music/config"
	"music/musiccore"
)

const (
	peerDial    = time.Second            // for a connection to another proxy
	peerUnused  = time.Minute            // how long a connection that nobody uses is kept
	peerSpare   = 64                     // connections to one proxy that are kept so
	maxReply    = 16 << 20               // bytes
	listLimit   = time.Second            // for all proxies together to list their locks
	complaints  = 5                      // lines a minute about proxies that do not answer
	networkTime = 300 * time.Millisecond // beside the time that an operation may take at the other proxy
)

// peers asks other proxies.
type peers struct {
	sessions *sessions
	self     func() musiccore.SessionID
	seal     seal
	scheme   string
	client   *http.Client
	options  musiccore.Options
	log      zerolog.Logger
	asked    *prometheus.CounterVec
	hints    hints
}

// newPeers asks nobody yet. keys is nil where proxies do not know each other by certificates.
func newPeers(c config.Peers, keys *keyring, l *life, log zerolog.Logger, r prometheus.Registerer) *peers {
	dialer := &net.Dialer{Timeout: peerDial}
	transport := &http.Transport{
		DialContext: dialer.DialContext, MaxIdleConnsPerHost: peerSpare, IdleConnTimeout: peerUnused, DisableCompression: true,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return (&tls.Dialer{NetDialer: dialer, Config: keys.config()}).DialContext(ctx, network, address)
		},
	}
	p := &peers{
		sessions: &l.others, self: func() musiccore.SessionID { return l.self.Load().ID() },
		seal: seal(c.Secret), scheme: "http", client: &http.Client{Transport: transport}, options: l.options,
		hints: hints{queues: map[musiccore.SessionID]*hintQueue{}},
		log:   sampled(log),
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "music_peer_requests_total", Help: "What other proxies were asked, by what and whether they answered.",
		}, []string{"asked", "answered"}),
	}
	if keys != nil {
		p.scheme = "https"
	}
	r.MustRegister(p.asked)
	return p
}

// sampled writes so many lines a minute that nobody can fill the log.
func sampled(log zerolog.Logger) zerolog.Logger {
	return log.Sample(&zerolog.BurstSampler{Burst: complaints, Period: time.Minute})
}

// close waits until nothing is sent any more. Nobody asks after it.
func (p *peers) close() {
	p.hints.running.Wait()
	p.client.CloseIdleConnections()
}

// ask asks the proxy of a session within limit. The error is an errPeer, and its text names no address: it is for clients.
func (p *peers) ask(ctx context.Context, at musiccore.SessionID, path string, q question, limit time.Duration) (reply, error) {
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
	case errors.Is(err, errPeerVersion):
		return r, errPeerVersion
	case errors.Is(err, errNoAddress):
		return r, errNoAddress
	case errors.Is(err, errNotAsked), errors.As(err, &op) && op.Op == "dial":
		return r, errNotAsked
	}
	return r, errPeer
}

// exchange sends a question and reads its reply.
func (p *peers) exchange(ctx context.Context, at musiccore.SessionID, path string, q question) (r reply, err error) {
	address, err := p.sessions.address(ctx, at)
	if err != nil {
		return r, err
	}
	q.Session = uuid.UUID(at)
	body, err := json.Marshal(q)
	if err != nil {
		return r, fmt.Errorf("%w: %w", errNotAsked, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.scheme+"://"+address+path, bytes.NewReader(body))
	if err != nil {
		return r, fmt.Errorf("%w: %w", errNotAsked, err)
	}
	request.Header.Set(headerVersion, peerVersion)
	p.seal.request(request, body)
	response, err := p.client.Do(request)
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

// understand reads a reply.
func (p *peers) understand(request *http.Request, response *http.Response, told []byte, r *reply) error {
	if version := response.Header.Get(headerVersion); version != peerVersion {
		return fmt.Errorf("%w: %q", errPeerVersion, version)
	}
	if err := p.seal.checkResponse(request.Header, response.Header, response.StatusCode, told); err != nil {
		return err
	}
	switch {
	case response.StatusCode >= http.StatusInternalServerError:
		return fmt.Errorf("%w: %s: %s", errPeer, response.Status, told)
	case response.StatusCode != http.StatusOK:
		return fmt.Errorf("%w: %s: %s", errNotAsked, response.Status, told)
	}
	if len(told) > maxReply {
		return fmt.Errorf("a reply of more than %d bytes", maxReply)
	}
	if err := json.Unmarshal(told, r); err != nil {
		return fmt.Errorf("read a reply: %w", err)
	}
	return nil
}

// lock asks for LOCK … USING LOCK.
func (p *peers) lock(ctx context.Context, at musiccore.SessionID, k musiccore.Key, q musiccore.Request) (musiccore.Answer, error) {
	wait := p.options.Wait
	if !q.NoWait && q.Wait > 0 {
		wait = q.Wait
	}
	r, err := p.ask(ctx, at, askLock, question{Key: toWire(k), Ref: q.Ref, Lock: &q}, wait+networkTime)
	return r.answer(k, at), err
}

func (p *peers) unlock(ctx context.Context, at musiccore.SessionID, k musiccore.Key, ref musiccore.LockRef) (musiccore.Answer, error) {
	r, err := p.ask(ctx, at, askUnlock, question{Key: toWire(k), Ref: ref}, p.options.Wait+networkTime)
	return r.answer(k, at), err
}

// begin borrows a ticket. Without a reply nothing has been sent, and what was perhaps lent is nobody's.
func (p *peers) begin(ctx context.Context, at musiccore.SessionID, k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind) (musiccore.Answer, error) {
	r, err := p.ask(ctx, at, askBegin, question{Key: toWire(k), Ref: ref, Kind: kind}, p.options.OpTimeout+networkTime)
	return r.answer(k, at), err
}

// force ends the tenure of a key that a reference is of, and no other: it may have ended when the question gets there.
func (p *peers) force(ctx context.Context, at musiccore.SessionID, k musiccore.Key, ref musiccore.LockRef, reason string) (musiccore.Answer, error) {
	r, err := p.ask(ctx, at, askForce, question{Key: toWire(k), Ref: ref, Reason: reason}, p.options.Wait+networkTime)
	return r.answer(k, at), err
}

// living are the sessions that live, but for this proxy's own, with their addresses.
func (p *peers) living(ctx context.Context) (map[musiccore.SessionID]string, error) {
	if err := p.sessions.look(ctx); err != nil {
		return nil, err
	}
	return p.sessions.living(p.self()), nil
}

// list tells the locks of another proxy; more tells that there are more of them.
func (p *peers) list(ctx context.Context, at musiccore.SessionID, only musiccore.Key) (all []musiccore.Listing, more bool, err error) {
	r, err := p.ask(ctx, at, askList, question{Key: toWire(only)}, listLimit)
	for _, l := range r.Locks {
		l.Listing.Key = l.Key.key()
		all = append(all, l.Listing)
	}
	return all, r.More, err
}

// end gives a borrowed ticket back. Without a reply nobody knows, but for what Cassandra refused. To say it twice does no harm: the
// second is told VerdictUncertain where the first was heard.
func (p *peers) end(ctx context.Context, t musiccore.Ticket, o musiccore.Outcome) musiccore.Verdict {
	q := question{Key: toWire(t.Key), Ref: t.Ref, Ticket: &wireTicket{Ticket: t}, Outcome: o}
	for range 2 {
		r, err := p.ask(ctx, t.Lender, askEnd, q, p.options.Wait)
		if err == nil && r.err() == nil {
			return r.Verdict
		}
	}
	if o == musiccore.OutcomeRefused {
		return musiccore.VerdictTell
	}
	return musiccore.VerdictUncertain
}
