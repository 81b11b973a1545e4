package proxy

import (
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend"
	"music/musiccore"
	"music/rewrite"
)

// openExecutor makes a critical table with a composite key and its companion, without a life: nobody else is there.
func openExecutor(t *testing.T) (*executor, musiccore.Key) {
	t.Helper()
	s := openStore(t, 0)
	s.do("CREATE TABLE KS.t (a text, b int, v text, PRIMARY KEY ((a, b)))")
	table := &dataTable{keyspace: s.keyspace, name: "t", id: [16]byte{1}, key: []frontend.Column{{Name: "a", Type: "text"}, {Name: "b", Type: "int"}}}
	table.prepareTexts()
	s.do(table.companionDDL())
	sc := &schema{session: s.session}
	sc.byID.Store(&map[[16]byte]*dataTable{table.id: table})
	key := musiccore.Key{Table: table.id, PK: string(rewrite.RoutingKey([][]byte{[]byte("x"), {0, 0, 0, 7}}))}
	return &executor{session: s.session, schema: sc}, key
}

func (x *executor) must(t *testing.T, k musiccore.Key, a musiccore.Action) musiccore.Result {
	t.Helper()
	r := x.do(t.Context(), musiccore.Command{Key: k, Do: a})
	require.NoError(t, r.Cause)
	return r
}

// Each Swap must do on Cassandra what its Apply says, and be refused when it is sent again (PROTOCOL.md 3, H3).
func TestSwapsMeanOnCassandraWhatTheyMeanInTheCore(t *testing.T) {
	x, k := openExecutor(t)
	self, other := musiccore.SessionID{1}, musiccore.SessionID{2}
	assert.Nil(t, x.must(t, k, musiccore.ReadRow{Quorum: true}).Row)
	missing := musiccore.Release(musiccore.Row{Guard: 1, Head: 1, Base: 5}, 2, false, 10)
	assert.Equal(t, musiccore.Refused, x.must(t, k, musiccore.Apply{Swap: missing}).Fate)

	var row *musiccore.Row
	step := func(s musiccore.Swap) {
		t.Helper()
		want, ok := s.Apply(row)
		require.True(t, ok)
		assert.Equal(t, musiccore.Done, x.must(t, k, musiccore.Apply{Swap: s}).Fate)
		for _, quorum := range []bool{false, true} {
			row = x.must(t, k, musiccore.ReadRow{Quorum: quorum}).Row
			require.NotNil(t, row)
			assert.Equal(t, want, *row)
		}
		assert.Equal(t, musiccore.Refused, x.must(t, k, musiccore.Apply{Swap: s}).Fate, "sent again")
	}
	clk := musiccore.Stamp(time.Now().UnixMicro())
	step(musiccore.Enqueue(nil, musiccore.Block{N: 1, Session: self, Req: 1}, 0, clk))
	step(musiccore.Enqueue(row, musiccore.Block{N: 3, Session: other, Req: 9}, 0, clk))
	step(musiccore.Release(*row, 5, true, clk))
	step(musiccore.Renew(*row, other, true, 1<<20, clk))
	step(musiccore.Takeover(*row, self, 1<<20, clk))
	step(musiccore.Preempt(*row, row.Guard+1, 1<<20, clk))
	step(musiccore.Enqueue(row, musiccore.Block{N: 1, Session: self, Req: 2}, 0, clk))
}

// A lock row that somebody wrote by hand is no row to build on.
func TestPartialLockRowIsNoRow(t *testing.T) {
	x, k := openExecutor(t)
	table := x.schema.table(k.Table)
	require.NoError(t, x.session.Query("UPDATE "+table.keyspace+"."+table.companion()+" SET head = 1 WHERE k1 = 'x' AND k2 = 7").Exec())
	r := x.do(t.Context(), musiccore.Command{Key: k, Do: musiccore.ReadRow{Quorum: true}})
	assert.ErrorIs(t, r.Cause, errPartialRow)
	assert.Equal(t, musiccore.Unknown, r.Fate)
}

