package chaos

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/wan"
)

var (
	contendFor     = flag.Duration("contend.for", 0, "measure one key that three sites want, each way for so long; 0: do not")
	contendOnly    = flag.String("contend.only", "", "measure the ways whose name matches this expression only")
	contendClients = flag.String("contend.clients", "1,3", "clients at each site, one measurement for each number")
)

// far is three sites like those of the paper (§VIII-a), with round trips of a quarter of a
// continent to a whole one.
func far() plan {
	return plan{lease: 10 * time.Second, maxWait: 6 * time.Second, links: []wan.Link{
		{A: 1, B: 2, RTT: 54 * time.Millisecond}, {A: 1, B: 3, RTT: 72 * time.Millisecond}, {A: 2, B: 3, RTT: 24 * time.Millisecond},
	}}
}

// section is a completed section: its site, its reference, and when it was requested, entered and
// left.
type section struct {
	site                 int
	ref                  int64
	asked, entered, left time.Duration
}

// contender is a client at a site that enters sections of a key repeatedly.
type contender struct {
	site     int
	session  *gocql.Session
	began    time.Time
	tries    int
	sections []section
	unknown  int // unknown outcomes
	refused  int // conditions that did not hold, or operations that were refused
}

// contest is a way to write under exclusion, or one to compare it with.
type contest struct {
	name   string
	port   int // address of a site that clients connect to: theNode or theProxy
	one    func(ctx context.Context, c *contender, key string) error
	create string
	keys   int // that a client has for itself; 0: all clients use the same one
	site   int // that all clients are at; 0: as many are at each
}

const (
	theNode  = 1
	theProxy = 2
)

// beside returns three sites of one data centre.
func beside() plan {
	const rtt = time.Millisecond
	return plan{oneDC: true, lease: 10 * time.Second, links: []wan.Link{{A: 1, B: 2, RTT: rtt}, {A: 1, B: 3, RTT: rtt}, {A: 2, B: 3, RTT: rtt}}}
}

// contests returns the ways to write one key that other clients write, too.
func contests() []contest {
	return chosen([]contest{
		{name: "lock, put, unlock through the site's proxy", port: theProxy, one: onePut},
		{name: "lock, get, put, unlock through the site's proxy", port: theProxy, one: func(ctx context.Context, c *contender, key string) error {
			return c.section(ctx, key, c.raise)
		}},
		{
			name: "UPDATE … IF on the site's node, after a SERIAL read", port: theNode, one: raceOnce,
			create: "INSERT INTO contend.plain (k, v) VALUES ('%s', 0)",
		},
		{name: "UPDATE … IF EXISTS on the site's node", port: theNode, one: writeIf("plain", "IF EXISTS"), create: "INSERT INTO contend.plain (k, v) VALUES ('%s', 0)"},
		{name: "UPDATE … IF EXISTS with unlocked=auto", port: theProxy, one: writeIf("auto", "IF EXISTS"), create: "INSERT INTO contend.auto (k, v) VALUES ('%s', 0)"},
	})
}

// chosen returns the ways that are to be measured.
func chosen(all []contest) []contest {
	only := regexp.MustCompile(*contendOnly)
	return slices.DeleteFunc(all, func(way contest) bool { return !only.MatchString(way.name) })
}

// alone returns the ways to write keys that no other client uses. A key that is one of many is used
// again only after its proxy has released it.
func alone() []contest {
	const always, many, each = 1, 10, 1 << 30
	return chosen([]contest{
		{name: "QUORUM write through the site's proxy", port: theProxy, one: plainOnce, keys: always},
		{name: "lock, put, unlock, a key that stays", port: theProxy, one: onePut, keys: always},
		{name: "lock, put, unlock, a key of before", port: theProxy, one: onePut, keys: many},
		{name: "lock, put, unlock, a new key", port: theProxy, one: onePut, keys: each},
		{name: "INSERT … IF NOT EXISTS on the site's node, a new key", port: theNode, one: ifAbsent("plain"), keys: each},
		{name: "INSERT … IF NOT EXISTS with unlocked=auto, a new key", port: theProxy, one: ifAbsent("auto"), keys: each},
		{name: "UPDATE … IF on the site's node, a key that stays", port: theNode, one: writeIf("plain", "IF v != -1"), keys: always},
		{name: "UPDATE … IF with unlocked=auto, a key that stays", port: theProxy, one: writeIf("auto", "IF v != -1"), keys: always},
	})
}

