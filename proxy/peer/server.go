package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"music/config"
	"music/frontend"
	"music/musiccore"
	"music/proxy/certs"
	"music/proxy/connlimit"
)

// Bounds of the resources that another proxy, or a client that pretends to be one, can use.
const (
	maxQuestion   = 1 << 20                // bytes; a routing key has 64 KiB at most
	smallQuestion = 16 << 10               // bytes; of an unknown sender a larger one …
	largeAtOnce   = 16                     // … is read beside so many others at most
	maxTrusted    = 8192                   // open connections of proxies: 1024 of each of eight may wait for locks
	maxUntrusted  = 1024                   // open connections on which no accepted question has come yet
	maxEach       = 256                    // … of one address: as many may a proxy open at once
	readLimit     = 5 * time.Second        // for a question to arrive
	writeLimit    = 10 * time.Second       // for a reply to be read
	idleLimit     = 3 * time.Minute        // longer than unusedLimit, so that the other side closes first
	closeLimit    = 300 * time.Millisecond // for the last replies
	maxHeaders    = 8 << 10                // bytes
)

// MaxListed is the most locks that one proxy lists.
const MaxListed = 10_000

// The size of a list of locks in JSON, in bytes.
const (
	maxListing   = 4 << 20 // of all: less than maxReply, since all of it must arrive within ListLimit
	listingBytes = 256     // more than what a listing takes beside its key and its owner
)

// Sections carries out operations on the references of this proxy's own session. Each method blocks
// until the core's answer. If ctx ends before, the operation is cancelled and the answer has an
// error. Apart from that the errors are those of frontend.Locker and frontend.OperationGuard.
type Sections interface {
	// Lock is LOCK with a reference, or for a new one with PlaceBlock; a Grant of that comes with a loan
	// to session to.
	Lock(ctx context.Context, k musiccore.Key, q musiccore.Request, to musiccore.SessionID) musiccore.Answer
	// Unlock releases a reference. If back has a ticket, that is a loan which is given back before.
	Unlock(ctx context.Context, k musiccore.Key, r musiccore.LockRef, by musiccore.Client, back musiccore.Return) musiccore.Answer
	// Begin lends a ticket, or, if to is not zero, perhaps a loan to that session.
	Begin(ctx context.Context, k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, to musiccore.SessionID) musiccore.Answer
	// End ends an operation by its ticket, and blocks until the verdict.
	End(t musiccore.Ticket, o musiccore.Outcome) musiccore.Verdict
}

// Queues gives access to the queues of this proxy's keys.
type Queues interface {
	// Force ends the lock of a reference if it is held at this proxy. It blocks until the answer.
	Force(ctx context.Context, k musiccore.Key, r musiccore.LockRef, f frontend.Force) musiccore.Answer
	// List returns at most so many holders and waiters at this proxy; if only is not zero, those of
	// its table or key.
	List(only musiccore.Key, most int) []musiccore.Listing
	// Hear processes a hint of another proxy. It does not block.
	Hear(h musiccore.Hint)
}

// Server carries out other proxies' questions: operations on the references of this proxy's
// session.
type Server struct {
	sections Sections
	queues   Queues
	session  func() musiccore.SessionID
	seal     seal
	seen     nonces
	log      zerolog.Logger
	draining atomic.Bool
	large    chan struct{} // holds a value for each large question of an unknown sender that is being read
}

// NewServer returns a server; Serve starts it. session returns the proxy's own session: a question
// to any other is refused. log should be sampled: any client that reaches the port can cause lines.
func NewServer(secret string, session func() musiccore.SessionID, s Sections, q Queues, log zerolog.Logger) *Server {
	return &Server{sections: s, queues: q, session: session, seal: seal(secret), log: log, large: make(chan struct{}, largeAtOnce)}
}

