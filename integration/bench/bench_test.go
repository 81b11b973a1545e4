package main

import (
	"net"
	"testing"
	"time"
)

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
	targets := []target{{name: "direct", address: server}}
	for _, role := range []string{"relay", "proxy"} {
		targets = append(targets, target{name: role, address: started(t, func(l net.Listener) error { return roles()[role](l, server) })})
	}
	for _, w := range forwarded() {
		w.clients = min(w.clients, 3)
		c, err := compare(w, targets, 1, 5*time.Millisecond)
		if err != nil {
			t.Errorf("%s: %v", w, err)
			continue
		}
		for _, m := range c.Targets {
			if m.PerSecond.median() == 0 {
				t.Errorf("%s: %s did nothing", w, m.Target)
			}
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
	if got := back.rows("proxy", "relay"); len(got) != 1 || got[0].cpu != 1.5 || got[0].throughput != 0.5 {
		t.Errorf("%+v", got)
	}
	if err := back.plot(t.TempDir() + "/p.svg"); err != nil {
		t.Error(err)
	}
}
