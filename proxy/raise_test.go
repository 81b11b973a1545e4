package proxy

import (
	"context"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend/catalog"
	"music/musiccore"
)

// tableMade is when the table was created whose lock rows may be gone, in microseconds.
const tableMade = 1 << 50

// closingBefore is the schema of a proxy before a node that is played; stored says what an LWT on
// music.tables is answered.
func closingBefore(t *testing.T, stored message.Message) (*cqlNode, *schema) {
	t.Helper()
	clocks := new(clock)
	clocks.observe(0, time.Now())
	other := clusterClock(time.Now, nil)
	n := startCQLNode(t, func(a asked) message.Message {
		switch {
		case strings.Contains(a.text, "music.tables"):
			return stored
		case strings.Contains(a.text, "music.generations"):
			return noRow("companion", "writetime(companion)")
		}
		return other(a)
	})
	return n, &schema{
		schemaReader: schemaReader{session: n.session}, cores: func(func(*musiccore.Core, musiccore.Now) musiccore.Effects) {},
		heartbeat: newHeartbeat(n.session, clocks, musiccore.Defaults(), sessionConfig{references: new(references)}, zerolog.Nop()),
	}
}

// tablesAsked are what was asked of music.tables.
func (n *cqlNode) tablesAsked() (all []asked) {
	for _, a := range n.take() {
		if strings.Contains(a.text, "music.tables") {
			all = append(all, a)
		}
	}
	return all
}

// closed is raised by one LWT, above what it was and only where it and the settings are still those
// that were read: of two proxies one is first, although both want the settings that are there, and
// nobody takes an LWT of unknown outcome for his own.
func TestClosedIsRaisedByOneLWT(t *testing.T) {
	for _, before := range []musiccore.Stamp{0, 1 << 60} {
		for _, old := range []string{"", "old settings"} {
			n, s := closingBefore(t, applied(true))
			table := &dataTable{keyspace: "bank", name: "t", stored: storedTable{closed: before, text: old}, Critical: catalog.Critical{ID: [16]byte{5}, Settings: catalog.Settings{}}}
			start := musiccore.Stamp(time.Now().UnixMicro())
			require.NoError(t, s.raise(t.Context(), table, old))
			sent := n.tablesAsked()
			require.Len(t, sent, 1)
			assert.Equal(t, []primitive.ConsistencyLevel{primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelSerial}, []primitive.ConsistencyLevel{sent[0].level, sent[0].serial})
			assert.Equal(t, bigint(int64(table.Closed)), sent[0].set["closed"])
			assert.Equal(t, table.Settings.String(), string(sent[0].set["settings"]))
			assert.Greater(t, table.Closed, before, "closed never falls")
			assert.GreaterOrEqual(t, table.Closed, start-musiccore.Stamp(musiccore.ClockGap/time.Microsecond))
			if old == "" {
				assert.True(t, strings.HasSuffix(sent[0].text, " IF NOT EXISTS"), sent[0].text)
			} else {
				assert.Equal(t, map[string][]byte{"settings": []byte(old), "closed": bigint(int64(before))}, sent[0].cond)
			}
		}
	}
	for name, answer := range failures() {
		n, s := closingBefore(t, answer)
		assert.Error(t, s.raise(t.Context(), &dataTable{Critical: catalog.Critical{ID: [16]byte{5}}}, "old"), name)
		assert.Len(t, n.tablesAsked(), 1, name)
	}
	_, s := closingBefore(t, applied(false))
	assert.ErrorIs(t, s.raise(t.Context(), &dataTable{Critical: catalog.Critical{ID: [16]byte{5}}}, "old"), errRaced)
}

