package frontend

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// holds waits until so many bytes of requests are counted: at least, or none.
func (r *rig) holds(n int, what string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		used := r.server.memory.InUse()
		return n > 0 && used >= int64(n) || n == 0 && used == 0
	}, patience, time.Millisecond, what)
}

// large is the length of what is kept in these tests.
const large = 1 << 20

// largeWrite is a write whose value is large.
func largeWrite(text string) *message.Query {
	q := query(text)
	q.Options.PositionalValues = []*primitive.Value{primitive.NewValue(noise(large))}
	return q
}

// asBatch is a write as a BATCH message.
func asBatch(q *message.Query) *message.Batch {
	return &message.Batch{Children: []*message.BatchChild{{Query: q.Query, Values: q.Options.PositionalValues}}}
}

// What waits for a lock, for its stamp or for the row of its condition is counted until it is answered, or its client is gone.
func TestWhatWaitsIsCounted(t *testing.T) {
	plain, condition := "UPDATE bank.auto SET n = ? WHERE id = 'x'", " IF balance = 5"
	held := "UPDATE bank.accounts USING LOCK 1 SET n = ? WHERE id = 'x'"
	short, read := query("UPDATE bank.auto SET n = 0x WHERE id = 'x'"), query("SELECT balance FROM bank.accounts WHERE id = 'x' FOR UPDATE")
	many := query("SELECT balance FROM bank.accounts WHERE id = 'x' AND n IN (" + strings.Repeat("0x,", large/50) + "0x) USING LOCK 1")
	for name, c := range map[string]struct {
		request message.Message
		waits   []int // for the core, before each message that Cassandra gets
		payload bool  // it has a custom payload that is large
	}{
		"alone":               {largeWrite(plain), []int{2}, false},
		"alone, message":      {asBatch(largeWrite(plain)), []int{2}, false},
		"alone, with IF":      {largeWrite(plain + condition), []int{2, 1}, false},
		"under a lock":        {largeWrite(held), []int{1}, false},
		"with IF":             {largeWrite(held + condition), []int{1, 1}, false},
		"with IF, message":    {asBatch(largeWrite(held + condition)), []int{1, 1}, false},
		"INSERT IF":           {largeWrite("INSERT INTO bank.auto (n, id) VALUES (?, 'x') IF NOT EXISTS"), []int{2}, false},
		"FOR UPDATE":          {query("SELECT balance FROM bank.accounts WHERE id = 'x' /*" + strings.Repeat("x", large) + "*/ FOR UPDATE"), []int{2}, false},
		"of several keys":     {largeWrite("BEGIN BATCH " + plain + "; DELETE FROM bank.auto WHERE id = 'y' APPLY BATCH"), []int{4}, false},
		"of several keys, IN": {largeWrite("UPDATE bank.auto SET n = ? WHERE id IN ('x')"), []int{2}, false},
		"payload":             {short, []int{2}, true},
		"payload, message":    {asBatch(short), []int{2}, true},
		"payload, IF":         {query(short.Query + condition), []int{2, 1}, true},
		"payload, several":    {query("BEGIN BATCH " + short.Query + "; DELETE FROM bank.auto WHERE id = 'y' APPLY BATCH"), []int{4}, true},
		"payload, FOR UPDATE": {read, []int{2}, true},
		"of many parts":       {many, []int{1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, goes := range []bool{false, true} {
				r, core := holdingRig(t)
				r.server.MaxWait = patience
				client, backend := r.login(dialect{version: v4})
				core.holds = true
				client.send(1, c.request, func(f *frame.Frame) {
					if c.payload {
						f.SetCustomPayload(map[string][]byte{"k": noise(large)})
					}
				})
				give := taken(t, core.held)
				r.holds(large, "while it waits for the core")
				if goes {
					_ = client.Close()
					backend.ended()
					for give(); len(core.held) > 0; {
						taken(t, core.held)()
					}
					r.holds(0, "the client is gone")
					continue
				}
				for step, waits := range c.waits {
					for range waits {
						if give == nil {
							give = taken(t, core.held)
							r.holds(large, "while it waits for the core")
						}
						give()
						give = nil
					}
					got := backend.answer(1)
					if step+1 < len(c.waits) {
						r.holds(large, "while the row is read")
					}
					if q, ok := got.(*message.Query); ok && strings.HasPrefix(q.Query, "SELECT") {
						backend.send(1, balances(bigint(5)))
					} else {
						backend.send(1, &message.VoidResult{})
					}
				}
				client.answer(1)
				r.holds(0, "it is answered")
			}
		})
	}
}

