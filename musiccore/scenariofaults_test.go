package musiccore

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

func (l script) cut() error { return l.onProxy(func(p *stageProxy) { p.cut = true }) }

func (l script) heal() error { return l.onProxy(func(p *stageProxy) { p.cut = false }) }

func (l script) pause() error {
	if len(l.words) == 1 {
		return l.onProxy(func(p *stageProxy) { p.paused = true })
	}
	d, err := time.ParseDuration(l.word(1))
	if err != nil {
		return err
	}
	return l.onProxy(func(p *stageProxy) {
		p.paused = true
		l.s.advance(d)
		p.resume()
		l.s.tick()
	})
}

func (l script) resume() error {
	return l.onProxy(func(p *stageProxy) {
		p.resume()
		l.s.tick()
	})
}

func (l script) crash() error { return l.onProxy(func(p *stageProxy) { p.down = true }) }

func (l script) start() error { return l.onProxy((*stageProxy).boot) }

func (l script) wall() error {
	d, err := time.ParseDuration(l.word(1))
	if err != nil {
		return err
	}
	return l.onProxy(func(p *stageProxy) { p.skew = d })
}

func (l script) beats() error {
	return l.onProxy(func(p *stageProxy) {
		p.beatsHang = l.word(1) == "hang"
		for _, ack := range p.acks {
			ack()
		}
		p.acks = nil
	})
}

func (l script) lag() error {
	n, err := strconv.Atoi(l.word(1))
	if err != nil {
		return err
	}
	return l.onProxy(func(p *stageProxy) { p.lagging = n })
}

func (l script) drain() error {
	return l.onProxy(func(p *stageProxy) { p.take(p.core.Drain(p.time())) })
}

func (l script) shutdown() error {
	return l.onProxy(func(p *stageProxy) {
		p.take(p.core.Drain(p.time()))
		l.s.settle()
		if !p.core.Quiet() {
			l.s.tell("%s is not quiet", p.name)
		}
		p.session.End()
		l.s.store.beats[p.session.ID()] = EndedBeat
		p.down = true
	})
}

func (l script) lwt() error {
	fate := l.words[len(l.words)-1]
	if !slices.Contains([]string{"applied", "lost", "late", "hangs"}, fate) {
		return errWords
	}
	l.s.store.lwt = fate
	return nil
}

func (l script) synch() error {
	l.s.store.torn, l.s.store.copyTo = true, l.replicasFrom(1)
	return nil
}

func (l script) deliver() error {
	st := &l.s.store
	if l.word(0) == "lwt" {
		if len(st.parked) == 0 {
			return errors.New("no LWT is on its way")
		}
		first := st.parked[0]
		st.parked = st.parked[1:]
		first()
		return nil
	}
	arrives := st.hanging[l.word(0)]
	if arrives == nil {
		return fmt.Errorf("no put %s is on its way", l.word(0))
	}
	delete(st.hanging, l.word(0))
	arrives()
	return nil
}

func (l script) fail() error { l.up(true); return nil }

func (l script) repair() error { l.up(false); return nil }

func (l script) up(dead bool) {
	for _, r := range l.replicasFrom(0) {
		l.s.store.dead[r] = dead
	}
}

func (l script) quorum() error {
	order := l.replicasFrom(0)
	for r := range stageReplicas {
		if !slices.Contains(order, r) {
			order = append(order, r)
		}
	}
	l.s.store.order = order
	return nil
}

func (l script) lose() error {
	l.s.store.key("k").row = nil
	return nil
}