// A table whose lock table is gone had lock rows if a generation of its name may have begun after its
// CREATE, by clocks that may differ, however often closed was raised since. That of an older table of its
// name had begun long before. If the lock table is there by now the schema is read again.
func TestATableThatHadLockRows(t *testing.T) {
	gap := musiccore.ClockGap.Microseconds()
	made, chosen := gocql.UUIDFromTime(time.UnixMicro(tableMade)), gocql.UUID(tableID("chosen by hand"))
	for name, c := range map[string]struct {
		id     gocql.UUID
		made   bool
		closed musiccore.Stamp
		counts message.Message
		want   bool
	}{
		"never closed":                        {made, false, 0, nil, false},
		"it has them":                         {made, true, 5, nil, false},
		"no generation yet":                   {made, false, 5, noRow("companion", "writetime(companion)"), false},
		"a generation since":                  {made, false, 5, generationSince(tableMade + 1), true},
		"closed was raised long after that":   {made, false, tableMade + 3600_000_000, generationSince(tableMade + 1), true},
		"a generation since, by slower clock": {made, false, 5, generationSince(tableMade - 2*gap + 1), true},
		"one of an older table":               {made, false, 5, generationSince(tableMade - 2*gap), false},
		"nobody knows when it was made":       {chosen, false, 5, generationSince(1), true},
	} {
		n, s := closingBefore(t, applied(true))
		says := func(companion message.Message) {
			n.says(func(a asked) message.Message {
				switch {
				case strings.Contains(a.text, "music.generations"):
					return c.counts
				case strings.Contains(a.text, "system_schema.tables"):
					return companion
				}
				return applied(true)
			})
		}
		table := &dataTable{keyspace: "bank", name: "t", stored: storedTable{closed: c.closed}, Critical: catalog.Critical{ID: c.id, Made: c.made}}
		says(noRow("id"))
		lived, err := s.lived(t.Context(), table)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, lived, name)
		for _, a := range n.take() {
			assert.True(t, a.level == primitive.ConsistencyLevelQuorum || strings.Contains(a.text, "system_schema"), a.text)
		}
		says(rowOf("id", make([]byte, 16)))
		lived, err = s.lived(t.Context(), table)
		assert.False(t, lived, name)
		assert.Equal(t, c.want, readAgain(err), name)
	}
	for name, answer := range failures() {
		n, s := closingBefore(t, applied(true))
		n.saysAlways(answer)
		_, err := s.lived(t.Context(), &dataTable{stored: storedTable{closed: 5}})
		assert.Error(t, err, name)
	}
}

// generationSince is the row of a name of which a generation began then.
func generationSince(at int64) message.Message {
	companion := gocql.UUID{9}
	return rowOf("companion", companion[:], "writetime(companion)", bigint(at))
}

// That a table is no longer critical is stored where its row is still that of its last time as one: an
// LWT that comes late changes nothing of the next.
func TestATableIsRetiredByTheClosedOfItsTime(t *testing.T) {
	for name, table := range map[string]*dataTable{
		"settled": {stored: storedTable{closed: 70}, Critical: catalog.Critical{Closed: 77}}, "not settled": {stored: storedTable{closed: 77}},
	} {
		n, s := closingBefore(t, applied(true))
		require.NoError(t, s.retire(t.Context(), table))
		sent := n.tablesAsked()
		require.Len(t, sent, 1)
		assert.Equal(t, map[string][]byte{"settings": []byte(table.Settings.String()), "closed": bigint(77)}, sent[0].cond, name)
		assert.Equal(t, plainSettings, string(sent[0].set["settings"]), name)
	}
}

// A table whose settings are those that are stored, and one that has lost its comment, has the closed
// that is stored: nothing is raised, and nobody is waited for.
func TestClosedIsAsStoredWhereNothingChanges(t *testing.T) {
	for name, marked := range map[string]bool{"settled": true, "without its comment": false} {
		n, s := closingBefore(t, applied(true))
		table := &dataTable{keyspace: "bank", name: "t", stored: storedTable{closed: 77}, Critical: catalog.Critical{ID: [16]byte{5}, Made: true, Marked: marked}}
		if marked {
			table.stored.text = table.Settings.String()
		}
		late, err := s.barrier(t.Context(), table, gocql.UUID{7})
		require.NoError(t, err, name)
		assert.Empty(t, late, name)
		assert.EqualValues(t, 77, table.Closed, name)
		assert.Empty(t, n.tablesAsked(), name)
	}
}

// What stands in music.tables is read at QUORUM, and a row that cannot be read is no row that is
// absent: the table gets no locks.
func TestStoredSettingsThatCannotBeRead(t *testing.T) {
	n, s := closingBefore(t, noRow("id", "closed", "settings"))
	table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{5}, Marked: true, Made: true}}
	s.readStored(t.Context(), table)
	assert.NoError(t, table.stored.err)
	assert.Zero(t, table.stored.closed)
	sent := n.tablesAsked()
	require.Len(t, sent, 1)
	assert.Equal(t, primitive.ConsistencyLevelQuorum, sent[0].level)
	for name, answer := range failures() {
		_, s := closingBefore(t, answer)
		table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{5}, Marked: true, Made: true}}
		s.readStored(t.Context(), table)
		assert.Error(t, table.stored.err, name)
	}
}

