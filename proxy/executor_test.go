package proxy

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/frontend/catalog"
	"music/integration/cassandra/cassandratest"
	"music/musiccore"
	"music/rewrite"
)

// critical returns an index of tables.
func critical(tables ...*dataTable) *criticalTables {
	byID := map[[16]byte]*dataTable{}
	for _, t := range tables {
		byID[t.ID] = t
	}
	c := newCriticalTables()
	c.set(byID)
	return c
}

// openExecutor makes a critical table with a composite key and its companion, without a heartbeat:
// nobody else is there.
func openExecutor(t *testing.T) (*executor, musiccore.Key) {
	t.Helper()
	s := cassandratest.NewKeyspace(t, cassandratest.Version(0))
	s.Do("CREATE TABLE KS.t (a text, b int, v text, PRIMARY KEY ((a, b)))")
	table := &dataTable{keyspace: s.Name, name: "t", Critical: catalog.Critical{ID: [16]byte{1}, Key: []catalog.Column{{Name: "a", Type: "text"}, {Name: "b", Type: "int"}}}}
	table.prepareTexts()
	table.counted.Store(endless())
	s.Do(table.companionDDL([16]byte{}))
	key := musiccore.Key{Table: table.ID, PK: string(rewrite.RoutingKey([][]byte{[]byte("x"), {0, 0, 0, 7}}))}
	return &executor{session: s.Session, tables: critical(table)}, key
}

func (x *executor) must(t *testing.T, k musiccore.Key, a musiccore.Action) musiccore.Result {
	t.Helper()
	r := x.do(t.Context(), musiccore.Command{Key: k, Action: a})
	require.NoError(t, r.Cause)
	return r
}

// Each Swap must do on Cassandra what its Apply says, and be refused when it is sent again
// (docs/protocol.md 6, H3).
func TestSwapsMeanOnCassandraWhatTheyMeanInTheCore(t *testing.T) {
	x, k := openExecutor(t)
	self, other := musiccore.SessionID{1}, musiccore.SessionID{2}
	assert.Nil(t, x.must(t, k, musiccore.ReadRow{Quorum: true}).Row)
	missing := musiccore.Release(musiccore.Row{Guard: 1, Head: 1, Epoch: 5}, 2, false, 10)
	assert.Equal(t, musiccore.StatusRefused, x.must(t, k, musiccore.Apply{Swap: missing}).Status)

	var row *musiccore.Row
	step := func(s musiccore.Swap) {
		t.Helper()
		want, ok := s.Apply(row)
		require.True(t, ok)
		assert.Equal(t, musiccore.StatusDone, x.must(t, k, musiccore.Apply{Swap: s}).Status)
		for _, quorum := range []bool{false, true} {
			row = x.must(t, k, musiccore.ReadRow{Quorum: quorum}).Row
			require.NotNil(t, row)
			assert.Equal(t, want, *row)
		}
		assert.Equal(t, musiccore.StatusRefused, x.must(t, k, musiccore.Apply{Swap: s}).Status, "sent again")
	}
	clk := musiccore.Stamp(time.Now().UnixMicro())
	step(musiccore.Enqueue(nil, musiccore.Block{N: 1, Session: self, Req: 1}, 0, clk))
	step(musiccore.Enqueue(row, musiccore.Block{N: 3, Session: other, Req: 9}, 0, clk))
	step(musiccore.Release(*row, 5, true, clk))
	step(musiccore.Renew(*row, other, true, 1<<20, clk))
	unfenced := musiccore.Release(*row, 5, true, clk)
	unfenced.Set.Row.Unfenced = true
	step(unfenced)
	step(musiccore.Takeover(*row, self, 1<<20, clk))
	step(musiccore.Preempt(*row, row.Guard+1, 1<<20, clk))
	step(musiccore.Enqueue(row, musiccore.Block{N: 1, Session: self, Req: 2}, 0, clk))
}

// A lock row that somebody wrote by hand is no row to build on.
func TestPartialLockRowIsNoRow(t *testing.T) {
	x, k := openExecutor(t)
	table := x.tables.table(k.Table)
	require.NoError(t, x.session.Query("UPDATE "+table.keyspace+"."+table.companion()+" SET head = 1 WHERE k1 = 'x' AND k2 = 7").Exec())
	r := x.do(t.Context(), musiccore.Command{Key: k, Action: musiccore.ReadRow{Quorum: true}})
	assert.ErrorIs(t, r.Cause, errPartialRow)
	assert.Equal(t, musiccore.StatusUnknown, r.Status)
}