// Listen opens the port for other proxies and returns the address that they dial. [Server.Serve]
// answers on it. Both results are zero if the configuration has no such port.
func Listen(ctx context.Context, p config.Peers, source *certs.Source) (ln net.Listener, address string, err error) {
	if p.Listen == "" {
		return nil, "", nil
	}
	ln, err = new(net.ListenConfig).Listen(ctx, "tcp", p.Listen)
	if err != nil {
		return nil, "", fmt.Errorf("listen for other proxies at %s (setting peer-listen): %w", p.Listen, err)
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return nil, "", fmt.Errorf("listen for other proxies: %w", err)
	}
	limits := connlimit.Limits{Untrusted: maxUntrusted, PerAddress: maxEach, Trusted: maxTrusted, Patience: readLimit}
	return source.Listener(connlimit.New(ln, limits)), net.JoinHostPort(p.AdvertiseHost(), port), nil
}

// Drain makes the server refuse to lend tickets and to begin waits: the clients continue when this
// session has ended. Tickets that were lent before can still be returned.
func (s *Server) Drain() { s.draining.Store(true) }

// Serve answers on ln until ctx ends, which also cancels the questions that are being carried out.
// It returns when the last has been answered.
func (s *Server) Serve(ctx context.Context, ln net.Listener) {
	server := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: readLimit, IdleTimeout: idleLimit, MaxHeaderBytes: maxHeaders,
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: connlimit.ConnContext,
	}
	var closing sync.WaitGroup
	closing.Go(func() {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		_ = server.Shutdown(limited) // ctx has cancelled open questions
		_ = server.Close()
	})
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error().Err(err).Msg("other proxies are no longer answered")
	}
	closing.Wait()
}

// handler returns the table from path to method.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, f := range map[string]func(context.Context, question) reply{
		pathLock: s.lock, pathUnlock: s.unlock, pathBegin: s.begin, pathEnd: s.end, pathForce: s.force, pathHint: s.hint, pathList: s.list,
	} {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, f) })
	}
	return mux
}

// answer answers one HTTP request. It calls f if the sender is authenticated.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, f func(context.Context, question) reply) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(readLimit))
	body, err := s.read(w, r)
	_ = control.SetReadDeadline(time.Time{}) // no more is read, but the end of the connection is still to be seen
	status, told := http.StatusBadRequest, []byte("the question is too large, or has not arrived in time")
	version, ok := understood(r.Header.Get(headerVersion))
	switch {
	case err != nil:
	case !ok:
		version, status, told = Version, http.StatusUpgradeRequired, fmt.Appendf(nil, "this proxy speaks versions %d and %d of the peer protocol", Version-1, Version)
	default:
		status, told = s.reply(r, body, f)
	}
	if status != http.StatusOK {
		w.Header().Set("Connection", "close") // do not keep the connection of an unauthenticated sender
		s.log.Warn().Str("peer", r.RemoteAddr).Str("asked", r.URL.Path).Int("status", status).Bytes("told", told).Msg("a request of another proxy was refused")
	}
	_ = control.SetWriteDeadline(time.Now().Add(writeLimit))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set(headerVersion, strconv.Itoa(version))
	w.Header().Set(headerSeal, s.seal.response(r.Header, status, told))
	w.WriteHeader(status)
	_, _ = w.Write(told) //nolint:gosec // JSON that a proxy reads, and no browser
}

// errCrowded means that too many large questions of unknown senders are being read.
var errCrowded = errors.New("too many large questions at once")

// read reads a question. Until it is known who sends it one that is large, or does not say how large it is,
// waits for one of few places: else all that strangers care to send would be in memory before their seal is
// checked.
func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if size := r.ContentLength; (size < 0 || size > smallQuestion) && !connlimit.Trusted(r.Context()) {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		case <-time.After(readLimit):
			return nil, errCrowded
		}
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxQuestion))
}

// reply carries out a question of the right version.
func (s *Server) reply(r *http.Request, body []byte, f func(context.Context, question) reply) (status int, told []byte) {
	if err := s.seal.checkRequest(r, body); err != nil {
		return http.StatusUnauthorized, []byte(err.Error())
	}
	if s.seal != "" && !s.seen.first(r.Header.Get(headerNonce), time.Now()) {
		return http.StatusUnauthorized, []byte("this question has arrived before")
	}
	if !connlimit.Trust(r.Context()) {
		return http.StatusServiceUnavailable, []byte("too many connections of other proxies")
	}
	var q question
	if err := json.Unmarshal(body, &q); err != nil {
		return http.StatusBadRequest, []byte("the question is malformed")
	}
	var answer reply
	if musiccore.SessionID(q.Session) == s.session() {
		answer = f(r.Context(), q)
	} else {
		answer.fail(ErrOtherSession)
	}
	told, err := json.Marshal(answer)
	if err != nil {
		return http.StatusInternalServerError, []byte(err.Error())
	}
	return http.StatusOK, told
}

