package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// The size of the bank, and the pace of the demo.
const (
	tellerCount  = 4                      // of either kind
	rounds       = 10                     // of every teller in a rush
	startBalance = 1000                   // of every account
	livePoll     = 150 * time.Millisecond // between two looks at a rush
	queryTimeout = 15 * time.Second       // longer than any of Cassandra's own limits, so that it is Cassandra that answers
)

// The statements of the auditors and of the story itself.
const (
	audit    = "SELECT SUM(balance) FROM bank.accounts WHERE branch = ?"
	readAll  = "SELECT id, balance FROM bank.accounts WHERE branch = ?"
	setOne   = "INSERT INTO bank.accounts (branch, id, balance) VALUES (?, ?, ?)"
	findBank = "SELECT id FROM system_schema.tables WHERE keyspace_name = 'bank' AND table_name = 'accounts'"
)

// errUnexpected says that a step did not show what it should.
var errUnexpected = errors.New("the story went wrong")

// expected is what a step should have shown, and what it showed.
func expected(what string, got any) error {
	return fmt.Errorf("%w: expected %s; got: %v", errUnexpected, what, got)
}

// accounts returns the ids of the branch's accounts.
func accounts() []string { return []string{"anna", "ben", "carla", "dan"} }

// bank is the players: tellers that work directly on Cassandra, tellers that work through the
// proxy, and an auditor at each. The caller of open calls close.
type bank struct {
	options options
	stage   *stage // nil where there is one proxy, which nobody may kill
	screen  *screen
	node    line
	proxy   line
	direct  []*teller // straight on Cassandra
	tellers []*teller // through the proxy

	total int64 // that the audit must find
	late  late  // of the teller that is paused
}

// late is a write that its teller did not send in time.
type late struct {
	move move
	will balances // what the teller has in mind
	term lockRow  // under which it was to be written
}

// lockRow is a branch's lock row in Cassandra.
type lockRow struct {
	guard, head, base int64
	dirty             bool
}

// open gives every player a session of its own.
func open(o options, s *screen) (*bank, error) {
	b := &bank{options: o, screen: s, total: startBalance * int64(len(accounts()))}
	node := line{prompt: "node>", look: yellow, screen: s}
	proxy := line{prompt: "proxy>", look: cyan, screen: s}
	var err error
	connect := func(l line, addr string) line {
		if err == nil {
			l.session, err = newSession(addr, alone)
		}
		return l
	}
	nodeAddr := net.JoinHostPort(o.node, "9042")
	proxyAddr := o.listenAt(o.count()) // of several one that is not killed, and the same for all: a living proxy alone knows that its holder died
	b.node, b.proxy = connect(node, nodeAddr), connect(proxy, proxyAddr)
	for n := 1; n <= tellerCount; n++ {
		b.direct = append(b.direct, &teller{line: connect(node, nodeAddr), number: n})
		b.tellers = append(b.tellers, &teller{line: connect(proxy, proxyAddr), number: n})
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// alone has a driver stay with the one address that it is given.
func alone(c *gocql.ClusterConfig) {
	c.DisableInitialHostLookup = true
	c.Events.DisableTopologyEvents, c.Events.DisableNodeStatusEvents = true, true
}

// newSession returns the driver's session with its defaults, except that its log is left out.
func newSession(addr string, change ...func(*gocql.ClusterConfig)) (*gocql.Session, error) {
	cluster := gocql.NewCluster(addr)
	for _, c := range change {
		c(cluster)
	}
	cluster.NumConns = 1
	cluster.Timeout = queryTimeout
	cluster.Logger = gocql.NewLogger(gocql.LogLevelNone)
	session, err := cluster.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return session, nil
}

// close ends all sessions.
func (b *bank) close() {
	lines := []line{b.node, b.proxy}
	for _, t := range slices.Concat(b.direct, b.tellers) {
		lines = append(lines, t.line)
	}
	for _, l := range lines {
		if l.session != nil {
			l.session.Close()
		}
	}
}

// put sends a statement that answers nothing.
func (l *line) put(ctx context.Context, cql string, args ...any) error {
	if err := l.query(cql, args...).ExecContext(ctx); err != nil {
		return fmt.Errorf("%s: %w", shown(cql, args), err)
	}
	return nil
}

// get reads one value.
func (l *line) get(ctx context.Context, into *int64, cql string, args ...any) error {
	if err := l.query(cql, args...).ScanContext(ctx, into); err != nil {
		return fmt.Errorf("%s: %w", shown(cql, args), err)
	}
	l.answer(dim, "%d", *into)
	return nil
}

// getAll reads accounts.
func (l *line) getAll(ctx context.Context, cql string, args ...any) (balances, error) {
	found := balances{}
	id, balance := "", int64(0)
	iter := l.query(cql, args...).IterContext(ctx)
	for iter.Scan(&id, &balance) {
		found[id] = balance
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("%s: %w", shown(cql, args), err)
	}
	l.answer(dim, "%s", found)
	return found, nil
}

// String lists the balances by account.
func (b balances) String() string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(b)) {
		parts = append(parts, fmt.Sprintf("%s %d", id, b[id]))
	}
	return strings.Join(parts, ", ")
}

