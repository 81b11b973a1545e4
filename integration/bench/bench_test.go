package main

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"music/integration/cassandra"
)

// TestMain is a role where the benchmark has started this program as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "role" {
		exit(beRole(os.Args[2], os.Args[3]))
	}
	os.Exit(m.Run())
}

// started serves until the test ends.
func started(t *testing.T, serve func(net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

// Every work is done by every target: nothing that is measured is an error.
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
			t.Error(err)
			continue
		}
		for _, m := range c.Targets {
			if m.PerSecond.median() == 0 {
				t.Errorf("%s: %s did nothing", w, m.Target)
			}
		}
	}
}

// What is measured on a real node is done there: the ways to write a key, keys of every size, the start of the proxy.
func TestLocksOnARealNode(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra; not with -short")
	}
	n, err := startNode(cassandra.Options{FastJIT: true})
	if err != nil {
		t.Fatal(err)
	}
	defer n.stop()
	var r report
	if err := (settings{rounds: 1, span: 20 * time.Millisecond}).locksOn(n, &r); err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Node {
		for _, m := range c.Targets {
			if m.PerSecond.median() == 0 {
				t.Errorf("%s: %s did nothing", c.Work, m.Target)
			}
		}
	}
	t.Log(r.markdown(&r))
	if err := r.plots(t.TempDir() + "/p"); err != nil {
		t.Error(err)
	}
}

func TestScale(t *testing.T) {
	var r report
	if err := (settings{keys: 1000, waiters: 100_000}).scale(&r, nil); err != nil {
		t.Fatal(err)
	}
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
	for _, c := range []struct {
		report report
		want   string
	}{
		{report{Comparisons: []comparison{work("v4 EXECUTE read, 4 x 64", 1.5), work("v5+lz4 EXECUTE write, 4 x 64", 2)}}, "≤ 2  | 1.50–2.00  | met |"},
		{report{Comparisons: []comparison{work("v4 EXECUTE read, 4 x 64", 1.5), work("v5+lz4 EXECUTE write, 4 x 64", 2.1)}}, "≤ 2  | 1.50–2.10  | missed |"},
		{report{Comparisons: []comparison{work("v5+TLS EXECUTE read, 4 x 64", 1)}}, "over TLS: CPU, proxy : TLS relay | ≤ 2  | 1.00  | met |"},
		{report{Node: []comparison{write(9.6, 99, 45)}}, "≥ 0.95  | 0.96  | met |"}, // by rounds 0.96, 0.99, 0.9
		{report{Node: []comparison{write(9.4, 99, 45)}}, "≥ 0.95  | 0.94  | missed |"},
		{report{Facts: []fact{{startName, samples{100, 301, 302}, "ms"}}}, "≤ 300 ms | 301 ms | missed |"},
	} {
		if got := c.report.verdicts(); !strings.Contains(got, c.want) {
			t.Errorf("no %q in\n%s", c.want, got)
		}
	}
}

func TestReportComesBack(t *testing.T) {
	path := t.TempDir() + "/r.json"
	r := report{Comparisons: []comparison{{Work: "w", Targets: []measured{
		{Target: "relay", PerSecond: samples{2}, CPU: samples{1, 3, 2}}, {Target: "proxy", PerSecond: samples{1}, CPU: samples{3, 3, 3}},
	}}}}
	if err := r.save(path); err != nil {
		t.Fatal(err)
	}
	back, err := load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := back.rows("proxy", "relay"); len(got) != 1 || got[0].cpu.median() != 1.5 || got[0].throughput.median() != 0.5 {
		t.Errorf("%+v", got)
	}
	if err := back.plots(t.TempDir() + "/p"); err != nil {
		t.Error(err)
	}
}