// A keyspace that somebody drops while the schema is read keeps nobody else's change from being
// followed: it is read again.
func TestSchemaThatChangesWhileItIsReadIsReadAgain(t *testing.T) {
	x, _ := openExecutor(t)
	err := (&schemaReader{session: x.session}).readHindrances(t.Context(), nil, &dataTable{keyspace: "dropped", name: "t"})
	require.Error(t, err)
	assert.True(t, readAgain(err), "%v", err)
	assert.False(t, readAgain(errNoClock))
}

// One CREATE of a companion is a no-op after another (docs/design.md 4): proxies do not agree on
// who makes it.
func TestCompanionsAreMadeByAllAtOnce(t *testing.T) {
	x, k := openExecutor(t)
	table := x.tables.table(k.Table)
	var making sync.WaitGroup
	for range 4 {
		making.Go(func() { assert.NoError(t, x.session.Query(table.companionDDL([16]byte{})).Exec()) })
	}
	making.Wait()
}

// The clock that stamps are chosen by is at most a second ahead of the cluster's, and there is none
// where the two clocks are too far apart.
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
		c.observe(0, time.Now().Add(tc.ahead))
		n := c.now()
		if tc.none {
			assert.Zero(t, n.Clk, tc.name)
			continue
		}
		assert.InDelta(t, tc.behind, time.Duration(n.Wall-n.Clk)*time.Microsecond, float64(100*time.Millisecond), tc.name)
		assert.LessOrEqual(t, n.Clk, n.Wall, tc.name)
	}
}

// Who stands still for long enough is dead, and nobody waits for the dead; who beats lags until it
// has applied the version.
func TestLaggingProxies(t *testing.T) {
	version, old := gocql.MustRandomUUID(), gocql.MustRandomUUID()
	self, alive, dead, ended, done := musiccore.SessionID{1}, gocql.UUID{2}, gocql.UUID{3}, gocql.UUID{4}, gocql.UUID{5}
	s := &sessions{dead: musiccore.Options{SessionLease: 10 * time.Second}.DeadAfter, seen: map[gocql.UUID]seenSession{
		gocql.UUID(self): {schema: old, addr: "self"},
		alive:            {schema: old, since: both(time.Second), before: both(10 * time.Second), addr: "alive"},
		dead:             {schema: old, since: both(time.Second), before: both(11 * time.Second), addr: "dead"},
		ended:            {schema: old, beat: musiccore.EndedBeat, addr: "ended"},
		done:             {schema: version, addr: "done"},
	}}
	assert.Equal(t, []string{"alive"}, s.lagging(self, version))
	slow := gocql.UUID{6}
	s.seen[slow] = seenSession{schema: old, lease: 30 * time.Second, since: both(time.Second), before: both(30 * time.Second), addr: "slow"}
	assert.ElementsMatch(t, []string{"alive", "slow"}, s.lagging(self, version), "by its own, longer lease it may be alive")
	slewed := gocql.UUID{7}
	s.seen[slewed] = seenSession{schema: old, before: musiccore.Now{Boot: 11 * time.Second, Raw: 9 * time.Second}, addr: "slewed"}
	assert.ElementsMatch(t, []string{"alive", "slow", "slewed"}, s.lagging(self, version), "BOOTTIME is slewed here")
}

// both is a moment by both clocks of a lease.
func both(d time.Duration) musiccore.Now { return musiccore.Now{Boot: d, Raw: d} }

// Where no contact point answers, all of them have been tried.
func TestHomeIsTheContactPointThatAnswers(t *testing.T) {
	h := homeAt(time.Second, []string{"127.0.10.9:1", "127.0.10.9:2"})
	_, err := h.dial(t.Context())
	assert.ErrorContains(t, err, "127.0.10.9:2")
}

