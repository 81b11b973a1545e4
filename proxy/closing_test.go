package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// What closed is raised to: only where there are lock rows, and no plain writes any more, it lies
// ahead of the clock.
func TestClosing(t *testing.T) {
	now := musiccore.Now{Clk: 1000}
	closed := func(made bool, unlocked catalog.Policy, before musiccore.Stamp) musiccore.Stamp {
		table := &dataTable{stored: storedTable{closed: before}, Critical: catalog.Critical{Made: made, Settings: catalog.Settings{Unlocked: unlocked}}}
		return table.closing(now)
	}
	assert.Equal(t, now.Clk, closed(false, catalog.Reject, 0), "no lock rows yet")
	assert.Equal(t, now.Clk, closed(true, catalog.Allow, 0), "plain writes go on")
	assert.Equal(t, musiccore.Closing(now, 0), closed(true, catalog.Reject, 0))
	for _, unlocked := range []catalog.Policy{catalog.Reject, catalog.Allow} {
		assert.Greater(t, closed(true, unlocked, 1<<50), musiccore.Stamp(1<<50), "closed never falls")
	}
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
