package frontend

import (
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

const (
	groupUpdate = "UPDATE bank.accounts SET n = ? WHERE id = ? IF n = ?"
	readOfGroup = `SELECT "n" FROM "bank"."accounts" WHERE "id" = ?`
)

// heldBackLocks answer a LOCK when a test says so.
type heldBackLocks struct {
	*grantingLocks
	asked chan func(musiccore.Answer)
}

func (g *heldBackLocks) Lock(_ musiccore.Key, _ musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	g.asked <- done
	return musiccore.Answer{}, func() { done(musiccore.Answer{Err: assert.AnError}) }
}

// granted is the answer to a LOCK that gets the lock.
var granted = musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 9, State: musiccore.StateHeld}}

// groupRig is several clients of one table, whose writes with IF wait for one lock. The first client's is
// carried out.
type groupRig struct {
	*madeRig
	locks  *heldBackLocks
	others []*madeRig
	lock   func(musiccore.Answer) // answers the LOCK
}

// newGroupRig has clients set n of one row to a number if it is another one, each in its own connection;
// tries has these two numbers of each.
func newGroupRig(t *testing.T, d dialect, tries ...[2]int32) *groupRig {
	t.Helper()
	locks := &heldBackLocks{newGrantingLocks(), make(chan func(musiccore.Answer), 9)}
	return groupOf(t, d, locks, locks, patience, tries...)
}

// groupOf is newGroupRig with a core, and the time for which a LOCK waits.
func groupOf(t *testing.T, d dialect, core Locks, locks *heldBackLocks, wait time.Duration, tries ...[2]int32) *groupRig {
	t.Helper()
	first := madeRigOf(t, d, func(o *Options) { o.Locks, o.MaxWait = core, wait }, groupUpdate, number(tries[0][0]), []byte("x"), number(tries[0][1]))
	first.execute()
	first.prepares(readOfGroup)
	first.prepares(writeOfUpdate)
	y := &groupRig{madeRig: first, locks: locks, lock: <-locks.asked}
	for i, try := range tries[1:] {
		other := y.other(d, number(try[0]), []byte("x"), number(try[1]))
		other.execute()
		other.prepares(readOfGroup)
		other.prepares(writeOfUpdate)
		y.joins(i + 1)
		y.others = append(y.others, other)
	}
	return y
}

// other returns another client that has prepared the statement.
func (y *groupRig) other(d dialect, values ...[]byte) *madeRig {
	y.client.t.Helper()
	other := &madeRig{rig: y.rig}
	other.client, other.backend = y.login(d)
	other.id = y.prepare(other.client, other.backend, groupUpdate)
	for _, v := range values {
		other.values = append(other.values, primitive.NewValue(v))
	}
	return other
}

// joins waits until so many writes have joined the first.
func (y *groupRig) joins(so int) {
	y.client.t.Helper()
	require.Eventually(y.client.t, func() bool {
		all := &y.server.groups
		all.mu.Lock()
		defer all.mu.Unlock()
		for _, g := range all.open {
			return len(g.waiting) == so
		}
		return false
	}, patience, moment)
}

// numbers is the answer to the read: n of the one row; of none without a value.
func numbers(values ...int32) *message.RowsResult {
	column := &message.ColumnMetadata{Keyspace: "bank", Table: "accounts", Name: "n", Type: datatype.Int}
	rows := message.RowSet{}
	for _, v := range values {
		rows = append(rows, message.Row{number(v)})
	}
	return &message.RowsResult{Metadata: &message.RowsMetadata{ColumnCount: 1, Columns: []*message.ColumnMetadata{column}}, Data: rows}
}

// told requires that a client's write was applied, or was not because n had this value.
func (r *madeRig) told(want bool, n ...int32) {
	r.client.t.Helper()
	row := message.Row{boolean(want)}
	if len(n) > 0 {
		row = append(row, number(n[0]))
	}
	assert.Equal(r.client.t, row, r.client.answer(1).(*message.RowsResult).Data[0])
}

