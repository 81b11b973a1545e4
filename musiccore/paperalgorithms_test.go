package musiccore

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Paper tests, §IV: the algorithms, without failures (A) and with them (B).

// §IV-A, createLockRef: "Although createLockRef incurs the cost of distributed consensus, it is executed only once for each
// critical section." On an empty queue that one LWT is the grant as well.
func TestPaperCreateLockRefIsOneLWT(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "get A", "unlock A")
	swaps, reads := served[Apply](s), served[ReadRow](s)
	s.shows("lock B at p1", "B: HELD 2")
	require.Equal(t, swaps+1, served[Apply](s), "more than one LWT")
	require.Equal(t, reads, served[ReadRow](s), "more than one LWT")
}

// §IV-A, acquireLock: "if (lockRef > lsPeek (key)) //lockRef not first yet, or local store not yet updated: return (false)",
// "in which case retry is also the right thing to do."
func TestPaperALocalReplicaThatLagsGrantsNothing(t *testing.T) {
	s := paper(t, "option hints 0", "proxies p1 p2", "lock A at p1", "put A 1", "lock B at p1 wait 1m", "lock C at p2 wait 1m", "advance 2s")
	s.play("lag p2 9", "unlock A")
	s.shows("get B", "B: get: 1")
	s.silent("advance 5s", "C: HELD")
	s.play("lag p2 0", "put B 2", "unlock B")
	s.shows("advance 2s", "C: HELD 3")
	s.shows("get C", "C: get: 2")
}

// The same where the replica missed the commit that makes C the head: C is granted in the end,
// since not every read is local.
func TestPaperALaggingReplicaDelaysAndNoMore(t *testing.T) {
	s := paper(t, "option hints 0", "proxies p1 p2", "lock A at p1", "get A", "lock C at p2 wait 1m", "lag p2 9", "unlock A")
	s.shows("advance 3s", "C: HELD 2")
}

// §IV-A, acquireLock: "if (lockRef < lsPeek (key)) //lock forcibly released: return (youAreNoLongerLockHolder)".
func TestPaperAcquireAfterAForcedReleaseSaysLost(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "lock B at p1 wait 5m", "crash p1", "lock C at p2 wait 1m", "advance 30s")
	s.play("start p1", "advance 1s")
	s.shows("renew A", "A: LOST 1")
	s.shows("lock B using 2", "B: LOST 2")
}

// §IV-A, acquireLock: "In failure-free scenarios, if the lockRef is first in the queue, then the code directly skips to the
// last line and returns true": nothing is synchronised.
func TestPaperNoSynchroniseWithoutFailures(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "unlock A")
	copies := served[Synch](s)
	for range 5 {
		s.play("lock B at p1 wait 1m", "advance 1s", "get B", "put B 2", "unlock B")
		s.play("lock C at p2 wait 1m", "advance 1s", "get C", "put C 3", "unlock C")
	}
	n := served[Synch](s)
	require.Equal(t, copies, n, "%d synchronises", n-copies)
}

// §IV-A, criticalPut: "if (lockRef > lsPeek (key)) return (false)": a put before the turn is refused, and its place in the
// queue stays.
func TestPaperAPutBeforeTheTurnKeepsItsPlace(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "lock B at p1", "advance 2s")
	s.shows("put B 2", "B: put 2: lock reference is not the holder")
	s.play("unlock A")
	s.shows("put B 2", "p1 synchronises at 2.000002s: nothing", "B: put 2: ok, stamped 2.000004s")
}

// §IV-A, criticalPut: "MUSIC writes the new value in a quorum of data-store replicas, then acknowledges to the client a
// successful put."
func TestPaperAnAcknowledgedPutIsOnAQuorum(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "fail r3")
	s.shows("put A 1", "A: put 1: ok, stamped 4µs")
	s.defined(1)
	s.shows("put A 2 hanging", "A: put 2: on its way, stamped 5µs")
	s.shows("deliver 2", "A: put 2: ok, stamped 5µs")
	s.defined(2)
}

// §IV-A, releaseLock: "In failure-free scenarios, this simply removes its lockRef from the lock queue."
func TestPaperReleaseRemovesTheReference(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "get A")
	s.shows("unlock A", "A: RELEASED 1")
	r := s.store.key("k").row
	require.True(t, r.Empty(), "%+v", *r)
	require.False(t, r.Dirty, "%+v", *r)
}