// With key=row the lock row has the whole primary key for its own, and the synchronise touches one
// row.
func TestExecutorOfRowKeys(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(0))
	s.Do("CREATE TABLE KS.t (a text, c text, d int, st int static, v text, PRIMARY KEY (a, c, d)) WITH CLUSTERING ORDER BY (c DESC, d ASC)")
	sc := &schemaReader{session: s.Session, release: "5.0.8"}
	table := &dataTable{keyspace: s.Name, name: "t", Critical: catalog.Critical{ID: [16]byte{1}, Settings: catalog.Settings{Row: true}}}
	require.NoError(t, sc.readColumns(t.Context(), table))
	table.counted.Store(endless())
	s.Do(table.companionDDL([16]byte{}))
	x := &executor{session: s.Session, tables: critical(table)}
	key := func(c string, d byte) musiccore.Key {
		return musiccore.Key{Table: table.ID, PK: string(rewrite.RoutingKey([][]byte{[]byte("x"), []byte(c), {0, 0, 0, d}}))}
	}
	k, empty := key("row", 7), key("", 7)
	for _, k := range []musiccore.Key{k, empty} {
		insert := musiccore.Enqueue(nil, musiccore.Block{N: 1, Session: musiccore.SessionID{1}, Req: 1}, 0, 1000)
		assert.Equal(t, musiccore.StatusDone, x.must(t, k, musiccore.Apply{Swap: insert}).Status)
		assert.Equal(t, insert.Set.Row, *x.must(t, k, musiccore.ReadRow{Quorum: true}).Row)
	}
	assert.Nil(t, x.must(t, key("row", 8), musiccore.ReadRow{Quorum: true}).Row)

	s.Do("INSERT INTO KS.t (a, c, d, st, v) VALUES ('x', 'row', 7, 1, 'kept') USING TIMESTAMP 5")
	s.Do("INSERT INTO KS.t (a, c, d, v) VALUES ('x', 'row', 8, 'another') USING TIMESTAMP 5")
	for _, k := range []musiccore.Key{k, empty} {
		assert.Equal(t, musiccore.StatusDone, x.must(t, k, musiccore.Synch{Fence: 10}).Status)
	}
	for _, d := range []string{"7", "8"} {
		s.Do("UPDATE KS.t USING TIMESTAMP 9 SET v = 'late' WHERE a = 'x' AND c = 'row' AND d = " + d)
	}
	s.Do("UPDATE KS.t USING TIMESTAMP 9 SET v = 'late' WHERE a = 'x' AND c = '' AND d = 7")
	s.Do("UPDATE KS.t USING TIMESTAMP 9 SET st = 2 WHERE a = 'x'")
	assert.Equal(t, []string{
		`{"a": "x", "c": "row", "d": 7, "st": 2, "v": "kept"}`, `{"a": "x", "c": "row", "d": 8, "st": 2, "v": "late"}`,
	}, s.JSON("t", "a = 'x'"))
	s.Do("UPDATE KS.t USING TIMESTAMP 20 SET v = 'above' WHERE a = 'x' AND c = 'row' AND d = 8")
	assert.Equal(t, musiccore.StatusDone, x.must(t, k, musiccore.Synch{Fence: 12}).Status, "another row's stamps are nothing to this one")
	assert.Equal(t, musiccore.Result{Status: musiccore.StatusAbove, Stamp: 20}, x.must(t, key("row", 8), musiccore.Synch{Fence: 15}))
}

// spy is the dialer of a session, and notes what that sends.
type spy struct {
	mu    sync.Mutex
	conns []*spiedConn
}

// spiedConn notes what is written.
type spiedConn struct {
	net.Conn
	spy  *spy
	sent bytes.Buffer
}

// DialContext implements gocql.Dialer.
func (s *spy) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	spied := &spiedConn{Conn: conn, spy: s}
	s.conns = append(s.conns, spied)
	return spied, nil
}

// Write implements net.Conn.
func (c *spiedConn) Write(b []byte) (int, error) {
	c.spy.mu.Lock()
	c.sent.Write(b)
	c.spy.mu.Unlock()
	return c.Conn.Write(b)
}

// levels are the consistencies of all that was executed, but for what a node is asked alone.
func (s *spy) levels(t *testing.T) (levels, serial map[primitive.ConsistencyLevel]int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	levels, serial = map[primitive.ConsistencyLevel]int{}, map[primitive.ConsistencyLevel]int{}
	for _, c := range s.conns {
		for c.sent.Len() > 0 {
			f, err := frame.NewCodec().DecodeFrame(&c.sent)
			require.NoError(t, err)
			switch m := f.Body.Message.(type) {
			case *message.Execute:
				levels[m.Options.Consistency]++
				if m.Options.SerialConsistency != nil {
					serial[*m.Options.SerialConsistency]++
				}
			case *message.Batch:
				levels[m.Consistency]++
			}
		}
	}
	delete(levels, primitive.ConsistencyLevelOne)
	return levels, serial
}

