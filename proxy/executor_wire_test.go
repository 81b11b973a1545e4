package proxy

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
	"music/rewrite"
)

// playExecutor is an executor before a played node, with a critical table whose key has two
// columns.
func playExecutor(t *testing.T, local bool, answer func(asked) message.Message) (*cqlNode, *executor, musiccore.Key) {
	t.Helper()
	n := startCQLNode(t, answer)
	table := &dataTable{
		keyspace: "bank", name: "t", centreSession: n.session, Critical: catalog.Critical{ID: [16]byte{1}, Key: []catalog.Column{{Name: "a", Type: "text"}, {Name: "b", Type: "int"}}, Settings: catalog.Settings{Local: local}},
	}
	table.prepareTexts()
	table.counted.Store(endless())
	key := musiccore.Key{Table: table.ID, PK: string(rewrite.RoutingKey([][]byte{[]byte("x"), {0, 0, 0, 7}}))}
	return n, &executor{session: n.session, tables: critical(table)}, key
}

// everySwap is one of each condition, for a row of guard 3 and base 1000.
func everySwap() []musiccore.Swap {
	row := musiccore.Row{
		Guard: 4, Head: 3, Epoch: 2000, Dirty: true, Owner: musiccore.SessionID{4},
		Queue: []musiccore.Block{{First: 3, N: 1, Session: musiccore.SessionID{2}, Req: 5, Retained: true}, {First: 4, N: 2, Session: musiccore.SessionID{3}, Req: 1}},
	}
	q, t, both := musiccore.Set{Q: true, Row: row}, musiccore.Set{T: true, Row: row}, musiccore.Set{Q: true, T: true, Row: row}
	return []musiccore.Swap{
		{If: musiccore.If{What: musiccore.IfAbsent}, Set: both},
		{If: musiccore.If{What: musiccore.IfGuard, Guard: 3}, Set: q},
		{If: musiccore.If{What: musiccore.IfGuardEpoch, Guard: 3, Epoch: 1000}, Set: both},
		{If: musiccore.If{What: musiccore.IfEpoch, Epoch: 1000}, Set: t},
	}
}

// An LWT is decided by [applied] alone: whatever error comes in its place, or none at all, leaves
// its outcome unknown. It is sent once, at QUORUM and SERIAL, or within the data centre at their
// local kinds.
func TestOutcomeOfAnLWT(t *testing.T) {
	for _, local := range []bool{false, true} {
		n, x, k := playExecutor(t, local, nil)
		levels := [2]primitive.ConsistencyLevel{primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelSerial}
		if local {
			levels = [2]primitive.ConsistencyLevel{primitive.ConsistencyLevelLocalQuorum, primitive.ConsistencyLevelLocalSerial}
		}
		for i, s := range everySwap() {
			for yes, fate := range map[bool]musiccore.Status{true: musiccore.StatusDone, false: musiccore.StatusRefused} {
				n.saysAlways(applied(yes))
				r := x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.Apply{Swap: s}})
				assert.Equal(t, fate, r.Status, "swap %d", i)
				assert.NoError(t, r.Cause)
				asked := n.take()
				require.Len(t, asked, 1)
				assert.Equal(t, levels, [2]primitive.ConsistencyLevel{asked[0].level, asked[0].serial}, asked[0].text)
				assert.Contains(t, asked[0].text, " IF ", "it is an LWT")
			}
		}
		for name, failure := range failures() {
			n.saysAlways(failure)
			r := x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.Apply{Swap: everySwap()[1]}})
			assert.Equal(t, musiccore.StatusUnknown, r.Status, name)
			assert.Error(t, r.Cause, name)
			assert.Len(t, n.take(), 1, "%s: it is for the core to send it again", name)
			if failure == nil {
				n, x, k = playExecutor(t, local, nil) // the driver gives the connection up for a while
			}
		}
	}
}

