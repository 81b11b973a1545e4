package frontend

import (
	"strings"
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/datatype"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/musiccore"
)

// knowingLocks give a get the note of the put before it.
type knowingLocks struct {
	*grantingLocks
	note any
}

func (g *knowingLocks) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, told func(musiccore.Answer)) (musiccore.Answer, bool) {
	a, ok := g.grantingLocks.Begin(k, ref, kind, told)
	if kind == musiccore.Get {
		a.Ticket.Known = g.note
	} else {
		a.Ticket.Kind, g.note = musiccore.Put, nil
	}
	return a, ok
}

func (g *knowingLocks) End(tk musiccore.Ticket, o musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	if tk.Kind == musiccore.Put && o == musiccore.OutcomeAcked {
		g.note = tk.Known
	}
	return g.grantingLocks.End(tk, o)
}

// knownTry is a client of a table whose writes with IF go on from each other.
type knownTry struct {
	*testing.T
	*rig
	client, backend *peer
	locks           *knowingLocks
}

// table returns a state of the table.
func (y *knownTry) table(change ...func(*catalog.Critical)) {
	column := func(name, kind string) catalog.Column { return catalog.Column{Name: name, Type: kind} }
	now := &catalog.Critical{
		Key: []catalog.Column{column("id", "text")}, Primary: []string{"id", "c"}, Static: []string{"st"}, MaxLease: time.Minute,
		Columns: map[string]catalog.Column{
			"id": column("id", "text"), "c": {Name: "c", Type: "int", Clustering: true}, "a": column("a", "int"), "b": column("b", "int"),
			"m": column("m", "frozen<list<int>>"), "st": {Name: "st", Type: "int", Static: true},
		},
	}
	for _, f := range change {
		f(now)
	}
	y.server.Tables.Set("bank", "accounts", now)
}

func newKnownTry(t *testing.T) *knownTry {
	t.Helper()
	y := &knownTry{T: t, locks: &knowingLocks{grantingLocks: newGrantingLocks()}}
	y.rig = newRig(t, func(o *Options) { o.Locks = y.locks })
	y.table()
	y.client, y.backend = y.login(dialect{version: v4})
	return y
}

// bound is a QUERY with ints bound to it; -1 is null.
func bound(text string, values ...int32) *message.Query {
	q := query(text)
	q.Options.PositionalValues = []*primitive.Value{}
	for _, v := range values {
		if v < 0 {
			q.Options.PositionalValues = append(q.Options.PositionalValues, primitive.NewNullValue())
			continue
		}
		q.Options.PositionalValues = append(q.Options.PositionalValues, primitive.NewValue(number(v)))
	}
	return q
}

// reads has Cassandra answer the read for a write's conditions, which must be the next request, with one
// row in which all columns have this value.
func reads(t *testing.T, backend *peer, value int32) {
	t.Helper()
	q := backend.answer(1).(*message.Query)
	require.Equal(t, "SELECT", q.Query[:6])
	text, _, _ := strings.Cut(q.Query[7:], " FROM")
	names := strings.Split(text, ", ")
	if text == "*" {
		names = []string{"id", "c", "st", "a", "b"}
	}
	m, row := &message.RowsMetadata{ColumnCount: int32(len(names))}, message.Row{}
	for _, name := range names {
		m.Columns = append(m.Columns, &message.ColumnMetadata{Keyspace: "bank", Table: "accounts", Name: strings.Trim(name, `"`), Type: datatype.Int})
		row = append(row, number(value))
	}
	backend.send(1, &message.RowsResult{Metadata: m, Data: message.RowSet{row}})
}

// writes has Cassandra do the write, which must be the next request, and returns the client's answer.
func writes(t *testing.T, client, backend *peer) *message.RowsResult {
	t.Helper()
	require.NotContains(t, backend.answer(1).(*message.Query).Query, "SELECT")
	backend.send(1, &message.VoidResult{})
	return client.answer(1).(*message.RowsResult)
}

const (
	knownFirst = "UPDATE bank.accounts USING LOCK 9 SET a = ? WHERE id = 'x' AND c = 1 IF a = ?"
	knownExist = "UPDATE bank.accounts USING LOCK 9 SET a = ? WHERE id = 'x' AND c = 1 IF EXISTS"
)

