package musiccore

import "time"

// OpID names one operation of a client while it waits. The caller chooses it; no two waiting
// operations of a Core share one. 0 is no operation.
type OpID uint64

// CommandID names one Command. The Core chooses it, never twice.
type CommandID uint64

// Effects is what the caller must do after a call: run the commands, deliver the answers, log the
// alarms and notes, send the hints, and call Tick at Wake. The order of commands does not matter.
// The slices belong to the caller, who may return them with Core.Reuse.
type Effects struct {
	Commands []Command
	Answers  []Answer
	Alarms   []Alarm
	Notes    []Note
	Hints    []Hint        // for other proxies; may be lost
	Returns  []Return      // loans to be given back to their lenders
	Wake     time.Duration // BOOTTIME of the next Tick; it replaces earlier ones; 0: none
}

// NoteKind is the kind of event that a Note reports.
type NoteKind uint8

// The events in the life of a lock. The caller need not react to them.
const (
	NoteGranted      NoteKind = iota + 1 // a reference became the holder
	NoteEnded                            // it no longer is: given back, expired or taken away
	NotePreempted                        // the head of a dead session was passed over
	NoteSynchronised                     // writes of older terms cannot surface any more
	NoteTakenOver                        // a dead session's reference goes on here
	NoteForced                           // the head was ended by Force
	NoteOrphaned                         // the holder's session has ended; its reference may go on elsewhere
)

// Note reports an event, for audit and metrics.
type Note struct {
	Key      Key
	Kind     NoteKind
	Ref      LockRef
	Owner    string        // the AS of its LOCK
	Client   Client        // of its last LOCK here; zero where there was none
	State    State         // of Ended: StateReleased or StateLost
	Reason   string        // of Forced: the reason that was given
	Duration time.Duration // Granted: waited; Ended and Orphaned: held
	InBlock  bool          // Granted, Ended, Orphaned: in a block (docs/protocol.md 3.17)

	// Of Granted, if the reference was already waiting when the lock before it ended, and this proxy
	// saw that end: HandedOver is true, and HandOver is the time since.
	HandedOver bool
	HandOver   time.Duration
}

// Command is one request to the store. The caller must Reply to each exactly once, however late,
// with StatusUnknown if the outcome is not certain.
type Command struct {
	ID     CommandID
	Key    Key // zero for ReadBeat
	Action Action
}

// Action is one of ReadRow, Apply, Synch, ReadStamps, ReadBeat.
type Action interface{ action() }

// ReadRow reads the lock row at LOCAL_ONE, or, with Quorum, at QUORUM. With Serial it shows every LWT
// that was decided before it, and returns once the last of them is on a quorum: it is read at SERIAL,
// or at QUORUM where it is certain that no proxy commits below that. With Completes it is read at SERIAL in any
// case, since no quorum shows a commit whose sender has died. It ends with StatusDone and Row
// (nil: no such row), or StatusUnknown.
type ReadRow struct{ Quorum, Serial, Completes bool }

// Apply runs one LWT. With Near it may be committed at LOCAL_QUORUM, if the caller knows that
// the cluster allows that (docs/protocol.md 3.1, lwt); Result.Near says whether it was. It ends with
// StatusDone (applied), StatusRefused, or, if the outcome is not certain, StatusUnknown: the
// Core then sends the same Swap again.
type Apply struct {
	Swap Swap
	Near bool
}

// Synch is one attempt to synchronise a key (docs/protocol.md 3.9, Synch): read it at QUORUM,
// interval by interval, and write each interval back in one mutation at QUORUM, DELETE at Fence
// and every cell at Fence+1. A WRITETIME >= Fence ends it with StatusAbove and the highest met.
// However it ends, some intervals may have been written; only StatusDone says that all were. It may
// take long if the key is large; operations that wait for it have time-outs of their own. It
// ends with StatusDone, StatusAbove, StatusTooLarge, StatusUnavailable or StatusUnknown.
type Synch struct{ Fence Stamp }

// ReadStamps reads a key at QUORUM and returns the highest WRITETIME of its cells as Stamp, 0 if
// there are none, and whether it is Empty. It ends with StatusDone, StatusUnknown, or, if the key is
// so large that a Synch costs little more, StatusTooLarge. The caller must know the columns as of a
// time after closed was raised to Closed; the time now is Clk. Early means that the lock is not
// granted yet: if the table still takes plain writes, the read is too early and ends with
// StatusUnknown.
type ReadStamps struct {
	Closed, Clk Stamp
	Early       bool
}

