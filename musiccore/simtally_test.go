package musiccore

import (
	"fmt"
	"strings"
	"time"
)

// landmark is a state or an event that some run must reach ("sometimes" assertions): simulations
// that never reach it have not tested what it stands for.
type landmark uint8

const (
	sessionDied landmark = iota
	ackedTooLate
	crashedInSynch
	crashedInLWT
	endedHolding
	wildAlarm
	wildTold
	wildDead
	otherLease
	frozenDead
	lwtAfterDeath
	commitOnOne
	partialRow
	quorumBehind
	staleLocal
	gapLocal
	synchRepeated
	synchOfUnsettled
	settledAtRelease
	grantedDirty
	passedOver
	holderLost
	oldPutLanded
	oldSynchLanded
	releasedDirty
	releasedUnsettled
	renewedInFlight
	renewedWaiting
	toldElsewhere
	toldLost
	toldSynchronising
	toldUnknown
	ackedTooLateForPut
	putLost
	tookOver
	tookOverEnded
	tookOverPaused
	tookOverWaiting
	borrowed
	heldElsewhere
	forcedHead
	hintHeard
	wantedHeard
	yieldingHeard
	checkedLater
	checkedLost
	checkedTooLate
	forcedLiving
	handedOver
	handedDirty
	handedRenewed
	madePlain
	keptPassed
	givenUpIdle
	givenUpWanted
	tookAlong
	wentAlone
	tookReturned
	madeBlock
	wentOnAsBlock
	toldInLine
	putUnfenced
	knownRead
	onceGranted
	onceFenced
	fencedBehind
	onceSuperseded
	onceSettled
	onceUnread
	waitedElsewhere
	notElsewhere
	loanUsed
	loanAsked
	loanExpired
	loanUnknown
	loanAlone
	passedOn
	runLost
	rejoinedLent
	drainedLent
	onceUnfenced
	putUnfencedAgain
	releasedUnfenced
	releasedUnfencedAgain
	grantedUnfenced
	landmarks
)

// String returns the landmark as the report names it.
func (l landmark) String() string {
	return [landmarks]string{
		"a session died while its process lived", "a beat was acknowledged after the deadline", "a crash in a Synch",
		"a crash in an LWT", "a session was ended while it held", "beyond eps: a term was taken from a valid session",
		"beyond eps: an outcome told after the successor entered", "beyond eps: a valid session found dead",
		"a proxy with another session lease", "all clocks stopped: a session found dead that knows nothing of it",
		"an LWT applied after its session's death", "a commit known to one replica at most", "a lock row without one of its registers",
		"a QUORUM read that missed the newest commit", "a stale LOCAL_ONE read", "a LOCAL_ONE read with a commit missing before its newest",
		"Synch repeated", "Synch of an unsettled put inside a term", "a term settled before its release",
		"a dirty grant", "a head passed over", "a holder lost its lock",
		"a put of an older term landed after a later term had told something", "a Synch of an older term landed likewise",
		"a dirty release", "an unsettled release", "Renew with a put in flight", "Renew with operations waiting for it",
		"told that the reference is elsewhere", "told that the lock is lost", "told that the key is not synchronised",
		"a put of unknown outcome told as it was", "an acknowledgement too late for its put", "a put lost with its term",
		"a takeover", "a takeover from a session that ended by itself", "a takeover from a process that still runs",
		"a takeover of a reference that had waited here", "an operation with a borrowed stamp", "told by another proxy that it holds",
		"a head ended by force", "a hint heard", "a term heard that somebody waits elsewhere",
		"a waiter heard that its turn is coming",
		"a strict table's operation checked", "… and lost", "… and too late", "a living stranger's head ended by force",
		"a lock handed over inside a block", "… that was not synchronised yet", "… in another window than the block began with",
		"the holder of a block made plain", "a block passed over with its session", "a block given up because nobody came",
		"a block given up because others wait", "a release that enqueued who asked", "a release alone, since others had enqueued",
		"a release that waited for its client to come back", "references that waited made a block", "a block that went on in another term",
		"a reference of a block told before it was granted", "a put in a dirty term that had not synchronised",
		"a get of what a put wrote, without a read",
		"a lock for one statement granted", "… whose put fenced an empty key", "… that was released in the ordinary way", "… whose put was overtaken by another term",
		"a row dirty in advance enqueued on as clean", "a lock row made without a read before",
		"a client told HELD at the proxy that hands the references out", "… that hands out none any more", "an operation under a loan", "… whose lender had to be asked",
		"a loan that ended before it was given back", "a put of unknown outcome under a loan", "a ticket lent for one operation",
		"a lock that a borrower passed on", "a run whose loan was not given back",
		"a session that has lent something replaced", "a shutdown that waited for a loan",
		"… enqueued on as unfenced", "a put in a term that began unfenced", "a release that leaves the row unfenced",
		"… after a term that began so and had a put", "a term on an unfenced row that one replica showed",
	}[l]
}

