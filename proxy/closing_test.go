package proxy

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// What closed is raised to. It lies ahead of the clock wherever plain writes, or epochs, may be ahead of
// this proxy's; not where there were none, nor where plain writes go on.
func TestClosing(t *testing.T) {
	now := musiccore.Now{Clk: 1 << 50}
	ahead := func(by time.Duration) musiccore.Stamp { return now.Clk + musiccore.Stamp(by.Microseconds()) }
	for name, c := range map[string]struct {
		made, born, lived bool
		unlocked          catalog.Policy
		want              musiccore.Stamp
	}{
		"critical since its CREATE":                     {false, true, false, catalog.Reject, now.Clk},
		"critical since its CREATE, plain writes go on": {false, true, false, catalog.Allow, now.Clk},
		"critical later":                                {false, false, false, catalog.Reject, ahead(20 * time.Second)},
		"critical later, in sections":                   {false, false, false, catalog.Auto, ahead(20 * time.Second)},
		"critical later, plain writes go on":            {false, false, false, catalog.Allow, now.Clk},
		"plain writes end":                              {true, false, false, catalog.Reject, ahead(20 * time.Second)},
		"other settings":                                {true, true, false, catalog.Reject, ahead(20 * time.Second)},
		"plain writes begin":                            {true, false, false, catalog.Allow, now.Clk},
		"its lock rows are gone":                        {false, true, true, catalog.Reject, ahead(30 * time.Second)},
		"its lock rows are gone, plain writes go on":    {false, false, true, catalog.Allow, ahead(30 * time.Second)},
	} {
		table := &dataTable{born: c.born, Critical: catalog.Critical{Made: c.made, Settings: catalog.Settings{Unlocked: c.unlocked}}}
		assert.Equal(t, c.want, table.closing(now, c.lived), name)
		table.stored.closed = 1 << 60
		assert.Equal(t, musiccore.Stamp(1<<60+1), table.closing(now, c.lived), "%s: closed never falls", name)
	}
}

// Where clocks differ as much as they may, closed lies above every earlier plain write, and above
// the stamps of locks whose rows are gone: their windows began at a closed that another proxy chose.
func TestClosingIsAboveWhatFasterClocksStamped(t *testing.T) {
	const second = musiccore.Stamp(1_000_000)
	cluster := 1 << 20 * second
	slow, fast := musiccore.Now{Clk: cluster - 10*second}, musiccore.Now{Clk: cluster + second}
	plain := cluster + 9*second // by a node that is ahead
	table := &dataTable{}
	assert.Greater(t, table.closing(slow, false), plain)

	table.stored.closed = table.closing(fast, false)
	last := table.stored.closed + musiccore.Defaults().Window
	slow.Clk += 3 * second // it took that long to lock, to write and to drop the lock table
	assert.Greater(t, table.closing(slow, true), last)
}

// schemaOfCore returns a schema with one core, whose session is valid at now.
func schemaOfCore() (now musiccore.Now, core *musiccore.Core, s *schema) {
	now = musiccore.Now{Boot: time.Minute, Raw: time.Minute, Wall: 1 << 50, Clk: 1 << 50}
	options := musiccore.Defaults()
	session := musiccore.NewSession(musiccore.SessionID{1}, options)
	beat, _ := session.Beat(now)
	session.Acked(now, now, beat)
	core = musiccore.New(session, options)
	return now, core, &schema{
		tables: catalog.NewTables(), heartbeat: &heartbeat{options: options},
		cores: func(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) { event(core, now) },
	}
}

// held takes the lock of a key whose lock row is not there yet.
func held(t *testing.T, core *musiccore.Core, now musiccore.Now, op musiccore.OpID, table [16]byte) musiccore.Grant {
	t.Helper()
	effects := core.Lock(now, op, musiccore.Key{Table: table, PK: "a"}, musiccore.Request{})
	for len(effects.Commands) > 0 { // the read of the row, and the INSERT
		effects = core.Reply(now, effects.Commands[0].ID, musiccore.Result{Status: musiccore.StatusDone})
	}
	require.Len(t, effects.Answers, 1)
	require.Equal(t, musiccore.StateHeld, effects.Answers[0].Grant.State)
	return effects.Answers[0].Grant
}

// A term that is open when a column changes gets another window at once, also if the table cannot be
// settled now: the next reading of the schema finds nothing changed.
func TestAChangedColumnRenewsAnOpenTerm(t *testing.T) {
	now, core, s := schemaOfCore()
	of := func(definition string) *dataTable {
		return &dataTable{definition: definition, Critical: catalog.Critical{ID: [16]byte{7}, Made: true}}
	}
	held(t, core, now, 1, of("").ID)
	var sent []musiccore.Command
	s.cores = func(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
		sent = append(sent, event(core, now).Commands...)
	}
	s.changed(of("n int"), of("n int"))
	require.Empty(t, sent)
	s.changed(of("n int"), of("n int, dropped"))
	require.Len(t, sent, 1)
	assert.Equal(t, musiccore.IfEpoch, sent[0].Action.(musiccore.Apply).Swap.If.What, "a Renew")
}

