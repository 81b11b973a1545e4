package musiccore

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The paper tests: what "MUSIC: Multi-Site Critical Sections over Geo-Distributed State" promises, clause by clause, on
// the real core. Each quotes its sentence. Where this protocol takes another way than the paper's algorithms (doc.go and
// docs/protocol.md say why) the test is of the guarantee and not of the way. This file has the semantics, §III-A.

// paper is a stage on which no invariant may break.
func paper(t *testing.T, lines ...string) *stage {
	t.Helper()
	s := newStage(t)
	t.Cleanup(func() {
		for _, line := range s.out {
			assert.NotContains(t, line, " alarm ")
		}
	})
	s.play(lines...)
	return s
}

// shows plays a line and checks its results.
func (s *stage) shows(line string, want ...string) {
	s.t.Helper()
	var got []string
	for _, told := range s.play(line) {
		if after, ok := strings.CutPrefix(told, "at "); ok {
			_, told, _ = strings.Cut(after, ": ")
		}
		got = append(got, told)
	}
	for _, w := range want {
		require.Contains(s.t, got, w, "%q: no %q among\n%s", line, w, strings.Join(got, "\n"))
	}
}

// silent plays a line and demands that nobody hears of anything with these words.
func (s *stage) silent(line, words string) {
	s.t.Helper()
	for _, told := range s.play(line) {
		require.NotContains(s.t, told, words, "%q", line)
	}
}

// served counts the commands of a kind that the store has been given.
func served[A Action](s *stage) int {
	n := 0
	for _, a := range s.store.served {
		if _, ok := a.(A); ok {
			n++
		}
	}
	return n
}

// defined is §IV-A, "The data store is defined as value v if fewer than a quorum of data-store replicas hold a value that
// is not v."
func (s *stage) defined(value int) {
	s.t.Helper()
	others := 0
	for _, c := range s.store.key("k").data {
		if c.visible() != value {
			others++
		}
	}
	require.LessOrEqual(s.t, others, stageReplicas/2, "the store is not defined as %d: %+v", value, s.store.key("k").data)
}

// §III-A, Locking: createLockRef "returns a lockRef—a unique, increasing identifier for the key".
func TestPaperReferencesAreUniqueAndIncrease(t *testing.T) {
	s := paper(t, "proxies p1 p2")
	s.shows("lock A at p1", "A: HELD 1")
	s.play("lock B at p2", "lock C at p1", "advance 2s", "unlock A")
	b, c := s.clients["B"].ref, s.clients["C"].ref
	require.EqualValues(t, 2, b, "references %d and %d after 1", b, c)
	require.EqualValues(t, 3, c, "references %d and %d after 1", b, c)
	s.play("crash p1; crash p2; start p1; advance 1m; lock D at p1 wait 1m")
	s.shows("advance 20s", "D: HELD 4 after one who did not give it back")
}

// §III-A, Locking: "For each key, MUSIC maintains a sequentially-consistent queue of pending lockRefs, in request order",
// and the lock "is granted fairly".
func TestPaperTheQueueIsServedInRequestOrder(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1")
	for _, c := range []string{"B at p1", "C at p2", "D at p1", "E at p2"} {
		s.play("lock " + c + " wait 1m")
	}
	for i, c := range []string{"B", "C", "D", "E"} {
		s.shows("unlock "+string("ABCD"[i])+"; advance 2s", c+": HELD "+string("2345"[i]))
	}
}

// §III-A, Locking: "A lockRef is good for a single execution of a critical section."
func TestPaperAReferenceIsGoodForOneSection(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "put A 1", "unlock A")
	s.shows("put A 2", "A: put 2: lock is lost: it was given back")
	s.shows("renew A", "A: RELEASED 1 before, and not by this")
	s.shows("lock A at p1", "A: HELD 2")
}

// §III-A, Locking: "the client polls by executing acquireLock until it returns true, meaning that this client's lockRef is
// first in the queue." Here LOCK waits at the proxy; LOCK … USING LOCK is the poll.
func TestPaperPollingUntilFirst(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "lock B at p1", "advance 2s")
	s.play("renew B")
	s.shows("advance 2s", "B: QUEUED 2 behind 1 while A holds")
	s.play("unlock A")
	s.shows("renew B", "B: HELD 2")
}

