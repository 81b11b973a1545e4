package main

import (
	"fmt"
	"time"
)

// way is one way to write a key.
type way struct {
	name   string
	direct bool // to the node
	once   func(w *writer, value []byte) error
}

// plainWrite is the way that others are compared with.
const plainWrite = "QUORUM write"

// put is the way that should be as fast.
const put = "put under a held lock"

// ways returns the ways of one write each: a put, and what of it there is without the proxy.
func ways() []way {
	return []way{
		{name: plainWrite + ", direct", direct: true, once: (*writer).plain},
		{name: "what a put comes to, direct", direct: true, once: (*writer).stamped},
		{name: plainWrite, once: (*writer).plain},
		{name: put, once: (*writer).held},
	}
}

// longer returns the ways that are more than one write, together with the plain one.
func longer() []way {
	return []way{
		{name: plainWrite, once: (*writer).plain},
		{name: "write with unlocked=auto", once: func(w *writer, value []byte) error {
			_, err := w.do("UPDATE bench.auto SET v = ? WHERE k = ?", value, w.key)
			return err
		}},
		{name: "lock, put, unlock, the key stays", once: (*writer).section},
		{name: "lock, put, unlock, a new key", once: func(w *writer, value []byte) error {
			w.renew()
			return w.section(value)
		}},
		{name: "UPDATE … IF EXISTS, direct", direct: true, once: func(w *writer, value []byte) error { return w.conditional("bench.plain", value) }},
	}
}

// plain writes without a lock, in a table that is not critical.
func (w *writer) plain(value []byte) error {
	_, err := w.do("UPDATE bench.plain SET v = ? WHERE k = ?", value, w.key)
	return err
}

// stamped writes what the proxy sends for a put: the rest of the statement, with a timestamp.
func (w *writer) stamped(value []byte) error {
	w.stamp = max(w.stamp+1, time.Now().UnixMicro())
	_, err := w.doAt(&w.stamp, "UPDATE bench.locked SET v = ? WHERE k = ?", value, w.key)
	return err
}

// held writes under a lock that it keeps.
func (w *writer) held(value []byte) error {
	if w.ref == nil {
		if err := w.lock("bench.locked"); err != nil {
			return err
		}
	}
	err := w.put(value)
	if err != nil {
		w.ref = nil // perhaps lost
	}
	return err
}

// section locks, writes once and unlocks.
func (w *writer) section(value []byte) error { return w.sectionIn("bench.locked", value) }

// sectionIn is section on a table.
func (w *writer) sectionIn(table string, value []byte) error {
	if err := w.lock(table); err != nil {
		return err
	}
	err := w.putIn(table, value)
	if fault := w.unlock(table); err == nil {
		err = fault
	}
	return err
}

// conditional is a lightweight transaction.
func (w *writer) conditional(table string, value []byte) error {
	text := "UPDATE " + table + " SET v = ? WHERE k = ? IF EXISTS"
	if w.prepared[text] == nil { // the first time: the row has to exist
		if _, err := w.do("INSERT INTO "+table+" (v, k) VALUES (?, ?) IF NOT EXISTS", value, w.key); err != nil {
			return err
		}
	}
	_, err := w.applied(text, value, w.key)
	return err
}

// lanes returns ways, each for a number of clients with keys of their own.
func (n *realNode) lanes(clients int, ways []way) []lane { return n.lanesOver(clients, ways, n.proxy) }

// lanesOver does the same over some proxies, to which the clients are spread in turn.
func (n *realNode) lanesOver(clients int, ways []way, proxies ...*child) []lane {
	var all []lane
	value := noise(0, 100)
	for _, way := range ways {
		t := target{name: way.name, store: func() time.Duration { return cpuOf(n.cluster.Nodes()[0].PID()) }}
		if !way.direct {
			t.cpu = func() (sum time.Duration) {
				for _, p := range proxies {
					sum += p.cpu()
				}
				return sum
			}
		}
		dial := func(i int) (*client, error) {
			address := proxies[i%len(proxies)].address
			if way.direct {
				address = n.node.address
			}
			w, err := newWriter(address, fmt.Sprintf("%s %d/%d", way.name, i, clients))
			if err != nil {
				return nil, err
			}
			c := &client{line: w.line, depth: 1}
			c.round = func() error { return c.patient(func() error { return way.once(w, value) }) }
			return c, nil
		}
		all = append(all, lane{target: t, gather: func() (crowd, error) { return gather(clients, dial) }})
	}
	return all
}

// tries is how often patient does what fails.
const tries = 10

// patient repeats what a busy Cassandra fails now and then, as an application does, and counts it.
// The round takes longer then.
func (c *client) patient(once func() error) error {
	err := once()
	for i := 1; i < tries && err != nil; i++ {
		c.again++
		err = once()
	}
	return err
}