// TestContendedKey measures how many sections per second clients at three sites do on one key, and
// how they are distributed. It asserts nothing about time: `make contend` prints it.
func TestContendedKey(t *testing.T) {
	if *contendFor == 0 {
		t.Skip("a measurement: see make contend")
	}
	w := build(t, far())
	session := w.contendable(t)
	defer session.Close()
	for i, way := range contests() {
		w.contend(t, session, way, fmt.Sprint("warm", i), 3, warming)
	}
	for number := range strings.SplitSeq(*contendClients, ",") {
		clients := 0
		_, err := fmt.Sscan(number, &clients)
		must(t, err)
		for i, way := range contests() {
			told := w.contend(t, session, way, fmt.Sprintf("key%d%s", i, number), clients, *contendFor)
			t.Logf("%d clients at each site, %s:\n%s", clients, way.name, told)
		}
	}
}

// TestContendedKeyInOneDataCentre measures the same for three proxies that are near to each other,
// beside one proxy that has the clients of all three.
func TestContendedKeyInOneDataCentre(t *testing.T) {
	if *contendFor == 0 {
		t.Skip("a measurement: see make contend")
	}
	const clients = 16
	w := build(t, beside())
	session := w.contendable(t)
	defer session.Close()
	ways := append(contests(), contest{name: "lock, put, unlock through one proxy", port: theProxy, one: onePut, site: 1})
	for i, way := range ways {
		w.contend(t, session, way, fmt.Sprint("warm", i), clients, warming)
		t.Logf("%d clients for each proxy, %s:\n%s", clients, way.name, w.contend(t, session, way, fmt.Sprint("near", i), clients, *contendFor))
	}
}

// warming is for how long each way runs before it is measured, for Java's compiler.
const warming = 5 * time.Second

// TestUncontendedSections measures how long a section takes at each of three sites whose keys no
// other client uses: the sums of docs/design.md 9 are those of the medians. It asserts nothing
// about time: `make contend` prints it.
func TestUncontendedSections(t *testing.T) {
	if *contendFor == 0 {
		t.Skip("a measurement: see make contend")
	}
	w := build(t, far())
	session := w.contendable(t)
	defer session.Close()
	for i, way := range alone() {
		w.contend(t, session, way, fmt.Sprint("warm", i), 1, warming)
		t.Logf("%s:\n%s", way.name, w.contend(t, session, way, fmt.Sprint("alone", i), 1, *contendFor))
	}
}

// contendable makes the tables, one critical and one not, and returns the session that made them.
func (w *world) contendable(t *testing.T) *gocql.Session {
	t.Helper()
	session, err := session(w.proxies[0].host(), patience)
	must(t, err)
	for _, cql := range []string{
		"CREATE KEYSPACE contend WITH replication = " + w.plan.replication(),
		"CREATE TABLE contend.plain (k text PRIMARY KEY, v int) WITH speculative_retry = 'ALWAYS'",
		"CREATE TABLE contend.auto (k text PRIMARY KEY, v int) WITH comment = '@critical(unlocked=auto)' AND speculative_retry = 'ALWAYS'",
		"CREATE TABLE contend.t (k text PRIMARY KEY, v int) WITH comment = '@critical' AND speculative_retry = 'ALWAYS'",
	} {
		must(t, session.Query(cql).Exec())
	}
	return session
}

