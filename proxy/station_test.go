package proxy

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/musiccore"
	"music/proxy/peer"
)

// cluster plays Cassandra for several proxies: lock rows and life signs, each seen at once by all.
type cluster struct {
	mu    sync.Mutex
	rows  map[musiccore.Key]*musiccore.Row
	said  map[gocql.UUID]seenSession // what each session has said of itself
	reads map[musiccore.Key]int
}

func newCluster() *cluster {
	return &cluster{rows: map[musiccore.Key]*musiccore.Row{}, said: map[gocql.UUID]seenSession{}, reads: map[musiccore.Key]int{}}
}

// do carries out a core's command.
func (c *cluster) do(_ context.Context, command musiccore.Command) musiccore.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	row := c.rows[command.Key]
	switch a := command.Action.(type) {
	case musiccore.ReadRow:
		c.reads[command.Key]++
		return musiccore.Result{Status: musiccore.StatusDone, Row: row}
	case musiccore.Apply:
		next, ok := a.Swap.Apply(row)
		if !ok {
			return musiccore.Result{Status: musiccore.StatusRefused}
		}
		c.rows[command.Key] = &next
	case musiccore.ReadStamps:
		return musiccore.Result{Status: musiccore.StatusDone, Empty: true}
	case musiccore.ReadBeat:
		return musiccore.Result{Status: musiccore.StatusDone, Beat: c.said[gocql.UUID(a.Session)].beat}
	}
	return musiccore.Result{Status: musiccore.StatusDone}
}

// sessions is music.sessions.
func (c *cluster) sessions(context.Context, []gocql.UUID) (map[gocql.UUID]seenSession, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[gocql.UUID]seenSession{}
	for id, said := range c.said {
		all[id] = said
	}
	return all, nil
}

func (c *cluster) say(id musiccore.SessionID, beat int64, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said[gocql.UUID(id)] = seenSession{beat: beat, addr: address, spoken: peer.Version}
}

// row returns the lock row of a key.
func (c *cluster) row(k musiccore.Key) *musiccore.Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[k]
}

// rowReads is how often the lock row of a key was read.
func (c *cluster) rowReads(k musiccore.Key) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reads[k]
}

// station is one proxy without clients and without Cassandra: its locks, and its channel with the
// others.
type station struct {
	*locks
	t       testing.TB
	cluster *cluster
	life    *heartbeat
	server  *peer.Server
	address string

	registry *prometheus.Registry
	tables   *criticalTables
	audited  *jsonLog
	stop     func() // ends the channel, as the end of the process would
}

// anna is a client that ends locks.
func anna() musiccore.Client { return musiccore.Client{Role: "anna", Address: "10.0.0.9:1234"} }

// jsonLog keeps the lines of a log. Its methods may be called concurrently.
type jsonLog struct {
	mu    sync.Mutex
	lines []map[string]any
}

// Write implements io.Writer: it takes one line.
func (l *jsonLog) Write(line []byte) (int, error) {
	var read map[string]any
	if err := json.Unmarshal(line, &read); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, read)
	return len(line), nil
}

// of returns the lines with a message.
func (l *jsonLog) of(message string) (all []map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if line["message"] == message {
			all = append(all, line)
		}
	}
	return all
}

// startStation starts a proxy; it ends with the test.
func startStation(t testing.TB, c *cluster, change ...func(*musiccore.Options)) *station {
	t.Helper()
	options := musiccore.Defaults()
	options.SessionLease = time.Hour // nobody beats here
	for _, f := range change {
		f(&options)
	}
	ln, address, err := peer.Listen(context.Background(), config.Peers{Listen: "127.0.0.1:0"}, nil)
	require.NoError(t, err)
	s := &station{t: t, cluster: c, address: address, life: &heartbeat{options: options}}
	s.life.others.read, s.life.others.dead = c.sessions, options.DeadAfter
	self := s.life.rejoin()
	clocks := new(clock)
	clocks.observe(0, time.Now())
	start := clocks.now()
	n, _ := self.Beat(start)
	self.Acked(start, start, n)
	c.say(self.ID(), n, address)
	require.NoError(t, s.life.others.look(context.Background()))

	ctx, cancel := context.WithCancel(context.Background())
	registry := prometheus.NewRegistry()
	s.registry, s.audited, s.tables = registry, &jsonLog{}, newCriticalTables()
	s.locks = newLocks(ctx, self, options, lockDeps{
		clock: clocks, tables: s.tables, do: c.do, living: s.life.living, log: zerolog.Nop(),
		peers:   peer.NewClient(peer.Channel{Wait: options.Wait, OpTimeout: options.OpTimeout}, &s.life.others, zerolog.Nop(), registry),
		reports: reports{newAudit(zerolog.New(s.audited), "all", "here", s.tables), newLockMetrics(registry, s.tables, []config.TableName{{Keyspace: "bank", Table: "accounts"}})},
	})
	s.server = peer.NewServer("", s.life.id, local{s.locks}, local{s.locks}, zerolog.Nop())
	answering, hangUp := context.WithCancel(ctx)
	var served sync.WaitGroup
	served.Go(func() { s.server.Serve(answering, ln) })
	s.stop = func() {
		hangUp()
		served.Wait()
	}
	t.Cleanup(func() {
		cancel()
		served.Wait()
		s.close()
	})
	return s
}