// Whether a write with IF reads what the one before it wrote.
func TestWriteGoesOnFromTheLast(t *testing.T) {
	for name, tc := range map[string]struct {
		first, second *message.Query
		reads         bool // the second does; else Cassandra is not asked
	}{
		"the same":                      {bound(knownFirst, 2, 1), bound(knownFirst, 3, 2), false},
		"another text of the same row":  {bound(knownFirst, 2, 1), query("UPDATE bank.accounts USING LOCK 9 SET b = b + 1 WHERE id = 'x' AND c = 1 IF a = 2"), true},
		"a delete":                      {bound(knownFirst, 2, 1), query("DELETE FROM bank.accounts USING LOCK 9 WHERE id = 'x' AND c = 1 IF a = 2"), false},
		"two columns":                   {bound(strings.Replace(knownFirst, "a = ?", "a = ?, b = ?", 1), 2, 2, 1), bound(knownFirst, 3, 2), false},
		"another row":                   {bound(knownFirst, 2, 1), bound(strings.Replace(knownFirst, "c = 1", "c = 2", 1), 3, 2), true},
		"another row, bound":            {bound(strings.Replace(knownFirst, "c = 1", "c = ?", 1), 2, 1, 1), bound(strings.Replace(knownFirst, "c = 1", "c = ?", 1), 3, 2, 2), true},
		"another column":                {bound(knownFirst, 2, 1), bound(strings.Replace(knownFirst, "IF a", "IF b", 1), 3, 2), true},
		"more columns":                  {bound(knownFirst, 2, 1), bound(knownFirst+" AND b = 2", 3, 2), true},
		"a static column":               {bound(knownFirst, 2, 1), bound(knownFirst+" AND st = 2", 3, 2), true},
		"an addition":                   {bound(knownFirst, 2, 1), query("UPDATE bank.accounts USING LOCK 9 SET a = a + 1 WHERE id = 'x' AND c = 1 IF a = 2"), true},
		"IF EXISTS":                     {bound(knownExist, 2), bound(knownExist, 3), false},
		"IF EXISTS, then an addition":   {bound(knownExist, 2), query("UPDATE bank.accounts USING LOCK 9 SET a = a + 1 WHERE id = 'x' AND c = 1 IF EXISTS"), true},
		"IF EXISTS of null":             {bound(knownExist, -1), bound(knownExist, 3), true},
		"a literal":                     {query("UPDATE bank.accounts USING LOCK 9 SET a = 2 WHERE id = 'x' AND c = 1 IF a = 1"), bound(knownFirst, 3, 2), true},
		"null":                          {bound(knownFirst, -1, 1), bound(knownFirst, 3, 2), true},
		"a time to live":                {bound(strings.Replace(knownFirst, "LOCK 9", "LOCK 9 AND TTL 9", 1), 2, 1), bound(knownFirst, 3, 2), true},
		"not the column that is read":   {bound("UPDATE bank.accounts USING LOCK 9 SET b = ? WHERE id = 'x' AND c = 1 IF a = ?", 2, 1), bound(knownFirst, 3, 2), true},
		"an expression":                 {bound(strings.Replace(knownFirst, "a = ?", "a = ? + 1", 1), 1, 1), bound(knownFirst, 3, 2), true},
		"deleted":                       {query("DELETE a FROM bank.accounts USING LOCK 9 WHERE id = 'x' AND c = 1 IF a = 1"), bound(knownFirst, 3, 2), true},
		"a batch":                       {bound("BEGIN BATCH USING LOCK 9 UPDATE bank.accounts SET a = ? WHERE id = 'x' AND c = 1 IF a = ? APPLY BATCH", 2, 1), bound(knownFirst, 3, 2), true},
		"a write without IF in between": {bound("UPDATE bank.accounts USING LOCK 9 SET a = ? WHERE id = 'x' AND c = 1", 2), bound(knownFirst, 3, 2), true},
	} {
		t.Run(name, func(t *testing.T) {
			y := newKnownTry(t)
			y.client.send(1, tc.first)
			if strings.Contains(tc.first.Query, " IF ") {
				reads(t, y.backend, 1)
				assert.Equal(t, boolean(true), writes(t, y.client, y.backend).Data[0][0])
			} else {
				y.backend.answer(1)
				y.backend.send(1, &message.VoidResult{})
				y.client.answer(1)
			}
			y.client.send(1, tc.second)
			if tc.reads {
				reads(t, y.backend, 2)
			}
			assert.Equal(t, boolean(true), writes(t, y.client, y.backend).Data[0][0])
		})
	}
}