// Writes that wait for one lock are carried out together: each is judged on what those before it leave, and the
// last that holds is sent.
func TestGroupCommit(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		y := newGroupRig(t, d, [2]int32{2, 1}, [2]int32{3, 2}, [2]int32{4, 2}, [2]int32{5, 3})
		y.lock(granted)
		y.executes(readOfGroup, numbers(1))
		write := y.executes(writeOfUpdate, &message.VoidResult{})
		assert.Equal(t, number(5), write.PositionalValues[0].Contents, "what the last one writes")
		y.told(true)
		y.others[0].told(true)
		y.others[1].told(false, 3)
		y.others[2].told(true)
		assert.EqualValues(t, 9, <-y.locks.unlocked)
		assert.Empty(t, y.locks.unlocked)
		assert.Empty(t, y.locks.asked, "one lock")
		for _, other := range y.others {
			other.backend.silent()
		}
		y.execute() // the next one takes a lock of its own
		(<-y.locks.asked)(granted)
		y.executes(readOfGroup, numbers(9))
		y.told(false, 9)
	})
}

// The first write's own condition need not hold.
func TestGroupWithoutItsFirst(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		y := newGroupRig(t, d, [2]int32{2, 7}, [2]int32{3, 1}, [2]int32{4, 1})
		y.lock(granted)
		y.executes(readOfGroup, numbers(1))
		assert.Equal(t, number(3), y.executes(writeOfUpdate, &message.VoidResult{}).PositionalValues[0].Contents)
		y.told(false, 1)
		y.others[0].told(true)
		y.others[1].told(false, 3)
	})
}

// Where no condition holds nothing is written.
func TestGroupThatWritesNothing(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		for _, row := range [][]int32{{1}, nil} {
			y := newGroupRig(t, d, [2]int32{2, 7}, [2]int32{3, 7})
			y.lock(granted)
			y.executes(readOfGroup, numbers(row...))
			y.told(false, row...)
			y.others[0].told(false, row...)
			assert.EqualValues(t, 9, <-y.locks.unlocked)
			y.backend.silent()
		}
	})
}

// What becomes of the one write that is sent becomes of all, also of those whose conditions did not hold: they
// were judged on it.
func TestGroupWhoseWriteFails(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		y := newGroupRig(t, d, [2]int32{2, 1}, [2]int32{3, 2}, [2]int32{4, 1})
		y.lock(granted)
		y.executes(readOfGroup, numbers(1))
		y.executes(writeOfUpdate, &message.Unavailable{ErrorMessage: "nobody there", Consistency: primitive.ConsistencyLevelQuorum})
		for _, r := range append(y.others, y.madeRig) {
			assert.Contains(t, r.client.failure(1).GetErrorMessage(), "nobody there")
		}
		assert.EqualValues(t, 9, <-y.locks.unlocked)
	})
}

// If the write's answer does not come nobody knows what was done.
func TestGroupWhoseAnswerIsLost(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		y := newGroupRig(t, d, [2]int32{2, 1}, [2]int32{3, 2}, [2]int32{4, 1})
		y.lock(granted)
		y.executes(readOfGroup, numbers(1))
		y.backend.answer(1)
		require.NoError(t, y.backend.Close())
		for _, other := range y.others {
			f := other.client.failure(1).(*message.WriteTimeout)
			assert.Equal(t, primitive.WriteTypeCas, f.WriteType)
		}
		assert.EqualValues(t, 9, <-y.locks.unlocked)
	})
}

// A write whose lock is lost before it is sent was not carried out, nor were the others.
func TestGroupWhoseLockIsLost(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		y := newGroupRig(t, d, [2]int32{2, 1}, [2]int32{3, 2})
		y.lock(musiccore.Answer{Err: musiccore.ErrLost})
		for _, r := range append(y.others, y.madeRig) {
			assert.Equal(t, primitive.ErrorCodeOverloaded, r.client.failure(1).GetErrorCode())
		}
		assert.Empty(t, y.locks.asked)
	})
}

