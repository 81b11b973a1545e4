package frontend

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"music/frontend/catalog"
	"music/frontend/statement"
	"music/musiccore"
	"music/rewrite"
)

// plainReferences shows references as they are: tests of other things name them so.
type plainReferences struct{}

func (plainReferences) Show(_ [16]byte, _ musiccore.Key, ref musiccore.LockRef) int64 {
	return int64(ref)
}

func (plainReferences) Read(_ [16]byte, _ musiccore.Key, n int64) (musiccore.LockRef, bool) {
	return musiccore.LockRef(n), true
}

func (plainReferences) Stale() bool { return false }

// What a client sees rises with the reference, reads back at every proxy, and is nothing elsewhere: for another key, another table, another
// generation, another reference or under another secret. No number that can be shown is taken for the bits of a double.
func TestReferencesAsClientsSeeThem(t *testing.T) {
	one, other, foreign := NewReferences([]byte("secret")), NewReferences([]byte("secret")), NewReferences([]byte("another"))
	meant, wrong := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		generation := [16]byte{rapid.Byte().Draw(t, "generation")}
		k := musiccore.Key{Table: [16]byte{rapid.Byte().Draw(t, "table")}, PK: rapid.String().Draw(t, "key")}
		ref := musiccore.LockRef(rapid.Int64Range(1, int64(MaxRef)).Draw(t, "ref"))
		n := one.Show(generation, k, ref)
		got, ok := other.Read(generation, k, n)
		require.True(t, ok)
		require.Equal(t, ref, got)
		bound := statement.Statement{Values: [][]byte{append([]byte{0, 0, 0, 8}, bigint(n)...)}}
		_, f := bound.Integer(rewrite.Term{Kind: rewrite.TermMarker}, "USING LOCK")
		require.Nil(t, f, "%v", f)
		if ref < MaxRef {
			require.Greater(t, one.Show(generation, k, ref+1), n)
		}
		meant++
		for _, elsewhere := range []func() (musiccore.LockRef, bool){
			func() (musiccore.LockRef, bool) { return one.Read([16]byte{generation[0] + 1}, k, n) },
			func() (musiccore.LockRef, bool) {
				return one.Read(generation, musiccore.Key{Table: k.Table, PK: k.PK + "x"}, n)
			},
			func() (musiccore.LockRef, bool) {
				return one.Read(generation, musiccore.Key{Table: [16]byte{k.Table[0] + 1}, PK: k.PK}, n)
			},
			func() (musiccore.LockRef, bool) { return one.Read(generation, k, n+1<<tagBits) },
			func() (musiccore.LockRef, bool) { return foreign.Read(generation, k, n) },
			func() (musiccore.LockRef, bool) { return one.Read(generation, k, int64(ref)) },
			func() (musiccore.LockRef, bool) {
				return one.Read(generation, k, n^1<<rapid.IntRange(0, tagBits-1).Draw(t, "bit"))
			},
			func() (musiccore.LockRef, bool) { return one.Read(generation, k, -n) },
		} {
			if _, ok := elsewhere(); ok {
				wrong++
			}
		}
	})
	assert.LessOrEqual(t, wrong, 1, "of %d", meant) // one in 2^23
	_, ok := one.Read([16]byte{}, musiccore.Key{}, one.Show([16]byte{}, musiccore.Key{}, MaxRef+1))
	assert.False(t, ok)
	assert.Less(t, int64(MaxRef)<<tagBits|(1<<tagBits-1), int64(math.Float64bits(1)))
	assert.Positive(t, int64(MaxRef)<<tagBits)
}

// A reference is made and read without memory of its own: that stands before every operation under a lock.
func TestReferencesTakeNoMemory(t *testing.T) {
	if raceDetector {
		t.Skip("allocations mean nothing under the race detector")
	}
	r, k := NewReferences([]byte("secret")), musiccore.Key{PK: "a key of some length"}
	n := r.Show([16]byte{1}, k, 7)
	assert.Zero(t, testing.AllocsPerRun(100, func() { r.Read([16]byte{1}, k, n) }))
}

// A tag that is remembered is the one that would be made anew, however many are shown, and of keys of whatever length.
func TestRememberedTags(t *testing.T) {
	r := NewReferences([]byte("secret"))
	for i := range 3 * tagsKept {
		k, ref := musiccore.Key{PK: strings.Repeat("key", 1+i%100)}, musiccore.LockRef(1+i%7)
		want := NewReferences([]byte("secret")).Show([16]byte{1}, k, ref)
		for range 2 {
			assert.Equal(t, want, r.Show([16]byte{1}, k, ref), i)
			assert.NotEqual(t, want, r.Show([16]byte{2}, k, ref), i)
		}
	}
}

