package integration

import (
	"errors"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"
)

// gocql1 is a session of the older Go driver, which most programs still use.
type gocql1 struct{ session *gocql.Session }

// cluster1 returns the configuration of the older Go driver, which most programs still use.
func cluster1(address, keyspace string) *gocql.ClusterConfig {
	c := gocql.NewCluster(address)
	c.Keyspace = keyspace
	c.NumConns = 1
	c.Timeout, c.ConnectTimeout, c.WriteTimeout = requestTimeout, requestTimeout, requestTimeout
	c.Logger = silent{}
	return c
}

// withGocql1 returns the older Go driver in protocol 4, the highest that it speaks, with a compression or "".
func withGocql1(compression string) driver {
	d := driver{name: "gocql-v1/v4" + compression, version: 4, bound: true}
	d.open = func(t testing.TB, address, keyspace string) client {
		c := cluster1(address, keyspace)
		c.ProtoVersion = 4
		if compression == "+snappy" {
			c.Compressor = gocql.SnappyCompressor{}
		}
		return openGocql1(t, c)
	}
	return d
}

// openGocql1 returns a session, which is closed at the end of the test at the latest.
func openGocql1(t testing.TB, c *gocql.ClusterConfig) *gocql1 {
	t.Helper()
	s, err := c.CreateSession()
	require.NoError(t, err, "gocql v1 at %v", c.Hosts)
	t.Cleanup(func() { closeWithin(s.Close) })
	return &gocql1{s}
}

func (g *gocql1) close() { closeWithin(g.session.Close) }

func (g *gocql1) run(s statement) outcome {
	if s.batch != noBatch {
		return outcome{pages: 1, failure: failure1(g.session.ExecuteBatch(g.makeBatch(s)))}
	}
	q := g.session.Query(s.cql, values1(s.values)...)
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
		q.SetConsistency(level1(s.level))
	}
	tracer := new(traceID)
	if s.trace {
		q.Trace(tracer)
	}
	o := g.finish(q.Iter())
	o.traced = len(*tracer) == 16
	return o
}

func (g *gocql1) makeBatch(s statement) *gocql.Batch {
	kind := map[batchKind]gocql.BatchType{logged: gocql.LoggedBatch, unlogged: gocql.UnloggedBatch, counters: gocql.CounterBatch}
	b := g.session.NewBatch(kind[s.batch])
	for _, part := range s.parts {
		b.Query(part.cql, values1(part.values)...)
	}
	if s.stamp != 0 {
		b.WithTimestamp(s.stamp)
	}
	return b
}

// finish reads all pages.
func (g *gocql1) finish(iter *gocql.Iter) outcome {
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
	o.failure = failure1(iter.Close())
	return o
}

// failure1 returns an error of the driver as a failure.
func failure1(err error) *failure {
	var answered gocql.RequestError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &answered):
		return &failure{code: answered.Code(), text: answered.Message()}
	}
	return &failure{text: err.Error()}
}

// level1 returns a consistency level; the driver has no name for reading at SERIAL.
func level1(name string) gocql.Consistency {
	if name == "SERIAL" {
		return gocql.Consistency(gocql.Serial)
	}
	return gocql.ParseConsistency(name)
}

// values1 returns values as the driver wants them.
func values1(values []any) []any {
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

// silent is a logger that discards everything.
type silent struct{}

// Print implements the driver's logger.
func (silent) Print(...any) {}

// Printf implements the driver's logger.
func (silent) Printf(string, ...any) {}

// Println implements the driver's logger.
func (silent) Println(...any) {}
