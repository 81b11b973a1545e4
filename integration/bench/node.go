package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/integration/cassandra"
)

// realNode is a real node with the product in front of it.
type realNode struct {
	cluster *cassandra.Cluster
	node    target
	proxy   *child
}

// startNode starts both, and makes the tables that are measured.
func startNode(o cassandra.Options) (*realNode, error) {
	const limit = 10 * time.Minute // the first time Cassandra is fetched
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var err error
	if o.RunDir, err = cassandra.DefaultRunDir(); err != nil {
		return nil, err
	}
	o.Dir, o.Address, o.Log = filepath.Join(o.RunDir, "bench"), func(int) string { return "127.0.11.1" }, os.Stderr
	cluster, err := cassandra.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	n := &realNode{cluster: cluster, node: target{address: cluster.Nodes()[0].Addr()}}
	if _, err = n.start(); err == nil {
		err = n.create()
	}
	if err != nil {
		n.stop()
		return nil, err
	}
	return n, nil
}

// stop ends both.
func (n *realNode) stop() {
	if n.proxy != nil {
		n.proxy.stop()
	}
	_ = n.cluster.Wipe() // what is left is removed by the next start
}

// start starts the proxy, and returns how long it took until it had forwarded a query.
func (n *realNode) start() (time.Duration, error) {
	began := time.Now()
	var err error
	if n.proxy, err = startChild("music", n.node.address); err != nil {
		return 0, err
	}
	for {
		l, err := dialKeys(n.proxy.address)
		if err == nil {
			_, err = l.query("SELECT cluster_name FROM system.local")
			_ = l.Close()
		}
		took := time.Since(began)
		if err == nil || took > time.Minute {
			return took, err
		}
		time.Sleep(time.Millisecond)
	}
}

// create makes the tables, through the proxy.
func (n *realNode) create() error {
	l, err := dialKeys(n.proxy.address)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	for _, text := range []string{
		"CREATE KEYSPACE bench WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
		"CREATE TABLE bench.plain (k text PRIMARY KEY, v blob)",
		"CREATE TABLE bench.locked (k text PRIMARY KEY, v blob) WITH comment = '@critical(lease=10m)'",
		"CREATE TABLE bench.auto (k text PRIMARY KEY, v blob) WITH comment = '@critical(unlocked=auto)'",
		"CREATE TABLE bench.sized (k text, c int, v blob, PRIMARY KEY (k, c)) WITH comment = '@critical'",
	} {
		if _, err := l.query(text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// dialKeys connects a client that writes keys.
func dialKeys(address string) (*line, error) {
	return dialLine(address, dialect{version: primitive.ProtocolVersion4}, "bench")
}

// query sends a statement as text.
func (l *line) query(text string) (message.Message, error) {
	return l.ask(&message.Query{Query: text, Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelQuorum}})
}

// writer is a client that writes keys.
type writer struct {
	*line
	name     string // which no other writer has
	key      []byte
	keys     int    // how many it has used, if it uses a new one each time
	ref      []byte // of the lock that it holds on key; nil: none
	stamp    int64  // of the last write with a timestamp of its own
	prepared map[string][]byte
}

// newWriter connects a writer whose key no other client writes.
func newWriter(address, key string) (*writer, error) {
	l, err := dialKeys(address)
	if err != nil {
		return nil, err
	}
	return &writer{line: l, name: key, key: []byte(key), prepared: map[string][]byte{}}, nil
}

// do executes a statement at QUORUM. It prepares the statement when it is first used.
func (w *writer) do(text string, values ...[]byte) (message.Message, error) {
	return w.doAt(nil, text, values...)
}

// doAt is do with the client's own timestamp, if there is one.
func (w *writer) doAt(stamp *int64, text string, values ...[]byte) (message.Message, error) {
	id := w.prepared[text]
	if id == nil {
		var err error
		if id, err = w.prepare(text); err != nil {
			return nil, err
		}
		w.prepared[text] = id
	}
	o := &message.QueryOptions{Consistency: primitive.ConsistencyLevelQuorum, DefaultTimestamp: stamp}
	for _, v := range values {
		o.PositionalValues = append(o.PositionalValues, primitive.NewValue(v))
	}
	m, err := w.ask(&message.Execute{QueryId: id, Options: o})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	return m, nil
}

// applied executes a statement that answers as a lightweight transaction does, and returns the
// columns after [applied].
func (w *writer) applied(text string, values ...[]byte) (message.Row, error) {
	m, err := w.do(text, values...)
	if err != nil {
		return nil, err
	}
	rows, ok := m.(*message.RowsResult)
	if !ok || len(rows.Data) != 1 || !slices.Equal(rows.Data[0][0], []byte{1}) {
		return nil, fmt.Errorf("%s: not applied: %v", text, m)
	}
	return rows.Data[0][1:], nil
}

// lock acquires the lock of its key in a table.
func (w *writer) lock(table string) error {
	row, err := w.applied("LOCK "+table+" WHERE k = ?", w.key)
	if err != nil {
		return err
	}
	w.ref = slices.Clone(row[0])
	return nil
}

// turn waits for the lock of its key, which other clients use, too, and unlocks it.
func (w *writer) turn(table string) error {
	row, err := w.applied("LOCK "+table+" WHERE k = ? WAIT 60s", w.key)
	if err != nil {
		return err
	}
	w.ref = slices.Clone(row[0])
	return w.unlock(table)
}

// put writes a value under the lock that it holds.
func (w *writer) put(value []byte) error { return w.putIn("bench.locked", value) }

// putIn writes under the lock of a key of a table.
func (w *writer) putIn(table string, value []byte) error {
	_, err := w.do("UPDATE "+table+" USING LOCK ? SET v = ? WHERE k = ?", w.ref, value, w.key)
	return err
}

// unlock releases it.
func (w *writer) unlock(table string) error {
	_, err := w.applied("UNLOCK "+table+" WHERE k = ? USING LOCK ?", w.key, w.ref)
	w.ref = nil
	return err
}
