package service

import (
	"context"
	"time"

	"music/integration/evaluate/section"
)

// nothing is Sections that exclude nobody: everybody enters at once, and writes as it likes. What is written is stamped where it
// arrives, not where it was sent: a write that was held back lands on top.
type nothing struct{ *table }

// createNothing makes its table, and one for who owns what.
func createNothing(o Options) error {
	return execute(o,
		"CREATE TABLE IF NOT EXISTS "+o.Keyspace+".nothing (k text PRIMARY KEY, v blob)",
		"CREATE TABLE IF NOT EXISTS "+o.Keyspace+".owners (k text PRIMARY KEY, v blob)")
}

// openNothing connects with the store.
func openNothing(o Options) (System, error) {
	d := driver(o)
	d.DefaultTimestamp = false
	cql, err := d.CreateSession()
	if err != nil {
		return System{}, err
	}
	t := &table{cql: cql, name: o.Keyspace + ".nothing"}
	plain := &table{cql: cql, name: o.Keyspace + ".owners"}
	if o.Pool {
		plain = t
	}
	return System{Sections: nothing{t}, Plain: plain, Close: cql.Close}, nil
}

// Close does nothing: System.Close closes the session.
func (n nothing) Close() {}

// Enter lets everybody in. The token is the time.
func (n nothing) Enter(_ context.Context, key string) (section.Held, error) {
	return &open{n.table, key, time.Now().UnixNano()}, nil
}

// TryEnter lets everybody in, too.
func (n nothing) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	h, err := n.Enter(ctx, key)
	return h, true, err
}

// Preempt does nothing.
func (n nothing) Preempt(context.Context, string, int64) error { return nil }

// open is a key in everybody's hands.
type open struct {
	*table
	key   string
	token int64
}

// Token is when it was entered.
func (o *open) Token() int64 { return o.token }

// Get reads without any lock.
func (o *open) Get(ctx context.Context) ([]byte, error) { return o.table.Get(ctx, o.key) }

// Put writes without any lock.
func (o *open) Put(ctx context.Context, v []byte) error { return o.table.Put(ctx, o.key, v) }

// Leave has nothing to give back.
func (o *open) Leave(context.Context) error { return nil }
