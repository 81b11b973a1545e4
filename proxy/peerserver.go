package proxy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"music/config"
	"music/musiccore"
)

// Bounds of what another proxy, or whoever pretends to be one, can make this proxy hold.
const (
	maxQuestion  = 1 << 20          // bytes; a routing key has 64 KiB at most
	peerConns    = 1024             // connections at a time of proxies
	peerUnknown  = 256              // … and of those that have not asked anything yet that they may ask
	peerEach     = 32               // … of one address
	peerRead     = 5 * time.Second  // for a question to arrive
	peerWrite    = 10 * time.Second // for a reply to be taken
	peerIdle     = 3 * time.Minute  // longer than the other side keeps a connection that it does not use
	maxListed    = 10_000           // locks in one reply
	headersBytes = 8 << 10
)

// peerServer answers other proxies: operations on the references of this one's session (docs/protocol.md 3.15, Remote).
type peerServer struct {
	locks    *locks
	session  func() musiccore.SessionID
	seal     seal
	seen     nonces
	log      zerolog.Logger // sampled: whoever gets here can fill it
	draining atomic.Bool    // no more tickets and no more waiting: who asks goes on when this session has ended
}

// openPeers listens for other proxies and tells the address that they dial; nobody is answered before serve. Both are empty where the
// configuration has no channel.
func openPeers(ctx context.Context, p config.Peers, keys *keyring) (net.Listener, string, error) {
	if p.Listen == "" {
		return nil, "", nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", p.Listen)
	if err != nil {
		return nil, "", fmt.Errorf("listen for other proxies at %s (setting peer-listen): %w", p.Listen, err)
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return nil, "", fmt.Errorf("listen for other proxies: %w", err)
	}
	ln = newCrowd(ln, crowdBounds{strangers: peerUnknown, each: peerEach, known: peerConns, patience: peerRead})
	address := net.JoinHostPort(p.AdvertiseHost(), port)
	if keys == nil {
		return ln, address, nil
	}
	return tls.NewListener(ln, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return keys.config(), nil },
	}), address, nil
}

// serve answers on ln until ctx ends, and what is under way with it.
func (s *peerServer) serve(ctx context.Context, ln net.Listener) {
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: peerRead, IdleTimeout: peerIdle, MaxHeaderBytes: headersBytes,
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: withGuest,
	}
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		_ = server.Shutdown(limited) // what is under way ends with ctx
		_ = server.Close()
	})
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error().Err(err).Msg("other proxies are not answered any more")
	}
	closing.Wait()
}

// handler is the table of what can be asked.
func (s *peerServer) handler() http.Handler {
	mux := http.NewServeMux()
	for path, f := range map[string]func(context.Context, question) reply{
		askLock: s.lock, askUnlock: s.unlock, askBegin: s.begin, askEnd: s.end, askForce: s.force, askHint: s.hint, askList: s.list,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, f) })
	}
	return mux
}

// answer carries out one question of whoever may ask.
func (s *peerServer) answer(w http.ResponseWriter, r *http.Request, f func(context.Context, question) reply) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(peerRead))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
	_ = control.SetReadDeadline(time.Time{}) // from now on only the end of the connection is read
	status, told := http.StatusBadRequest, []byte("the question is too large, or did not arrive in time")
	switch {
	case err != nil:
	case r.Header.Get(headerVersion) != peerVersion:
		status, told = http.StatusUpgradeRequired, []byte("this proxy speaks version "+peerVersion+" of the peer protocol")
	default:
		status, told = s.reply(r, body, f)
	}
	if status != http.StatusOK {
		w.Header().Set("Connection", "close") // who does not know how to ask is not kept
		s.log.Warn().Str("peer", r.RemoteAddr).Str("asked", r.URL.Path).Int("status", status).Bytes("told", told).Msg("a question of another proxy was refused")
	}
	_ = control.SetWriteDeadline(time.Now().Add(peerWrite))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(headerVersion, peerVersion)
	w.Header().Set(headerSeal, s.seal.response(r.Header, status, told))
	w.WriteHeader(status)
	_, _ = w.Write(told) //nolint:gosec // JSON that a proxy reads, and no browser
}

