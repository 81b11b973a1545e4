package musiccore

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Paper tests, §III-B (what the stores must give), §V, §VI (stamps and the lock table on Cassandra), §VII, §X-A.

// stampOf plays a put and returns its stamp.
func (s *stage) stampOf(client string, value int) Stamp {
	s.t.Helper()
	s.silent(fmt.Sprintf("put %s %d", client, value), "lost")
	highest := Stamp(0)
	for _, c := range s.store.key("k").data {
		if c.value == value {
			highest = c.stamp
		}
	}
	require.NotZero(s.t, highest, "put %d is nowhere", value)
	return highest
}

// §III-B: "The domains of both the lockRef and time are ordered, and lockRefs are more significant in the comparison", and
// §X-A2, "Lemma. v2s preserves the ordering of vector timestamps": within a section by its order, between sections by the
// reference, whatever the clocks say.
func TestPaperV2SPreservesTheOrder(t *testing.T) {
	s := paper(t, "proxies p1 p2", "plain 99 1m", "wall p2 -9s", "lock A at p1", "get A", "advance 1s")
	last := Stamp(0)
	for i, c := range []string{"A", "A", "B", "B", "C", "C", "D"} {
		if stamp := s.stampOf(c, i+1); stamp <= last {
			require.Fail(t, "stamps do not rise", "stamp %d of put %d after %d", stamp, i+1, last)
		} else {
			last = stamp
		}
		switch i {
		case 1: // B's clock is nine seconds behind A's
			s.play("unlock A", "lock B at p2", "advance 1s")
		case 3: // a preemption
			s.play("crash p2", "lock C at p1 wait 1m", "advance 30s")
		case 5: // no time has passed at all
			s.play("unlock C", "lock D at p1")
		}
	}
}

// §III-B: "We rely on local clocks only to sequentialize multiple actions of a single client." Here not even for that: with
// a clock that stands still or falls back, stamps still rise.
func TestPaperClocksOrderNothing(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1")
	one := s.stampOf("A", 1)
	s.play("wall p1 -9s")
	two := s.stampOf("A", 2)
	s.play("unlock A", "lock B at p1")
	three := s.stampOf("B", 3)
	require.Equal(t, one+1, two, "stamps %d %d %d", one, two, three)
	require.Greater(t, three, two, "stamps %d", one)
}

// §III-B: lsGenerateAndEnqueue "atomically generates a per-key unique increasing identifier and enqueues it", and "All writes
// to the queue are totally ordered": of two that were made from the same row, one is refused and asks again.
func TestPaperRacingEnqueuesAreOrdered(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "lwt hangs", "lock B at p1 wait 1m", "lock C at p2 wait 1m")
	s.shows("deliver lwt", "p1 Enqueue: refused")
	s.shows("advance 1s; unlock A; advance 2s", "C: HELD 2")
	s.shows("unlock C; advance 2s", "B: HELD 3")
}

// §V-B, liveness: "every aspiring client will eventually acquire the lock to a key since failed/non-responsive lockholders
// will be timed-out and preempted."
func TestPaperEveryAspiringClientAcquires(t *testing.T) {
	s := paper(t, "proxies p1 p2 p3 p4", "lock A at p1", "lock B at p2 wait 5m", "lock C at p3 wait 5m", "lock D at p4 wait 5m")
	s.play("crash p1", "pause p2", "cut p3")
	s.shows("advance 30s", "D: HELD 4 after one who did not give it back")
	s.play("resume p2", "heal p3")
	s.shows("get D", "p4 synchronises at 12.600002s: nothing")
}

// §V-C: "The design of MUSIC ensures that criticalGets are requested by the lockholder when, and only when, the data store is
// continuously defined": not while a put of unknown outcome, or a synchronise, is under way.
func TestPaperNoGetWhileTheStoreIsUndefined(t *testing.T) {
	s := paper(t, "proxies p1", "lock A at p1", "put A 1", "put A 2 hanging", "put A 3 unacked r1")
	s.shows("get A", "A waits")
	s.shows("deliver 2", "A: put 2: ok, stamped 5µs", "p1 synchronises at 7µs: 3", "A: get: 3")
}