// ReadBeat reads another session's row of music.sessions at QUORUM. It ends with StatusDone, Beat
// (0: no such row) and Lease, or with StatusUnknown.
type ReadBeat struct{ Session SessionID }

func (ReadRow) action()    {}
func (Apply) action()      {}
func (Synch) action()      {}
func (ReadStamps) action() {}
func (ReadBeat) action()   {}

// Status is how a command ended.
type Status uint8

// The statuses. The comment of each Action says which of them it can end with.
const (
	StatusUnknown     Status = iota // failed, or may have happened or happen later
	StatusDone                      // read, applied, copied
	StatusRefused                   // the condition of the LWT was false
	StatusAbove                     // Synch met a stamp at or above the fence
	StatusTooLarge                  // Synch read a row that cannot be written back: Cause names it
	StatusUnavailable               // of a Synch: too few replicas live, as Cause says
)

// Result is the store's reply to a Command.
type Result struct {
	Status Status
	Row    *Row          // ReadRow
	Near   bool          // Apply: committed at LOCAL_QUORUM, so that a read at QUORUM may not show it
	Stamp  Stamp         // StatusAbove, ReadStamps: the highest stamp met
	Empty  bool          // ReadStamps: the key has no row
	Beat   int64         // ReadBeat
	Lease  time.Duration // ReadBeat: as it stands beside the beat; 0 where nothing does
	Gone   bool          // not of a ReadBeat: it was not sent, since the table is not critical any more, or no more at all
	Cause  error         // why, for the client and the log
}

// Kind is what an operation of a client does to the data.
type Kind uint8

// The paper's criticalPut and criticalGet (§III). Every page is one Get. A BlindPut is a Put for which
// Cassandra reads nothing of what it changes: its ticket is a Put's. A FencedPut is a BlindPut whose
// mutation also deletes everything of the key at Ticket.Fence. It is possible as the first operation
// of a lock with Grant.Empty, and shows that the key was empty; else it ends with ErrSynchronising.
const (
	Put Kind = iota + 1
	Get
	BlindPut
	FencedPut
)

// Ticket is the right to do one operation on the data, from Begin to End. A put is sent with write
// timestamp Stamp, at QUORUM or more; a get at QUORUM or more.
type Ticket struct {
	Op    OpID // of the Begin; it waits for the verdict if End says VerdictPending
	Key   Key
	Ref   LockRef
	Epoch Stamp
	Stamp Stamp // of a Put
	Fence Stamp `json:",omitzero"` // of a FencedPut; else 0
	Kind  Kind
	Left  time.Duration // the rest of the client lease when the operation came
	Lease time.Duration // the client lease, which the operation has renewed

	// Lender is the session that has lent the ticket to this proxy (docs/protocol.md 3.15, Remote). A
	// Core sets it only in the tickets of a loan (loan.go).
	Lender SessionID
	Term   uint64 // the Core's own, likewise Number: they travel with a borrowed ticket
	Number uint64

	Lent *Lent  `json:",omitempty"` // of a loan; nil: the ticket is for one operation
	Loan uint64 `json:"-"`          // the borrowing Core's own: the loan that the ticket is of; 0: none

	// Known is what the caller of End noted in the ticket of a put that Cassandra acknowledged, in the
	// tickets of all gets until the term uses another stamp: until then what the put wrote is what a get
	// reads (docs/protocol.md 3.6, Begin). It is nil if nothing is known, in a table that is strict, and
	// in a ticket that another proxy gave.
	Known any `json:"-"`
}

// Lent is what a ticket has that Lend returned as a loan (docs/protocol.md 3.21, Loans).
type Lent struct {
	Stamps Stamp         // how many stamps it has, from Ticket.Stamp on
	Valid  time.Duration // for how long success may be told without asking the lender
	Run    []Next        `json:",omitempty"` // the references that the borrower may pass the lock on to, in order
	Passed LockRef       `json:",omitzero"`  // of a loan that is given back: to which of them it was passed on; 0: to none
}

// Next is a reference whose client waits at the borrower of a loan.
type Next struct {
	Ref   LockRef
	Token [16]byte // of its LOCK
	Lease time.Duration
}

// OK reports whether the ticket is one; the zero value is none.
func (t Ticket) OK() bool { return t.Kind != 0 }

