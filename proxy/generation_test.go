package proxy

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend"
	"music/frontend/catalog"
	"music/musiccore"
)

// sure is what a proxy knows of a lock table on which all nodes agree.
func sure() bool { return true }

// endless is a generation that has all references.
func endless() *generation {
	g := &generation{first: 1}
	g.last.Store(int64(frontend.MaxRef))
	return g
}

// counters plays the rows of music.generations, as a node keeps them.
type counters struct {
	mu   sync.Mutex
	rows map[string]map[string][]byte
	lwts int
}

// change changes the rows, other than by a statement.
func (c *counters) change(how func(*counters)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how(c)
}

// answer carries out one statement on them.
func (c *counters) answer(a asked) message.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := string(a.where["keyspace_name"]) + "." + string(a.where["table_name"])
	row := c.rows[name]
	if a.verb() == "SELECT" {
		if row == nil {
			return noRow("companion", "first", "last")
		}
		return rowOf("companion", row["companion"], "first", row["first"], "last", row["last"])
	}
	c.lwts++
	if a.verb() == "INSERT" {
		name = string(a.set["keyspace_name"]) + "." + string(a.set["table_name"])
		if c.rows[name] == nil {
			c.rows[name] = a.set
			return applied(true)
		}
		return applied(false)
	}
	for column, value := range a.cond {
		if row == nil || !bytes.Equal(row[column], value) {
			return rowOf("[applied]", []byte{0}, "companion", row["companion"], "last", row["last"])
		}
	}
	for column, value := range a.set {
		row[column] = value
	}
	return applied(true)
}

// swaps returns how many LWTs have come.
func (c *counters) swaps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lwts
}

// lastOf is the highest reference that a table's row allows.
func (c *counters) lastOf(name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(binary.BigEndian.Uint64(c.rows[name]["last"]))
}

// gives is an LWT that gives the references up to guard.
func gives(guard musiccore.LockRef) musiccore.Swap {
	return musiccore.Swap{
		If: musiccore.If{What: musiccore.IfGuard, Guard: guard - 1}, Set: musiccore.Set{Q: true, Row: musiccore.Row{Guard: guard}},
	}
}

// References of a table's next generation lie above all that any proxy has given in the last,
// whatever ended that; and whoever has not heard of the end gives nothing above what he may.
func TestReferencesOfGenerationsDoNotMeet(t *testing.T) {
	c := &counters{rows: map[string]map[string][]byte{}}
	n := startCQLNode(t, c.answer)
	ctx := t.Context()
	proxies := [2]*schema{{schemaReader: schemaReader{session: n.session}}, {schemaReader: schemaReader{session: n.session}}}
	highest := musiccore.LockRef(0)
	for companion := range byte(12) {
		table := &dataTable{keyspace: "bank", name: "accounts", Critical: catalog.Critical{ID: [16]byte{companion / 3}, Generation: uuid.UUID{companion + 1}}}
		var both [2]*generation
		for i, s := range proxies {
			g, err := s.generation(ctx, table, sure)
			require.NoError(t, err)
			assert.Greater(t, g.first, highest, "above all of the generations before")
			both[i] = g
		}
		assert.Equal(t, both[0].first, both[1].first, "one answer at every proxy")
		top := both[0].first
		for step := musiccore.LockRef(1); step < 1<<(10+companion); step *= 3 {
			guard := both[0].first + step
			require.NoError(t, both[step%2].admit(ctx, n.session, gives(guard)))
			assert.GreaterOrEqual(t, c.lastOf("bank.accounts"), int64(guard), "raised before it is given")
			top = guard
		}
		highest = top
		if companion > 0 {
			old := &generation{keyspace: "bank", table: "accounts", companion: uuid.UUID{companion}, first: 1}
			old.last.Store(1)
			assert.ErrorIs(t, old.admit(ctx, n.session, gives(2)), errGenerationOver)
			begins := musiccore.Enqueue(nil, musiccore.Block{First: 1, N: 1}, 0, 1)
			assert.ErrorIs(t, both[0].admit(ctx, n.session, begins), errGenerationOver, "a key that counts as before")
		}
	}
}

