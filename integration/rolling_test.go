package integration

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// threePrograms starts a program in front of each of three nodes, this tree's if program is empty.
// Each knows the others and asks them about their locks.
func threePrograms(t *testing.T, program string) [3]*process {
	t.Helper()
	forgetProxies(t)
	secret := peerSecret(t)
	var all [3]*process
	for k, node := range threeNodes(t).Nodes() {
		all[k] = newProcess(t, node.Addr(), proxyAddresses()[k],
			"--expect-proxies", "3", "--peer-listen", peerListen(t), "--peer-secret-file", secret, "--log-level", "debug")
		all[k].program, all[k].limit = program, startLimit
		all[k].begin(t)
	}
	for _, p := range all {
		p.listens(t)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("log of the proxy at %s:\n%s", p.address, p.log)
			}
		})
	}
	return all
}

// pinned returns a session that uses one proxy and no other.
func pinned(t testing.TB, address string) *gocql2 {
	t.Helper()
	c := cluster2(address, "")
	c.HostFilter = gocql.WhiteListHostFilter(hostOf(t, address))
	return openGocql2(t, c)
}

// rollingFixture is a table at three proxies that are restarted one after the other.
type rollingFixture struct {
	*tableFixture
	programs [3]*process
	sections atomic.Int64  // that the clients have ended
	patience time.Duration // of a client, with one statement; 0 = a minute
	tellers  []*rollingClient
}

// rollingClient raises balances by one, a section each, at any proxy that its driver chooses.
type rollingClient struct {
	*rollingFixture
	client client
	raised map[string]int
	took   []time.Duration // of each section
}

// newRollingFixture makes the table, of three replicas, at three proxies of a program.
func newRollingFixture(t *testing.T, keyspace, program string) *rollingFixture {
	t.Helper()
	r := &rollingFixture{programs: threePrograms(t, program)}
	r.tableFixture = &tableFixture{t: t, driver: withGocql2(4, ""), address: r.programs[0].address, keyspace: keyspace}
	r.direct = openGocql2(t, cluster2(threeNodes(t).Nodes()[0].Addr(), "")).session
	execOnNodes(t, "DROP KEYSPACE IF EXISTS "+keyspace)
	execOnNodes(t, "CREATE KEYSPACE "+keyspace+" WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}")
	r.client = pinned(t, r.address)
	r.works(r.client, "CREATE TABLE ACCOUNTS (branch text, id text, balance bigint, PRIMARY KEY (branch, id)) WITH comment = '@critical'")
	for k, p := range r.programs { // each has yet to see that there are lock rows, if not to follow: nodes agree late at times
		c := pinned(t, p.address)
		eventually(t, time.Minute, "the table can be locked", func() error {
			return r.do(c, fmt.Sprintf("LOCK ACCOUNTS WHERE branch = 'ready%d'", k)).err()
		})
		c.close()
	}
	return r
}

// newClient makes a client whose driver begins at a proxy, and hears of the others there.
func (r *rollingFixture) newClient(at int) *rollingClient {
	r.t.Helper()
	c := cluster2(r.programs[at].address, "")
	c.ReconnectInterval = time.Second
	return &rollingClient{rollingFixture: r, client: openGocql2(r.t, c), raised: map[string]int{}}
}

// say runs a statement until it is executed, as an application does: it repeats it if nothing was
// done and, with doubt, if the outcome is unknown, which is allowed for statements that may be
// executed twice. Any other error is a fault.
func (w *rollingClient) say(format string, args ...any) (o outcome, doubt bool, err error) {
	cql := fmt.Sprintf(format, args...)
	err = poll(cmp.Or(w.patience, time.Minute), func() error {
		o = w.do(w.client, cql)
		if f := o.failure; f != nil && f.code == gocql.ErrCodeInvalid && !isAway(f) {
			return fatal{fmt.Errorf("%s: %w", cql, o.err())}
		}
		doubt = doubt || o.failure != nil && !isAway(o.failure)
		return o.err()
	})
	return o, doubt, err
}