// Another proxy has followed when it has applied the tables that were read here, whatever version
// Cassandra gives its schema meanwhile: that moves only when a change is written, and by then its
// tables may have been read.
func TestABarrierAsksForTheTablesThatWereRead(t *testing.T) {
	var followed gocql.UUID
	read := func(keyspace, comment string, written int64) gocql.UUID {
		n := startCQLNode(t, func(asked) message.Message {
			return rowOf("keyspace_name", []byte(keyspace), "table_name", []byte("t"), "id", make([]byte, 16), "comment", []byte(comment),
				"flags", nil, "gc_grace_seconds", bigint(864_000)[4:], "default_time_to_live", bigint(0)[4:], "writetime(comment)", bigint(written))
		})
		r := schemaReader{session: n.session, rules: new(criticalRules)}
		_, _, digest, err := r.readTables(t.Context(), config.Music{})
		require.NoError(t, err)
		return digest
	}
	plain, critical := read("bank", "", 1), read("bank", "@critical", 2)
	require.NotEqual(t, plain, critical)
	require.Equal(t, critical, read("bank", "@critical", 2))
	require.NotEqual(t, critical, read("bank", "@critical", 4), "it was none meanwhile")
	require.NotEqual(t, read("systems", "", 1), read("systems", "@critical", 1), "a keyspace like any other")
	require.Equal(t, read("system", "", 1), read("system", "other", 1), "each node's own")

	n, s := closingBefore(t, applied(true))
	other := gocql.UUID{1}
	s.heartbeat.others.read = func(context.Context, []gocql.UUID) (map[gocql.UUID]seenSession, error) {
		return map[gocql.UUID]seenSession{other: {beat: 1, schema: followed, addr: "there"}}, nil
	}
	s.applied.digest = critical
	table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{5}, Marked: true}}
	for _, followed = range []gocql.UUID{{7}, plain} { // {7} is Cassandra's version, here and there
		late, err := s.barrier(t.Context(), table, gocql.UUID{7})
		require.NoError(t, err)
		assert.Equal(t, []string{"there"}, late)
	}
	assert.Empty(t, n.tablesAsked())
	followed = critical
	late, err := s.barrier(t.Context(), table, gocql.UUID{7})
	require.NoError(t, err)
	assert.Empty(t, late)
	assert.Len(t, n.tablesAsked(), 1)
}

// A proxy that began to beat after the sessions were looked at may have read music.tables before the raise,
// and stand for a node that is behind: then plain writes come through it above closed. It is seen after the
// raise. The table waits for it, and closed is raised once more when it has followed.
func TestABarrierWaitsForAProxyThatStartsMeanwhile(t *testing.T) {
	n, s := closingBefore(t, applied(true))
	looks, newcomer := 0, seenSession{beat: 1, addr: "there"}
	s.heartbeat.others.read = func(context.Context, []gocql.UUID) (map[gocql.UUID]seenSession, error) {
		if looks++; looks == 1 {
			return map[gocql.UUID]seenSession{}, nil
		}
		return map[gocql.UUID]seenSession{{1}: newcomer}, nil
	}
	s.applied.digest = gocql.UUID{6}
	table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{5}, Marked: true}}
	late, err := s.barrier(t.Context(), table, gocql.UUID{7})
	require.NoError(t, err)
	assert.Equal(t, []string{"there"}, late)
	assert.Zero(t, table.Closed, "it is not settled")
	require.Len(t, n.tablesAsked(), 1)
	first := table.stored.closed
	assert.NotZero(t, first, "by which it is retired")
	assert.Equal(t, table.Settings.String(), table.stored.text)

	late, err = s.barrier(t.Context(), table, gocql.UUID{7})
	require.NoError(t, err)
	assert.Equal(t, []string{"there"}, late)
	assert.Empty(t, n.tablesAsked(), "not before that one has followed")

	newcomer.schema = s.applied.digest
	late, err = s.barrier(t.Context(), table, gocql.UUID{7})
	require.NoError(t, err)
	assert.Empty(t, late)
	assert.Greater(t, table.Closed, first)
	assert.Len(t, n.tablesAsked(), 1)
}
