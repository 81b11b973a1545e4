package musiccore

import (
	"flag"
	"fmt"
	"testing"
)

var dbg = flag.Int("dbg", 0, "")

func TestDbg(t *testing.T) {
	if *dbg == 0 {
		t.Skip()
	}
	s := newSim(*dbg)
	s.calm()
	fmt.Println(s.failed, s.served)
	for _, p := range s.proxies {
		fmt.Printf("proxy %x dead %v paused %v waits %d\n", p.session.id[:1], p.session.Dead(), p.paused, len(p.waits))
		for id, k := range p.core.keys {
			r := s.store.row(id).now
			fmt.Printf(" key %v real %+v\n view %+v\n lwt %+v asking %d queued %d term %+v\n", id, r, k.view, k.lwt, len(k.asking), len(k.queued), k.term)
			for _, q := range k.queued {
				fmt.Printf("  place %+v\n", *q)
			}
		}
		for x, w := range p.core.watches {
			fmt.Printf(" watch %x %+v\n", x[:1], *w)
		}
	}
}