// lock waits for the lock of a branch, perhaps at several proxies.
func (w *rollingClient) lock(branch string) (ref string, err error) {
	how := "TOKEN " + gocql.MustRandomUUID().String()
	err = poll(cmp.Or(w.patience, time.Minute), func() error {
		o, _, err := w.say("LOCK ACCOUNTS WHERE branch = '%s' %s WAIT 1s", branch, how)
		ref = told(o, "lock_ref")
		switch state := told(o, "state"); {
		case err != nil:
			return fatal{err}
		case state == "held":
			return nil
		case state != "queued":
			return fatal{errorf("LOCK of %s %s: %v", branch, how, o)}
		case ref != "0" && ref != "null":
			how = "USING LOCK " + ref
		}
		return errorf("LOCK of %s: %v", branch, o)
	})
	return ref, err
}

// section raises the balance of a branch by one.
func (w *rollingClient) section(branch string) error {
	begun := time.Now()
	ref, err := w.lock(branch)
	if err != nil {
		return err
	}
	o, _, err := w.say("SELECT balance FROM ACCOUNTS WHERE branch = '%s' AND id = 'x' USING LOCK %s", branch, ref)
	if err != nil {
		return err
	}
	balance, _ := strconv.Atoi(told(o, "balance")) // 0 if there is no row
	if _, _, err = w.say("UPDATE ACCOUNTS USING LOCK %s SET balance = %d WHERE branch = '%s' AND id = 'x'", ref, balance+1, branch); err != nil {
		return err
	}
	w.raised[branch]++
	o, doubt, err := w.say("UNLOCK ACCOUNTS WHERE branch = '%s' USING LOCK %s", branch, ref)
	if state := told(o, "state"); err == nil && state != "released" && !doubt {
		err = errorf("UNLOCK of %s USING LOCK %s: %v", branch, ref, o)
	}
	w.sections.Add(1)
	w.took = append(w.took, time.Since(begun))
	return err
}

// run does sections until ctx ends.
func (w *rollingClient) run(ctx context.Context, branches []string) error {
	for i := 0; ctx.Err() == nil; i++ {
		if err := w.section(branches[i%len(branches)]); err != nil {
			return err
		}
	}
	return nil
}

// isAway reports whether a proxy says that it cannot serve now and has done nothing.
func isAway(f *failure) bool { return strings.HasPrefix(f.text, "MUSIC_UNAVAILABLE: ") }