// §VI: T "restricts the maximum time for which a lock-holder can be in a critical section", and "criticalPut can then simply
// reject any operations with (time − startTime) ≥ T". A window is counted in puts and renewed before its end: sections may
// last, and stamps still stay below those of the next.
func TestPaperASectionMayLast(t *testing.T) {
	s := paper(t, "option window 32", "proxies p1", "lock A at p1")
	for i := range 300 {
		s.play("put A "+fmt.Sprint(i+1), "advance 10s")
	}
	last := s.stampOf("A", 301)
	s.shows("get A", "A: get: 301")
	s.play("unlock A", "lock B at p1")
	require.Greater(t, s.stampOf("B", 302), last)
}

// §VI: "a 64-bit static integer variable called guard […] Each call to createLockRef then uses Cassandra's batch operation to
// atomically increment this variable and enqueue its value in the lock table using one LWT." Sent again because its answer
// was lost, it still makes one reference.
func TestPaperOneReferenceForOneRequest(t *testing.T) {
	for _, fate := range []string{"applied", "lost", "late"} {
		s := paper(t, "proxies p1", "lock A at p1", "lwt unknown "+fate, "lock B at p1 wait 1m", "advance 1s")
		if fate == "late" {
			s.shows("deliver lwt", "p1 Enqueue: refused")
		}
		r := s.store.key("k").row
		require.EqualValues(t, 2, r.Guard, fate)
		s.shows("unlock A", "B: HELD 2")
	}
}

// §VI, Additional Functions: get and put without a lock are for "keys for which no ECF guarantees are expected". The proxy
// refuses them on a critical table; what was written before it became one, even by a clock that was ahead, lies below the
// first section's puts.
func TestPaperPlainWritesOfBeforeLieBelow(t *testing.T) {
	s := paper(t, "proxies p1", "plain 5 1h", "lock A at p1", "get A")
	s.shows("advance 1s", "A: get: 5")
	s.play("put A 6")
	s.shows("get A", "A: get: 6")
}

// §VII a: "Workers that fail to acquire a lock to a job use a removeLockReference function to evict their lock reference".
// NOWAIT leaves nothing to evict; a queued reference is given back by UNLOCK.
func TestPaperRemoveLockReference(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "get A")
	s.shows("lock B at p2 nowait", "B: BUSY")
	s.play("lock C at p2", "advance 2s")
	s.shows("unlock C", "C: RELEASED 2")
	s.play("unlock A", "advance 2s")
	s.shows("lock D at p1 wait 1m", "D: HELD 3")
}

// §VII a: "if this worker fails, another worker can execute the job from its latest state."
func TestPaperTheJobGoesOnFromItsLatestState(t *testing.T) {
	s := paper(t, "proxies p1 p2", "lock A at p1", "put A 1", "put A 2", "crash p1", "lock B at p2 wait 1m", "advance 20s")
	s.shows("get B", "B: get: 2")
	s.play("put B 3", "unlock B", "start p1", "lock C at p1 wait 1m", "advance 1s")
	s.shows("get C", "C: get: 3")
}

// §X-A3: "to prevent overflow, the following inequality has to hold: (lockRef · T + time) ≤ 2^63". A epoch is near now, and not
// a multiple of the reference: ten million references later it is no higher than the clock and the windows used say. What
// cannot be put below 2^63 is refused.
func TestPaperStampsDoNotOverflow(t *testing.T) {
	r := Row{Guard: 10_000_000, Head: 10_000_001, Epoch: t0}
	require.Equal(t, t0+5, Enqueue(&r, Block{N: 1}, 0, t0+5).Set.Row.Epoch)
	s := paper(t, "proxies p1", "plain 5 2^62", "lock A at p1")
	s.shows("get A", "A: get: key has a write timestamp beyond every window")
}
