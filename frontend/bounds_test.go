package frontend

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"music/frontend/catalog"
	"music/musiccore"
)

// waitingLocks keep every client waiting, or none.
type waitingLocks struct {
	Locks
	waits  bool
	asked  chan string // AS or REASON of each that got there
	gone   chan struct{}
	answer musiccore.Answer
	list   []musiccore.Listing
	takes  time.Duration // how long Lock and List take, in a bubble of synctest; 0 elsewhere
}

func (p *waitingLocks) List(musiccore.Key) ([]musiccore.Listing, []string) {
	time.Sleep(p.takes)
	return p.list, nil
}

func (p *waitingLocks) Lock(_ musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	p.asked <- q.Owner
	if p.waits {
		return musiccore.Answer{}, func() { p.gone <- struct{}{} }
	}
	go done(p.answer)
	time.Sleep(p.takes)
	return musiccore.Answer{}, func() {}
}

func (p *waitingLocks) Force(_ musiccore.Key, f Force, done func(musiccore.Answer)) {
	p.asked <- f.Reason
	done(p.answer)
}

// patientRig is a server with a critical table and such a core.
func patientRig(t *testing.T, waits bool, change ...func(*Options)) (*rig, *waitingLocks) {
	core := newWaitingLocks(waits)
	r := newRig(t, append(change, func(o *Options) { o.Locks = core })...)
	r.createAccounts()
	return r, core
}

// newWaitingLocks returns Locks that keep every client waiting, or grant to all.
func newWaitingLocks(waits bool) *waitingLocks {
	core := &waitingLocks{waits: waits, asked: make(chan string, 100), gone: make(chan struct{}, 100)}
	core.answer.Grant = musiccore.Grant{Applied: true, Ref: 3, State: musiccore.StateHeld}
	return core
}

// createAccounts adds the critical table bank.accounts, whose key is id.
func (r *rig) createAccounts() {
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}})
}

// AS and REASON have a bound, written or bound: what is longer is refused, and never gets to the core.
func TestLabelsAreBounded(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r, core := patientRig(t, false)
		client, _ := r.login(d)
		for _, size := range []int{0, 1, 255, 256, 257, 4096, 30_000, 1 << 20} {
			for _, clause := range []string{"LOCK bank.accounts WHERE id = 'x' AS ", "UNLOCK bank.accounts WHERE id = 'x' FORCE REASON "} {
				for _, bound := range []bool{false, true} {
					label := strings.Repeat("a", size)
					q := &message.Query{Query: clause + "'" + label + "'", Options: &message.QueryOptions{}}
					if bound {
						q.Query, q.Options.PositionalValues = clause+"?", []*primitive.Value{primitive.NewValue([]byte(label))}
					}
					client.send(1, q)
					if size <= 256 {
						assert.IsType(t, &message.RowsResult{}, client.answer(1))
						assert.Equal(t, label, <-core.asked)
						continue
					}
					told := client.failure(1)
					assert.Equal(t, primitive.ErrorCodeInvalid, told.GetErrorCode())
					assert.Regexp(t, `^MUSIC_REFUSED: .*(max-label-size|max-statement-size)`, told.GetErrorMessage())
					assert.Less(t, len(told.GetErrorMessage()), 300, "it is not echoed")
				}
			}
		}
		assert.Empty(t, core.asked)
	})
}

// The texts of the lock's verbs, and of what is prepared, have a bound; a write that carries its values in its text has not.
func TestTextsAreBounded(t *testing.T) {
	r, core := patientRig(t, false)
	client, backend := r.login(dialect{version: v4})
	long := strings.Repeat(" ", 64<<10)
	for _, text := range []string{"LOCK bank.accounts " + long + "WHERE id = 'x'", "UNLOCK bank.accounts " + long + "WHERE id = 'x' USING LOCK 3", "LIST LOCKS " + long} {
		for _, m := range []message.Message{query(text), &message.Prepare{Query: text}} {
			client.send(1, m)
			assert.Regexp(t, `^MUSIC_REFUSED: .*max-statement-size`, client.failure(1).GetErrorMessage())
		}
	}
	for _, text := range []string{
		"SELECT * FROM bank.accounts " + long + "WHERE id = ? USING LOCK 3", "UPDATE bank.accounts USING LOCK ? SET v = 1 " + long + "WHERE id = 'x'",
		"SELECT * FROM system.local " + long,
	} {
		client.send(1, &message.Prepare{Query: text})
		assert.Regexp(t, `^MUSIC_REFUSED: .*max-statement-size`, client.failure(1).GetErrorMessage())
	}
	assert.Empty(t, core.asked)
	relayed(client, backend, 1, &message.Prepare{Query: "SELECT * FROM b.c " + long}, preparedAs(idOf("plain")))
}

