package peer

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"music/frontend/refusal"
	"music/musiccore"
)

// Version is the version of the messages between proxies, and of the rows that they write for each
// other in Cassandra. A release also speaks the version before (docs/several-proxies.md,
// Upgrading): to a proxy of that version it sends and writes only what that one understands.
const Version = 4

// versionUnsaid is the version of proxies that have written none to music.sessions.
const versionUnsaid = 3

// Spoken returns the version of a proxy whose version in music.sessions is v; 0 = none.
func Spoken(v int) int { return cmp.Or(v, versionUnsaid) }

// Fits reports whether proxies of this version and of another can run in one cluster.
func Fits(other int) bool { return other >= Version-1 && other <= Version+1 }

// understood returns the version in a message's header; ok reports whether this release speaks it.
func understood(header string) (v int, ok bool) {
	v, err := strconv.Atoi(header)
	return v, err == nil && v >= Version-1 && v <= Version
}

// Headers of the channel between proxies.
const (
	headerVersion = "Music-Peer-Version"
	headerTime    = "Music-Peer-Time"  // of a request, Unix time in milliseconds
	headerNonce   = "Music-Peer-Nonce" // of a sealed request, different for each
	headerSeal    = "Music-Peer-Seal"
)

// The paths of requests to another proxy (docs/design.md 3). Each is a POST of a question, answered
// with a reply.
const (
	pathLock   = "/lock" // wait with a reference, or renew it; without one, wait for a place in a block
	pathUnlock = "/unlock"
	pathBegin  = "/begin"
	pathEnd    = "/end"
	pathForce  = "/force"
	pathHint   = "/hint"
	pathList   = "/list"
)

// lendTo returns the session that takes a loan; zero if none does.
func (q *question) lendTo() musiccore.SessionID {
	if q.LendTo == nil {
		return musiccore.SessionID{}
	}
	return musiccore.SessionID(*q.LendTo)
}

// ticket returns the ticket as the session that is asked has given it.
func (q *question) ticket() musiccore.Ticket {
	t := q.Ticket.Ticket
	t.Key, t.Lender = q.Key.key(), musiccore.SessionID{}
	return t
}

// question is a request to another proxy. The path says which fields are set.
type question struct {
	Session  uuid.UUID          `json:"session"` // the session that is asked; any other refuses (docs/protocol.md 3.15, Remote)
	Key      wireKey            `json:"key"`
	Ref      musiccore.LockRef  `json:"ref,omitempty"`
	Lock     *musiccore.Request `json:"lock,omitempty"`
	Kind     musiccore.Kind     `json:"kind,omitempty"`
	LendTo   *uuid.UUID         `json:"lend_to,omitempty"`   // for Begin and Lock: the session that asks, if it takes loans
	OwnToken bool               `json:"own_token,omitempty"` // for Lock: Asker.OwnToken
	Ticket   *wireTicket        `json:"ticket,omitempty"`    // for End, and for Unlock: a loan that is given back with it
	Outcome  musiccore.Outcome  `json:"outcome,omitempty"`
	By       musiccore.Client   `json:"by"`               // for Unlock and Force: the client
	Reason   string             `json:"reason,omitempty"` // for Force
	Hints    []wireHint         `json:"hints,omitempty"`
}

// wireHint is a hint to the question's session.
type wireHint struct {
	musiccore.Hint
	Key wireKey   `json:"Key"`
	To  *struct{} `json:"To,omitempty"` // always nil: it hides Hint.To
}

// hint returns the hint to a session.
func (w wireHint) hint(to musiccore.SessionID) musiccore.Hint {
	h := w.Hint
	h.Key, h.To = w.Key.key(), to
	return h
}

// reply is the answer to a question. The path says which fields are set.
type reply struct {
	Fault   string              `json:"fault,omitempty"`  // the text of one of faults
	Detail  string              `json:"detail,omitempty"` // the whole text of the error, for people to read
	Short   *refusal.ShortError `json:"short,omitempty"`  // if the error is Cassandra's UNAVAILABLE
	Session uuid.UUID           `json:"session"`          // for an ElsewhereError
	Grant   musiccore.Grant     `json:"grant"`
	Ticket  *wireTicket         `json:"ticket,omitempty"`
	Verdict musiccore.Verdict   `json:"verdict,omitempty"`
	Locks   []wireListing       `json:"locks,omitempty"`
	More    bool                `json:"more,omitempty"` // there are more locks than these
}

// wireKey is a key in JSON. A routing key is not a text.
type wireKey struct {
	Table uuid.UUID `json:"table"`
	PK    []byte    `json:"pk,omitempty"`
}