func TestUnknownTableIsAnUnknownOutcome(t *testing.T) {
	x, _ := openExecutor(t)
	r := x.do(t.Context(), musiccore.Command{Key: musiccore.Key{Table: [16]byte{9}}, Do: musiccore.ReadRow{}})
	assert.ErrorIs(t, r.Cause, errUnknownTable)
}

// Literals that Go does not read have the bytes that Cassandra itself would store.
func TestLiteralsAreReadByCassandra(t *testing.T) {
	x, _ := openExecutor(t)
	for _, c := range []struct {
		cqlType, literal string
		want             []byte
	}{
		{"timestamp", "'1970-01-01 00:00:01+0000'", []byte{0, 0, 0, 0, 0, 0, 3, 232}},
		{"inet", "'127.0.0.1'", []byte{127, 0, 0, 1}},
		{"varint", "256", []byte{1, 0}},
		{"double", "1", []byte{0x3f, 0xf0, 0, 0, 0, 0, 0, 0}},
	} {
		got, err := x.literal(t.Context(), c.cqlType, c.literal)
		require.NoError(t, err)
		assert.Equal(t, c.want, got, c.cqlType)
	}
	_, err := x.literal(t.Context(), "timestamp", "'nonsense'")
	assert.ErrorIs(t, err, frontend.ErrLiteral)
}

// One CREATE of a companion is a no-op after another (DESIGN.md 4): proxies do not agree on who makes it.
func TestCompanionsAreMadeByAllAtOnce(t *testing.T) {
	x, k := openExecutor(t)
	table := x.schema.table(k.Table)
	var making sync.WaitGroup
	for range 4 {
		making.Go(func() { assert.NoError(t, x.session.Query(table.companionDDL()).Exec()) })
	}
	making.Wait()
}

func TestClkFollowsTheClusterAndNeverRunsAhead(t *testing.T) {
	c := new(clock)
	assert.Zero(t, c.now().Clk, "nothing is known of the cluster's clock")
	for _, tc := range []struct {
		name   string
		ahead  time.Duration // the cluster's clock of ours
		behind time.Duration // clk of our clock
		none   bool
	}{
		{"equal", 0, 0, false},
		{"cluster ahead", 5 * time.Second, 0, false},
		{"cluster a little behind", -500 * time.Millisecond, 0, false},
		{"cluster behind", -4 * time.Second, 3 * time.Second, false},
		{"too far behind", -11 * time.Second, 0, true},
		{"too far ahead", 11 * time.Second, 0, true},
	} {
		now := time.Now()
		c.observe(now, now, now.Add(tc.ahead))
		n := c.now()
		if tc.none {
			assert.Zero(t, n.Clk, tc.name)
			continue
		}
		assert.Equal(t, n.Wall-musiccore.Stamp(tc.behind.Microseconds()), n.Clk, tc.name)
	}
}

// Who stands still for long enough is dead, and nobody waits for the dead; who beats lags until it has applied the version.
func TestLaggingProxies(t *testing.T) {
	version, old := gocql.MustRandomUUID(), gocql.MustRandomUUID()
	self, alive, dead, ended, done := musiccore.SessionID{1}, gocql.UUID{2}, gocql.UUID{3}, gocql.UUID{4}, gocql.UUID{5}
	s := &sessions{dead: 10 * time.Second, seen: map[gocql.UUID]sighting{
		gocql.UUID(self): {schema: old, addr: "self"},
		alive:            {schema: old, since: time.Second, before: 10 * time.Second, addr: "alive"},
		dead:             {schema: old, since: time.Second, before: 11 * time.Second, addr: "dead"},
		ended:            {schema: old, beat: musiccore.EndedBeat, addr: "ended"},
		done:             {schema: version, addr: "done"},
	}}
	assert.Equal(t, []string{"alive"}, s.lagging(self, version))
}

func TestHomeIsTheContactPointThatAnswers(t *testing.T) {
	h := &home{addresses: []string{"127.0.10.9:1", "127.0.10.9:2"}, timeout: time.Second}
	_, err := h.dial(t.Context())
	assert.ErrorContains(t, err, "127.0.10.9:2")
}