// If the first client goes away, or what fails is only the first one's, the other one is carried out without it.
func TestGroupWithoutItsFirstClient(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		for name, fault := range map[string]func(y *groupRig){
			"it goes away while it waits": func(y *groupRig) { require.NoError(t, y.client.Close()) },
			"it goes away while it reads": func(y *groupRig) {
				y.lock(granted)
				y.backend.answer(1)
				require.NoError(t, y.client.Close())
			},
			"its lock does not come in time": func(y *groupRig) {
				y.lock(musiccore.Answer{Grant: musiccore.Grant{Ref: 9, State: musiccore.StateQueued}})
				y.client.failure(1)
			},
			"its stream is in use": func(y *groupRig) {
				y.client.send(1, query("SELECT x FROM system.size"))
				assert.Contains(y.client.t, y.client.failure(1).GetErrorMessage(), "Stream id 1 is in use")
			},
			"its read fails": func(y *groupRig) {
				y.lock(granted)
				y.executes(readOfGroup, &message.ReadTimeout{ErrorMessage: "slow", Consistency: primitive.ConsistencyLevelQuorum})
				y.client.failure(1)
			},
		} {
			t.Run(name, func(t *testing.T) {
				y := newGroupRig(t, d, [2]int32{2, 1}, [2]int32{4, 3})
				fault(y)
				(<-y.locks.asked)(granted)
				y.others[0].executes(readOfGroup, numbers(3))
				y.others[0].executes(writeOfUpdate, &message.VoidResult{})
				y.others[0].told(true)
			})
		}
	})
}

// A client that goes away before anything was decided takes its write along.
func TestGroupWithoutAMember(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		y := newGroupRig(t, d, [2]int32{2, 1}, [2]int32{3, 2}, [2]int32{4, 2})
		require.NoError(t, y.others[0].client.Close())
		y.others[0].backend.ended()
		y.lock(granted)
		y.executes(readOfGroup, numbers(1))
		assert.Equal(t, number(4), y.executes(writeOfUpdate, &message.VoidResult{}).PositionalValues[0].Contents)
		y.told(true)
		y.others[1].told(true)
	})
}

// Writes that differ in more than the values that they write, or of which it is not certain what they leave, take
// a lock each.
func TestWritesThatMakeNoGroup(t *testing.T) {
	for name, change := range map[string]func(e *message.Execute, f *frame.Frame){
		"another key": func(e *message.Execute, _ *frame.Frame) {
			e.Options.PositionalValues[1] = primitive.NewValue([]byte("y"))
		},
		"null":    func(e *message.Execute, _ *frame.Frame) { e.Options.PositionalValues[0] = primitive.NewNullValue() },
		"not set": func(e *message.Execute, _ *frame.Frame) { e.Options.PositionalValues[0] = primitive.NewUnsetValue() },
		"another form": func(e *message.Execute, _ *frame.Frame) {
			e.Options.PositionalValues[0] = primitive.NewValue([]byte{1, 2, 3})
		},
		"no value":     func(e *message.Execute, _ *frame.Frame) { e.Options.PositionalValues[0] = primitive.NewValue([]byte{}) },
		"a level":      func(e *message.Execute, _ *frame.Frame) { e.Options.Consistency = primitive.ConsistencyLevelAll },
		"traced":       func(*message.Execute, *frame.Frame) {},
		"no level":     func(*message.Execute, *frame.Frame) {},
		"with payload": func(_ *message.Execute, f *frame.Frame) { f.SetCustomPayload(map[string][]byte{"a": {1}}) },
	} {
		t.Run(name, func(t *testing.T) {
			y := newGroupRig(t, dialect{version: v4}, [2]int32{2, 1})
			other := y.other(dialect{version: v4}, number(3), []byte("x"), number(2))
			e := &message.Execute{QueryId: other.id, Options: &message.QueryOptions{PositionalValues: other.values}}
			raw := other.client.envelope(t, 1, e, func(f *frame.Frame) { change(e, f) })
			switch name {
			case "traced":
				raw[1] |= byte(primitive.HeaderFlagTracing) // the library would count an id that requests do not have
			case "no level":
				raw[9+2+len(other.id)] = 1 // its low byte is that of the first one's
			}
			other.client.write(raw)
			other.prepares(readOfGroup)
			other.prepares(writeOfUpdate)
			<-y.locks.asked
		})
	}
}

