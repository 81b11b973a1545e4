package musiccore

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const w = Stamp(1 << 20)

func block(first LockRef, n int32, s byte, req int64) Block {
	return Block{First: first, N: n, Session: session(s), Req: req}
}

// The holder is T.Owner if set, else the session that enqueued the head; a row of mixed ages has
// none.
func TestHolder(t *testing.T) {
	queue := []Block{block(3, 2, 1, 1), block(5, 1, 2, 1)}
	for _, c := range []struct {
		name string
		row  Row
		ref  LockRef
		who  byte
		ok   bool
	}{
		{"empty", Row{Guard: 5, Head: 6, Queue: queue}, 0, 0, false},
		{"first of a block", Row{Guard: 5, Head: 3, Queue: queue}, 3, 1, true},
		{"last of a block", Row{Guard: 5, Head: 4, Queue: queue}, 4, 1, true},
		{"another block", Row{Guard: 5, Head: 5, Queue: queue}, 5, 2, true},
		{"taken over", Row{Guard: 5, Head: 5, Queue: queue, Owner: session(9)}, 5, 9, true},
		{"registers of different ages", Row{Guard: 5, Head: 2, Queue: queue}, 2, 0, false},
	} {
		ref, s, ok := c.row.Holder()
		want := SessionID{}
		if c.who != 0 {
			want = session(c.who)
		}
		assert.Equal(t, c.ref, ref, "%s: %d %x %v", c.name, ref, s[:1], ok)
		assert.Equal(t, want, s, "%s: %d %x %v", c.name, ref, s[:1], ok)
		assert.Equal(t, c.ok, ok, "%s: %d %x", c.name, ref, s[:1])
	}
}

// Next returns the first reference behind the head that is not passed over.
func TestNextPassesOverTheDead(t *testing.T) {
	r := Row{Guard: 6, Head: 3, Queue: []Block{block(3, 2, 1, 1), block(5, 1, 2, 1), block(6, 1, 3, 1)}}
	dead := func(ids ...byte) func(LockRef, SessionID) bool {
		return func(_ LockRef, s SessionID) bool {
			for _, id := range ids {
				if s == session(id) {
					return true
				}
			}
			return false
		}
	}
	for want, ids := range map[LockRef][]byte{4: {}, 5: {1}, 6: {1, 2}, 7: {1, 2, 3}} {
		assert.Equal(t, want, r.Next(dead(ids...)), "dead %v", ids)
	}
}

// An Enqueue on a key without a row inserts one, dirty, whose head holds.
func TestEnqueueOfANewKey(t *testing.T) {
	s := Enqueue(nil, block(0, 2, 1, 7), 0, 100)
	want := Row{Guard: 2, Queue: []Block{block(1, 2, 1, 7)}, Epoch: 100, Head: 1, Dirty: true}
	require.Equal(t, IfAbsent, s.If.What)
	require.True(t, s.Set.Q, "%+v", s)
	require.True(t, s.Set.T, "%+v", s)
	require.True(t, equal(s.Set.Row, want), "%+v", s)
}

// References of earlier generations are never given again, even if one of their rows is still
// there.
func TestEnqueueInTheNextGeneration(t *testing.T) {
	b := block(100, 2, 1, 7)
	want := Row{Guard: 101, Queue: []Block{b}, Epoch: 50, Head: 100, Dirty: true}
	s := Enqueue(nil, b, 0, 50)
	require.True(t, equal(s.Set.Row, want), "a new key: %+v", s)
	require.True(t, s.sound(nil), "a new key: %+v", s)
	empty := Row{Guard: 4, Head: 5, Epoch: 100}
	want = Row{Guard: 101, Queue: []Block{b}, Epoch: 101, Head: 100}
	s = Enqueue(&empty, b, 0, 50)
	require.True(t, equal(s.Set.Row, want), "an empty queue: %+v", s)
	require.True(t, s.sound(&empty), "an empty queue: %+v", s)
	held := Row{Guard: 4, Head: 4, Queue: []Block{block(4, 1, 9, 9)}, Epoch: 100}
	require.EqualValues(t, 6, Enqueue(&held, b, 0, 50).Set.Row.Guard, "behind somebody there are no gaps")
	above := (Row{Guard: 200, Head: 201, Epoch: 100})
	require.EqualValues(t, 202, Enqueue(&above, b, 0, 50).Set.Row.Guard, "references never fall")
}