// contend has clients at all sites use one key, or each its own, and logs the result.
func (w *world) contend(t *testing.T, s *gocql.Session, way contest, key string, clients int, span time.Duration) string {
	t.Helper()
	if way.create != "" {
		must(t, s.Query(fmt.Sprintf(way.create, key)).Exec())
	}
	var all []*contender
	for i := range sites * clients {
		c := &contender{site: cmp.Or(way.site, 1+i%sites)}
		var err error
		c.session, err = w.sessionInside(c.site, way.port)
		must(t, err)
		defer c.session.Close()
		all = append(all, c)
	}
	ctx, end := context.WithTimeout(t.Context(), span)
	defer end()
	began := time.Now()
	var group sync.WaitGroup
	for _, c := range all {
		c.began = began
		group.Go(func() {
			for ctx.Err() == nil {
				if err := way.one(ctx, c, way.key(c, key)); err != nil && ctx.Err() == nil {
					c.fault(err)
				}
			}
		})
	}
	group.Wait()
	return summary(way, all, time.Since(began))
}

// key returns the key of a client's next section.
func (o contest) key(c *contender, name string) string {
	if o.keys == 0 {
		return name
	}
	c.tries++
	return fmt.Sprintf("%s/%d/%d", name, c.site, c.tries%o.keys)
}

// sessionInside opens a session from inside a site with its node or proxy, and no other.
func (w *world) sessionInside(site, n int) (*gocql.Session, error) {
	c := cluster(w.network.Address(site, n), patience)
	c.NumConns = 1
	c.Dialer = w.network.Dialer(site)
	return c.CreateSession()
}

// fault counts errors.
func (c *contender) fault(err error) {
	if x, _ := judged(err); x == refused {
		c.refused++
	} else {
		c.unknown++
	}
}

// section does something under the lock.
func (c *contender) section(ctx context.Context, key string, what func(ctx context.Context, key string, ref int64) error) error {
	s := section{site: c.site, asked: time.Since(c.began)}
	// A client that expects to queue says how long its driver can wait: then it needs no reference
	// before its turn, and the waiters of a proxy share a block.
	for how := "WAIT 5s"; s.entered == 0; {
		row := map[string]any{}
		if err := c.session.Query(fmt.Sprintf("LOCK contend.t WHERE k = '%s' %s", key, how)).MapScanContext(ctx, row); err != nil {
			return err
		}
		s.ref, _ = row["lock_ref"].(int64)
		switch {
		case row["state"] == "HELD":
			s.entered = time.Since(c.began)
		case row["state"] != "QUEUED":
			return fmt.Errorf("%w: %v", errLost, row)
		case s.ref != 0:
			how = fmt.Sprint("WAIT 5s USING LOCK ", s.ref)
		}
	}
	if err := what(ctx, key, s.ref); err != nil {
		return err
	}
	s.left = time.Since(c.began)
	c.sections = append(c.sections, s)
	return c.session.Query(fmt.Sprintf("UNLOCK contend.t WHERE k = '%s' USING LOCK %d", key, s.ref)).ExecContext(ctx)
}

// onePut is a section of one put.
func onePut(ctx context.Context, c *contender, key string) error { return c.section(ctx, key, c.put) }

// once does a single statement, timed like a section.
func (c *contender) once(ctx context.Context, q *gocql.Query) error {
	s := section{site: c.site, asked: time.Since(c.began)}
	if err := q.ExecContext(ctx); err != nil {
		return err
	}
	s.left = time.Since(c.began)
	c.sections = append(c.sections, s)
	return nil
}

// plainOnce writes without a lock.
func plainOnce(ctx context.Context, c *contender, key string) error {
	return c.once(ctx, c.session.Query("UPDATE contend.plain SET v = 1 WHERE k = ?", key))
}

// ifAbsent writes the row of a key that has none.
func ifAbsent(table string) func(context.Context, *contender, string) error {
	return func(ctx context.Context, c *contender, key string) error {
		q := c.session.Query("INSERT INTO contend."+table+" (v, k) VALUES (?, ?) IF NOT EXISTS", len(c.sections), key)
		return c.once(ctx, q.SerialConsistency(gocql.Serial))
	}
}