// §IV-A, releaseLock: "if (lockRef < lsPeek (key)) return (true); //lock has been forcibly released". It does no harm to
// the one who has the lock now.
func TestPaperReleaseAfterAForcedReleaseIsNothing(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "pause p1", "lock B at p2 wait 1m", "advance 20s", "put B 1", "resume p1")
	s.play("unlock A", "advance 1s")
	s.shows("get B", "B: get: 1")
	r := s.store.key("k").row
	require.EqualValues(t, 2, r.Head)
}

// §IV-A, "Critical-Section Invariant. If the lockholding client is in a Critical or Getting state, then the data store is
// defined as the true value." Critical is here the time after the first answer of a section.
func TestPaperCriticalSectionInvariant(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1")
	s.defined(1)
	s.play("fail r2", "put A 2", "repair r2")
	s.defined(2)
	s.play("put A 3 unacked r2", "quorum r1 r2", "get A")
	s.defined(3)
	s.play("put A 4 unacked r3", "crash p1", "lock B at p2 wait 1m", "advance 20s", "get B")
	s.defined(3)
}

// §IV-A: "a MUSIC critical section essentially requires two consensus writes to a small lockRef, one quorum read of a small
// synchFlag, and a quorum operation for each state update". Here the flag is in the lock row and costs no read.
func TestPaperTheCostOfASection(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "put A 1", "unlock A")
	before := len(s.store.served)
	s.play("lock B at p1", "put B 2", "put B 3", "get B", "unlock B")
	n := len(s.store.served) - before
	require.Equal(t, 2, n, "commands beside the client's own statements")
	require.Equal(t, 4, served[Apply](s), "%d commands beside the client's own statements", n)
}

// §IV-B a: "before a new lockholder can enter a critical section, the data store must be synchronized, meaning that it is
// once again defined as the true value."
func TestPaperSynchronisedBeforeTheFirstAnswer(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "put A 2 unacked r1", "crash p1", "lock B at p2 wait 1m")
	s.play("advance 20s", "quorum r1 r3", "synch unknown r3")
	s.silent("get B", "B: get: 2")
	s.shows("advance 1s", "B: get: 2")
	s.defined(2)
}

// §IV-B a, the synchFlag: "a synchFlag for each key indicating when the data store must be synched (like a “dirty bit”)".
// Whoever could leave something behind leaves the key dirty; dirty stays until somebody has synchronised.
func TestPaperTheFlagStaysUntilSomebodySynchronised(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "put A 7 hanging", "crash p1", "lock B at p2 wait 1m", "advance 20s")
	s.play("unlock B", "advance 1s") // B entered, and read nothing
	r := s.store.key("k").row
	require.True(t, r.Dirty, "%+v", *r)
	s.shows("lock C at p2", "C: HELD 3")
	s.shows("get C", "C: get: 1")
	s.play("deliver 7")
	s.shows("get C", "C: get: 1")
	s.play("unlock C", "advance 1s")
	r = s.store.key("k").row
	require.False(t, r.Dirty, "%+v", *r)
}

// §IV-B a: "Either way, the result of the read is re-written into the data store with a new timestamp carrying the new
// lockholder's lockRef": above every stamp of the preempted one, seen or not.
func TestPaperTheRewriteIsAboveEveryOlderStamp(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1")
	for v := 7; v < 10; v++ {
		s.play("put A " + valueText(v) + " hanging")
	}
	s.play("crash p1", "lock B at p2 wait 1m", "advance 20s", "get B", "deliver 9", "deliver 7", "deliver 8")
	s.defined(1)
	s.shows("get B", "B: get: 1")
}

// §IV-B a: "What if acquireLock and forcedRelease with the same lockRef are racing to write the value of the synchFlag?"
// There the forced release must win. Here head and dirty change in one LWT on the epoch that was read, so the clean release
// that A had under way is refused as soon as A is preempted, and the key stays dirty.
func TestPaperAForcedReleaseIsNotOverwritten(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "lwt hangs", "unlock A", "crash p1", "lock B at p2 wait 1m")
	s.play("advance 20s")
	s.shows("deliver lwt", "p1 Release: refused")
	r := s.store.key("k").row
	require.True(t, r.Dirty, "%+v", *r)
	require.EqualValues(t, 2, r.Head)
}