// A proxy asks for more references a few times in the life of a table, whatever it gives.
func TestReferencesAreAskedForSeldom(t *testing.T) {
	c := &counters{rows: map[string]map[string][]byte{}}
	n := startCQLNode(t, c.answer)
	g, err := (&schema{schemaReader: schemaReader{session: n.session}}).generation(t.Context(), &dataTable{keyspace: "bank", name: "accounts", Critical: catalog.Critical{Generation: uuid.UUID{1}}}, sure)
	require.NoError(t, err)
	for guard := musiccore.LockRef(1); guard < frontend.MaxRef; guard += guard/7 + 1 {
		require.NoError(t, g.admit(t.Context(), n.session, gives(guard)))
	}
	require.NoError(t, g.admit(t.Context(), n.session, gives(frontend.MaxRef)))
	assert.ErrorIs(t, g.admit(t.Context(), n.session, gives(frontend.MaxRef+1)), errUsedUp)
	assert.Less(t, c.lwts, 27)
}

// What is not known gives nothing; what changes no queue needs no reference.
func TestNoReferencesBeforeTheyAreCounted(t *testing.T) {
	var g *generation
	assert.ErrorIs(t, g.admit(t.Context(), nil, gives(1)), errNoGeneration)
	assert.NoError(t, g.admit(t.Context(), nil, musiccore.Release(musiccore.Row{Guard: 1, Head: 1, Epoch: 5}, 2, false, 10)))
	n := startCQLNode(t, nil)
	known := &generation{first: 1}
	known.last.Store(5)
	for name, failure := range failures() {
		if failure == nil {
			continue
		}
		n.saysAlways(failure)
		assert.Error(t, known.admit(t.Context(), n.session, gives(6)), name)
		_, err := (&schema{schemaReader: schemaReader{session: n.session}}).generation(t.Context(), &dataTable{}, sure)
		assert.Error(t, err, name)
	}
	assert.EqualValues(t, 5, known.last.Load())
}

// Proxies that make a table's lock table at once make the same one, whatever each has closed the table at:
// of two with different ids the nodes keep one, and the locks in the other are gone. Where one has been
// counted it is made anew only when all nodes say that it is no more, and is another one.
func TestOneLockTableIsMade(t *testing.T) {
	version, host := gocql.UUID{7}, gocql.UUID{7}.String() // as the played node says
	counted := uuid.UUID{9}
	for name, c := range map[string]struct {
		row  message.Message
		home string
		want uuid.UUID
		late []string
	}{
		"none before":                        {noRow("companion", "writetime(companion)"), host, uuid.Nil, nil},
		"none before, the home node is away": {noRow("companion", "writetime(companion)"), "another", uuid.Nil, nil},
		"one counted, all agree":             {rowOf("companion", counted[:], "writetime(companion)", bigint(1)), host, counted, nil},
		"one counted, the home node is away": {rowOf("companion", counted[:], "writetime(companion)", bigint(1)), "another", uuid.Nil, []string{disagreeing}},
	} {
		n := startCQLNode(t, nil)
		n.saysAlways(c.row)
		r := schemaReader{session: n.session, home: func() string { return c.home }, node: host}
		last, late, err := r.lastCompanion(t.Context(), &dataTable{keyspace: "bank", name: "t"}, version)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, last, name)
		assert.Equal(t, c.late, late, name)
	}
	closed := func(at musiccore.Stamp) *dataTable {
		return &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{1}, Closed: at, Key: []catalog.Column{{Name: "k", Type: "text"}}}}
	}
	assert.Equal(t, closed(5).companionDDL(counted), closed(9).companionDDL(counted))
	assert.NotEqual(t, closed(5).companionDDL(uuid.Nil), closed(5).companionDDL(counted))
}