// toWire returns the key for JSON.
func toWire(k musiccore.Key) wireKey { return wireKey{uuid.UUID(k.Table), []byte(k.PK)} }

// key returns the key as the core has it.
func (k wireKey) key() musiccore.Key { return musiccore.Key{Table: k.Table, PK: string(k.PK)} }

// wireTicket is a ticket without its key, which is in the question.
type wireTicket struct {
	musiccore.Ticket
	Key *struct{} `json:"Key,omitempty"` // always nil: it hides Ticket.Key
}

// wireListing is a listing in JSON.
type wireListing struct {
	musiccore.Listing
	Key wireKey `json:"Key"`
}

// Errors of a [Client]. Their texts are shown to clients, so they name no address.
var (
	// ErrAway means that another proxy could not be reached or has not answered. The question may
	// have been carried out.
	ErrAway = refusal.ErrAway
	// ErrNotAsked wraps ErrAway. The question has not been carried out.
	ErrNotAsked = fmt.Errorf("%w", ErrAway)
	// ErrNoAddress wraps ErrNotAsked: the proxy of the session does not listen for other proxies.
	ErrNoAddress error = &described{ErrNotAsked, "the proxy that has this lock_ref does not listen for other proxies: continue at that proxy, or here when it has ended; " +
		"an operator should set peer-listen on each proxy"}
	// ErrOtherSession means that another session is at the address of the one that was meant.
	ErrOtherSession = errors.New("another session is at that address")

	errVersion error = &described{ErrAway, "the proxy that has this lock_ref speaks another version of the peer protocol: continue at that proxy, or here when it has ended; " +
		"an operator should run releases that speak with each other"}
)

// described is an error with a text of its own instead of that of the error that it wraps.
type described struct {
	error
	text string
}

// Error returns the error's own text.
func (d *described) Error() string { return d.text }

// Unwrap returns the wrapped error.
func (d *described) Unwrap() error { return d.error }

// faults returns the errors that are passed through the channel. If an error wraps several of them,
// the last one counts.
func faults() []error {
	return []error{
		musiccore.ErrNotHeld, musiccore.ErrLost, musiccore.ErrReleased, musiccore.ErrSynchronising, musiccore.ErrPoisoned, musiccore.ErrTooLarge, musiccore.ErrNoSession,
		musiccore.ErrClock, musiccore.ErrDraining, musiccore.ErrTooManyWaiters, musiccore.ErrUnavailable, musiccore.ErrNoBlock, ErrOtherSession,
	}
}

// fail puts an error into the reply.
func (r *reply) fail(err error) {
	var elsewhere *musiccore.ElsewhereError
	if errors.As(err, &elsewhere) {
		r.Fault, r.Session = musiccore.ErrElsewhere.Error(), uuid.UUID(elsewhere.Session)
		return
	}
	r.Fault, r.Detail = musiccore.ErrUnavailable.Error(), err.Error()
	_ = errors.As(err, &r.Short)
	for _, fault := range faults() {
		if errors.Is(err, fault) {
			r.Fault = fault.Error()
		}
	}
}

// err returns the error of the reply, or nil.
func (r *reply) err() error {
	if r.Fault == musiccore.ErrElsewhere.Error() {
		return &musiccore.ElsewhereError{Session: musiccore.SessionID(r.Session)}
	}
	for _, fault := range faults() {
		switch {
		case r.Fault == fault.Error() && r.Short != nil:
			return fmt.Errorf("%w: %w", fault, r.Short)
		case r.Fault == fault.Error():
			return detailed(fault, r.Detail)
		}
	}
	if r.Fault != "" {
		return detailed(musiccore.ErrUnavailable, r.Fault)
	}
	return nil
}

// detailed returns an error with the text that it had at the other proxy.
func detailed(err error, detail string) error {
	detail = strings.TrimPrefix(strings.TrimPrefix(detail, err.Error()), ": ")
	if detail == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, detail)
}

// answer returns the reply as an answer of the core of session from.
func (r *reply) answer(k musiccore.Key, from musiccore.SessionID) musiccore.Answer {
	a := musiccore.Answer{Grant: r.Grant, Err: r.err()}
	if r.Ticket != nil {
		a.Ticket = r.Ticket.Ticket
		a.Ticket.Key, a.Ticket.Lender = k, from
	}
	return a
}

// replyTo returns a core's answer as a reply.
func replyTo(a musiccore.Answer) reply {
	r := reply{Grant: a.Grant}
	if a.Err != nil {
		r.fail(a.Err)
	}
	if a.Ticket.OK() {
		r.Ticket = &wireTicket{Ticket: a.Ticket}
	}
	return r
}