// scope=local: lock rows and synchronise stay in the data centre.
func TestScopeOfLocksAndSynchronise(t *testing.T) {
	for local, want := range map[bool][2]primitive.ConsistencyLevel{
		false: {primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelSerial},
		true:  {primitive.ConsistencyLevelLocalQuorum, primitive.ConsistencyLevelLocalSerial},
	} {
		x, k := openExecutor(t)
		table := x.tables.table(k.Table)
		seen := &spy{}
		spied := cassandratest.NewKeyspace(t, func(c *gocql.ClusterConfig) { c.ProtoVersion, c.Dialer = 4, seen })
		table.Settings.Local, table.centreSession = local, spied.Session
		x.session = spied.Session
		x.must(t, k, musiccore.Apply{Swap: musiccore.Enqueue(nil, musiccore.Block{N: 1, Session: musiccore.SessionID{1}, Req: 1}, 0, 1000)})
		x.must(t, k, musiccore.ReadRow{Quorum: true})
		x.must(t, k, musiccore.Synch{Fence: 10})
		levels, serial := seen.levels(t)
		assert.Equal(t, map[primitive.ConsistencyLevel]int{want[0]: 4}, levels, "an LWT, a read of the lock row, a read and a write of the data")
		assert.Equal(t, map[primitive.ConsistencyLevel]int{want[1]: 1}, serial)
	}
}

// Where a data centre cannot be told any more, what is still asked of its locks has an unknown
// outcome.
func TestScopeWithoutADataCentre(t *testing.T) {
	x, k := openExecutor(t)
	x.tables.table(k.Table).Settings.Local = true
	for _, a := range []musiccore.Action{musiccore.ReadRow{Quorum: true}, musiccore.Apply{}, musiccore.Synch{Fence: 10}} {
		r := x.do(t.Context(), musiccore.Command{Key: k, Action: a})
		assert.Equal(t, musiccore.StatusUnknown, r.Status)
		assert.ErrorIs(t, r.Cause, errOtherCentre)
	}
}

// A session of one data centre knows no other.
func TestSessionsOfADataCentre(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(0))
	host, port, err := net.SplitHostPort(cassandratest.Address(t))
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	l := newLocality(config.Cassandra{ContactPoints: []string{host}, Port: n, ConnectTimeout: 10 * time.Second}, &nodeDialer{timeout: 10 * time.Second})
	defer l.close()
	centre := l.centreOf(t.Context(), nodesOf(s.Session))
	require.NotEmpty(t, centre)
	session, err := l.session(centre)
	require.NoError(t, err)
	require.NoError(t, session.Query("SELECT * FROM system.local").Exec())
	again, err := l.session(centre)
	require.NoError(t, err)
	assert.Same(t, session, again)
	_, err = l.session("elsewhere")
	assert.ErrorContains(t, err, "data centre elsewhere alone")

	sc := &schemaReader{session: s.Session, locality: l}
	for dc, refused := range map[string]string{"": "", centre: "", "elsewhere": "its locks are decided in data centre elsewhere: this proxy stands in " + centre} {
		table := &dataTable{Critical: catalog.Critical{Settings: catalog.Settings{Local: true, Centre: dc}}}
		sc.localiseAll(t.Context(), []*dataTable{table})
		if refused == "" {
			assert.Same(t, session, table.centreSession)
			assert.Equal(t, centre, table.Settings.Centre)
		}
		assert.Contains(t, table.Refused, refused)
		assert.Equal(t, refused == "", table.Refused == "")
	}
}

// The number of commands that are at Cassandra at once is limited; the others wait. What tells whether other sessions are alive does not.
func TestCommandsAtOnce(t *testing.T) {
	const slots, commands = 3, 20
	synctest.Test(t, func(t *testing.T) {
		var under, most atomic.Int32
		do := bounded(func(_ context.Context, c musiccore.Command) musiccore.Result {
			if _, beat := c.Action.(musiccore.ReadBeat); !beat {
				most.Store(max(most.Load(), under.Add(1)))
				defer under.Add(-1)
				time.Sleep(time.Second)
			}
			return musiccore.Result{Status: musiccore.StatusDone}
		}, slots)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var done, ended atomic.Int32
		var all sync.WaitGroup
		for range commands {
			all.Go(func() {
				if do(ctx, musiccore.Command{Action: musiccore.ReadRow{}}).Status == musiccore.StatusDone {
					done.Add(1)
				} else {
					ended.Add(1)
				}
			})
		}
		synctest.Wait()
		assert.Equal(t, musiccore.StatusDone, do(ctx, musiccore.Command{Action: musiccore.ReadBeat{}}).Status)
		time.Sleep(1500 * time.Millisecond)
		cancel()
		all.Wait()
		assert.EqualValues(t, slots, most.Load())
		assert.EqualValues(t, 2*slots, done.Load())
		assert.EqualValues(t, commands-2*slots, ended.Load(), "the proxy ends")
	})
}