// A column that was dropped and added again before this proxy started hides stamps up to its drop,
// which may be ahead of clk(): a term is renewed above it.
func TestAColumnThatHidStampsBeforeTheStart(t *testing.T) {
	now, core, s := schemaOfCore()
	s.critical = newCriticalTables()
	table := &dataTable{keyspace: "bank", name: "accounts", hidden: now.Clk + 5_000_000, Critical: catalog.Critical{ID: [16]byte{7}, Made: true}}
	s.take(t.Context(), nil, []*dataTable{table})
	todo, epoch := core.Lock(now, 1, musiccore.Key{Table: table.ID, PK: "a"}, musiccore.Request{}), musiccore.Stamp(0)
	for len(todo.Commands) > 0 {
		if lwt, ok := todo.Commands[0].Action.(musiccore.Apply); ok {
			epoch = lwt.Swap.Set.Row.Epoch
		}
		todo = core.Reply(now, todo.Commands[0].ID, musiccore.Result{Status: musiccore.StatusDone})
	}
	assert.GreaterOrEqual(t, epoch, table.hidden, "of its last LWT, a Renew")
}

// The core gives the lease that the table is published with.
func TestTheLeaseOfAPublishedTable(t *testing.T) {
	now, core, s := schemaOfCore()
	for op, set := range []time.Duration{0, time.Hour} {
		table := &dataTable{keyspace: "bank", name: "accounts", Critical: catalog.Critical{ID: [16]byte{byte(op)}, Settings: catalog.Settings{Lease: set}}}
		s.publish(table, "")
		grant := held(t, core, now, musiccore.OpID(op+1), table.ID)
		assert.Equal(t, s.tables.Of("bank", "accounts").Critical().MaxLease, grant.Lease)
		assert.Equal(t, max(set, 30*time.Second), grant.Lease)
	}
}

// Between the moment when a table is closed to plain writes here and the moment when closed is
// known, this proxy writes no lock row that looks clean: the plain writes of others may not have
// ended.
func TestNoLockRowIsCleanUntilClosedIsKnown(t *testing.T) {
	now, core, s := schemaOfCore()
	table := [16]byte{7}
	show := func(unlocked catalog.Policy) {
		s.show(&dataTable{keyspace: "bank", name: "accounts", stored: storedTable{unlocked: unlocked}, Critical: catalog.Critical{ID: table, Made: true, Settings: catalog.Settings{Unlocked: unlocked}}}, "")
	}
	enqueued := func(op musiccore.OpID, pk string) musiccore.Row {
		read := core.Lock(now, op, musiccore.Key{Table: table, PK: pk}, musiccore.Request{}).Commands
		require.Len(t, read, 1)
		row := musiccore.Row{Guard: 1, Head: 2, Epoch: now.Clk + 1000, Queue: []musiccore.Block{{First: 1, N: 1, Session: musiccore.SessionID{9}}}}
		sent := core.Reply(now, read[0].ID, musiccore.Result{Status: musiccore.StatusDone, Row: &row}).Commands
		require.Len(t, sent, 1)
		return sent[0].Action.(musiccore.Apply).Swap.Set.Row
	}
	show(catalog.Allow)
	assert.False(t, enqueued(1, "a").Dirty)
	show(catalog.Reject)
	assert.True(t, enqueued(2, "b").Dirty)
}

// A proxy reads statements by the columns of now before it tells the others that it has followed, also if
// the table is settled much later.
func TestColumnsArePublishedBeforeTheyAreFollowed(t *testing.T) {
	_, _, s := schemaOfCore()
	s.critical = newCriticalTables()
	of := func(columns ...string) *dataTable {
		table := &dataTable{keyspace: "bank", name: "accounts", Critical: catalog.Critical{ID: [16]byte{7}, Made: true, Columns: map[string]catalog.Column{}}}
		for _, c := range columns {
			table.Columns[c], table.definition = catalog.Column{Name: c, Type: "int"}, table.definition+c
		}
		return table
	}
	before, now := of("k"), of("k", "added")
	before.Closed = 77
	s.publish(before, "")
	s.take(t.Context(), map[[16]byte]*dataTable{before.ID: before}, []*dataTable{now}) // what follows tells the others
	shown := s.tables.Of("bank", "accounts").Critical()
	assert.Contains(t, shown.Columns, "added")
	assert.Empty(t, shown.Refused, "it is locked meanwhile as before")
	assert.Equal(t, before.Closed, shown.Closed)
	assert.NotZero(t, shown.MaxLease)

	version := s.tables.Version()
	s.take(t.Context(), map[[16]byte]*dataTable{now.ID: now}, []*dataTable{of("k", "added")})
	assert.Equal(t, version, s.tables.Version(), "nothing has changed: nobody who waits is woken")

	waiting := of("k", "added", "another")
	s.publish(now, "it waits")
	s.take(t.Context(), map[[16]byte]*dataTable{now.ID: now}, []*dataTable{waiting})
	shown = s.tables.Of("bank", "accounts").Critical()
	assert.Contains(t, shown.Columns, "another")
	assert.Equal(t, "it waits", shown.Refused)
	assert.True(t, shown.Passing)

	dies := of("k", "added", "another")
	dies.Mortal = true
	s.take(t.Context(), map[[16]byte]*dataTable{waiting.ID: waiting}, []*dataTable{dies})
	assert.True(t, s.tables.Of("bank", "accounts").Critical().Mortal, "what is written from now on is not known to stay")
}

