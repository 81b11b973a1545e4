package musiccore

import "time"

// OpID names one operation of a client while it waits. The caller chooses it;
// no two waiting operations of a Core share one. 0 is no operation.
type OpID uint64

// CommandID names one Command. The Core chooses it, never twice.
type CommandID uint64

// Effects is what the caller has to do after a call: run the commands, give
// the answers, log the alarms, and call Tick at Wake. The order of commands
// does not matter. The slices belong to the caller.
type Effects struct {
	Do      []Command
	Answers []Answer
	Alarms  []Alarm
	Notes   []Note
	Hints   []Hint        // for other proxies; may be lost
	Wake    time.Duration // BOOTTIME at which Tick wants to be called, whatever was said before; 0: not at all
}

// NoteKind is what a Note tells of.
type NoteKind uint8

// What happened to a lock. None of it asks for anything.
const (
	Granted      NoteKind = iota + 1 // a reference became the holder
	Ended                            // … and is no more: given back, expired or taken
	Preempted                        // the head of a dead session was passed over
	Synchronised                     // what older terms may have left cannot surface any more
	TakenOver                        // a dead session's reference goes on here
	Forced                           // the head was ended by Force
	Orphaned                         // the holder's session has ended: its reference goes on where its client comes to, or is passed over
)

// Note tells what happened, for audit and metrics.
type Note struct {
	Key   Key
	What  NoteKind
	Ref   LockRef
	Owner string        // as LOCK … AS named it
	By    Client        // who asked for it last, by a LOCK; nobody's where it was of a session that is dead
	How   State         // of Ended: Released or LostState
	Why   string        // of Forced: the reason that was given
	For   time.Duration // Granted: waited; Ended and Orphaned: held
}

// Command is one question to the store. Each gets exactly one Reply, however
// late; a command that may have been lost gets Unknown.
type Command struct {
	ID  CommandID
	Key Key // zero for ReadBeat
	Do  Action
}

// Action is one of ReadRow, Apply, Copy, ReadBeat.
type Action interface{ action() }

// ReadRow reads the lock row: LOCAL_ONE, or QUORUM. Replies: Done with Row
// (nil: no such row), Unknown.
type ReadRow struct{ Quorum bool }

// Apply runs one LWT. Replies: Done (applied), Refused, Unknown. Unknown is
// every outcome that is not certain; the Core sends the same Swap again.
type Apply struct{ Swap Swap }

// Copy is one attempt of a Synch (docs/protocol.md 3.9, Synch): read the key at
// QUORUM, interval by interval, and write each back in one mutation, DELETE at
// Fence and every cell at Fence+1, at QUORUM. A WRITETIME >= Fence ends it:
// reply Above with the highest met. However it ends, some intervals may have
// been written: only Done says that all are. It may take as long as the key is
// large; operations that wait for it are answered in their own time. Replies:
// Done, Above, TooLarge, Unavailable, Unknown.
type Copy struct{ Fence Stamp }

// ReadBeat reads another session's row of music.sessions at QUORUM. Replies:
// Done with Beat (0: no such row, which is a value like another) and Lease, Unknown.
type ReadBeat struct{ Session SessionID }

func (ReadRow) action()  {}
func (Apply) action()    {}
func (Copy) action()     {}
func (ReadBeat) action() {}

// Fate says how a command ended.
type Fate uint8

// The fates of commands; which a command can meet stands with its Action.
const (
	Unknown     Fate = iota // failed, or may have happened or happen later
	Done                    // read, applied, copied
	Refused                 // the condition of the LWT was false
	Above                   // Copy met a stamp at or above the fence
	TooLarge                // Copy met what cannot be written back: Cause names it
	Unavailable             // of a Copy: the store says that too few replicas live, as Cause does
)

// Result is the store's reply to a Command.
type Result struct {
	Fate  Fate
	Row   *Row          // ReadRow
	Stamp Stamp         // Above: the highest stamp met
	Beat  int64         // ReadBeat
	Lease time.Duration // ReadBeat: as it stands beside the beat; 0 where nothing does
	Cause error         // why, for the client and the log
}

