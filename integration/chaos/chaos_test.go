// Package chaos runs applications and faults against three real nodes and three proxies in an
// emulated network, and checks what the applications saw: entry consistency under failures, for
// everything that was acknowledged.
package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	span    = flag.Duration("chaos.for", 30*time.Second, "how long faults strike")
	seed    = flag.Uint64("chaos.seed", 0, "which faults, in which order; 0: another each time")
	only    = flag.String("chaos.only", "", "the faults whose names match this expression")
	clients = flag.Int("chaos.clients", 12, "applications that use locks")
)

// TestNothingAcknowledgedIsLost has clients use few keys through any proxy while one fault follows the other.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("needs three nodes")
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-chaos.seed %d", *seed)
	w := build(t, near())
	sessions := w.table(t)
	w.staysAtHome(t, sessions[0])
	h := &history{began: time.Now()}
	ctx, end := context.WithTimeout(t.Context(), *span)
	defer end()
	var group sync.WaitGroup
	all := make([]*client, *clients)
	for i := range all {
		all[i] = &client{id: i + 1, history: h, keys: keys(), longest: 40, random: rand.New(rand.NewPCG(*seed, uint64(i))), sessions: sessions, at: i % sites}
		if i/sites%2 == 1 {
			all[i].keys, all[i].longest = briskKeys(), 3
		}
		group.Go(func() { all[i].run(ctx) })
	}
	struck := w.disturb(ctx, t)
	w.countLoans()
	group.Wait()
	w.readBack(t, &client{history: h, keys: append(keys(), briskKeys()...), random: rand.New(rand.NewPCG(*seed, 1<<41)), sessions: sessions})
	grants := 0
	for _, c := range all {
		grants += c.grants
	}
	t.Logf("%d grants, %d operations acknowledged, %d refused, %d of unknown outcome; faults that struck: %v; loans that each proxy took, at least: %v",
		grants, h.count(done), h.count(refused), h.count(unknown), struck, w.loans)
	for _, fault := range h.check() {
		assert.Fail(t, "a fault", "%v", fault)
	}
	assert.GreaterOrEqual(t, h.count(done), 10, "hardly anything was done: nothing was shown")
}

// keys returns a few keys, so that clients contend for them.
func keys() []string { return []string{"a", "b", "c"} }

// briskKeys returns the keys whose sections are all short: their references are handed out in memory, and
// clients of other proxies wait there (docs/protocol.md 3.21).
func briskKeys() []string { return []string{"d"} }

// disturb causes faults until ctx ends, and returns how often each had an effect.
func (w *world) disturb(ctx context.Context, t *testing.T) map[string]int {
	t.Helper()
	random := rand.New(rand.NewPCG(*seed, 1<<40))
	struck := map[string]int{}
	chosen, err := regexp.Compile(*only)
	must(t, err)
	all := slices.DeleteFunc(faults(), func(f fault) bool { return !chosen.MatchString(f.name) })
	require.NotEmpty(t, all, "no fault matches %s", *only)
	for rest(ctx, 2*time.Second); ctx.Err() == nil; rest(ctx, time.Second) {
		w.countLoans()
		f, site, span := draw(random, all)
		n, err := f.strike(ctx, w, site, span)
		assert.True(t, err == nil || ctx.Err() != nil, "%s at site %d: %v", f.name, site, err)
		struck[f.name] += n
	}
	return struck
}

// readBack adds to the history what a last holder reads of every key after all faults have ended.
func (w *world) readBack(t *testing.T, last *client) {
	t.Helper()
	must(t, w.nodes.Wait(t.Context()))
	for _, key := range last.keys {
		must(t, eventually(t.Context(), time.Minute, func(ctx context.Context) error {
			ref := last.lock(ctx, key)
			if ref == 0 {
				return fmt.Errorf("key %s cannot be locked", key)
			}
			o := op{key: key, ref: ref}
			err := last.operate(ctx, &o)
			last.history.add(o)
			return err
		}))
	}
}

// table makes the critical table, and opens a session with each proxy.
func (w *world) table(t *testing.T) (all [sites]*gocql.Session) {
	t.Helper()
	for i, p := range w.proxies {
		s, err := session(p.host(), patience)
		must(t, err)
		t.Cleanup(s.Close)
		all[i] = s
	}
	for _, cql := range []string{
		"CREATE KEYSPACE chaos WITH replication = " + w.plan.replication(),
		"CREATE TABLE chaos.t (k text PRIMARY KEY, v int) WITH comment = '@critical'",
	} {
		must(t, all[0].Query(cql).Exec())
	}
	return all
}
