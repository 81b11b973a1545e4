package main

import (
	"fmt"
	"os"
	"time"
)

// proxyCounts names the comparison of one, two and three proxies in front of a node.
const proxyCounts = "12 clients, a key each, over one, two and three proxies"

// proxyCounts measures the same clients over one, two and three proxies, which share the processors with the node: what they do in a
// second tells little, but the processor time of all proxies for each write tells what a further proxy costs.
func (n *realNode) proxyCounts(s settings, r *report) error {
	const clients = 12
	proxies := []*child{n.proxy}
	for range 2 {
		p, err := startChild("music", n.node.address)
		if err != nil {
			return err
		}
		defer p.stop()
		if err := follows(p); err != nil {
			return fmt.Errorf("a further proxy: %w", err)
		}
		proxies = append(proxies, p)
	}
	var all []lane
	for count := 1; count <= len(proxies); count++ {
		some := longer()[:3] // a plain write, unlocked=auto, and a section of a key that stays
		for i := range some {
			if count > 1 {
				some[i].name += fmt.Sprintf(", %d proxies", count)
			}
		}
		all = append(all, n.lanesOver(clients, some, proxies[:count]...)...)
	}
	found, err := compare(proxyCounts, all, fewer(s.rounds), 20*s.span)
	found.tell(os.Stdout)
	r.Node = append(r.Node, found)
	return err
}

// follows returns when a proxy gives locks.
func follows(p *child) error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		w, err := newWriter(p.address, "first of "+p.address)
		if err == nil {
			err = w.section(noise(0, 10))
			_ = w.Close()
		}
		if err == nil || time.Since(began) > time.Minute {
			return err
		}
	}
}