// §III-A, Locking: "the former operation requires the use of distributed consensus while the latter, which is called several
// times by clients, is a purely local operation for most cases."
func TestPaperWaitingNeedsNoConsensus(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "lock B at p2 wait 1m", "lock C at p1 wait 1m")
	swaps := served[Apply](s)
	s.play("advance 20s")
	n := served[Apply](s)
	require.Equal(t, swaps, n, "%d LWTs of those who only wait", n-swaps)
}

// §III-A, "Exclusivity Property. Only the lockholder can perform successful criticalPut or criticalGet operations on a key."
func TestPaperExclusivity(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "lock B at p1 wait 1m", "lock C at p2", "advance 2s")
	s.shows("put B 2", "B: put 2: lock reference is not the holder")
	s.shows("get B", "B: get: lock reference is not the holder")
	s.shows("put C 3", "C: put 3: lock reference is not the holder")
	s.shows("get C", "C: get: lock reference is not the holder")
	s.shows("get A", "A: get: 1")
	s.play("unlock A")
	s.shows("put A 4", "A: put 4: lock is lost: it was given back")
	s.shows("get A", "A: get: lock is lost: it was given back")
	s.shows("get B", "B: get: 1")
	s.defined(1)
}

// §III-A, "Latest-State Property. If the lockholder requests a criticalGet operation and receives a value in response, the
// value it receives is the true value of the key": whichever quorum answers, at whichever proxy.
func TestPaperLatestState(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "put A 2", "fail r1", "put A 3", "repair r1")
	for _, quorum := range []string{"r1 r2", "r2 r3", "r1 r3"} {
		s.play("quorum " + quorum)
		s.shows("get A", "A: get: 3")
	}
	s.play("unlock A", "quorum r1 r2", "lock B at p2 wait 1m", "advance 1s")
	s.shows("get B", "B: get: 3")
}

// §III-A: "If a criticalPut succeeds in all respects except that the acknowledgment is lost on the way to the client, it
// has not succeeded." So it may be the value or not, but not first the one and then the other.
func TestPaperAPutWithoutAcknowledgementHasNotSucceeded(t *testing.T) {
	for quorum, want := range map[string]string{"r1 r2": "2", "r2 r3": "1"} {
		s := paper(t, "proxies p1", "lock A at p1", "put A 1")
		s.shows("put A 2 unacked r1", "A: put 2: outcome unknown")
		s.play("quorum " + quorum)
		s.shows("get A", "A: get: "+want)
		for _, other := range []string{"r1 r2", "r2 r3", "r1 r3"} {
			s.play("quorum " + other)
			s.shows("get A", "A: get: "+want)
		}
	}
}

// §III-A: "a non-failed client is obligated to retry until it does receive acknowledgment." A retry is a put like another.
func TestPaperARetriedPutSucceeds(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "put A 1", "put A 2 unacked r1", "quorum r2 r3")
	s.shows("put A 2", "A: put 2: ok, stamped 8µs")
	s.shows("get A", "A: get: 2")
	s.defined(2)
}

// §III-A, Lock release: "any MUSIC replica can preempt the lock from a lockholder that appears to have failed, using
// time-outs for failure detection."
func TestPaperAnyReplicaPreemptsAFailedHolder(t *testing.T) {
	s := paper(t, "proxies p1 p2 p3", "lock A at p1", "put A 1", "crash p1", "lock B at p3 wait 1m")
	s.shows("advance 20s", "B: HELD 2 after one who did not give it back")
	s.shows("get B", "B: get: 1")
}

// §III-A, Lock release: "the client may fail while holding the lock". Its proxy lives on; the client's own lease ends.
func TestPaperAFailedClientLosesTheLock(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "lock B at p2 wait 2m")
	s.shows("advance 31s", "p1: reference 1 is lost", "B: HELD 2")
	s.shows("get B", "B: get: 1")
}

// §III-A, Lock release: "its request for critical functions will be rejected by the MUSIC replica that receives the request
// with a notification that the client is no longer the lockholder."
func TestPaperAPreemptedHolderIsTold(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "pause p1", "lock B at p2 wait 1m", "advance 20s", "put B 2")
	s.play("resume p1")
	s.shows("put A 3", "A: put 3: lock is lost")
	s.shows("get A", "A: get: lock is lost")
	s.shows("renew A", "A: LOST 1")
	s.shows("get B", "B: get: 2")
}