// An Enqueue on an empty queue makes its first reference the head, on a higher epoch.
func TestEnqueueOnAnEmptyQueueGrants(t *testing.T) {
	r := Row{Guard: 4, Head: 5, Queue: []Block{block(4, 1, 9, 9)}, Epoch: 100, Owner: SessionID{}}
	s := Enqueue(&r, block(0, 2, 1, 7), 0, 50)
	want := Row{Guard: 6, Queue: []Block{block(5, 2, 1, 7)}, Epoch: 101, Head: 5}
	require.Equal(t, If{What: IfGuardEpoch, Guard: 4, Epoch: 100}, s.If)
	require.True(t, equal(s.Set.Row, want), "%+v", s)
	require.EqualValues(t, 5000, Enqueue(&r, block(0, 1, 1, 7), 0, 5000).Set.Row.Epoch, "the clock lifts the epoch")
	require.True(t, Enqueue(&r, block(0, 1, 1, 7), 101, 5000).Set.Row.Dirty, "D = dirty OR epoch < closed")
	r.Dirty = true
	require.True(t, Enqueue(&r, block(0, 1, 1, 7), 0, 5000).Set.Row.Dirty, "dirty is handed on")
}

// A proxy's clock may be a second ahead of the cluster's, and the clock of the proxy that closes
// the table ClockGap behind it (docs/protocol.md 2.4, clk; C17).
func TestClosingIsAboveEveryEpochOfAnAllowedClock(t *testing.T) {
	slow, fast := Now{Clk: t0 - clkBehind}, t0+clkAhead
	r := Row{Guard: 1, Head: 1, Queue: []Block{block(1, 1, 1, 7)}, Epoch: 100}
	left, _ := Release(r, 2, false, fast).Apply(&r)
	require.True(t, left.DirtySince(Closing(slow, 0)), "a Release that did not know looks as if it had synchronised")
	before := Closing(Now{Clk: fast}, 0)
	require.Greater(t, Closing(slow, before), before, "closed falls")
}

// An Enqueue behind others writes the queue alone, and drops what the head has passed.
func TestEnqueueBehindOthersLeavesTheTermAlone(t *testing.T) {
	r := Row{Guard: 4, Head: 3, Queue: []Block{block(1, 2, 1, 1), block(3, 2, 2, 1)}, Epoch: 100}
	s := Enqueue(&r, block(0, 3, 1, 7), 0, 5000)
	require.Equal(t, If{What: IfGuard, Guard: 4}, s.If)
	require.False(t, s.Set.T, "%+v", s)
	require.True(t, s.Set.Q, "%+v", s)
	want := Row{Guard: 7, Queue: []Block{block(3, 2, 2, 1), block(5, 3, 1, 7)}}
	require.True(t, equal(s.Set.Row, want), "%+v", s.Set.Row)
}

// Release, Preempt, Takeover and Renew: condition, head, epoch, dirty and owner of each. None of them
// leaves a row unfenced by itself.
func TestTermChanges(t *testing.T) {
	r := Row{Guard: 9, Head: 5, Epoch: 100, Dirty: true, Unfenced: true}
	for _, c := range []struct {
		name string
		swap Swap
		want Row
	}{
		{"release", Release(r, 7, false, 0), Row{Epoch: 107, Head: 6}},
		{"release, clock ahead", Release(r, 7, true, 200), Row{Epoch: 200, Head: 6, Dirty: true}},
		{"preempt", Preempt(r, 8, w, 0), Row{Epoch: 100 + w, Head: 8, Dirty: true}},
		{"takeover", Takeover(r, session(3), w, 0), Row{Epoch: 100 + w, Head: 5, Dirty: true, Owner: session(3)}},
		{"renew", Renew(r, session(1), false, w, 0), Row{Epoch: 100 + w, Head: 5, Owner: session(1)}},
		{"renew above a stamp", Renew(r, SessionID{}, true, w, 7*w), Row{Epoch: 7 * w, Head: 5, Dirty: true}},
	} {
		assert.Equal(t, If{What: IfEpoch, Epoch: 100}, c.swap.If, c.name)
		assert.True(t, c.swap.Set.T, "%s: %+v", c.name, c.swap)
		assert.False(t, c.swap.Set.Q, "%s: %+v", c.name, c.swap)
		assert.True(t, equal(c.swap.Set.Row, c.want), "%s: %+v", c.name, c.swap)
	}
}