// What the last write wrote is told where a condition on it does not hold, and is known for as long as it is so.
func TestRefusedByWhatTheLastWrote(t *testing.T) {
	y := newKnownTry(t)
	y.client.send(1, bound(knownFirst, 2, 1))
	reads(t, y.backend, 1)
	writes(t, y.client, y.backend)
	for range 2 {
		y.client.send(1, bound(knownFirst, 3, 7))
		got := y.client.answer(1).(*message.RowsResult)
		assert.Equal(t, message.Row{boolean(false), number(2)}, got.Data[0])
		assert.Equal(t, "a", got.Metadata.Columns[1].Name)
	}
	y.locks.verdict = musiccore.VerdictLost
	y.client.send(1, bound(knownFirst, 3, 7))
	assert.Contains(t, y.client.failure(1).GetErrorMessage(), "MUSIC_LOST", "what is known is told like what was read")
}

// What the last write wrote counts in the state of the table in which it was written, and not where plain writes are let through.
func TestKnownInOneStateOfTheTable(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after func(*catalog.Critical)
		reads         bool
	}{
		"changed":         {nil, func(*catalog.Critical) {}, true},
		"not changed":     {nil, nil, false},
		"plain writes":    {func(c *catalog.Critical) { c.Unlocked = catalog.Allow }, nil, true},
		"values that die": {func(c *catalog.Critical) { c.Mortal = true }, nil, true},
		"frozen": {func(c *catalog.Critical) {
			c.Columns["a"] = catalog.Column{Name: "a", Type: "frozen<list<int>>"}
		}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			y := newKnownTry(t)
			if tc.before != nil {
				y.table(tc.before)
			}
			y.client.send(1, bound(knownFirst, 2, 1))
			reads(t, y.backend, 1)
			writes(t, y.client, y.backend)
			if tc.after != nil {
				y.table(tc.after)
			}
			y.client.send(1, bound(knownFirst, 3, 2))
			if tc.reads {
				reads(t, y.backend, 2)
			}
			writes(t, y.client, y.backend)
		})
	}
}

// With roles, a client is told what it wrote itself without a read, and not what another wrote: the column may be masked.
func TestKnownToOthers(t *testing.T) {
	for _, roles := range []bool{false, true} {
		y := newKnownTry(t)
		y.client.send(1, bound(knownFirst, 2, 1))
		reads(t, y.backend, 1)
		writes(t, y.client, y.backend)
		other, backend := y.login(dialect{version: v4})
		y.server.each(func(c *conn) {
			c.authenticated.Store(roles)
			for _, what := range []permission{permissionModify, permissionSelect} {
				c.rights.note(right{y.server.Tables.Of("bank", "accounts"), what})
			}
		})
		y.client.send(1, bound(knownFirst, 3, 7))
		assert.Equal(t, number(2), y.client.answer(1).(*message.RowsResult).Data[0][1])
		other.send(1, bound(knownFirst, 3, 7))
		if roles {
			reads(t, backend, 2)
		}
		assert.Equal(t, number(2), other.answer(1).(*message.RowsResult).Data[0][1])
	}
}

// A client of another version of the protocol gets columns in the types of its own.
func TestKnownInOneVersion(t *testing.T) {
	for _, version := range []primitive.ProtocolVersion{v3, v4, v5} {
		y := newKnownTry(t)
		y.client.send(1, bound(knownFirst, 2, 1))
		reads(t, y.backend, 1)
		writes(t, y.client, y.backend)
		other, backend := y.login(dialect{version: version})
		other.send(1, bound(knownFirst, 3, 7))
		if version != v4 {
			reads(t, backend, 2)
		}
		assert.Equal(t, number(2), other.answer(1).(*message.RowsResult).Data[0][1])
	}
}