// The cores are told of every closed, also of one that was raised by an LWT of unknown outcome, or by a
// reading that could not settle the table for another reason.
func TestTheCoresAreToldOfEveryClosed(t *testing.T) {
	now, core, _ := schemaOfCore()
	for i, c := range []struct{ raised, counted message.Message }{
		{&message.WriteTimeout{ErrorMessage: "slow", WriteType: primitive.WriteTypeCas}, &message.Unavailable{ErrorMessage: "few"}},
		{applied(true), &message.Unavailable{ErrorMessage: "few"}},
	} {
		n, s := closingBefore(t, c.raised)
		played := n.answer
		n.says(func(a asked) message.Message {
			if strings.Contains(a.text, "music.generations") {
				return c.counted
			}
			return played(a)
		})
		host := gocql.UUID{7}.String()
		s.home, s.node, s.tables = func() string { return host }, host, catalog.NewTables()
		s.cores = func(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) { event(core, now) }
		of := func(stored storedTable) *dataTable {
			return &dataTable{keyspace: "k", name: "t", stored: stored, Critical: catalog.Critical{ID: [16]byte{byte(i + 1)}, Made: true, Marked: true}}
		}
		first := of(storedTable{text: "unlocked=allow, key=partition", closed: 5})
		_, err := s.makeReady(t.Context(), nil, first, gocql.UUID{7}, musiccore.SessionID{1})
		require.Error(t, err)
		sent := n.tablesAsked()
		require.Len(t, sent, 1)
		second := of(storedTable{text: first.Settings.String(), closed: musiccore.Stamp(binary.BigEndian.Uint64(sent[0].set["closed"]))})
		second.counted.Store(endless())
		_, err = s.makeReady(t.Context(), first, second, gocql.UUID{7}, musiccore.SessionID{1})
		require.NoError(t, err)

		read := core.Lock(now, musiccore.OpID(i+1), musiccore.Key{Table: second.ID, PK: "a"}, musiccore.Request{}).Commands
		require.Len(t, read, 1)
		row := musiccore.Row{Guard: 1, Head: 2, Epoch: second.stored.closed - 1, Queue: []musiccore.Block{{First: 1, N: 1, Session: musiccore.SessionID{9}}}}
		lwt := core.Reply(now, read[0].ID, musiccore.Result{Status: musiccore.StatusDone, Row: &row}).Commands
		require.Len(t, lwt, 1)
		assert.True(t, lwt[0].Action.(musiccore.Apply).Swap.Set.Row.Dirty, "case %d: the row is older than closed", i)
	}
}

// A table was critical from its CREATE on if its comment and all its columns were written then, as its id tells:
// a RENAME of all columns writes both anew.
func TestWhoIsBornCritical(t *testing.T) {
	second := time.Second.Microseconds()
	at := func(written int64) []columnRow {
		return []columnRow{{name: "a", written: written}, {name: "b", written: written}}
	}
	id, chosen := gocql.UUIDFromTime(time.UnixMicro(tableMade)), gocql.UUID(tableID("chosen by hand"))
	for name, c := range map[string]struct {
		id      gocql.UUID
		comment int64
		columns []columnRow
		born    bool
	}{
		"by its CREATE":          {id, tableMade + second, at(tableMade + second), true},
		"by an ALTER":            {id, tableMade + second, at(tableMade), false},
		"all columns renamed":    {id, tableMade + 3600*second, at(tableMade + 3600*second), false},
		"its id was chosen":      {chosen, tableMade, at(tableMade), true},
		"no columns were read":   {id, tableMade, nil, false},
		"not written by CREATE?": {id, 0, at(0), false},
	} {
		table := &dataTable{written: c.comment, Critical: catalog.Critical{ID: c.id, Marked: true}}
		assert.Equal(t, c.born, table.commentSince(c.columns), name)
	}
}