// A proxy whose node has missed that a lock table was dropped and made anew does not begin the generation of
// the old one again: the proxies that give references of the present one could not raise their number.
func TestNoGenerationBeginsAtANodeThatIsBehind(t *testing.T) {
	version, host := gocql.UUID{7}, gocql.UUID{7}.String() // as the played node says
	old, present := uuid.UUID{1}, uuid.UUID{2}
	for name, c := range map[string]struct {
		home      string
		companion uuid.UUID
		begins    bool
		late      []string
	}{
		"behind":              {"another", old, false, []string{disagreeing}},
		"the one in use":      {"another", present, false, nil},
		"another, all agree":  {host, uuid.UUID{3}, true, nil},
		"another, not agreed": {"another", uuid.UUID{3}, false, []string{disagreeing}},
	} {
		rows := &counters{rows: map[string]map[string][]byte{"bank.t": {"companion": present[:], "first": bigint(1), "last": bigint(firstReferences)}}}
		n, s := closingBefore(t, applied(true))
		n.says(rows.answer)
		s.home, s.node, s.tables = func() string { return c.home }, host, catalog.NewTables()
		table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{ID: [16]byte{1}, Made: true, Marked: true, Generation: c.companion}}
		table.stored = storedTable{closed: 5, text: table.Settings.String()}
		late, err := s.makeReady(t.Context(), table, table, version, musiccore.SessionID{})
		require.NoError(t, err, name)
		assert.Equal(t, c.late, late, name)
		assert.Equal(t, c.begins, rows.swaps() > 0, name)
		used := &generation{keyspace: "bank", table: "t", companion: present, first: 1}
		used.last.Store(firstReferences)
		assert.Equal(t, c.begins, used.admit(t.Context(), n.session, gives(firstReferences+1)) != nil, name)
	}
}

// Where music.generations has lost its last changes, or all, a table goes on giving references above those that were
// given: its proxies need no restart.
func TestReferencesGoOnWhereTheirNumberIsLost(t *testing.T) {
	for name, lose := range map[string]func(*counters){
		"an older number":         func(c *counters) { c.rows["bank.t"]["last"] = bigint(firstReferences) },
		"of which little is left": func(c *counters) { c.rows["bank.t"]["first"], c.rows["bank.t"]["last"] = bigint(1), bigint(1) },
		"the row":                 func(c *counters) { delete(c.rows, "bank.t") },
		"the row, made anew": func(c *counters) {
			c.rows["bank.t"] = map[string][]byte{"companion": c.rows["bank.t"]["companion"], "first": bigint(1), "last": bigint(5)}
		},
	} {
		c := &counters{rows: map[string]map[string][]byte{}}
		n := startCQLNode(t, c.answer)
		old, present := uuid.UUID{1}, uuid.UUID{2}
		s := &schema{schemaReader: schemaReader{session: n.session}}
		for _, companion := range []uuid.UUID{old, present} {
			table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{Generation: companion}}
			g, err := s.generation(t.Context(), table, sure)
			require.NoError(t, err)
			if companion == old {
				continue
			}
			require.NoError(t, g.admit(t.Context(), n.session, gives(g.first+3*firstReferences)), name)
			given := g.last.Load()
			c.change(lose)
			require.NoError(t, g.admit(t.Context(), n.session, gives(musiccore.LockRef(given+1))), name)
			assert.Greater(t, c.lastOf("bank.t"), given, name)
			assert.Equal(t, g.last.Load(), c.lastOf("bank.t"), name)
		}
	}
}

// Where several proxies store the number again at once, all but one have been raced, and take it over when they try again.
func TestTheNumberOfReferencesIsStoredAgainAtOnce(t *testing.T) {
	c := &counters{rows: map[string]map[string][]byte{}}
	n := startCQLNode(t, c.answer)
	s := &schema{schemaReader: schemaReader{session: n.session}}
	table := &dataTable{keyspace: "bank", name: "t", Critical: catalog.Critical{Generation: uuid.UUID{1}}}
	var proxies []*generation
	for range 2 {
		g, err := s.generation(t.Context(), table, sure)
		require.NoError(t, err)
		proxies = append(proxies, g)
	}
	c.change(func(c *counters) { c.rows["bank.t"]["last"] = bigint(5) })
	raced := false
	n.says(func(a asked) message.Message {
		if !raced && bytes.Equal(a.cond["last"], bigint(5)) {
			raced = true
			c.change(func(c *counters) { c.rows["bank.t"]["last"] = bigint(7) })
		}
		return c.answer(a)
	})
	next := gives(musiccore.LockRef(proxies[0].last.Load() + 1))
	require.ErrorIs(t, proxies[0].admit(t.Context(), n.session, next), errRaced)
	for _, g := range proxies {
		require.NoError(t, g.admit(t.Context(), n.session, next))
		assert.Equal(t, c.lastOf("bank.t"), g.last.Load())
	}
}