// A row that could not be read is not a row that is absent, and what a QUORUM is to say is asked at
// QUORUM.
func TestReadOfALockRow(t *testing.T) {
	n, x, k := playExecutor(t, false, nil)
	columns := []any{"guard", "queue", "base", "head", "dirty", "owner"}
	n.saysAlways(noRow(columns...))
	for quorum, level := range map[bool]primitive.ConsistencyLevel{true: primitive.ConsistencyLevelQuorum, false: primitive.ConsistencyLevelLocalOne} {
		r := x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.ReadRow{Quorum: quorum}})
		assert.Equal(t, musiccore.Result{Status: musiccore.StatusDone}, r)
		asked := n.take()
		require.Len(t, asked, 1)
		assert.Equal(t, level, asked[0].level)
		assert.Equal(t, map[string][]byte{"k1": []byte("x"), "k2": {0, 0, 0, 7}}, asked[0].where)
	}
	owner := musiccore.SessionID{9}
	full := []any{"guard", bigint(5), "queue", nil, "base", bigint(77), "head", bigint(4), "dirty", []byte{1}, "owner", owner[:]}
	n.saysAlways(rowOf(full...))
	r := x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.ReadRow{}})
	require.NoError(t, r.Cause)
	assert.Equal(t, &musiccore.Row{Guard: 5, Epoch: 77, Head: 4, Dirty: true, Owner: owner}, r.Row)
	for b, unfenced := range map[byte]bool{2: true, 3: false} {
		other := slices.Clone(full)
		other[9] = []byte{b}
		n.saysAlways(rowOf(other...))
		r := x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.ReadRow{}})
		require.NoError(t, r.Cause)
		assert.True(t, r.Row.Dirty)
		assert.Equal(t, unfenced, r.Row.Unfenced)
		var older bool // as releases read it that know only true and false
		require.NoError(t, x.session.Query("SELECT * FROM k.t").Scan(nil, nil, nil, nil, &older, nil))
		assert.True(t, older)
	}
	n.take()
	for i := 1; i < len(full); i += 2 {
		if full[i-1] == "queue" {
			continue // null is the empty list
		}
		partial := slices.Clone(full)
		partial[i] = nil
		n.saysAlways(rowOf(partial...))
		r := x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.ReadRow{Quorum: true}})
		assert.ErrorIs(t, r.Cause, errPartialRow, full[i-1])
		assert.Equal(t, musiccore.StatusUnknown, r.Status)
	}
	for name, failure := range failures() {
		n.saysAlways(failure)
		r := x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.ReadRow{Quorum: true}})
		assert.Equal(t, musiccore.StatusUnknown, r.Status, name)
		assert.Nil(t, r.Row, name)
		assert.Error(t, r.Cause, name)
		if failure == nil {
			n, x, k = playExecutor(t, false, nil)
		}
	}
}

// Of a table that is not critical any more nothing is asked, and the core is told: it would repeat an LWT of
// unknown outcome for ever.
func TestCommandOnATableThatIsGone(t *testing.T) {
	n, x, k := playExecutor(t, false, nil)
	x.tables.set(nil)
	for _, a := range []musiccore.Action{musiccore.ReadRow{}, musiccore.Apply{Swap: everySwap()[0]}, musiccore.Synch{}, musiccore.ReadStamps{}} {
		r := x.do(t.Context(), musiccore.Command{Key: k, Action: a})
		assert.ErrorIs(t, r.Cause, errUnknownTable)
		assert.True(t, r.Gone, "%T", a)
	}
	assert.Empty(t, n.take())
}

// A session's beat that could not be read is not a session without a row: of that one others would
// take the terms.
func TestReadOfABeat(t *testing.T) {
	n, x, _ := playExecutor(t, false, nil)
	read := func() musiccore.Result {
		return x.do(t.Context(), musiccore.Command{Action: musiccore.ReadBeat{Session: musiccore.SessionID{8}}})
	}
	for _, c := range []struct {
		answer message.Message
		beat   int64
		lease  time.Duration
	}{
		{noRow("beat", "lease"), 0, 0},
		{rowOf("beat", nil, "lease", nil), 0, 0},
		{rowOf("beat", bigint(12), "lease", nil), 12, 0},
		{rowOf("beat", bigint(12), "lease", bigint(30_000)), 12, 30 * time.Second},
	} {
		n.saysAlways(c.answer)
		assert.Equal(t, musiccore.Result{Status: musiccore.StatusDone, Beat: c.beat, Lease: c.lease}, read())
		asked := n.take()
		require.Len(t, asked, 1)
		assert.Equal(t, primitive.ConsistencyLevelQuorum, asked[0].level, "one replica may not have heard of the last beats")
		session := musiccore.SessionID{8}
		assert.Equal(t, session[:], asked[0].where["session"])
	}
	for name, failure := range failures() {
		n.saysAlways(failure)
		r := read()
		assert.Equal(t, musiccore.StatusUnknown, r.Status, name)
		assert.Error(t, r.Cause, name)
		if failure == nil {
			n, x, _ = playExecutor(t, false, nil)
		}
	}
}