// lock carries out LOCK … USING LOCK, or LOCK for a place in a block. If the sender no longer waits, the loan that
// comes with the grant has not been used and is ended at once. If moreover the sender has asked for a place with a
// token of its own, nobody can come for the reference, and it is released.
func (s *Server) lock(ctx context.Context, q question) reply {
	if q.Lock == nil || q.Ref < 1 && q.Lock.Place != musiccore.PlaceBlock {
		return replyTo(musiccore.Answer{Err: musiccore.ErrNotHeld})
	}
	if s.draining.Load() {
		return replyTo(musiccore.Answer{Err: musiccore.ErrDraining})
	}
	q.Lock.Ref = q.Ref
	a := s.sections.Lock(ctx, q.Key.key(), *q.Lock, q.lendTo())
	switch {
	case ctx.Err() == nil:
	case q.OwnToken && q.Ref == 0 && a.Grant.Ref != 0:
		unused := musiccore.Return{Ticket: a.Ticket, Outcome: musiccore.OutcomeRefused}
		s.sections.Unlock(context.WithoutCancel(ctx), q.Key.key(), a.Grant.Ref, q.Lock.By, unused)
	case a.Ticket.OK():
		s.sections.End(a.Ticket, musiccore.OutcomeRefused)
	}
	return replyTo(a)
}

// unlock releases a reference, and takes back what was lent for it.
func (s *Server) unlock(ctx context.Context, q question) reply {
	var back musiccore.Return
	if q.Ticket != nil {
		back = musiccore.Return{Ticket: q.ticket(), Outcome: q.Outcome}
	}
	return replyTo(s.sections.Unlock(ctx, q.Key.key(), q.Ref, q.By, back))
}

// begin lends a ticket. If the sender no longer waits for it, it has not been used and is ended at
// once.
func (s *Server) begin(ctx context.Context, q question) reply {
	if s.draining.Load() {
		return replyTo(musiccore.Answer{Err: musiccore.ErrDraining})
	}
	a := s.sections.Begin(ctx, q.Key.key(), q.Ref, q.Kind, q.lendTo())
	if a.Ticket.OK() && ctx.Err() != nil {
		s.sections.End(a.Ticket, musiccore.OutcomeRefused)
	}
	return replyTo(a)
}

// end ends a ticket that was lent.
func (s *Server) end(_ context.Context, q question) reply {
	if q.Ticket == nil {
		return reply{}
	}
	return reply{Verdict: s.sections.End(q.ticket(), q.Outcome)}
}

// force ends the lock of a reference that is held at this proxy.
func (s *Server) force(ctx context.Context, q question) reply {
	return replyTo(s.queues.Force(ctx, q.Key.key(), q.Ref, frontend.Force{By: q.By, Reason: q.Reason}))
}

// hint passes hints to the core.
func (s *Server) hint(_ context.Context, q question) reply {
	for _, w := range q.Hints {
		s.queues.Hear(w.hint(musiccore.SessionID(q.Session)))
	}
	return reply{}
}

// list returns at most MaxListed locks, and no more than fit into maxListing.
func (s *Server) list(_ context.Context, q question) reply {
	var r reply
	left := maxListing
	for _, l := range s.queues.List(q.Key.key(), MaxListed+1) {
		left -= listingBytes + 2*len(l.Key.PK) + 6*len(l.Owner) // at most, in JSON
		if len(r.Locks) == MaxListed || left < 0 {
			r.More = true
			break
		}
		r.Locks = append(r.Locks, wireListing{Listing: l, Key: toWire(l.Key)})
	}
	return r
}