// §IV-B a: "What if a lockholder releases the lock, and subsequently some MUSIC replica thinks its lockRef still holds the
// lock and executes forcedRelease on it?" There it costs a needless synchronise; here the LWT is refused and costs nothing.
func TestPaperAForcedReleaseOfAReleasedReferenceIsNothing(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "lock B at p2 wait 1m", "lwt hangs", "unlock A", "cut p1")
	s.shows("advance 12s; lwt hangs; advance 1s", "p2 Preempt: on its way") // and so is A's release, which comes first
	s.shows("deliver lwt", "p1 Release: head 2, guard 2, epoch 5µs")
	s.shows("deliver lwt", "p2 Preempt: refused", "B: HELD 2")
	s.shows("get B", "B: get: 1")
	r := s.store.key("k").row
	require.EqualValues(t, 2, r.Head)
	require.Equal(t, 1, served[Synch](s), "%+v", *r)
}

// §IV-B a: "It may be that a client requests createLockRef and then dies before receiving the reply or before acquiring the
// lock. […] When the orphan lockRef becomes first in the queue, it will be removed by forcedRelease."
func TestPaperOrphansAreRemoved(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "get A", "lock B at p1 wait 1m", "lock C at p1", "lock D at p2 wait 2m", "gone B")
	s.play("advance 2s", "advance 13s") // C was told its reference, and never asked again
	s.shows("unlock A", "D: HELD 4")

	s = paper(t, "proxies p1 p2", "lwt unknown applied", "lock A at p1", "crash p1", "lock B at p2 wait 1m")
	s.shows("advance 20s", "B: HELD 2 after one who did not give it back")
}

// §IV-B b, False Failure Detection: "a MUSIC replica might execute a forcedRelease when the lockholding client is still alive
// and in its critical-section code. The client can continue to request criticalPuts concurrently with the critical section
// of a subsequent lockholder." They "will have no effect on the data store".
func TestPaperAFalselySuspectedHolderHasNoEffect(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "put A 5 hanging", "put A 6 hanging", "cut p1", "lock B at p2 wait 1m")
	s.shows("advance 14s", "B: HELD 2 after one who did not give it back")
	s.shows("get B", "B: get: 1")
	s.play("put B 2", "deliver 5", "deliver 6", "put A 3")
	s.shows("get B", "B: get: 2")
	s.play("heal p1")
	s.silent("put A 4", "ok")
	s.shows("get B", "B: get: 2")
	s.defined(2)
}

// §IV-B b: "as soon as its local lock store is updated, a MUSIC replica will know that the client's lockRef is out-of-date".
// Here it knows without any read, by its own clock: when the lease is over nothing is sent and nothing acknowledged.
func TestPaperAPreemptedProxyKnowsWithoutTheStore(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "put A 1", "cut p1", "advance 11s")
	served := len(s.store.served)
	s.shows("put A 2", "A: put 2: session is not valid")
	require.Len(t, s.store.served, served, "it asked")
}

// §IV-B b: "Because of the guards on criticalPut, the only clients whose requests proceed to the quorum write are those with
// current or past lockRefs." Who never had the lock writes nothing.
func TestPaperOnlyCurrentOrPastReferencesWrite(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1")
	for _, r := range []LockRef{-1, 0, 2, 99} {
		s.clients["A"].ref = r
		s.play("put A 9")
	}
	s.defined(1)
	s.clients["A"].ref = 1
	s.shows("get A", "A: get: 1")
}

// §IV-B b, "SynchFlag Invariant. If a client has a lockRef that is both past (released) and later than or equal to the
// lockRef of the true timestamp, then the synchFlag is true", also for "ongoing writes to the data store": they are
// obliterated or confirmed. The key is clean only where nothing is on its way.
func TestPaperSynchFlagInvariant(t *testing.T) {
	for name, end := range map[string][]string{
		"given back":  {"unlock A; advance 20s; lock C at p2"},
		"lease ended": {"advance 40s; lock C at p2"},
		"proxy died":  {"crash p1; lock C at p2 wait 1m; advance 20s"},
	} {
		s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "put A 7 hanging", "synch unknown")
		s.play(end...)
		fenced := served[Synch](s) > 2 // by A's own term
		r := s.store.key("k").row
		require.EqualValues(t, 2, r.Head, name)
		require.True(t, r.Dirty || fenced, "%s: %+v", name, *r)
		s.shows("unlock C; lock D at p2 wait 1m; advance 1s", "D: HELD 3") // C read nothing
		s.shows("get D; advance 1s", "D: get: 1")
		s.shows("deliver 7; get D", "D: get: 1")
	}
}
