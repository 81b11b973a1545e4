package main

import (
	"errors"
	"net"
	"os"
	"regexp"
	"testing"
	"time"

	"music/integration/cassandra"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMain runs the tests, or a role if the benchmark has started this program as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "role" {
		exit(beRole(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// started starts a server that runs until the test ends.
func started(t *testing.T, serve func(net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = serve(l) // ends with its listener
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

// Every work runs at every target, without an error among the answers.
func TestWorkIsDone(t *testing.T) {
	server := started(t, new(mock).serve)
	in := func(name string) target {
		return target{name: name, address: started(t, func(l net.Listener) error { return roles()[name](t.Context(), l, server) })}
	}
	plain := []target{{name: "direct", address: server}, in("relay"), in("proxy")}
	secure := []target{in("mock+TLS"), in("relay+TLS"), in("proxy+TLS")}
	for _, w := range forwarded() {
		w.clients = min(w.clients, 3)
		targets := plain
		if w.dialect.tls {
			targets = secure
		}
		c, err := compare(w.String(), w.at(targets), 1, 5*time.Millisecond)
		if err != nil {
			assert.NoError(t, err)
			continue
		}
		for _, m := range c.Targets {
			assert.NotZero(t, m.PerSecond.median(), "%s: %s did nothing", w, m.Target)
		}
	}
}

// The measurements on a real node work: the ways to write a key, keys of every size, the start of
// the proxy.
func TestLocksOnARealNode(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra; not with -short")
	}
	n, err := startNode(cassandra.Options{FastJIT: true})
	require.NoError(t, err)
	defer n.stop()
	var r report
	short := settings{rounds: 1, span: 20 * time.Millisecond, only: regexp.MustCompile("")}
	require.NoError(t, short.locksOn(n, &r))
	require.NoError(t, short.timesOn(n, &r))
	require.Len(t, r.Node, 4)
	for _, c := range r.Node {
		for _, m := range c.Targets {
			assert.NotZero(t, m.PerSecond.median(), "%s: %s did nothing", c.Work, m.Target)
		}
	}
	t.Log(r.markdown(&r))
	assert.NoError(t, r.plots(t.TempDir()+"/p"))
}

// The memory of many locks and of many waiters is measured, at a small scale.
func TestScale(t *testing.T) {
	var r report
	require.NoError(t, (settings{keys: 1000, waiters: 100_000}).scale(&r, nil))
	t.Log(r.Facts)
}

// A target is missed if one of the works misses it.
func TestVerdicts(t *testing.T) {
	work := func(name string, cpu float64) comparison {
		return comparison{Work: name, Targets: []measured{{Target: "relay", CPU: samples{1}}, {Target: "proxy", CPU: samples{cpu}}}}
	}
	write := func(share ...float64) comparison {
		return comparison{Targets: []measured{{Target: plainWrite, PerSecond: samples{10, 100, 50}}, {Target: put, PerSecond: share}}}
	}
	contested := func(perSecond float64) comparison {
		return comparison{Work: contests()[0].work(), Targets: []measured{{Target: bareLWT, PerSecond: samples{10}}, {Target: autoLWT, PerSecond: samples{perSecond}}}}
	}
	for _, c := range []struct {
		report report
		want   string
	}{
		{report{Comparisons: []comparison{work("v4 EXECUTE read, 4 x 64", 1.5), work("v5+lz4 EXECUTE write, 4 x 64", 2)}}, "≤ 2 | 1.50–2.00 | met |"},
		{report{Comparisons: []comparison{work("v4 EXECUTE read, 4 x 64", 1.5), work("v5+lz4 EXECUTE write, 4 x 64", 2.1)}}, "≤ 2 | 1.50–2.10 | missed |"},
		{report{Comparisons: []comparison{work("v5+TLS EXECUTE read, 4 x 64", 1)}}, "over TLS: CPU, proxy : TLS relay | ≤ 2 | 1.00 | met |"},
		{report{Node: []comparison{write(9.6, 99, 45)}}, "≥ 0.95 | 0.96 | met |"}, // by rounds 0.96, 0.99, 0.9
		{report{Node: []comparison{write(9.4, 99, 45)}}, "≥ 0.95 | 0.94 | missed |"},
		{report{Node: []comparison{contested(10)}}, "| write with IF and unlocked=auto, one key, 1 client: throughput of an LWT at the node | ≥ 1 | 1.00 | met |"},
		{report{Node: []comparison{contested(9)}}, "≥ 1 | 0.90 | missed |"},
		{report{Facts: []fact{{startName, samples{100, 301, 302}, "ms"}}}, "≤ 300 ms | 301 ms | missed |"},
	} {
		assert.Contains(t, c.report.verdicts(), c.want)
	}
}

// docs/performance.md has every target, row by row.
func TestPerformancePageHasEveryTarget(t *testing.T) {
	text, err := os.ReadFile("../../docs/performance.md")
	require.NoError(t, err)
	for _, g := range goals() {
		assert.Contains(t, string(text), g.row(), "docs/performance.md")
	}
}

// Of the three times of a collection in a trace, the first and the last are those for which
// everything stood still.
func TestStopsInATrace(t *testing.T) {
	path := t.TempDir() + "/trace"
	lines := "another line\n" +
		"gc 1 @0.030s 1%: 0.018+1.2+0.25 ms clock, 0.036+0.1/0.2/0.3+0.50 ms cpu, 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P\n" +
		"gc 2 @0.130s 1%: 1.5+3.0+0.004 ms clock, 3.0+0/0.2/0.3+0.008 ms cpu, 1->1->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P (forced)\n"
	require.NoError(t, os.WriteFile(path, []byte(lines), 0o600))
	got, err := stopsIn(path)
	assert.NoError(t, err)
	assert.Equal(t, samples{18, 250, 1500, 4}, got)
}

// A window is hit by a collection that ran at any moment while the window was open.
func TestArrivalIsHit(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	cycles := []cycle{{at(10), at(12)}, {at(20), at(22)}}
	for _, c := range []struct {
		due, took int
		want      bool
	}{{0, 9, false}, {0, 11, true}, {11, 1, true}, {13, 6, false}, {13, 20, true}, {23, 5, false}} {
		assert.Equal(t, c.want, (arrival{at(c.due), time.Duration(c.took) * time.Millisecond}).hit(cycles), "%d ms from %d", c.took, c.due)
	}
}

// The load at a stated rate keeps its rate, and the garbage collector's part in it is reported.
func TestStatedRate(t *testing.T) {
	server := child{address: started(t, new(mock).serve)}
	var r report
	require.NoError(t, (settings{pace: 400 * time.Millisecond, out: t.TempDir() + "/r.json"}).paced(&r, &server))
	found := factsOf("^" + longestStop)(r)
	assert.True(t, len(found) == 1 && found[0] != 0, "no stop in %v", r.Facts)
	t.Log(r.Facts)
}

// A lane that fails is left out, and the others are measured.
func TestFailureOfOneLane(t *testing.T) {
	lanes := func(name string, round func() error) lane {
		return lane{target: target{name: name}, gather: func() (crowd, error) {
			return crowd{{line: &line{Conn: nowhere{}}, depth: 1, round: round}}, nil
		}}
	}
	broken := errors.New("broken")
	c, err := compare("work", []lane{lanes("bad", func() error { return broken }), lanes("good", func() error { return nil })}, 3, time.Millisecond)
	assert.ErrorIs(t, err, broken)
	assert.Empty(t, c.of("bad").PerSecond)
	assert.Len(t, c.of("good").PerSecond, 3)
}

// nowhere is a connection that is never used.
type nowhere struct{ net.Conn }

// Close closes nothing.
func (nowhere) Close() error { return nil }

// A round that begins too late is done all the same: there is always a measurement.
func TestLateRoundIsDone(t *testing.T) {
	all := crowd{{line: &line{Conn: nowhere{}}, depth: 3, round: func() error { return nil }}}
	o, err := all.run(-time.Second)
	assert.NoError(t, err, "%+v", o)
	assert.Equal(t, 3, o.requests, "%+v, %v", o, err)
}

// Repeated requests of a client are counted, and end.
func TestPatience(t *testing.T) {
	var c client
	left := 2
	err := c.patient(func() error { left--; return map[bool]error{true: os.ErrExist}[left >= 0] })
	assert.NoError(t, err, "%v after %d", err, c.again)
	assert.Equal(t, 2, c.again, "%v", err)
	err = c.patient(func() error { return os.ErrExist })
	assert.ErrorIs(t, err, os.ErrExist, "%v after %d", err, c.again)
	assert.Equal(t, 2+tries-1, c.again, "%v", err)
}

// A report that was saved is read back as it was.
func TestReportComesBack(t *testing.T) {
	path := t.TempDir() + "/r.json"
	r := report{Comparisons: []comparison{{Work: "w", Targets: []measured{
		{Target: "relay", PerSecond: samples{2}, CPU: samples{1, 3, 2}}, {Target: "proxy", PerSecond: samples{1}, CPU: samples{3, 3, 3}},
	}}}}
	require.NoError(t, r.save(path))
	back, err := load(path)
	require.NoError(t, err)
	got := back.rows()
	assert.True(t, len(got) == 1 && got[0].cpu.median() == 1.5 && got[0].throughput.median() == 0.5, "%+v", got)
	assert.NoError(t, back.plots(t.TempDir()+"/p"))
}
