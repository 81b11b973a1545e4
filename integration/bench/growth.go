package main

import (
	"errors"
	"fmt"
	"sync"
)

// many is a kind of sections after which one looks at what they have left at the node.
type many struct {
	name     string
	sections int
	keys     bool // each has a key of its own
}

// growth measures what sections leave behind at the node: lock rows, rows of Paxos, and tombstones that a
// read meets. Every kind has a table of its own.
func (n *realNode) growth(r *report) error {
	for i, g := range []many{
		{"100000 sections of 16 keys that stay", 100_000, false},
		{"10000 sections, each of a new key", 10_000, true},
	} {
		table := fmt.Sprint("grown", i)
		l, err := dialKeys(n.proxy.address)
		if err != nil {
			return err
		}
		_, err = l.query("CREATE TABLE bench." + table + " (k text PRIMARY KEY, v blob) WITH comment = '@critical'")
		_ = l.Close()
		if err != nil {
			return err
		}
		facts, err := n.grow(table, g)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		r.Facts = append(r.Facts, facts...)
	}
	return nil
}

// grow does sections and returns what they have left.
func (n *realNode) grow(table string, g many) ([]fact, error) {
	paxos, err := n.number("SELECT count(*) FROM system.paxos")
	if err != nil {
		return nil, err
	}
	lwts, err := n.atRest(table)
	if err != nil {
		return nil, err
	}
	const writers = 16
	faults := make([]error, writers)
	var working sync.WaitGroup
	for i := range writers {
		working.Go(func() { faults[i] = n.sections(table, fmt.Sprintf("w%d", i), g.sections/writers, g.keys) })
	}
	working.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	after, err := n.atRest(table)
	if err != nil {
		return nil, err
	}
	companion, err := n.companion(table)
	if err != nil {
		return nil, err
	}
	all := []fact{{"LWTs of " + g.name, samples{float64(after - lwts)}, ""}}
	for _, c := range []struct {
		name, query string
		before      int64
	}{
		{"lock rows after ", "SELECT count(*) FROM bench." + companion, 0},
		{"rows of system.paxos after ", "SELECT count(*) FROM system.paxos", paxos},
		{"tombstones that a read of a lock row met, at most, in ", "SELECT CAST(max AS bigint) FROM system_views.tombstones_per_read WHERE keyspace_name = 'bench' AND table_name = '" + companion + "'", 0},
		{"tombstones that a read of the data met, at most, in ", "SELECT CAST(max AS bigint) FROM system_views.tombstones_per_read WHERE keyspace_name = 'bench' AND table_name = '" + table + "'", 0},
	} {
		now, err := n.number(c.query)
		if err != nil {
			return nil, err
		}
		all = append(all, fact{c.name + g.name, samples{float64(now - c.before)}, ""})
	}
	return all, nil
}

// sections does sections of one write, one after the other.
func (n *realNode) sections(table, key string, count int, fresh bool) error {
	w, err := newWriter(n.proxy.address, key)
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	value := noise(0, 100)
	for range count {
		if fresh {
			w.renew()
		}
		if err := w.sectionIn("bench."+table, value); err != nil {
			return err
		}
	}
	return nil
}