// two returns two proxies of one cluster.
func two(t *testing.T, change ...func(*musiccore.Options)) (a, b *station) {
	t.Helper()
	c := newCluster()
	return startStation(t, c, change...), startStation(t, c, change...)
}

// keyOf is a key whose bytes are no text.
func keyOf(name string) musiccore.Key {
	return musiccore.Key{Table: uuid.MustParse("00000000-0000-0000-0000-00000000abcd"), PK: "\x00\xff" + name}
}

// answered waits for what is handed to done.
func answered[T any](t testing.TB, ask func(done func(T))) T {
	t.Helper()
	told := make(chan T, 1)
	ask(func(a T) { told <- a })
	select {
	case a := <-told:
		return a
	case <-time.After(20 * time.Second):
		require.FailNow(t, "no answer")
		panic("unreachable")
	}
}

func (s *station) lock(k musiccore.Key, q musiccore.Request) musiccore.Answer {
	s.t.Helper()
	return answered(s.t, func(done func(musiccore.Answer)) {
		if a, gone := s.Lock(k, q, done); gone == nil {
			done(a)
		}
	})
}

func (s *station) unlock(k musiccore.Key, r musiccore.LockRef) musiccore.Answer {
	s.t.Helper()
	return answered(s.t, func(done func(musiccore.Answer)) {
		if a, ok := s.Unlock(k, r, anna(), done); ok {
			done(a)
		}
	})
}

func (s *station) begin(k musiccore.Key, r musiccore.LockRef, kind musiccore.Kind) musiccore.Answer {
	s.t.Helper()
	return answered(s.t, func(done func(musiccore.Answer)) {
		if a, ok := s.Begin(k, r, kind, done); ok {
			done(a)
		}
	})
}

// verdict ends an operation and waits for what may be told.
func (s *station) verdict(t musiccore.Ticket, o musiccore.Outcome) musiccore.Verdict {
	s.t.Helper()
	v, wait := s.End(t, o)
	if wait != nil {
		v = wait()
	}
	return v
}

// put does one operation, which Cassandra acknowledges.
func (s *station) put(k musiccore.Key, r musiccore.LockRef) musiccore.Stamp {
	s.t.Helper()
	a := s.begin(k, r, musiccore.Put)
	require.NoError(s.t, a.Err)
	require.Equal(s.t, musiccore.VerdictTell, s.verdict(a.Ticket, musiccore.OutcomeAcked))
	return a.Ticket.Stamp
}

// held takes a lock.
func (s *station) held(k musiccore.Key) musiccore.LockRef {
	s.t.Helper()
	a := s.lock(k, musiccore.Request{})
	require.NoError(s.t, a.Err)
	require.Equal(s.t, musiccore.StateHeld, a.Grant.State)
	return a.Grant.Ref
}

// queued takes a place behind the holder.
func (s *station) queued(k musiccore.Key) musiccore.LockRef {
	s.t.Helper()
	token := uuid.New()
	var ref musiccore.LockRef
	require.Eventually(s.t, func() bool { // asked for often enough, it is decided
		a := s.lock(k, musiccore.Request{Wait: time.Millisecond, Token: token})
		ref = a.Grant.Ref
		return a.Err == nil && a.Grant.State == musiccore.StateQueued && ref != 0
	}, 20*time.Second, time.Millisecond)
	return ref
}

// ended writes that a session has ended by itself.
func (s *station) ended() {
	s.life.self.Load().End()
	s.cluster.say(s.life.id(), musiccore.EndedBeat, s.address)
}