// lateBeginLocks answer Begin when a test says so.
type lateBeginLocks struct {
	*heldBackLocks
	begun chan func()
}

func (g *lateBeginLocks) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, done func(musiccore.Answer)) (musiccore.Answer, bool) {
	a, _ := g.heldBackLocks.Begin(k, ref, kind, done)
	g.begun <- func() { done(a) }
	return musiccore.Answer{}, false
}

// slowCheckLocks give the verdict on a read when a test says so.
type slowCheckLocks struct {
	*heldBackLocks
	checking chan chan musiccore.Verdict
}

func (g *slowCheckLocks) End(tk musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	if tk.Kind != musiccore.Get {
		return g.heldBackLocks.End(tk, o)
	}
	verdict := make(chan musiccore.Verdict, 1)
	g.checking <- verdict
	return musiccore.VerdictPending, func() musiccore.Verdict { return <-verdict }
}

// A write that comes when the row has been read is not judged on it: by then the lock may be another client's,
// which the check of the read need not show.
func TestGroupIsClosedBeforeItsCheck(t *testing.T) {
	locks := &heldBackLocks{newGrantingLocks(), make(chan func(musiccore.Answer), 9)}
	core := &slowCheckLocks{locks, make(chan chan musiccore.Verdict, 9)}
	y := groupOf(t, dialect{version: v4}, core, locks, patience, [2]int32{2, 1}, [2]int32{3, 1})
	late := y.other(dialect{version: v4}, number(8), []byte("x"), number(7))
	y.lock(granted)
	y.executes(readOfGroup, numbers(5))
	verdict := <-core.checking
	late.execute()
	late.prepares(readOfGroup)
	late.prepares(writeOfUpdate)
	<-y.locks.asked
	verdict <- musiccore.VerdictTell
	y.told(false, 5)
	y.others[0].told(false, 5)
}

// If the first client goes away while its read waits for the core, the others are carried out without it.
func TestGroupWhoseFirstWaitsForTheCore(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		core := &lateBeginLocks{&heldBackLocks{newGrantingLocks(), make(chan func(musiccore.Answer), 9)}, make(chan func(), 9)}
		y := groupOf(t, d, core, core.heldBackLocks, patience, [2]int32{2, 1}, [2]int32{3, 1})
		y.lock(granted)
		begun := <-core.begun
		require.NoError(t, y.client.Close())
		y.backend.ended()
		begun()
		(<-y.locks.asked)(musiccore.Answer{Err: musiccore.ErrLost})
		y.others[0].client.failure(1)
	})
}

// Where the first write does not get on, be it that its client does not read its answers, the lock may be free at last: those that come then
// do not wait for it.
func TestGroupWhoseFirstDoesNotGetOn(t *testing.T) {
	y := newGroupRig(t, d4(), [2]int32{2, 1}, [2]int32{3, 2})
	y.lock(granted)
	y.backend.answer(1)
	late := y.other(d4(), number(8), []byte("x"), number(7))
	y.server.groups.mu.Lock()
	for _, g := range y.server.groups.open {
		assert.Less(t, time.Until(g.until), ownSectionLease)
		g.until = time.Now()
	}
	y.server.groups.mu.Unlock()
	late.execute()
	late.prepares(readOfGroup)
	late.prepares(writeOfUpdate)
	taken(t, y.locks.asked)(granted)
	late.executes(readOfGroup, numbers(7))
	late.executes(writeOfUpdate, &message.VoidResult{})
	late.told(true)

	y.backend.send(1, numbers(1)) // what had joined before goes on with the first one
	assert.Equal(t, number(3), y.executes(writeOfUpdate, &message.VoidResult{}).PositionalValues[0].Contents)
	y.told(true)
	y.others[0].told(true)
}