// tally counts what happened in one or more runs.
type tally struct {
	runs, failed       int
	grants, acks, gets int
	time               time.Duration
	faults             [faults]int
	met                [landmarks]int
	lwts               [purposeDissolve + 1][lwtEnds]int
}

// lwtEnd is how an LWT ended: what its sender was told, and whether it was applied.
type lwtEnd uint8

const (
	lwtApplied lwtEnd = iota
	lwtRefused
	lwtRefusedOwn
	lwtUnknown
	lwtUnknownOwn
	lwtEnds
)

func (t *tally) lwt(why purpose, f Status, applied bool) {
	end := lwtApplied
	switch {
	case f == StatusRefused && applied:
		end = lwtRefusedOwn
	case f == StatusRefused:
		end = lwtRefused
	case f == StatusUnknown && applied:
		end = lwtUnknownOwn
	case f == StatusUnknown:
		end = lwtUnknown
	}
	t.lwts[why][end]++
}

// String returns the name of a purpose, as in docs/protocol.md 3.
func (p purpose) String() string {
	return [...]string{"", "Enqueue", "Release", "Renew", "Preempt", "Release of a stray", "Release of an abandoned one", "Takeover", "Dissolve"}[p]
}

// String returns the name of an end.
func (e lwtEnd) String() string {
	return [lwtEnds]string{"applied", "refused", "refused, but applied before", "unknown, not applied yet", "unknown, but applied"}[e]
}

func (s *sim) met(l landmark) {
	s.tally.met[l]++
	s.tell("        ! %v", l)
	if s.trap == l+1 {
		s.fail("trap: %v", l)
	}
}

func (s *sim) metIf(so bool, l landmark) {
	if so {
		s.met(l)
	}
}

// add adds the counts of another run.
func (t *tally) add(o *tally) {
	t.runs += o.runs
	t.failed += o.failed
	t.grants += o.grants
	t.acks += o.acks
	t.gets += o.gets
	t.time += o.time
	for i, n := range o.faults {
		t.faults[i] += n
	}
	for i, n := range o.met {
		t.met[i] += n
	}
	for w := range o.lwts {
		for e, n := range o.lwts[w] {
			t.lwts[w][e] += n
		}
	}
}

// never lists the faults, landmarks and ends of LWTs that did not occur.
func (t *tally) never() []string {
	var list []string
	for f, n := range t.faults {
		if n == 0 {
			list = append(list, fmt.Sprintf("fault: %v", fault(f)))
		}
	}
	for l, n := range t.met {
		if n == 0 {
			list = append(list, fmt.Sprintf("state: %v", landmark(l)))
		}
	}
	for w := purposeEnqueue; w <= purposeDissolve; w++ {
		for e, n := range t.lwts[w] {
			// Only an Enqueue, a Preempt and a Takeover have rivals.
			if n == 0 && (lwtEnd(e) != lwtRefused || w == purposeEnqueue || w == purposePreempt || w == purposeTakeover) {
				list = append(list, fmt.Sprintf("LWT: %v %v", w, lwtEnd(e)))
			}
		}
	}
	return list
}

// String returns the report of a simulation.
func (t *tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d seeds, %.1f simulated hours: %d grants, %d acknowledged puts, %d answered gets\n",
		t.runs, t.time.Hours(), t.grants, t.acks, t.gets)
	for f := range aClient {
		fmt.Fprintf(&b, "  %-40v %d\n", f, t.faults[f])
	}
	for l, n := range t.met {
		fmt.Fprintf(&b, "  %-66v %d\n", landmark(l), n)
	}
	for w := purposeEnqueue; w <= purposeDissolve; w++ {
		fmt.Fprintf(&b, "  %v:", w)
		for e, n := range t.lwts[w] {
			fmt.Fprintf(&b, " %v %d;", lwtEnd(e), n)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