// writeIf writes under a condition, which is to hold.
func writeIf(table, condition string) func(context.Context, *contender, string) error {
	return func(ctx context.Context, c *contender, key string) error {
		q := c.session.Query("UPDATE contend."+table+" SET v = ? WHERE k = ? "+condition, len(c.sections), key)
		return c.once(ctx, q.SerialConsistency(gocql.Serial))
	}
}

// put writes a value; raise reads the value and writes it raised by one.
func (c *contender) put(ctx context.Context, key string, ref int64) error {
	return c.session.Query(fmt.Sprintf("UPDATE contend.t USING LOCK %d SET v = %d WHERE k = '%s'", ref, len(c.sections), key)).ExecContext(ctx)
}

func (c *contender) raise(ctx context.Context, key string, ref int64) error {
	v := 0
	err := c.session.Query(fmt.Sprintf("SELECT v FROM contend.t WHERE k = '%s' USING LOCK %d", key, ref)).ScanContext(ctx, &v)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return err
	}
	return c.session.Query(fmt.Sprintf("UPDATE contend.t USING LOCK %d SET v = %d WHERE k = '%s'", ref, v+1, key)).ExecContext(ctx)
}

// errLost says that a reference was lost while it waited.
var errLost = errors.New("not granted")

// raceOnce raises the number by a lightweight transaction, which succeeds if no other client was
// faster.
func raceOnce(ctx context.Context, c *contender, key string) error {
	s := section{site: c.site, asked: time.Since(c.began)}
	v := 0
	read := c.session.Query("SELECT v FROM contend.plain WHERE k = ?", key).Consistency(gocql.Serial)
	if err := read.ScanContext(ctx, &v); err != nil {
		return err
	}
	s.entered = time.Since(c.began)
	applied, err := c.session.Query("UPDATE contend.plain SET v = ? WHERE k = ? IF v = ?", v+1, key, v).
		SerialConsistency(gocql.Serial).MapScanCASContext(ctx, map[string]any{})
	if err == nil && applied {
		s.left = time.Since(c.began)
		c.sections = append(c.sections, s)
	} else if err == nil {
		c.refused++
	}
	return err
}

// summary returns the result as text.
func summary(way contest, all []*contender, took time.Duration) string {
	var done []section
	unknown, refused := 0, 0
	for _, c := range all {
		done = append(done, c.sections...)
		unknown, refused = unknown+c.unknown, refused+c.refused
	}
	var b strings.Builder
	rate := func(n int) float64 { return float64(n) / took.Seconds() }
	fmt.Fprintf(&b, "  %.1f a second over all sites; %d answers told nothing, %d refused", rate(len(done)), unknown, refused)
	sum := time.Duration(0)
	for site := 1; site <= sites; site++ {
		var waits []time.Duration
		for _, s := range done {
			if s.site == site {
				waits = append(waits, s.left-s.asked)
			}
		}
		slices.Sort(waits)
		sum += at(waits, 0.5)
		fmt.Fprintf(&b, "\n  site %d: %.1f a second, asked to done %v (median), %v (longest)", site, rate(len(waits)), at(waits, 0.5), at(waits, 1))
	}
	fmt.Fprintf(&b, "\n  the sum of the sites' medians: %v", sum)
	if n := inversions(done); way.keys == 0 && done != nil && done[0].ref != 0 {
		fmt.Fprintf(&b, "\n  entered out of the order of their references: %d of %d", n, len(done))
	}
	return b.String()
}

// at returns a quantile of sorted durations.
func at(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(time.Millisecond)
}

// inversions counts the sections that were entered after one of a later reference.
func inversions(done []section) (n int) {
	slices.SortFunc(done, func(a, b section) int { return int(a.entered - b.entered) })
	last := int64(0)
	for _, s := range done {
		if s.ref < last {
			n++
		}
		last = max(last, s.ref)
	}
	return n
}