// What waits takes no more than is counted: neither the buffer that the request was read into, nor a payload that is not sent.
func TestWhatWaitsTakesWhatIsCounted(t *testing.T) {
	const payload = 8 << 20
	for name, request := range map[string]message.Message{
		"LOCK":             query("LOCK bank.locked WHERE k = 'x'"),
		"FOR UPDATE":       query("SELECT v FROM bank.locked WHERE k = 'x' FOR UPDATE"),
		"LOCK of no table": query("LOCK bank.none WHERE k = 'x'"),
		"PREPARE of LOCK":  &message.Prepare{Query: "LOCK bank.locked WHERE k = ?"},
		"a schema change":  query("CREATE TABLE bank.made (k text PRIMARY KEY) WITH comment = '@critical'"),
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := fencedConn(t, d4(), underLockText, catalog.Reject)
			hindered, core := make(chan string), newDelayedLocks()
			core.holds = true
			m.server.Locks, m.server.Hindrance = core, func(CriticalChange) string { return <-hindered }
			m.authenticated.Store(name[0] == 'P') // so that Cassandra is asked for a right
			raw := d4().envelope(t, 1, request, func(f *frame.Frame) { f.SetCustomPayload(map[string][]byte{"k": noise(payload)}) })
			before := heap()
			require.NoError(t, m.feed(m.up, raw))
			assert.True(t, m.busy())
			assert.Less(t, heap()-before, m.server.memory.InUse()+payload/4)
			runtime.KeepAlive(raw)
			runtime.KeepAlive(core)
			close(hindered)
			m.end(errClientClosed)
			m.abandon()
			m.children.Wait()
		})
	}
}

// heldUnlocks give the answer to UNLOCK, too, when the test says so.
type heldUnlocks struct{ *delayedLocks }

// Unlock implements Locker.
func (h heldUnlocks) Unlock(_ musiccore.Key, _ musiccore.LockRef, _ musiccore.Client, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	h.held <- func() { done(musiccore.Answer{}) }
	return musiccore.Answer{}, false
}

// Force implements Locker.
func (h heldUnlocks) Force(_ musiccore.Key, _ Force, done func(musiccore.Answer)) {
	h.held <- func() { done(musiccore.Answer{}) }
}

// List implements LockLister.
func (heldUnlocks) List(musiccore.Key) ([]musiccore.Listing, []string) { return nil, nil }

// The key of a verb that waits is counted.
func TestTheKeyOfAVerbIsCounted(t *testing.T) {
	const length = 60_000
	of := " bank.accounts WHERE id = '" + strings.Repeat("x", length) + "'"
	for name, text := range map[string]string{
		"LOCK": "LOCK" + of, "UNLOCK": "UNLOCK" + of + " USING LOCK 1", "FORCE": "UNLOCK" + of + " FORCE", "LIST": "LIST LOCKS ON" + of,
	} {
		t.Run(name, func(t *testing.T) {
			r, core := holdingRig(t)
			core.holds, r.server.Locks = true, heldUnlocks{core}
			client, _ := r.login(d4())
			r.server.each(func(c *conn) { c.listing <- struct{}{} })
			client.send(1, query(text))
			give := func() { r.server.each(func(c *conn) { <-c.listing }) }
			if name != "LIST" {
				give = taken(t, core.held)
			}
			r.holds(length, "while it waits")
			give()
			client.answer(1)
			r.holds(0, "it is answered")
		})
	}
}

// Of a write that was sent nothing is kept but what its answer needs, or it is counted: the answer may be long in coming.
func TestNothingIsKeptOfWhatWasSent(t *testing.T) {
	const value = 8 << 20
	write := func(text string) *message.Query {
		q := query(text)
		q.Options.PositionalValues = []*primitive.Value{primitive.NewValue(noise(value))}
		return q
	}
	one, other := write("UPDATE bank.locked SET v = ? WHERE k = 'x'"), &message.BatchChild{Query: "DELETE FROM bank.locked WHERE k = 'y'"}
	several := asBatch(one)
	several.Children = append(several.Children, other)
	for name, c := range map[string]struct {
		request message.Message
		waits   int // for the core, if that makes it wait
	}{
		"alone": {one, 2}, "alone, message": {asBatch(one), 2}, "several keys": {several, 4},
		"under a lock": {write("UPDATE bank.locked USING LOCK 9 SET v = ? WHERE k = 'x'"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			for _, later := range []bool{false, true} {
				m, _ := fencedConn(t, d4(), underLockText, catalog.Auto)
				core := newDelayedLocks()
				core.holds, m.server.Locks, m.server.References, m.server.MaxWait = later, core, plainReferences{}, patience
				raw := d4().envelope(t, 1, c.request)
				before := heap()
				require.NoError(t, m.feed(m.up, raw))
				for range c.waits {
					if later {
						taken(t, core.held)()
					}
				}
				m.children.Wait()
				assert.True(t, m.streams.Open(1))
				assert.Less(t, heap()-before, m.server.memory.InUse()+value/4, "waits: %v", later)
				runtime.KeepAlive(raw)
			}
		})
	}
}