// putRight gives every account what it started with.
func (b *bank) putRight(ctx context.Context) error {
	for _, id := range accounts() {
		if err := b.node.put(ctx, setOne, branch, id, int64(startBalance)); err != nil {
			return err
		}
	}
	return nil
}

// chore is what a teller does in a rush: transfer or transferUnderLock.
type chore func(*teller, context.Context, move) error

// rush has all tellers work at once, silently. Each moves money round in amounts of its own, so
// that losses hardly ever even out.
func (b *bank) rush(ctx context.Context, tellers []*teller, do chore) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	var done atomic.Int64
	for _, t := range tellers {
		running.Go(func() {
			if err := t.work(ctx, do, &done); err != nil {
				cancel(err)
			}
		})
	}
	finished := make(chan struct{})
	go func() { running.Wait(); close(finished) }()
	b.follow(ctx, &done, finished)
	return context.Cause(ctx)
}

// work does the rounds of one teller.
func (t *teller) work(ctx context.Context, do chore, done *atomic.Int64) error {
	silent := *t
	silent.screen = nil
	ids := accounts()
	for round := range rounds {
		at := t.number + round
		m := move{from: ids[at%len(ids)], to: ids[(at+1)%len(ids)], amount: int64(17 + 20*t.number)}
		if err := do(&silent, ctx, m); err != nil {
			return fmt.Errorf("teller %d: %w", t.number, err)
		}
		done.Add(1)
	}
	return nil
}

// follow shows the progress of a rush, and what an audit finds in the middle of it.
func (b *bank) follow(ctx context.Context, done *atomic.Int64, finished <-chan struct{}) {
	tick := time.NewTicker(livePoll)
	defer tick.Stop()
	quiet := b.node
	quiet.screen = nil
	for {
		select {
		case <-finished:
			return
		case <-tick.C:
		}
		if sum := int64(0); quiet.get(ctx, &sum, audit, branch) == nil {
			b.screen.change("%d of %d transfers done; the audit finds %d of %d", done.Load(), tellerCount*rounds, sum, b.total)
		}
	}
}

// lockRow reads the branch's lock row directly at the node, at SERIAL.
func (b *bank) lockRow(ctx context.Context, l line) (r lockRow, err error) {
	var id gocql.UUID
	if err := b.node.session.Query(findBank).ScanContext(ctx, &id); err != nil {
		return r, fmt.Errorf("find the id of bank.accounts: %w", err)
	}
	cql := "SELECT guard, head, base, dirty FROM bank.music_lock_" + hex.EncodeToString(id[:]) + " WHERE k1 = ?"
	err = l.query(cql, branch).Consistency(gocql.Serial).ScanContext(ctx, &r.guard, &r.head, &r.base, &r.dirty)
	if err != nil {
		return r, fmt.Errorf("%s: %w", shown(cql, []any{branch}), err)
	}
	l.answer(dim, "guard %d, head %d, base %d, dirty %v", r.guard, r.head, r.base, r.dirty)
	return r, nil
}
