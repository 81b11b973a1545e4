package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
)

// lwtsOf returns how many LWTs the node has applied to the lock rows of a table: each LWT is one
// write at each replica, nothing else writes to them, and Cassandra counts the writes.
func (n *realNode) lwtsOf(table string) (int64, error) {
	companion, err := n.companion(table)
	if err != nil {
		return 0, err
	}
	return n.number("SELECT count FROM system_views.local_write_latency WHERE keyspace_name = 'bench' AND table_name = '" + companion + "'")
}

// companion returns the name of the table with the lock rows of a table.
func (n *realNode) companion(table string) (string, error) {
	l, err := dialKeys(n.node.address)
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	id, err := l.cell("SELECT id FROM system_schema.tables WHERE keyspace_name = 'bench' AND table_name = '" + table + "'")
	return "music_lock_" + hex.EncodeToString(id), err
}

// number returns the number with which the node answers a query.
func (n *realNode) number(query string) (int64, error) {
	l, err := dialKeys(n.node.address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	cell, err := l.cell(query)
	if err != nil || len(cell) != 8 {
		return 0, fmt.Errorf("%s: %x, %w", query, cell, err)
	}
	return int64(binary.BigEndian.Uint64(cell)), nil //nolint:gosec // G115: a count
}

// cell returns the one value in the answer to a statement.
func (l *line) cell(text string) ([]byte, error) {
	m, err := l.query(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	rows, ok := m.(*message.RowsResult)
	if !ok || len(rows.Data) != 1 || len(rows.Data[0]) != 1 {
		return nil, fmt.Errorf("%s: %v", text, m)
	}
	return rows.Data[0][0], nil
}

// counted is something whose LWTs are counted.
type counted struct {
	name string
	do   func() error
}

// counts counts the LWTs of the parts of sections, each after the node has come to rest, so that
// LWTs that follow an answer are included.
func (n *realNode) counts(r *report) error {
	w, err := newWriter(n.proxy.address, "counted")
	if err != nil {
		return err
	}
	defer func() { _ = w.Close() }()
	const puts, sections, waiters = 10, 10, 20
	value := noise(0, 100)
	lock, unlock := func() error { return w.lock("bench.locked") }, func() error { return w.unlock("bench.locked") }
	queue := &queueUp{node: n, holder: w, clients: waiters}
	defer queue.leave()
	repeat := func(times int, do func([]byte) error) func() error {
		return func() error {
			for range times {
				if err := do(value); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for _, c := range []counted{
		{"LOCK of a new key", lock},
		{fmt.Sprintf("%d puts under it", puts), repeat(puts, w.put)},
		{"UNLOCK, behind its answer", unlock},
		{fmt.Sprintf("%d sections one after the other of a key that stays, from the first LOCK to the release", sections), repeat(sections, w.section)},
		{fmt.Sprintf("LOCK of a key, and %d clients of one proxy who want it, too, until they wait", waiters), queue.form},
		{"the same, from the UNLOCK until each has had it", queue.pass},
	} {
		f, err := n.count("locked", c)
		if err != nil {
			return fmt.Errorf("LWTs of: %s: %w", c.name, err)
		}
		r.Facts = append(r.Facts, f)
	}
	return nil
}

// count counts the LWTs on the lock rows of a table that something causes.
func (n *realNode) count(table string, c counted) (fact, error) {
	before, err := n.atRest(table)
	if err != nil {
		return fact{}, err
	}
	if err := c.do(); err != nil {
		return fact{}, err
	}
	after, err := n.atRest(table)
	return fact{"LWTs applied for: " + c.name, samples{float64(after - before)}, ""}, err
}

// atRest returns the number of LWTs after there was none for longer than a key is kept for its next
// section.
func (n *realNode) atRest(table string) (int64, error) {
	const rest, limit = 500 * time.Millisecond, time.Minute
	last, err := n.lwtsOf(table)
	for began, since := time.Now(), time.Now(); err == nil && time.Since(since) < rest; time.Sleep(rest / 10) {
		var now int64
		if now, err = n.lwtsOf(table); now != last {
			last, since = now, time.Now()
		}
		if time.Since(began) > limit {
			return last, errors.New("the node does not come to rest")
		}
	}
	return last, err
}

// queueUp is clients that wait for a key that one of them holds.
type queueUp struct {
	node    *realNode
	holder  *writer
	clients int

	waiting []*writer
	running sync.WaitGroup
	faults  chan error
}

// form has the holder lock the key, and the others request it.
func (q *queueUp) form() error {
	q.holder.key = []byte("wanted")
	if err := q.holder.lock("bench.locked"); err != nil {
		return err
	}
	for range q.clients {
		w, err := newWriter(q.node.proxy.address, "wanted")
		if err != nil {
			return err
		}
		q.waiting = append(q.waiting, w)
	}
	q.faults = make(chan error, q.clients)
	for _, w := range q.waiting {
		q.running.Go(func() { q.faults <- w.turn("bench.locked") })
	}
	return nil
}

// pass has the holder unlock it, and returns when each of the others has had it and unlocked it,
// too.
func (q *queueUp) pass() error {
	err := q.holder.unlock("bench.locked")
	q.running.Wait()
	close(q.faults)
	for fault := range q.faults {
		err = errors.Join(err, fault)
	}
	return err
}

// leave closes the connections.
func (q *queueUp) leave() {
	for _, w := range q.waiting {
		_ = w.Close()
	}
}
