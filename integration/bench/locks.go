package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/integration/cassandra"
)

// locks measures what locks cost on a real node.
func (s settings) locks(r *report, _ *child) error {
	if !s.node {
		return nil
	}
	n, err := startNode(cassandra.Options{Heap: "512m"})
	if err != nil {
		return fmt.Errorf("a real node (-node=false leaves it out): %w", err)
	}
	defer n.stop()
	const warm = time.Second // each, three times, for Java's compiler
	_, fault := compare("warm", n.lanes(32, append(ways(), longer()...)), 1, warm)
	fault = errors.Join(fault, s.conditionsOn(n, r))
	if s.only.MatchString(proxyCounts) {
		fault = errors.Join(fault, n.proxyCounts(s, r))
	}
	if s.only.MatchString("what sections leave behind") {
		fault = errors.Join(fault, n.growth(r))
	}
	fault = errors.Join(fault, s.locksOn(n, r))
	if s.only.String() != "" {
		return fault
	}
	return errors.Join(fault, s.timesOn(n, r))
}

// conditionsOn measures writes with IF beside the node's own LWTs.
func (s settings) conditionsOn(n *realNode, r *report) error {
	var faults []error
	for _, c := range contests() {
		if !s.only.MatchString(c.work()) {
			continue
		}
		found, err := compare(c.work(), n.lanes(c.clients, c.ways()), fewer(s.rounds), 20*s.span)
		faults = append(faults, err)
		found.tell(os.Stdout)
		r.Node = append(r.Node, found)
	}
	return errors.Join(faults...)
}

// locksOn measures on a node what locks cost there.
func (s settings) locksOn(n *realNode, r *report) error {
	var faults []error
	for _, clients := range []int{16, 1} {
		for _, c := range []struct {
			what   string
			lanes  []lane
			rounds int
			span   time.Duration
		}{
			{"writes", n.lanes(clients, ways()), s.rounds, 2 * s.span},
			{"sections", n.lanes(clients, longer()), fewer(s.rounds), 20 * s.span}, // so that the start of a round is a small part of it
		} {
			work := fmt.Sprintf("%s on a real node, %d x 1", c.what, clients)
			if !s.only.MatchString(work) {
				continue
			}
			found, err := compare(work, c.lanes, c.rounds, c.span)
			faults = append(faults, err)
			found.tell(os.Stdout)
			r.Node = append(r.Node, found)
		}
	}
	return errors.Join(faults...)
}

// timesOn counts LWTs on a node, and measures how long keys are blocked there and how long a proxy takes to start.
func (s settings) timesOn(n *realNode, r *report) error {
	faults := []error{n.counts(r)}
	for _, rows := range []int{1, 100, 10_000} {
		f, err := n.synchronised(rows, fewer(s.rounds))
		faults, r.Facts = append(faults, err), append(r.Facts, f)
	}
	f, err := n.starts(fewer(s.rounds))
	r.Facts = append(r.Facts, f)
	return errors.Join(append(faults, err)...)
}

// fewer returns how often something is measured that takes long.
func fewer(rounds int) int { return max(1, rounds/10) }

// starts measures how long the proxy takes from its start to the first forwarded query. Its own
// tables exist already.
func (n *realNode) starts(rounds int) (fact, error) {
	f := fact{Name: startName, Unit: "ms"}
	for range rounds {
		n.proxy.stop()
		took, err := n.start()
		if err != nil {
			return f, fmt.Errorf("start of the proxy: %w", err)
		}
		f.Values = append(f.Values, float64(took.Microseconds())/1000)
	}
	return f, nil
}

// startName is the name of the fact that starts measures.
const startName = "start of the proxy to the first forwarded query"

// synchronised measures the first put under the lock of a key that has rows from before, each time
// another key.
func (n *realNode) synchronised(rows, rounds int) (fact, error) {
	f := fact{Name: fmt.Sprintf("first put under the lock of a key with rows of before, %d", rows), Unit: "ms"}
	for i := range rounds {
		key := fmt.Sprintf("%d rows, %d", rows, i)
		if err := n.fill(key, rows); err != nil {
			return f, fmt.Errorf("fill %s: %w", key, err)
		}
		w, err := newWriter(n.proxy.address, key)
		if err != nil {
			return f, err
		}
		took, err := w.firstPut("bench.sized")
		_ = w.Close()
		if err != nil {
			return f, fmt.Errorf("key with %d rows: %w", rows, err)
		}
		f.Values = append(f.Values, float64(took.Microseconds())/1000)
	}
	return f, nil
}

// firstPut returns how long the first put of a section takes.
func (w *writer) firstPut(table string) (time.Duration, error) {
	text := "UPDATE " + table + " USING LOCK ? SET v = ? WHERE k = ? AND c = 0"
	var err error
	if w.prepared[text], err = w.prepare(text); err != nil {
		return 0, err
	}
	if err := w.lock(table); err != nil {
		return 0, err
	}
	began := time.Now()
	if _, err := w.do(text, w.ref, noise(1, 100), w.key); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return took, w.unlock(table)
}

// fill writes the rows of a key directly to the node.
func (n *realNode) fill(key string, rows int) error {
	l, err := dialKeys(n.node.address)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	id, err := l.prepare("INSERT INTO bench.sized (k, c, v) VALUES (?, ?, ?)")
	if err != nil {
		return err
	}
	const most = 100 // rows of a batch
	for from := 0; from < rows; from += most {
		batch := &message.Batch{Type: primitive.BatchTypeUnlogged, Consistency: primitive.ConsistencyLevelQuorum}
		for c := from; c < min(rows, from+most); c++ {
			values := [][]byte{[]byte(key), binary.BigEndian.AppendUint32(nil, uint32(c)), noise(c, 100)} //nolint:gosec // G115: small
			child := &message.BatchChild{Id: id}
			for _, v := range values {
				child.Values = append(child.Values, primitive.NewValue(v))
			}
			batch.Children = append(batch.Children, child)
		}
		if _, err := l.ask(batch); err != nil {
			return err
		}
	}
	return nil
}
