package musiccore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// verbs are the lines that a scenario may have.
func (s *stage) verbs() map[string]func(script) error {
	return map[string]func(script) error{
		// who there is
		"option":  script.option,  // option window 64, option waiters 2: before the proxies; option hints 0: they get lost
		"proxies": script.proxies, // proxies p1 p2
		// statements of clients; A's proxy is that of its first LOCK, its reference that of its last
		"lock":   script.lock,   // lock A at p1 [key k] [nowait] [here] [wait 1m] [lease 5s] [token 7] [using 3]
		"renew":  script.renew,  // LOCK USING LOCK, with the reference that A has
		"unlock": script.unlock, // unlock A
		"put":    script.put,    // put A 7 [unacked [r1 r2]] [hanging]
		"get":    script.get,    // get A
		"move":   script.move,   // move A p2: its next statements go to another proxy
		"gone":   script.gone,   // gone A: its connection is closed while it waits
		"force":  script.force,  // force A: UNLOCK … FORCE, by A, of whoever holds
		// what befalls a proxy
		"cut":      script.cut,      // none of its requests reaches the store
		"heal":     script.heal,     // … and now they do again
		"pause":    script.pause,    // pause p1 [3s]: it does nothing, for that time or until resumed
		"resume":   script.resume,   //
		"crash":    script.crash,    // it forgets everything
		"start":    script.start,    // … and is started anew
		"wall":     script.wall,     // wall p1 1h: its wall clock is ahead by that
		"beats":    script.beats,    // beats p1 hang, beats p1 arrive: the acknowledgements of its life signs
		"lag":      script.lag,      // lag p1 2: its LOCAL_ONE reads show a lock row of two changes ago
		"drain":    script.drain,    // SIGTERM
		"shutdown": script.shutdown, // drained, it ends its session
		// what befalls the store
		"advance": script.advance, // advance 12s
		"lwt":     script.lwt,     // the next one: unknown applied, unknown lost, unknown late, hangs
		"synch":   script.synch,   // synch unknown [r1 r2]: the next one reaches these and is not answered
		"deliver": script.deliver, // deliver lwt, deliver 7: what hangs arrives
		"fail":    script.fail,    // fail r3
		"repair":  script.repair,  // repair r3
		"quorum":  script.quorum,  // quorum r2 r3: which replicas answer from now on
		"lose":    script.lose,    // lose row: somebody deletes the lock row
		// what befalls the table
		"plain": script.plain, // plain 5 1h r1: a write without a lock, stamped so far ahead, on that replica
		"large": script.large, // large yes, large no: a row of the key is larger than the store takes back
		"close": script.closed,
		"alter": script.alter,
		"drop":  script.drop,
		// what there is
		"row":  script.row,
		"data": script.data,
	}
}

// script is one line: its words after the verb.
type script struct {
	s     *stage
	words []string
}

var errWords = errors.New("not these words")

// word is the i-th word, or none.
func (l script) word(i int) string {
	if i < len(l.words) {
		return l.words[i]
	}
	return ""
}

func (l script) client() (*stageClient, error) {
	if c := l.s.clients[l.word(0)]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("no client %q", l.word(0))
}