func equal(a, b Row) bool {
	if !a.sameTerm(b) || a.Guard != b.Guard || len(a.Queue) != len(b.Queue) {
		return false
	}
	for i := range a.Queue {
		if a.Queue[i] != b.Queue[i] {
			return false
		}
	}
	return true
}

// A Swap writes whole registers if its condition holds, else nothing.
func TestApplyComparesAndWritesWholeRegisters(t *testing.T) {
	r := Row{Guard: 4, Head: 3, Queue: []Block{block(3, 2, 2, 1)}, Epoch: 100, Dirty: true, Owner: session(2)}
	other := Row{Guard: 7, Head: 6, Queue: []Block{block(7, 1, 1, 1)}, Epoch: 900}
	q := Swap{If{What: IfGuard, Guard: 4}, Set{Q: true, Row: other}}
	got, ok := q.Apply(&r)
	assert.True(t, ok && got.Guard == 7 && got.Queue[0] == other.Queue[0] && got.sameTerm(r), "Q: %+v %v", got, ok)
	term := Swap{If{What: IfEpoch, Epoch: 100}, Set{T: true, Row: other}}
	got, ok = term.Apply(&r)
	assert.True(t, ok, "T: %+v %v", got, ok)
	assert.EqualValues(t, 4, got.Guard, "T: %+v %v", got, ok)
	assert.True(t, got.sameTerm(other), "T: %+v %v", got, ok)
	for _, s := range []Swap{
		{If{What: IfGuard, Guard: 5}, q.Set},
		{If{What: IfEpoch, Epoch: 99}, term.Set},
		{If{What: IfGuardEpoch, Guard: 4, Epoch: 99}, term.Set},
		{If{What: IfGuardEpoch, Guard: 3, Epoch: 100}, term.Set},
		{If{What: IfAbsent}, term.Set},
		{If{}, term.Set},
	} {
		got, ok := s.Apply(&r)
		assert.False(t, ok, "%+v applied: %+v", s.If, got)
		assert.True(t, equal(got, r), "%+v applied: %+v", s.If, got)
	}
	_, ok = term.Apply(nil)
	assert.False(t, ok, "an UPDATE makes no row: it would block INSERT IF NOT EXISTS (docs/protocol.md 2.1)")
}

// rows draws lock rows as histories leave them.
func rows(t *rapid.T) *Row {
	if rapid.IntRange(0, 9).Draw(t, "new") == 0 {
		return nil
	}
	guard := LockRef(rapid.Int64Range(1, 40).Draw(t, "guard"))
	r := &Row{
		Guard: guard, Head: LockRef(rapid.Int64Range(1, int64(guard)+1).Draw(t, "head")),
		Epoch: Stamp(rapid.Int64Range(1, 1<<50).Draw(t, "epoch")),
		Dirty: rapid.Bool().Draw(t, "dirty"),
	}
	for ref := max(r.Head-LockRef(rapid.Int64Range(0, 3).Draw(t, "old")), 1); ref <= guard; {
		n := min(LockRef(rapid.Int64Range(1, 4).Draw(t, "n")), guard-ref+1)
		r.Queue = append(r.Queue, Block{First: ref, N: int32(n), Session: session(byte(rapid.IntRange(1, 3).Draw(t, "who"))), Req: int64(ref)})
		ref += n
	}
	return r
}