// With scope=local, and no session that stays in the data centre, nothing is decided anywhere else.
func TestNothingIsDecidedElsewhere(t *testing.T) {
	n, x, k := playExecutor(t, true, nil)
	x.tables.table(k.Table).centreSession = nil
	n.saysAlways(applied(true))
	for _, do := range []musiccore.Action{musiccore.ReadRow{}, musiccore.Apply{Swap: everySwap()[0]}, musiccore.Synch{Fence: 9}} {
		r := x.do(t.Context(), musiccore.Command{Key: k, Action: do})
		assert.ErrorIs(t, r.Cause, errOtherCentre)
		assert.Equal(t, musiccore.StatusUnknown, r.Status)
	}
	assert.Empty(t, n.take())
}

// lockRows answers as a table of lock rows does.
type lockRows struct {
	mu  sync.Mutex
	row map[string]map[string][]byte
}

// clear takes all rows away.
func (l *lockRows) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.row = map[string]map[string][]byte{}
}

// answer carries a statement out: its IF is judged by the columns that the statement itself names.
func (l *lockRows) answer(a asked) message.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := func(in map[string][]byte) string { return string(in["k1"]) + "\x00" + string(in["k2"]) }
	switch a.verb() {
	case "INSERT":
		at := key(a.set)
		if l.row[at] != nil || !strings.HasSuffix(a.text, " IF NOT EXISTS") {
			return applied(false)
		}
		l.row[at] = a.set
		return applied(true)
	case "UPDATE":
		row := l.row[key(a.where)]
		for column, want := range a.cond {
			if row == nil || string(row[column]) != string(want) {
				return applied(false)
			}
		}
		maps.Copy(row, a.set)
		return applied(true)
	}
	columns := []any{"guard", "queue", "base", "head", "dirty", "owner"}
	row := l.row[key(a.where)]
	if row == nil {
		return noRow(columns...)
	}
	var all []any
	for _, c := range columns {
		all = append(all, c, row[c.(string)])
	}
	return rowOf(all...)
}

// The statement of each Swap does what its Apply says to whatever row is there, and is refused
// where that is: no condition asks for less, nor for another column.
// TestSwapsMeanOnCassandraWhatTheyMeanInTheCore shows the same of Cassandra.
func TestSwapsAskForWhatTheySay(t *testing.T) {
	table := &lockRows{}
	_, x, k := playExecutor(t, false, table.answer)
	for _, there := range rowsAround() {
		for i, s := range everySwap() {
			table.clear()
			if there != nil {
				require.Equal(t, musiccore.StatusDone, x.must(t, k, musiccore.Apply{Swap: musiccore.Swap{If: musiccore.If{What: musiccore.IfAbsent}, Set: musiccore.Set{Q: true, T: true, Row: *there}}}).Status)
				require.Equal(t, there, x.must(t, k, musiccore.ReadRow{}).Row)
			}
			want, ok := s.Apply(there)
			fate := map[bool]musiccore.Status{true: musiccore.StatusDone, false: musiccore.StatusRefused}[ok]
			assert.Equal(t, fate, x.must(t, k, musiccore.Apply{Swap: s}).Status, "swap %d on %+v", i, there)
			got := x.must(t, k, musiccore.ReadRow{Quorum: true}).Row
			if ok {
				assert.Equal(t, &want, got, "swap %d on %+v", i, there)
			} else {
				assert.Equal(t, there, got, "swap %d on %+v", i, there)
			}
		}
	}
}

// rowsAround are no row, the one that everySwap was made for, and such as differ from it in one
// register.
func rowsAround() []*musiccore.Row {
	all := []*musiccore.Row{nil}
	for guard := musiccore.LockRef(2); guard <= 4; guard++ {
		for _, base := range []musiccore.Stamp{999, 1000, 1001} {
			for dirty := range 3 {
				all = append(all, &musiccore.Row{Guard: guard, Head: 2, Epoch: base, Dirty: dirty > 0, Unfenced: dirty > 1, Owner: musiccore.SessionID{1}, Queue: []musiccore.Block{
					{First: 2, N: 1, Session: musiccore.SessionID{1}, Req: 1, Retained: true}, {First: 3, N: 4, Session: musiccore.SessionID{2}, Req: 5},
				}})
			}
		}
	}
	return all
}

// A command of a kind that is unknown here must not be taken for one that was carried out.
func TestUnknownCommandsEndTheProcess(t *testing.T) {
	_, x, k := playExecutor(t, false, nil)
	assert.Panics(t, func() { x.do(context.Background(), musiccore.Command{Key: k}) })
}