func (l script) proxy(i int) (*stageProxy, error) {
	for _, p := range l.s.proxies {
		if p.name == l.word(i) {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no proxy %q", l.word(i))
}

// onProxy does something to the proxy that the line names.
func (l script) onProxy(do func(*stageProxy)) error {
	p, err := l.proxy(0)
	if err == nil {
		do(p)
	}
	return err
}

// replicasFrom reads r1 r2 …
func (l script) replicasFrom(i int) []int {
	var all []int
	for ; i < len(l.words); i++ {
		all = append(all, int(l.words[i][1]-'1'))
	}
	return all
}

func (l script) option() error {
	n, err := strconv.Atoi(l.word(1))
	o := &l.s.opts
	switch l.word(0) {
	case "window":
		o.Window = Stamp(n)
	case "waiters":
		o.Waiters = n
	case "hints":
		l.s.hintsOff = n == 0
	case "retain":
		o.Retain, err = time.ParseDuration(l.word(1))
	default:
		return errWords
	}
	return err
}

func (l script) proxies() error {
	for _, name := range l.words {
		p := &stageProxy{s: l.s, name: name}
		p.boot()
		l.s.proxies = append(l.s.proxies, p)
	}
	return nil
}

func (l script) lock() error {
	name := l.word(0)
	if l.s.clients[name] == nil {
		l.s.clients[name] = &stageClient{s: l.s, name: name, key: Key{Table: [16]byte{1}, PK: "k"}}
	}
	c := l.s.clients[name]
	q := Request{Owner: name, Closed: l.s.closed}
	for i := 1; i < len(l.words); i += 2 {
		switch l.words[i] {
		case "nowait":
			q.NoWait = true
			i--
			continue
		case "here":
			q.Place = PlaceHere
			i--
			continue
		}
		if err := l.clause(i, c, &q); err != nil {
			return err
		}
	}
	c.locks(&q)
	return nil
}

// clause reads one clause of a LOCK.
func (l script) clause(i int, c *stageClient, q *Request) (err error) {
	value := l.word(i + 1)
	n, notNumber := strconv.Atoi(value)
	d, notTime := time.ParseDuration(value)
	switch l.words[i] {
	case "at":
		c.at, err = l.proxy(i + 1)
	case "key":
		c.key.PK = value
	case "wait":
		q.Wait, q.AtOnce, err = d, d == 0, notTime
	case "lease":
		q.Lease, err = d, notTime
	case "token":
		q.Token, err = [16]byte{byte(n)}, notNumber
	case "using":
		q.Ref, err = LockRef(n), notNumber
	default:
		err = errWords
	}
	return err
}

func (l script) renew() error {
	c, err := l.client()
	if err == nil {
		c.locks(&Request{Ref: c.ref})
	}
	return err
}

func (l script) unlock() error {
	c, err := l.client()
	if err == nil {
		c.locks(nil)
	}
	return err
}

func (l script) force() error {
	c, err := l.client()
	if err == nil {
		c.forces()
	}
	return err
}

func (l script) put() error {
	c, err := l.client()
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(l.word(1))
	if err == nil {
		c.put(n, l.word(2), l.replicasFrom(3))
	}
	return err
}

func (l script) get() error {
	c, err := l.client()
	if err == nil {
		c.get()
	}
	return err
}

func (l script) move() error {
	c, err := l.client()
	if err == nil {
		c.at, err = l.proxy(1)
	}
	return err
}

func (l script) gone() error {
	c, err := l.client()
	if err == nil {
		c.at.take(c.at.core.ClientGone(c.at.time(), c.op))
		c.op = 0
	}
	return err
}

func (l script) advance() error {
	d, err := time.ParseDuration(l.word(0))
	if err == nil {
		l.s.advance(d)
	}
	return err
}

func (l script) plain() error {
	n, err := strconv.Atoi(l.word(0))
	if err != nil {
		return err
	}
	ahead, err := time.ParseDuration(l.word(1))
	stamp := t0 + Stamp((l.s.now + ahead).Microseconds())
	if l.word(1) == "2^62" {
		stamp, err = poison, nil
	}
	on := l.replicasFrom(2)
	if on == nil {
		on = []int{0, 1, 2}
	}
	l.s.store.write(l.s.store.key("k"), mutation{stamp: stamp, value: n}, on)
	return err
}

func (l script) large() error { l.s.store.large = l.word(0) == "yes"; return nil }

// everywhere tells all proxies of the table.
func (l script) everywhere(what func(*stageProxy) Effects) error {
	for _, p := range l.s.proxies {
		p.when(func() { p.take(what(p)) })
	}
	return nil
}

func (l script) closed() error {
	l.s.closed = Closing(l.s.proxies[0].time(), l.s.closed)
	return l.everywhere(func(p *stageProxy) Effects { return p.core.Closed(p.time(), p.table, l.s.closed) })
}

func (l script) alter() error {
	return l.everywhere(func(p *stageProxy) Effects { return p.core.Altered(p.time(), p.table, 0) })
}

func (l script) drop() error {
	return l.everywhere(func(p *stageProxy) Effects { return p.core.Dropped(p.time(), p.table) })
}

func (l script) row() error {
	r := l.s.store.key("k").row
	if r == nil {
		l.s.tell("no row")
		return nil
	}
	var queue []string
	for _, b := range r.Queue {
		queue = append(queue, fmt.Sprintf("%d to %d of s%d", b.First, b.Last(), b.Session[0]))
	}
	l.s.tell("%s; queue %s", l.s.row(*r), strings.Join(queue, ", "))
	return nil
}

func (l script) data() error {
	var on []string
	for r, c := range l.s.store.key("k").data {
		on = append(on, fmt.Sprintf("r%d %s", r+1, valueText(c.visible())))
	}
	l.s.tell("%s", strings.Join(on, ", "))
	return nil
}