// changes draws any LWT on a row.
func changes(t *rapid.T, r *Row) Swap {
	clk := Stamp(rapid.Int64Range(0, 1<<51).Draw(t, "clk"))
	kind := rapid.IntRange(0, 4).Draw(t, "kind")
	if r == nil || kind == 0 {
		n := int32(rapid.IntRange(1, 5).Draw(t, "refs"))
		return Enqueue(r, Block{N: n, Session: session(1), Req: 99}, Stamp(rapid.Int64Range(0, 1<<51).Draw(t, "closed")), max(clk, 1))
	}
	if r.Empty() {
		return Enqueue(r, Block{N: 1, Session: session(1), Req: 99}, 0, clk)
	}
	switch kind {
	case 1:
		s := Release(*r, Stamp(rapid.Int64Range(2, int64(w)).Draw(t, "used")), rapid.Bool().Draw(t, "d"), clk)
		if rapid.Bool().Draw(t, "alone") {
			return s
		}
		return combine(Enqueue(r, Block{N: 2, Session: session(1), Req: 99}, 0, clk), s)
	case 2:
		return Preempt(*r, r.Next(func(_ LockRef, s SessionID) bool { return s == session(2) }), w, clk)
	case 3:
		return Takeover(*r, session(3), w, clk)
	}
	return Renew(*r, session(1), rapid.Bool().Draw(t, "d"), w, clk)
}

// I1: over any history of Swaps, guard, epoch and head never fall.
func TestI1NothingFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rows(t)
		s := changes(t, r)
		if !s.sound(r) {
			require.Fail(t, "not sound", "%+v on %+v", s, r)
		}
		to, ok := s.Apply(r)
		if !ok {
			require.Fail(t, "refused on its own row", "%+v on %+v", s, r)
		}
		if r == nil {
			return
		}
		if to.Guard < r.Guard || to.Head < r.Head || to.Epoch < r.Epoch {
			require.Fail(t, "fell", "%+v -> %+v", *r, to)
		}
		if !to.sameTerm(*r) && to.Epoch == r.Epoch {
			require.Fail(t, "T changed on one epoch", "%+v -> %+v", *r, to)
		}
		if _, _, known := to.Holder(); !to.Empty() && !known {
			require.Fail(t, "the head has no session", "%+v", to)
		}
	})
}

// H3: a Swap that was applied is refused ever after.
func TestASwapIsAppliedAtMostOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rows(t)
		s := changes(t, r)
		once, _ := s.Apply(r)
		twice, ok := s.Apply(&once)
		if ok || !equal(once, twice) {
			require.Fail(t, "applied twice", "%+v", s)
		}
	})
}

// Of two Swaps on one register, made from one row, only one is applied.
func TestSwapsOnOneRegisterExcludeEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rows(t)
		a, b := changes(t, r), changes(t, r)
		after, _ := a.Apply(r)
		_, both := b.Apply(&after)
		if both && (a.Set.T && b.Set.T || a.Set.Q && b.Set.Q) {
			require.Fail(t, "both applied", "%+v and %+v", a, b)
		}
	})
}

// newer is commutative, idempotent and returns the later of each register.
func TestNewerIsTheJoinOfTwoViews(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rows(t)
		if r == nil {
			return
		}
		later, _ := changes(t, r).Apply(r)
		for _, pair := range [][2]Row{{*r, later}, {later, *r}, {later, later}} {
			if got, ok := newer(pair[0], pair[1]); !ok || !equal(got, later) {
				require.Fail(t, "not the join", "of %+v and %+v: %+v", pair[0], pair[1], got)
			}
		}
	})
	_, ok := newer(Row{Epoch: 5, Head: 1}, Row{Epoch: 5, Head: 2})
	require.False(t, ok, "two terms on one epoch passed for one history")
}