// If the first client's connection to Cassandra ends before the write that was decided on is sent, the others are carried out without it, too: nothing
// is unknown.
func TestGroupWhoseWriteIsNotSent(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		core := &lateBeginLocks{&heldBackLocks{newGrantingLocks(), make(chan func(musiccore.Answer), 9)}, make(chan func(), 9)}
		y := groupOf(t, d, core, core.heldBackLocks, patience, [2]int32{2, 1}, [2]int32{3, 2})
		y.lock(granted)
		taken(t, core.begun)()
		y.executes(readOfGroup, numbers(1))
		begun := taken(t, core.begun)
		require.NoError(t, y.backend.Close())
		y.client.failure(1)
		begun()
		taken(t, core.asked)(musiccore.Answer{Err: musiccore.ErrLost})
		for _, other := range y.others {
			assert.Equal(t, primitive.ErrorCodeOverloaded, other.client.failure(1).GetErrorCode())
		}
	})
}

// A member whose connection is ending is not judged, nor told that its write was applied.
func TestGroupWithAMemberThatEnds(t *testing.T) {
	y := newGroupRig(t, dialect{version: v4}, [2]int32{2, 1}, [2]int32{3, 2})
	y.server.groups.mu.Lock()
	var c *conn
	for _, g := range y.server.groups.open {
		c = g.waiting[0].request.conn
	}
	y.server.groups.mu.Unlock()
	c.relaying.Store(false) // as between the end of a connection and the last answers on it
	c.end(errDrained)
	y.lock(granted)
	y.executes(readOfGroup, numbers(1))
	assert.Equal(t, number(2), y.executes(writeOfUpdate, &message.VoidResult{}).PositionalValues[0].Contents)
	y.told(true)
	y.others[0].client.failure(1)
	require.NoError(t, y.others[0].client.Close())
}

// A write that has joined waits no longer than one that takes a lock, whatever the first one does.
func TestGroupMembersAreAnsweredInTime(t *testing.T) {
	locks := &heldBackLocks{newGrantingLocks(), make(chan func(musiccore.Answer), 9)}
	y := groupOf(t, dialect{version: v4}, locks, locks, 50*moment, [2]int32{2, 1}, [2]int32{3, 2})
	assert.Equal(t, primitive.ErrorCodeOverloaded, y.others[0].client.failure(1).GetErrorCode())
	y.lock(granted)
	y.executes(readOfGroup, numbers(1))
	y.executes(writeOfUpdate, &message.VoidResult{})
	y.told(true)
}

// Protocol 3 has no warnings, also in the answer to a write whose read was left out.
func TestKnownRowInProtocol3(t *testing.T) {
	y := &knownTry{T: t, locks: &knowingLocks{grantingLocks: newGrantingLocks()}}
	y.rig = newRig(t, func(o *Options) { o.Locks = y.locks })
	y.table()
	y.locks.left = time.Second // of its lease of 30 s
	y.client, y.backend = y.login(dialect{version: v3})
	y.client.send(1, bound(knownFirst, 2, 1))
	reads(t, y.backend, 1)
	writes(t, y.client, y.backend)
	y.client.send(1, bound(knownFirst, 3, 7))
	assert.Equal(t, boolean(false), y.client.answer(1).(*message.RowsResult).Data[0][0])
	y.client.send(1, bound(knownFirst, 3, 2))
	assert.Equal(t, boolean(true), writes(t, y.client, y.backend).Data[0][0])
}