// A connection may have so many operations waiting, and no more. One that has its answer makes room.
func TestWaitsOfAConnectionAreBounded(t *testing.T) {
	const most = 20
	r, core := patientRig(t, true, func(o *Options) { o.Limits().Waits = most })
	client, _ := r.login(dialect{version: v4})
	for stream := range int16(2 * most) {
		client.send(stream, query(fmt.Sprintf("LOCK bank.accounts WHERE id = 'x%d' WAIT 8s", stream)))
	}
	for stream := int16(most); stream < 2*most; stream++ {
		assert.Regexp(t, `^MUSIC_UNAVAILABLE: 20 operations .*max-waits-per-connection`, client.failure(stream).GetErrorMessage())
	}
	assert.Len(t, core.asked, most)
	other, _ := r.login(dialect{version: v4})
	other.send(1, query("LOCK bank.accounts WHERE id = 'x' WAIT 8s"))
	_ = client.Close()
	for range most {
		<-core.gone
	}
	_ = other.Close()
	<-core.gone
}

// What is remembered of prepared statements never takes more than its bound, nor that of one connection more than its share, whatever is
// prepared, again and by whom; and the numbers are those of what is there.
func TestPreparedStatementsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const all, each = 40 * entryMemory, 15 * entryMemory
		s := newStatements(limited(func(l *Limits) { l.Prepared, l.PreparedEach = all, each }))
		shares := []*preparedShare{nil, {}, {}, {}}
		for range rapid.IntRange(1, 200).Draw(t, "statements") {
			id := preparedID{byte(rapid.IntRange(0, 60).Draw(t, "id"))}
			if rapid.Bool().Draw(t, "used") {
				s.shared(id)
				continue
			}
			p := &preparedStatement{tables: make([]*catalog.Table, rapid.IntRange(0, 40).Draw(t, "size"))}
			s.add(id, p, shares[rapid.IntRange(0, 3).Draw(t, "by")])
			if got := s.shared(id).get(); got != p {
				require.Fail(t, "the last one is there")
			}
			sum, of := 0, map[*preparedShare]int{}
			for _, key := range s.lru.Keys() {
				r, _ := s.lru.Peek(key)
				sum += r.size
				of[r.by] += r.size
			}
			if sum != s.size || sum > all {
				require.Fail(t, "another size", "%d bytes, counted as %d of %d", sum, s.size, all)
			}
			for _, by := range shares[1:] {
				if of[by] != by.size || by.size > each || len(by.ids) > each/entryMemory {
					require.Fail(t, "another share", "%d bytes, counted as %d of %d, %d ids", of[by], by.size, each, len(by.ids))
				}
			}
		}
	})
}

// What clients make the proxy keep by PREPARE is, in memory, no more than the bound says: with the statements that have most to keep.
func TestPreparedMemory(t *testing.T) {
	const all = 4 << 20
	for name, text := range map[string]string{
		"markers":  "LOCK bank.locked WHERE k IN (" + strings.Repeat("?,", 30_000) + "?) AS '%d'",
		"literals": "LOCK bank.locked WHERE k IN (" + strings.Repeat("'',", 20_000) + "'') AS '%d'",
		"short":    "LOCK bank.locked WHERE k = ? AS '%d'",
	} {
		t.Run(name, func(t *testing.T) {
			d := dialect{version: v4}
			m := newMemoryConn(t, d, false)
			m.server.Limits().Prepared, m.server.Limits().PreparedEach = all, all
			m.server.Tables.Set("bank", "locked", &catalog.Critical{Key: []catalog.Column{{Name: "k", Type: "text"}}, Primary: []string{"k"}})
			before := heap()
			for i := range min(2*all/len(text), 20_000) {
				require.NoError(t, m.feed(m.up, d.envelope(t, 1, &message.Prepare{Query: fmt.Sprintf(text, i)})))
			}
			assert.Less(t, heap()-before, int64(all*5/4))
			assert.LessOrEqual(t, m.server.prepared.size, all)
			assert.Positive(t, m.server.prepared.lru.Len())
			runtime.KeepAlive(m)
		})
	}
}