// sound refuses a Swap that would move the row backwards, or that compares with 0.
func TestUnsoundSwapsAreRefused(t *testing.T) {
	r := Row{Guard: 4, Head: 3, Epoch: 100}
	for name, s := range map[string]Swap{
		"epoch falls":      {If{What: IfEpoch, Epoch: 100}, Set{T: true, Row: Row{Epoch: 99, Head: 4}}},
		"epoch stands":     {If{What: IfEpoch, Epoch: 100}, Set{T: true, Row: Row{Epoch: 100, Head: 4}}},
		"head falls":       {If{What: IfEpoch, Epoch: 100}, Set{T: true, Row: Row{Epoch: 101, Head: 2}}},
		"head beyond":      {If{What: IfEpoch, Epoch: 100}, Set{T: true, Row: Row{Epoch: 101, Head: 6}}},
		"guard stands":     {If{What: IfGuard, Guard: 4}, Set{Q: true, Row: Row{Guard: 4}}},
		"compares nothing": {If{What: IfEpoch}, Set{T: true, Row: Row{Epoch: 101, Head: 4}}},
		"no guard":         {If{What: IfGuard}, Set{Q: true, Row: Row{Guard: 5}}},
		"writes nothing":   {If{What: IfEpoch, Epoch: 100}, Set{}},
		"overflow":         Release(Row{Guard: 4, Head: 3, Epoch: math.MaxInt64}, 2, true, 0),
	} {
		assert.False(t, s.sound(&r), "%s passed", name)
	}
	assert.False(t, (Swap{If{What: IfAbsent}, Set{Q: true, T: true, Row: Row{Guard: 1, Head: 1}}}).sound(nil), "epoch 0 is no legal epoch")
}

// Two changes in one LWT have the same effect as one after the other, and no effect if either would
// be refused.
func TestBothIsOneAfterTheOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rows(t)
		if r == nil || r.Empty() {
			return
		}
		clk := Stamp(rapid.Int64Range(1, 1<<51).Draw(t, "clk"))
		end := Release(*r, Stamp(rapid.Int64Range(2, int64(w)).Draw(t, "used")), rapid.Bool().Draw(t, "dirty"), clk)
		ask := Enqueue(r, block(0, rapid.Int32Range(1, 5).Draw(t, "refs"), 1, 99), 0, clk)
		first, _ := ask.Apply(r)
		s := combine(ask, end)
		want, _ := end.Apply(&first)
		if got, ok := s.Apply(r); !ok || !equal(got, want) || !s.sound(r) {
			require.Fail(t, "not what was expected", "%+v became %+v, want %+v", *r, got, want)
		}
		asked, _ := Enqueue(r, Block{N: 1, Session: session(2)}, 0, clk).Apply(r)
		ended, _ := Release(*r, 2, true, clk).Apply(r)
		for _, now := range []Row{asked, ended} {
			if _, ok := s.Apply(&now); ok {
				require.Fail(t, "applied", "to %+v, made from %+v", now, *r)
			}
		}
	})
}

// Making references one block, or plain, leaves each with its session and in its place: for others
// the queue is unchanged.
func TestBlocksChangeNoReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rows(t)
		if r == nil || len(r.Queue) == 0 {
			return
		}
		for i := range r.Queue {
			r.Queue[i].Retained = rapid.Bool().Draw(t, "retained")
		}
		var plain []LockRef
		for ref := r.Queue[0].First; ref <= r.Guard; ref++ {
			if rapid.Bool().Draw(t, "plain") {
				plain = append(plain, ref)
			}
		}
		from, s := LockRef(rapid.Int64Range(1, int64(r.Guard)).Draw(t, "from")), session(byte(rapid.IntRange(1, 3).Draw(t, "of")))
		dissolved, made := Row{Guard: r.Guard, Head: r.Head, Queue: r.withPlain(plain)}, Row{Guard: r.Guard, Head: r.Head, Queue: r.withOwnBlock(from, s)}
		for ref := r.Queue[0].First; ref <= r.Guard; ref++ {
			was, _ := r.Session(ref)
			for _, now := range []Row{dissolved, made} {
				if is, ok := now.Session(ref); !ok || is != was {
					require.Fail(t, "another owner", "reference %d is of %v in %+v, was of %v in %+v", ref, is, now, was, *r)
				}
			}
			_, told := slices.BinarySearch(plain, ref)
			if dissolved.retained(ref) != (r.retained(ref) && !told) {
				require.Fail(t, "another owner", "reference %d of %+v, %v plain: %+v", ref, *r, plain, dissolved)
			}
			if own := was == s && ref >= from; made.retained(ref) != r.retained(ref) && !own {
				require.Fail(t, "another owner", "reference %d of %+v, a block of %v from %d: %+v", ref, *r, s, from, made)
			}
		}
	})
}