// reply carries out a question whose version is right.
func (s *peerServer) reply(r *http.Request, body []byte, f func(context.Context, question) reply) (status int, told []byte) {
	if err := s.seal.checkRequest(r, body); err != nil {
		return http.StatusUnauthorized, []byte(err.Error())
	}
	if s.seal != "" && !s.seen.first(r.Header.Get(headerNonce), time.Now()) {
		return http.StatusUnauthorized, []byte("this question has been asked before")
	}
	if !welcomed(r.Context()) {
		return http.StatusServiceUnavailable, []byte("too many connections of other proxies")
	}
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return http.StatusBadRequest, []byte("the question cannot be read")
	}
	var answer reply
	if musiccore.SessionID(q.Session) == s.session() {
		answer = f(r.Context(), q)
	} else {
		answer.fail(errStranger)
	}
	told, err := json.Marshal(answer)
	if err != nil {
		return http.StatusInternalServerError, []byte(err.Error())
	}
	return http.StatusOK, told
}

// lock is LOCK … USING LOCK. A reference is only ever given by the proxy that its client is connected to.
func (s *peerServer) lock(ctx context.Context, q question) reply {
	if q.Lock == nil || q.Ref < 1 {
		return replyTo(musiccore.Answer{Err: musiccore.ErrNotHeld})
	}
	if s.draining.Load() {
		return replyTo(musiccore.Answer{Err: musiccore.ErrDraining})
	}
	q.Lock.Ref = q.Ref
	return replyTo(await(ctx, func(done func(musiccore.Answer)) (gone func()) { return s.locks.lockHere(q.Key.key(), *q.Lock, done) }))
}

func (s *peerServer) unlock(ctx context.Context, q question) reply {
	return replyTo(await(ctx, func(done func(musiccore.Answer)) (gone func()) { return s.locks.unlockHere(q.Key.key(), q.Ref, done) }))
}

// begin lends a ticket. One that nobody waits for any more has certainly not been used.
func (s *peerServer) begin(ctx context.Context, q question) reply {
	if s.draining.Load() {
		return replyTo(musiccore.Answer{Err: musiccore.ErrDraining})
	}
	a := await(ctx, func(done func(musiccore.Answer)) (gone func()) {
		return s.locks.beginHere(q.Key.key(), q.Ref, q.Kind, done)
	})
	if a.Ticket.OK() && ctx.Err() != nil {
		s.locks.End(a.Ticket, musiccore.OutcomeRefused)
	}
	return replyTo(a)
}

// force ends the holder here; who asked, and why, is in its reason.
func (s *peerServer) force(ctx context.Context, q question) reply {
	return replyTo(await(ctx, func(done func(musiccore.Answer)) (gone func()) {
		return s.locks.forceHere(q.Key.key(), q.Ref, q.Reason, done)
	}))
}

func (s *peerServer) hint(_ context.Context, q question) reply {
	for _, w := range q.Hints {
		h := w.hint(musiccore.SessionID(q.Session))
		s.locks.of(h.Key).call(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Hear(now, h) })
	}
	return reply{}
}

func (s *peerServer) end(_ context.Context, q question) reply {
	if q.Ticket == nil {
		return reply{}
	}
	t := q.Ticket.Ticket
	t.Key, t.Lender = q.Key.key(), musiccore.SessionID{}
	v, wait := s.locks.End(t, q.Outcome)
	if wait != nil {
		v = wait()
	}
	return reply{Verdict: v}
}

func (s *peerServer) list(_ context.Context, q question) reply {
	var r reply
	for _, l := range s.locks.listHere(q.Key.key()) {
		if len(r.Locks) == maxListed {
			r.More = true
			break
		}
		r.Locks = append(r.Locks, wireListing{Listing: l, Key: toWire(l.Key)})
	}
	return r
}