// Conditional writes that wait for their turn are counted.
func TestWhatWaitsForItsTurnIsCounted(t *testing.T) {
	r, _ := holdingRig(t)
	client, backend := r.login(dialect{version: v4})
	for stream := range int16(3) {
		client.send(stream, largeWrite("UPDATE bank.accounts USING LOCK 1 SET n = ? WHERE id = 'x' IF balance = 5"))
	}
	backend.answer(0)
	r.holds(3*large, "one reads, and two wait")
	_ = client.Close()
	r.holds(0, "the client is gone")
}

// A request for which Cassandra is asked something first is counted until the answer.
func TestWhatWaitsForCassandraIsCounted(t *testing.T) {
	for name, roles := range map[string]bool{"permissions": true, "functions": false} {
		t.Run(name, func(t *testing.T) {
			for _, batch := range []bool{false, true} {
				for _, goes := range []bool{false, true} {
					r, _ := evaluatingRig(t)
					login, text := func() (client, backend *peer) { return r.login(dialect{version: v4}) }, "UPDATE bank.texts SET m = ? WHERE id = f()"
					if roles {
						login, text = func() (client, backend *peer) { return r.loginAs(dialect{version: v4}, "app") }, "UPDATE bank.texts SET m = ? WHERE id = 'x'"
					}
					client, backend := login()
					if w := largeWrite(text); batch {
						client.send(1, asBatch(w))
					} else {
						client.send(1, w)
					}
					backend.answer(1)
					r.holds(large, "while it waits")
					if goes {
						_ = client.Close()
						r.holds(0, "the client is gone")
						continue
					}
					if roles {
						backend.send(1, &message.VoidResult{})
					} else {
						backend.send(1, questioned([]byte("x")))
					}
					backend.answer(1)
					backend.send(1, &message.VoidResult{})
					client.answer(1)
					r.holds(0, "it is answered")
				}
			}
		})
	}
}

// Requests that are held, however much they take, leave room for the answers that they wait for.
func TestAnswersHaveRoomBesideWhatWaits(t *testing.T) {
	r, _ := holdingRig(t)
	r.server.Limits().Messages = 2 * large
	client, backend := r.login(dialect{version: v4})
	client.send(9, query("SELECT n FROM bank.accounts WHERE id = 'x' USING LOCK 1"))
	backend.answer(9)
	client.send(1, largeWrite("UPDATE bank.accounts USING LOCK 1 SET n = ? WHERE id = 'x' IF balance = 5"))
	backend.answer(1)
	r.holds(large, "it waits for its row")
	backend.send(9, rows(noise(200_000)))
	client.answer(9)
	backend.send(1, balances(bigint(5)))
	backend.answer(1)
	backend.send(1, &message.VoidResult{})
	client.answer(1)
	r.holds(0, "all is answered")
}

// Large conditions of all clients are evaluated a few at a time, since each takes many times its bytes for a moment; others are not held up.
func TestLargeConditionsAreEvaluatedAFewAtATime(t *testing.T) {
	r, _ := holdingRig(t)
	for range evaluationsAtOnce {
		r.server.evaluating <- struct{}{}
	}
	small, itsBackend := r.login(dialect{version: v4})
	client, backend := r.login(dialect{version: v4})
	client.send(1, largeWrite("UPDATE bank.accounts USING LOCK 1 SET balance = 6 WHERE id = 'x' IF n = ?"))
	small.send(1, query("UPDATE bank.accounts USING LOCK 2 SET balance = 6 WHERE id = 'y' IF balance = 5"))
	backend.answer(1)
	itsBackend.answer(1)
	backend.send(1, questioned(nil))
	itsBackend.send(1, balances(bigint(6)))
	assert.IsType(t, &message.RowsResult{}, small.answer(1))
	client.silent()
	<-r.server.evaluating
	client.answer(1)
}