// BenchmarkReference measures the way of a reference to the client and back.
func BenchmarkReference(b *testing.B) {
	r, k := NewReferences([]byte("secret")), musiccore.Key{PK: "a key of some length"}
	n := r.Show([16]byte{1}, k, 7)
	b.ReportAllocs()
	for b.Loop() {
		r.Read([16]byte{1}, k, n)
	}
}

// Wrong references cost their connection time, more for each of them, and never more than a second, nor beyond its end.
func TestWrongReferencesAreSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conn{server: &Server{Options: Options{References: NewReferences([]byte("secret"))}}}
		c.done, c.guesses.turn = make(chan struct{}), make(chan struct{}, 1)
		table, critical, k := &catalog.Table{Keyspace: "bank", Name: "accounts"}, &catalog.Critical{}, musiccore.Key{PK: "x"}
		right := c.server.References.Show(critical.Generation, k, 5)
		ask := func(n int64) time.Duration {
			start := time.Now()
			ref, f := c.readReference(critical, table, k, n)
			if n == right {
				assert.EqualValues(t, 5, ref)
			} else {
				require.NotNil(t, f)
				assert.Contains(t, f.Text, "MUSIC_NOT_HELD: lock_ref "+strconv.FormatInt(n, 10)+" ")
			}
			return time.Since(start)
		}
		assert.Zero(t, ask(right))
		for wrong := range 30 {
			assert.Equal(t, min(time.Duration(wrong+1)*wrongPause, time.Second), ask(right+1))
			assert.Zero(t, ask(right))
		}
		// Many at once have their turns one after another.
		took := make(chan time.Duration, 4)
		for range cap(took) {
			go func() { took <- ask(right + 1) }()
		}
		var all []time.Duration
		for range cap(took) {
			all = append(all, <-took)
		}
		assert.Equal(t, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}, all)
		go func() { took <- ask(right + 1) }()
		synctest.Wait()
		close(c.done)
		assert.Zero(t, <-took, "nobody waits any more")
	})
}

// staleReferences know nothing that another proxy has shown since.
type staleReferences struct{ References }

func (staleReferences) Stale() bool { return true }

// Nobody is blamed for a reference that this proxy cannot judge, and what it knows is served.
func TestStaleReferencesBlameNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := NewReferences([]byte("secret"))
		c := &conn{server: &Server{Options: Options{References: staleReferences{known}}}}
		k, begun := musiccore.Key{PK: "x"}, time.Now()
		n := known.Show([16]byte{}, k, 5)
		_, f := c.readReference(&catalog.Critical{}, &catalog.Table{Keyspace: "bank", Name: "accounts"}, k, n+1)
		require.NotNil(t, f)
		assert.Regexp(t, "^MUSIC_UNAVAILABLE: bank.accounts: .*try again", f.Text)
		assert.Zero(t, c.guesses.wrong.Load())
		assert.Zero(t, time.Since(begun))
		ref, f := c.readReference(&catalog.Critical{}, nil, k, n)
		require.Nil(t, f)
		assert.EqualValues(t, 5, ref)
	})
}

// numberingLocks give each key the next reference, and show under which they were asked.
type numberingLocks struct {
	Locks
	asked chan musiccore.LockRef
}

func (g *numberingLocks) Lock(_ musiccore.Key, q musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	ref := q.Ref
	if ref == 0 {
		ref = 9
	} else {
		g.asked <- ref
	}
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: ref, State: musiccore.StateHeld}}, nil
}

func (g *numberingLocks) Unlock(_ musiccore.Key, ref musiccore.LockRef, _ musiccore.Client, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	g.asked <- ref
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: ref, State: musiccore.StateReleased}}, true
}

func (g *numberingLocks) Begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	g.asked <- r
	return musiccore.Answer{Err: musiccore.ErrLost}, true
}