// Outcome is what Cassandra answered to a client's operation.
type Outcome uint8

// Outcomes of an operation (docs/protocol.md 3.7, End). OutcomeRefused is for Invalid,
// Unauthorized, Unavailable, Unprepared, Bootstrapping and Syntax error of ONE mutation; every
// other answer that is not an acknowledgement is OutcomeUnknown.
const (
	OutcomeUnknown Outcome = iota
	OutcomeAcked
	OutcomeRefused
)

// Verdict is what the client may be told of its operation.
type Verdict uint8

// VerdictTell: the store's answer. VerdictLost: the reference has ended for ever; a get is lost, a
// put is lost with unknown outcome. VerdictUncertain: the outcome is unknown, and the result of a
// get is withheld; the reference may go on. VerdictPending: an Answer will say.
const (
	VerdictUncertain Verdict = iota
	VerdictTell
	VerdictLost
	VerdictPending
)

// Answer ends one waiting operation: with a Grant for Lock, Unlock and Force, a Ticket for Begin,
// a Verdict for an End that returned VerdictPending, or an error.
type Answer struct {
	Op      OpID
	Grant   Grant
	Ticket  Ticket
	Verdict Verdict
	Err     error
}

// State is the state column of LOCK and UNLOCK (docs/design.md 5).
type State uint8

// The states of a reference, as clients see them.
const (
	StateHeld State = iota + 1
	StateQueued
	StateBusy
	StateLost
	StateReleased
)

// String returns the word that the client reads.
func (s State) String() string {
	switch s {
	case StateHeld:
		return "HELD"
	case StateQueued:
		return "QUEUED"
	case StateBusy:
		return "BUSY"
	case StateLost:
		return "LOST"
	case StateReleased:
		return "RELEASED"
	}
	return ""
}

// Grant is the row that LOCK and UNLOCK return (docs/design.md 5).
type Grant struct {
	Applied   bool
	Ref       LockRef // 0: not decided yet, or none
	State     State
	Position  int           // how many are ahead, as far as is known here; 0 for the holder
	Holder    string        // name of the holder, where this proxy knows it
	Lease     time.Duration // left
	OwnerDied bool          // the holder before did not release the lock
	Empty     bool          `json:",omitzero"` // of a lock for one statement: the key has no row, and a FencedPut may come first
}

// Client says who sent a LOCK, as the caller knows it; the Core only passes it on in Notes.
type Client struct {
	Role, Address string
	OneWrite      bool `json:",omitzero"` // the lock is of a write that came without one (docs/design.md 4, unlocked=auto)
}

// Place says whose a new reference may be.
type Place uint8

// If another session hands the references of the key out, a LOCK with PlaceAny is answered
// ElsewhereError: it is asked there for a place, with PlaceBlock, which is refused with ErrNoBlock
// unless that is still so. PlaceHere is for a LOCK that has been refused there.
const (
	PlaceAny Place = iota
	PlaceHere
	PlaceBlock
)

// Request has the clauses of a LOCK.
type Request struct {
	By     Client
	Ref    LockRef       // not 0: go on waiting for it, return its state, renew its lease
	Wait   time.Duration // 0: Options.Wait; the caller limits it to less than the driver's time-out
	Lease  time.Duration // 0: that of the reference, at first the table's; the caller limits it to the table's
	AtOnce bool          // WAIT 0s: behind others, answered once its reference is known
	NoWait bool
	Owner  string    // the AS of its LOCK, for people
	Token  [16]byte  // not zero: the same LOCK again finds the same reference
	Closed Stamp     // of the table (docs/protocol.md 2.3, D)
	Place  Place     `json:",omitzero"`
	Via    SessionID `json:"-"` // that of the proxy which asks for its client, if it takes loans; zero: the client is at this one

	// Once means that the lock is for one statement, which is told only after the lock row was read
	// again (docs/protocol.md 3.20, Once): BlindPut, or another Kind for one that reads the key
	// first. No client may be told the reference. This proxy alone asks for it.
	Once Kind `json:"-"`
	// Behind says that such a lock is released by an LWT of its own all the same, behind the client's answer, and
	// its statement is told like any other: reading the lock row again would cost the client more.
	Behind bool `json:"-"`
}

// Alarm is a broken invariant, or another event that an operator must see. The Core has already
// done what is safe.
type Alarm struct {
	Key  Key
	Rule string // I1, I7, I12 …
	Text string
}