// §III-A, Lock release: "the Exclusivity Property ensures that the criticalPuts of a preempted client will not compromise
// the data store": not even those that are under way, on any replica, at any time.
func TestPaperPutsOfAPreemptedClientCompromiseNothing(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1")
	s.play("put A 7 hanging", "put A 8 hanging", "put A 9 hanging", "pause p1", "lock B at p2 wait 1m", "advance 20s")
	s.shows("get B", "B: get: 1")
	s.play("deliver 7")
	s.shows("get B", "B: get: 1")
	s.play("put B 2", "deliver 9")
	s.shows("get B", "B: get: 2")
	s.play("unlock B", "lock C at p2", "deliver 8")
	s.shows("get C", "C: get: 2")
	s.defined(2)
	s.shows("resume p1", "A: put 7: outcome unknown", "A: put 8: outcome unknown", "A: put 9: outcome unknown")
	s.shows("get A", "A: get: lock is lost")
}

// §III-A, Failure Semantics: "to perform a successful operation, that MUSIC replica must be able to reach a quorum of
// non-failed back-end replicas", else "it returns a nack to the client."
func TestPaperNoQuorumNoSuccess(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "put A 1", "fail r1")
	s.shows("get A", "A: get: 1")
	s.play("fail r2")
	s.shows("put A 2", "A: put 2: refused, not enough replicas")
	s.shows("get A", "A: get: no answer")
	s.play("lock B at p1")
	s.shows("advance 2s", "B: QUEUED while A holds")
	s.play("repair r1 r2")
	s.shows("get A", "A: get: 1")
}

// §III-A, Failure Semantics: "the client has to retry the function—usually at a different MUSIC replica". While the proxy
// that gave the reference lives, another one says where it is, and serves nothing beside it.
func TestPaperADifferentReplicaKnowsTheReference(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "move A p2")
	s.silent("put A 2", "not the holder")
	s.defined(1)
	s.play("move A p1")
	s.shows("get A", "A: get: 1")
}

// The same where that proxy has failed: "until the operation succeeds, the client fails, or the
// client is told it is no longer the lockholder." Here the operation succeeds, in the same critical
// section.
func TestPaperARetryAtADifferentReplicaSucceeds(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "put A 2 hanging", "crash p1", "move A p2", "lock B at p2 wait 1m")
	s.play("put A 3", "advance 12s")
	s.shows("put A 3; advance 1s", "A: put 3: ok, stamped 12.000004s")
	s.shows("deliver 2; get A", "A: get: 3")
	s.shows("unlock A", "B: HELD 2")
	s.shows("get B", "B: get: 3")
}

// §III-A: where a holder is preempted while it waits for a put, "the true value is either the value of the most recent
// acknowledged write […] or it is the value of the write being attempted by the previous lockholder when it was preempted.
// The choice of which is non-deterministic, but the system commits to a choice and ensures that the true value is present
// in at least a quorum of data-store replicas before the next lockholder enters its critical section."
func TestPaperThePreemptedPutIsObliteratedOrConfirmed(t *testing.T) {
	for quorum, want := range map[string]int{"r1 r2": 2, "r2 r3": 1} {
		s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "put A 2 unacked r1", "crash p1", "quorum "+quorum)
		s.play("lock B at p2 wait 1m", "advance 20s")
		answer := "B: get: " + valueText(want)
		s.shows("get B", answer)
		s.defined(want)
		for _, other := range []string{"r1 r2", "r2 r3", "r1 r3"} {
			s.play("quorum " + other)
			s.shows("get B", answer)
		}
	}
}

// §III-A: "We only consider MUSIC operations on a single key here". Keys are independent: no lock of one key waits for
// another, so a client may take several in lexicographic order.
func TestPaperKeysAreIndependent(t *testing.T) {
	s := paper(t, "proxies p1")
	s.shows("lock A at p1 key x", "A: HELD 1")
	s.shows("lock B at p1 key y", "B: HELD 1")
	s.play("put A 1", "put B 2", "unlock A")
	s.shows("get B", "B: get: 2")
}

// §III-A, Listing 1: "v1 is guaranteed to be the true value of the key" … "v2=v1+1": counters do not lose increments,
// whoever fails between them.
func TestPaperListingOne(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1")
	s.shows("get A", "A: get: nothing")
	s.play("put A 1", "unlock A")
	for i := 1; i < 6; i++ {
		proxy := []string{"p1", "p2"}[i%2]
		s.play("lock B at "+proxy+" wait 1m", "advance 15s")
		s.shows("get B", "B: get: "+valueText(i))
		s.play("put B " + valueText(i+1))
		if i%3 == 0 {
			s.play("crash "+proxy, "start "+proxy)
			continue
		}
		s.play("unlock B", "advance 1s")
	}
	s.defined(6)
}