// Whatever names a reference, in whatever way it comes, is read as it was shown: for its own key alone.
func TestEveryStatementNamesAReferenceAsItWasShown(t *testing.T) {
	ways := func(n string) []string {
		return []string{
			"LOCK bank.accounts WHERE id = 'x' USING LOCK " + n, "UNLOCK bank.accounts WHERE id = 'x' USING LOCK " + n,
			"UPDATE bank.accounts USING LOCK " + n + " SET n = 1 WHERE id = 'x'", "INSERT INTO bank.accounts (id, n) VALUES ('x', 1) USING LOCK " + n,
			"DELETE FROM bank.accounts USING LOCK " + n + " WHERE id = 'x'", "SELECT n FROM bank.accounts WHERE id = 'x' USING LOCK " + n,
			"UPDATE bank.accounts USING LOCK " + n + " SET n = 1 WHERE id = 'x' IF n = 0",
			"BEGIN BATCH USING LOCK " + n + " UPDATE bank.accounts SET n = 1 WHERE id = 'x'; DELETE FROM bank.accounts WHERE id = 'x' APPLY BATCH",
		}
	}
	everyDialect(t, func(t *testing.T, d dialect) {
		core := &numberingLocks{asked: make(chan musiccore.LockRef, 9)}
		r := newRig(t, func(o *Options) { o.Locks, o.References = core, NewReferences([]byte("secret")) })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{
			ID: [16]byte{7}, Generation: [16]byte{8}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"},
			Columns: map[string]catalog.Column{"id": {Name: "id", Type: "text"}, "n": {Name: "n", Type: "int"}},
		})
		client, _ := r.login(d)
		for _, text := range []string{"LOCK bank.accounts WHERE id = 'x'", "LOCK bank.accounts WHERE id IN ('x')"} {
			client.send(1, query(text))
			row := client.answer(1).(*message.RowsResult).Data[0]
			if len(core.asked) > 0 {
				<-core.asked // a round renews what it has
			}
			n := int64(bigintOf(row[1]))
			assert.Equal(t, r.server.References.Show([16]byte{8}, musiccore.Key{Table: [16]byte{7}, PK: "x"}, 9), n)
			for _, text := range ways(strconv.FormatInt(n, 10)) {
				client.send(1, query(text))
				answer := client.answer(1)
				require.Len(t, core.asked, 1, "%s: %v", text, answer)
				assert.EqualValues(t, 9, <-core.asked, text)
				if failure, ok := answer.(message.Error); ok {
					assert.Contains(t, failure.GetErrorMessage(), "lock_ref "+strconv.FormatInt(n, 10)+" ", text)
				} else {
					assert.Equal(t, row[1], answer.(*message.RowsResult).Data[0][1], text)
				}
			}
			ofAnother := r.server.References.Show([16]byte{8}, musiccore.Key{Table: [16]byte{7}, PK: "y"}, 9)
			for i, wrong := range []int64{9, n + 1, ofAnother} {
				text := ways(strconv.FormatInt(wrong, 10))[(i+int(d.version))%8]
				client.send(1, query(text))
				assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_NOT_HELD: lock_ref "+strconv.FormatInt(wrong, 10)+" is not one of this key of bank.accounts: ", text)
			}
			assert.Empty(t, core.asked, "the core is not asked")
		}
	})
}

// A paging state of FOR UPDATE cannot be made up either.
func TestPagingStateOfAWrongReference(t *testing.T) {
	core := &numberingLocks{asked: make(chan musiccore.LockRef, 9)}
	r := newRig(t, func(o *Options) { o.Locks, o.References = core, NewReferences([]byte("secret")) })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}})
	client, _ := r.login(d4())
	right := r.server.References.Show([16]byte{}, musiccore.Key{PK: "x"}, 9)
	for _, n := range []int64{9, right + 1, right} {
		q := query("SELECT n FROM bank.accounts WHERE id = 'x' FOR UPDATE")
		q.Options.PagingState = pagingState{ref: n, inner: []byte("first")}.bytes()
		client.send(1, q)
		want := "MUSIC_NOT_HELD: "
		if n == right {
			want = "MUSIC_LOST: " // as the core says
		}
		assert.Contains(t, client.failure(1).GetErrorMessage(), want+"lock_ref "+strconv.FormatInt(n, 10)+" ")
	}
	assert.Equal(t, []musiccore.LockRef{9}, slices.Collect(func(yield func(musiccore.LockRef) bool) { yield(<-core.asked) }))
	assert.Empty(t, core.asked)
}

// bigintOf is the number that eight bytes are on the wire.
func bigintOf(b []byte) (n uint64) {
	for _, x := range b {
		n = n<<8 | uint64(x)
	}
	return n
}
