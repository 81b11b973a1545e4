package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/apache/cassandra-gocql-driver/v2/lz4"
	"github.com/apache/cassandra-gocql-driver/v2/snappy"
	"github.com/stretchr/testify/require"
)

// requestTimeout is longer than any of Cassandra's own time-outs, so drivers do not give up before
// there is an answer.
const requestTimeout = 30 * time.Second

// gocql2 is a session of the Apache Go driver.
type gocql2 struct{ session *gocql.Session }

// cluster2 returns the configuration of the Apache Go driver.
func cluster2(address, keyspace string) *gocql.ClusterConfig {
	c := gocql.NewCluster(address)
	c.Keyspace = keyspace
	c.NumConns = 1
	c.Timeout, c.ConnectTimeout, c.WriteTimeout = requestTimeout, requestTimeout, requestTimeout
	c.Logger = gocql.NewLogger(gocql.LogLevelNone)
	return c
}

// withGocql2 returns the Apache Go driver in one protocol version and compression.
func withGocql2(version int, compression string) driver {
	d := driver{name: fmt.Sprintf("gocql-v2/v%d%s", version, compression), version: version, bound: true}
	d.open = func(t testing.TB, address, keyspace string) client {
		c := cluster2(address, keyspace)
		c.ProtoVersion = version
		switch compression {
		case "+lz4":
			c.Compressor = lz4.LZ4Compressor{}
		case "+snappy":
			c.Compressor = snappy.SnappyCompressor{}
		}
		return openGocql2(t, c)
	}
	return d
}

// openGocql2 returns a session, which is closed at the end of the test at the latest.
func openGocql2(t testing.TB, c *gocql.ClusterConfig) *gocql2 {
	t.Helper()
	s, err := c.CreateSession()
	require.NoError(t, err, "gocql v2 at %v", c.Hosts)
	t.Cleanup(func() { closeWithin(s.Close) })
	return &gocql2{s}
}

// closeWithin closes a driver's session. gocql 2.1.2 never returns if its control connection is
// just being replaced: its heartbeat, which Close waits for, waits for a schema that Close has
// given up on. Then closeWithin leaves it behind.
func closeWithin(end func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		end()
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
	}
}

func (g *gocql2) close() { closeWithin(g.session.Close) }

func (g *gocql2) run(s statement) outcome {
	if s.batch != noBatch {
		return g.finish(g.makeBatch(s).IterContext(context.Background()))
	}
	q := g.session.Query(s.cql, values2(s.values)...)
	if s.page > 0 {
		q.PageSize(s.page)
	}
	if s.payload != nil {
		q.CustomPayload(s.payload)
	}
	if s.stamp != 0 {
		q.WithTimestamp(s.stamp)
	}
	if s.level != "" {
		q.Consistency(gocql.ParseConsistency(s.level))
	}
	tracer := new(traceID)
	if s.trace {
		q.Trace(tracer)
	}
	o := g.finish(q.IterContext(context.Background()))
	o.traced = len(*tracer) == 16
	return o
}

func (g *gocql2) makeBatch(s statement) *gocql.Batch {
	kind := map[batchKind]gocql.BatchType{logged: gocql.LoggedBatch, unlogged: gocql.UnloggedBatch, counters: gocql.CounterBatch}
	b := g.session.Batch(kind[s.batch])
	for _, part := range s.parts {
		b.Query(part.cql, values2(part.values)...)
	}
	if s.stamp != 0 {
		b.WithTimestamp(s.stamp)
	}
	return b
}

// finish reads all pages.
func (g *gocql2) finish(iter *gocql.Iter) outcome {
	o := outcome{pages: 1}
	for _, c := range iter.Columns() {
		o.columns = append(o.columns, c.Name)
	}
	for {
		last := iter.WillSwitchPage()
		row, err := iter.RowData()
		if err != nil || !iter.Scan(row.Values...) {
			break
		}
		if last {
			o.pages++
		}
		var cells []string
		for _, v := range row.Values {
			cells = append(cells, show(v))
		}
		o.rows = append(o.rows, cells)
	}
	o.warnings = iter.Warnings()
	o.payload = show(iter.GetCustomPayload())
	o.failure = failure2(iter.Close())
	return o
}

// failure2 returns an error of the driver as a failure.
func failure2(err error) *failure {
	var answered gocql.RequestError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answered):
		return &failure{code: answered.Code(), text: answered.Message()}
	}
	return &failure{text: err.Error()}
}

// values2 returns values as the driver wants them.
func values2(values []any) []any {
	all := make([]any, 0, len(values))
	for _, v := range values {
		switch v := v.(type) {
		case unset:
			all = append(all, gocql.UnsetValue)
		case named:
			all = append(all, gocql.NamedValue(v.name, v.value))
		case uuid:
			all = append(all, gocql.UUID(v))
		case span:
			all = append(all, gocql.Duration{Months: v.months, Days: v.days, Nanoseconds: v.nanoseconds})
		default:
			all = append(all, v)
		}
	}
	return all
}

// traceID keeps the id that a tracer of either Go driver gets.
type traceID []byte

// Trace implements the Tracer of both Go drivers.
func (t *traceID) Trace(id []byte) { *t = id }
