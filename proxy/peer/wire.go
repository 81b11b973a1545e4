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

// Version is the version of the messages between proxies, and of what they write for each other in
// Cassandra. A release also speaks the one before (docs/several-proxies.md, Upgrading): it sends a
// proxy of that version, and writes, only what that one understands.
const Version = 4

// versionUnsaid is that of proxies that do not say theirs in music.sessions.
const versionUnsaid = 3

// Spoken returns the version of a proxy that has said v in music.sessions, where 0 is nothing.
func Spoken(v int) int { return cmp.Or(v, versionUnsaid) }

// Fits reports whether a proxy of this version and one of another can run in one cluster.
func Fits(other int) bool { return other >= Version-1 && other <= Version+1 }

// understood returns the version of a message, by its header, and whether this release speaks it.
func understood(header string) (v int, ok bool) {
	v, err := strconv.Atoi(header)
	return v, err == nil && v >= Version-1 && v <= Version
}

// Headers of the channel between proxies.
const (
	headerVersion = "Music-Peer-Version"
	headerTime    = "Music-Peer-Time"  // of a request, Unix milliseconds
	headerNonce   = "Music-Peer-Nonce" // of a sealed request, never the same again
	headerSeal    = "Music-Peer-Seal"
)

// What one proxy can ask another (docs/design.md 3): paths of POST requests with a question,
// answered with a reply.
const (
	pathLock   = "/lock" // of a reference: wait, ask, renew
	pathUnlock = "/unlock"
	pathBegin  = "/begin"
	pathEnd    = "/end"
	pathForce  = "/force"
	pathHint   = "/hint"
	pathList   = "/list"
)

// question is what a proxy asks; which fields it has depends on the path.
type question struct {
	Session uuid.UUID          `json:"session"` // that is asked; any other refuses (docs/protocol.md 3.15, Remote)
	Key     wireKey            `json:"key"`
	Ref     musiccore.LockRef  `json:"ref,omitempty"`
	Lock    *musiccore.Request `json:"lock,omitempty"`
	Kind    musiccore.Kind     `json:"kind,omitempty"`
	Ticket  *wireTicket        `json:"ticket,omitempty"`
	Outcome musiccore.Outcome  `json:"outcome,omitempty"`
	By      musiccore.Client   `json:"by"`               // of an Unlock and a Force: the client that asks
	Reason  string             `json:"reason,omitempty"` // of a Force
	Hints   []wireHint         `json:"hints,omitempty"`
}

// wireHint is a hint to the session that the question is to.
type wireHint struct {
	musiccore.Hint
	Key wireKey   `json:"Key"`
	To  *struct{} `json:"To,omitempty"` // nil; it hides the hint's own
}

// hint returns the hint as it was sent to a session.
func (w wireHint) hint(to musiccore.SessionID) musiccore.Hint {
	h := w.Hint
	h.Key, h.To = w.Key.key(), to
	return h
}

// reply is the answer to a question; which fields it has depends on the path.
type reply struct {
	Fault   string              `json:"fault,omitempty"`  // text of one of faults
	Detail  string              `json:"detail,omitempty"` // the whole text of that error, for people
	Short   *refusal.ShortError `json:"short,omitempty"`  // where the error is Cassandra's
	Session uuid.UUID           `json:"session"`          // of ErrElsewhere
	Grant   musiccore.Grant     `json:"grant"`
	Ticket  *wireTicket         `json:"ticket,omitempty"`
	Verdict musiccore.Verdict   `json:"verdict,omitempty"`
	Locks   []wireListing       `json:"locks,omitempty"`
	More    bool                `json:"more,omitempty"` // there are more locks than were told
}

// wireKey is a key as JSON can carry it: routing keys are not text.
type wireKey struct {
	Table uuid.UUID `json:"table"`
	PK    []byte    `json:"pk,omitempty"`
}

// toWire returns a key as JSON can carry it.
func toWire(k musiccore.Key) wireKey { return wireKey{uuid.UUID(k.Table), []byte(k.PK)} }

func (k wireKey) key() musiccore.Key { return musiccore.Key{Table: k.Table, PK: string(k.PK)} }

// wireTicket is a ticket without its key, which stands in the question.
type wireTicket struct {
	musiccore.Ticket
	Key *struct{} `json:"Key,omitempty"` // nil; it hides the ticket's own
}

// wireListing is a listing with its key as JSON can carry it.
type wireListing struct {
	musiccore.Listing
	Key wireKey `json:"Key"`
}

// Errors of a [Client]. Their texts name no address: clients of the proxy read them.
var (
	// ErrAway tells that another proxy could not be asked or did not answer. What was asked may
	// have been carried out.
	ErrAway = refusal.ErrAway
	// ErrNotAsked is an ErrAway after which nothing has been carried out.
	ErrNotAsked = fmt.Errorf("%w", ErrAway)
	// ErrNoAddress is an ErrNotAsked of a session whose proxy answers no others.
	ErrNoAddress error = &described{ErrNotAsked, "the proxy that has this lock_ref answers no others: go on at that proxy, or here when it has ended; " +
		"whoever runs the proxies sets peer-listen on each"}
	// ErrOtherSession tells that another session is at the address of the one that was meant.
	ErrOtherSession = errors.New("another session is at that address")

	errVersion error = &described{ErrAway, "the proxy that has this lock_ref speaks another version of the peer protocol: go on at that proxy, or here when it has ended; " +
		"whoever runs the proxies runs releases on them that speak with each other"}
)

// described is an error whose own text would promise too much here.
type described struct {
	error
	text string
}

// Error is the text alone.
func (d *described) Error() string { return d.text }

// Unwrap returns the error that it is one of.
func (d *described) Unwrap() error { return d.error }

// faults are the errors that mean the same at both ends of the channel. Where an error is several
// of them, the last one counts.
func faults() []error {
	return []error{
		musiccore.ErrNotHeld, musiccore.ErrLost, musiccore.ErrReleased, musiccore.ErrSynchronising, musiccore.ErrPoisoned, musiccore.ErrTooLarge, musiccore.ErrNoSession,
		musiccore.ErrClock, musiccore.ErrDraining, musiccore.ErrTooManyWaiters, musiccore.ErrUnavailable, ErrOtherSession,
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

// detailed returns an error with the text that it had at the other end.
func detailed(err error, detail string) error {
	detail = strings.TrimPrefix(strings.TrimPrefix(detail, err.Error()), ": ")
	if detail == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, detail)
}

// answer returns the reply as the core of a session would have given it.
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