// Kind is what a client's operation does to the data.
type Kind uint8

// The paper's criticalPut and criticalGet (§III). Every page is one Get.
const (
	Put Kind = iota + 1
	Get
)

// Ticket is the right to do one operation on the data, got from Begin and
// given back to End. The put is sent with write timestamp Stamp at QUORUM or
// more; a get at QUORUM or more.
type Ticket struct {
	Op    OpID // of the Begin; it waits for the verdict if End says Later
	Key   Key
	Ref   LockRef
	Base  Stamp
	Stamp Stamp // of a Put
	Kind  Kind
	Left  time.Duration // what was left of the client lease when the operation came
	Lease time.Duration // all of the client lease, which the operation has begun anew

	Lender SessionID // whose it is, where a proxy has borrowed it (docs/protocol.md 3.15, Remote); a Core makes it zero and ends only such
	Term   uint64    // the Core's own, likewise Number: they travel with a borrowed ticket
	Number uint64
}

// OK reports that the ticket is one.
func (t Ticket) OK() bool { return t.Kind != 0 }

// Outcome is what the client's own connection answered.
type Outcome uint8

// Outcomes of an operation (docs/protocol.md 3.7, End). Refuse only on Invalid,
// Unauthorized, Unavailable, Unprepared, Bootstrapping, Syntax of ONE
// mutation: whatever else is not an acknowledgement is OutcomeUnknown.
const (
	OutcomeUnknown Outcome = iota
	OutcomeAcked
	OutcomeRefused
)

// Verdict is what the client may be told of its operation.
type Verdict uint8

// Verdicts of End. Tell: what the store answered. Lost: the reference has ended
// for ever; a get is lost, a put is lost with unknown outcome. Uncertain: the
// outcome is unknown, and what a get read is not told; the reference may go on.
// Later: an Answer tells.
const (
	Uncertain Verdict = iota
	Tell
	Lost
	Later
)

// Answer ends one waiting operation: a Grant for Lock and Unlock, a Ticket
// for Begin, a Verdict for an End that said Later, or an error.
type Answer struct {
	Op      OpID
	Grant   Grant
	Ticket  Ticket
	Verdict Verdict
	Err     error
}

// State is the state column of LOCK and UNLOCK (docs/design.md 5).
type State uint8

// What a client is told about a reference.
const (
	Held State = iota + 1
	Queued
	Busy
	LostState
	Released
)

// String is the word that the client reads.
func (s State) String() string {
	switch s {
	case Held:
		return "HELD"
	case Queued:
		return "QUEUED"
	case Busy:
		return "BUSY"
	case LostState:
		return "LOST"
	case Released:
		return "RELEASED"
	}
	return ""
}

// Grant is the row that LOCK and UNLOCK answer (docs/design.md 5).
type Grant struct {
	Applied   bool
	Ref       LockRef // 0: not decided yet, or none
	State     State
	Position  int           // who is ahead, as far as is known here; 0 for the holder
	Holder    string        // who holds, where this proxy knows
	Lease     time.Duration // left
	OwnerDied bool          // the holder before did not give the lock back
}

// Client is who asks, as the caller knows it: for Notes alone.
type Client struct{ Role, Address string }

// Request is what LOCK asks.
type Request struct {
	By     Client
	Ref    LockRef       // not 0: go on waiting for it, ask where it stands, renew its lease
	Wait   time.Duration // 0: Options.Wait; the caller caps it by what the client's driver bears
	Lease  time.Duration // 0: what the reference has, or Usual; the caller caps it by the table's
	Usual  time.Duration // the table's lease; 0: Options.ClientLease
	AtOnce bool          // WAIT 0s: where somebody is ahead, it is answered as soon as its reference is known
	NoWait bool
	Owner  string
	Token  [16]byte // not zero: the same LOCK again finds the same reference
	Closed Stamp    // of the table (docs/protocol.md 2.3, D)
}

// Alarm is a broken invariant, or something a person must see. The Core has
// already done what is safe.
type Alarm struct {
	Key  Key
	Rule string // I1, I7, I12 …
	Text string
}