// heap is what is held.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// countingLists are Locks whose lists are made when the test says so.
type countingLists struct {
	Locks
	asked, made chan struct{}
}

// List implements Locker.
func (l countingLists) List(musiccore.Key) ([]musiccore.Listing, []string) {
	l.asked <- struct{}{}
	<-l.made
	return nil, nil
}

// A few LIST LOCKS of all clients are answered at once: each takes far more memory than its answer, which is counted until it is sent.
func TestListsAreBounded(t *testing.T) {
	const clients = 3 * listsAtOnce
	locks := countingLists{asked: make(chan struct{}, clients), made: make(chan struct{})}
	r := newRig(t, func(o *Options) { o.Locks = locks })
	var all []*peer
	for range clients {
		client, _ := r.login(dialect{version: v4})
		client.send(1, query("LIST LOCKS"))
		all = append(all, client)
	}
	for range listsAtOnce {
		<-locks.asked
	}
	all[0].silent()
	assert.Empty(t, locks.asked)
	for range clients {
		locks.made <- struct{}{}
	}
	for _, client := range all {
		assert.IsType(t, &message.RowsResult{}, client.answer(1))
	}
	assert.Eventually(t, func() bool { return r.server.answers.InUse() == 0 }, patience, time.Millisecond)
}

// No list is made for a client that is gone, however many it has asked for: each takes up to a second and one of the places that all clients
// share, and the proxy's end waits for it.
func TestNoListIsMadeForAClientThatIsGone(t *testing.T) {
	m := newMemoryConn(t, d4(), false)
	locks := countingLists{asked: make(chan struct{}, 100), made: make(chan struct{})}
	close(locks.made)
	m.server.Locks = locks
	m.end(errClientClosed)
	for range cap(locks.asked) {
		assert.Nil(t, m.listInTurn(1, musiccore.Key{}))
	}
	assert.Empty(t, locks.asked)
}

// Batches count among the operations of a connection that wait, and a stream on which one waits takes no other request.
func TestWaitingBatchesAreBounded(t *testing.T) {
	const most = 20
	for name, text := range map[string]string{
		"under a lock": "UPDATE bank.accounts USING LOCK 1 SET n = 0x WHERE id = 'x'", "alone": "UPDATE bank.auto SET n = 0x WHERE id = 'x'",
	} {
		t.Run(name, func(t *testing.T) {
			r, core := holdingRig(t)
			core.holds, core.held = true, make(chan func(), 2*most)
			r.server.Limits().Waits = most
			client, _ := r.login(dialect{version: v4})
			for stream := range int16(2 * most) {
				client.send(stream, asBatch(query(text)))
			}
			for stream := int16(most); stream < 2*most; stream++ {
				assert.Regexp(t, `^MUSIC_UNAVAILABLE: 20 operations .*max-waits-per-connection`, client.failure(stream).GetErrorMessage())
			}
			assert.Len(t, core.held, most)
			_ = client.Close()
			for range most {
				(<-core.held)()
			}
		})
	}
}

// A stream on which an operation waits is in use, whatever is waited for, and no longer when the answer has come.
func TestAStreamOnWhichAnOperationWaitsIsInUse(t *testing.T) {
	for _, text := range []string{
		"LOCK bank.accounts WHERE id = 'x'", "LOCK bank.accounts WHERE id IN ('x', 'y')", "SELECT n FROM bank.accounts WHERE id = 'x' FOR UPDATE",
		"UPDATE bank.accounts USING LOCK 1 SET n = 0x WHERE id = 'x'", "UPDATE bank.auto SET n = 0x WHERE id = 'x'",
		"UPDATE bank.auto SET n = 0x WHERE id IN ('x', 'y')", "UPDATE bank.auto SET n = 0x WHERE id = 'x' IF balance = 5",
	} {
		t.Run(text, func(t *testing.T) {
			r, core := holdingRig(t)
			r.server.MaxWait = patience
			core.holds = true
			client, _ := r.login(dialect{version: v4})
			client.send(1, query(text))
			give := taken(t, core.held)
			client.send(1, query("SELECT a FROM b.c"))
			told := client.failure(1).GetErrorMessage()
			if strings.HasPrefix(told, "MUSIC_UNAVAILABLE: ") { // the connection ends, and what waits hears of that first
				told = client.failure(1).GetErrorMessage()
			}
			assert.Contains(t, told, "Stream id 1 is in use")
			_ = client.Close()
			for give(); len(core.held) > 0; {
				taken(t, core.held)()
			}
		})
	}
}