// restart ends a proxy by SIGTERM and starts it again. Its locks can be used at another one at
// once, and its waiters keep their places.
func (r *rollingFixture) restart(k int) {
	t, p := r.t, r.programs[k]
	here, there := pinned(t, p.address), pinned(t, r.programs[(k+1)%len(r.programs)].address)
	branch := fmt.Sprint("held", k)
	lock := fmt.Sprintf("LOCK ACCOUNTS WHERE branch = '%s'", branch)
	write := "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = '" + branch + "' AND id = 'x'"
	held := r.grant(r.works(here, lock), "HELD")
	r.works(here, fmt.Sprintf(write, held, 1))
	queued := r.queued(here, lock)

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, 0, p.status(t), "%s", p.log)
	before := r.sections.Load()
	r.works(there, fmt.Sprintf(write, held, 2)) // the first statement already
	r.inWindow(branch, "x", held, 2)
	r.grant(r.works(there, fmt.Sprintf(lock+" USING LOCK %d WAIT 50ms", queued)), "QUEUED")
	r.grant(r.works(there, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = '%s' USING LOCK %d", branch, held)), "RELEASED")
	require.NoError(t, r.turn(there, branch, queued, func() {}))
	r.goesOn(before, "without the proxy")

	p.begin(t)
	p.listens(t)
	r.goesOn(r.sections.Load(), "with the proxy")
	here.close()
	there.close()
}

// queued enqueues a client, and returns its reference.
func (r *rollingFixture) queued(c client, lock string) (ref int64) {
	r.t.Helper()
	token := gocql.MustRandomUUID()
	eventually(r.t, 20*time.Second, "a place in the queue", func() error {
		o := r.works(c, fmt.Sprintf("%s WAIT 50ms TOKEN %s", lock, token))
		if ref = r.grant(o, "QUEUED"); ref == 0 {
			return errorf("%v", o)
		}
		return nil
	})
	return ref
}

// goesOn waits until some more sections have ended.
func (r *rollingFixture) goesOn(before int64, how string) {
	r.t.Helper()
	eventually(r.t, 30*time.Second, "sections go on "+how, func() error {
		if n := r.sections.Load(); n < before+5 {
			return errorf("%d sections, after %d", n, before)
		}
		return nil
	})
}

// rollingBranches are the keys that all clients lock.
var rollingBranches = []string{"a", "b", "c"}

// tell has clients do sections until the returned function is called, which happens at the end of
// the test at the latest.
func (r *rollingFixture) tell(clients int) (end func()) {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	r.tellers = make([]*rollingClient, clients)
	var group taskGroup
	for i := range r.tellers {
		r.tellers[i] = r.newClient(i % 3)
		group.Go(func() error { return r.tellers[i].run(ctx, rollingBranches[i%3:]) })
	}
	var ended sync.Once
	end = func() { ended.Do(func() { stop(); assert.NoError(r.t, group.Wait()) }) }
	r.t.Cleanup(end)
	r.goesOn(0, "before")
	return end
}

// noneLost checks that each section of the clients, which have ended, has changed its balance, and
// logs how long sections took.
func (r *rollingFixture) noneLost() {
	r.t.Helper()
	last := r.newClient(0)
	for _, branch := range rollingBranches {
		ref, err := last.lock(branch)
		require.NoError(r.t, err)
		want := 0
		for _, w := range r.tellers {
			want += w.raised[branch]
		}
		o := r.works(last.client, fmt.Sprintf("SELECT balance FROM ACCOUNTS WHERE branch = '%s' AND id = 'x' USING LOCK %s", branch, ref))
		assert.Equal(r.t, strconv.Itoa(want), told(o, "balance"), "sections on %s", branch)
	}
	var took []time.Duration
	for _, w := range r.tellers {
		took = append(took, w.took...)
	}
	slices.Sort(took)
	at := func(part float64) time.Duration { return took[int(part*float64(len(took)-1))].Round(time.Millisecond) }
	r.t.Logf("%d sections, none lost; of %d clients for %d keys one took p50 %v, p99 %v, at most %v",
		len(took), len(r.tellers), len(rollingBranches), at(0.5), at(0.99), at(1))
}

// All proxies are restarted, one after the other, while clients use them: no section is lost, and
// every client is served.
func TestRollingRestartLosesNoSection(t *testing.T) {
	r := newRollingFixture(t, "rolling", "")
	end := r.tell(6)
	for k := range r.programs {
		r.restart(k)
	}
	end()
	r.noneLost()
	r.howLong()
}

// howLong logs how long music check of three nodes takes, and the exit of a proxy without open work.
func (r *rollingFixture) howLong() {
	r.t.Helper()
	path, err := needEnvironment(r.t).binary()
	require.NoError(r.t, err)
	begun := time.Now()
	seen := finish(r.t, exec.Command(path, "check", "--proxy", r.programs[0].address))
	r.t.Logf("music check took %v and ended with status %d", time.Since(begun).Round(time.Millisecond), seen.status)
	assert.Contains(r.t, seen.out, "releases")
	begun = time.Now()
	require.NoError(r.t, r.programs[2].cmd.Process.Signal(syscall.SIGTERM))
	assert.Equal(r.t, 0, r.programs[2].status(r.t))
	r.t.Logf("a proxy without open work ended within %v", time.Since(begun).Round(time.Millisecond))
}
