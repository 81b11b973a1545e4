package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// patience is how long a client waits for an answer, longer than any temporary fault.
const patience = 8 * time.Second

// client uses locks as applications do, one operation at a time, and changes to another proxy when
// it gets no answer.
type client struct {
	id       int
	history  *history
	keys     []string
	longest  int // operations of a section
	random   *rand.Rand
	sessions [sites]*gocql.Session
	at       int // the proxy that it uses now
	puts     int
	last     int // the value that its last operation in this section put or got; 0: none, or it is not known
	grants   int
}

// run does sections until ctx ends.
func (c *client) run(ctx context.Context) {
	for ctx.Err() == nil {
		key := c.keys[c.random.IntN(len(c.keys))]
		if ref := c.lock(ctx, key); ref != 0 {
			c.grants++
			c.section(ctx, key, ref)
		}
	}
}

// move changes to another proxy.
func (c *client) move() { c.at = c.random.IntN(sites) }

// statement returns a statement for the present proxy.
func (c *client) statement(format string, args ...any) *gocql.Query {
	return c.sessions[c.at].Query(fmt.Sprintf(format, args...))
}

// lock waits for a lock as long as it seems to get closer; it returns 0 if it has given up.
func (c *client) lock(ctx context.Context, key string) int64 {
	how := "WAIT 1s LEASE 5s"
	var ref int64
	for tries := 0; tries < 30 && ctx.Err() == nil; tries++ {
		row := map[string]any{}
		if err := c.statement("LOCK chaos.t WHERE k = '%s' %s", key, how).MapScanContext(ctx, row); err != nil {
			c.move()
			continue
		}
		told, _ := row["lock_ref"].(int64)
		switch row["state"] {
		case "HELD":
			return told
		case "QUEUED":
			if ref = told; ref != 0 {
				how = fmt.Sprintf("USING LOCK %d WAIT 1s", ref)
			}
		default:
			return 0
		}
	}
	return 0
}

// section does some operations under a reference, and usually unlocks it.
func (c *client) section(ctx context.Context, key string, ref int64) {
	c.last = 0
	for range 1 + c.random.IntN(c.longest) {
		o := op{client: c.id, key: key, ref: ref, put: c.random.IntN(2) == 0}
		err := c.operate(ctx, &o)
		c.history.add(o)
		if err != nil && (o.outcome == refused || c.random.IntN(4) == 0) {
			if c.random.IntN(2) == 0 {
				return
			}
			c.move()
		}
	}
	if c.random.IntN(400/c.longest) > 0 {
		_ = c.statement("UNLOCK chaos.t WHERE k = '%s' USING LOCK %d", key, ref).ExecContext(ctx) // its lease ends it, then
	}
}

// operate does one operation and records its outcome.
func (c *client) operate(ctx context.Context, o *op) error {
	o.called = c.history.now()
	var err error
	switch {
	case o.put && c.last != 0 && c.random.IntN(2) == 0:
		err = c.putIf(ctx, o)
	case o.put:
		o.value = c.nextValue()
		err = c.statement("UPDATE chaos.t USING LOCK %d SET v = %d WHERE k = '%s'", o.ref, o.value, o.key).ExecContext(ctx)
	default:
		err = c.statement("SELECT v FROM chaos.t WHERE k = '%s' USING LOCK %d", o.key, o.ref).ScanContext(ctx, &o.value)
		if errors.Is(err, gocql.ErrNotFound) {
			err = nil
		}
	}
	o.returned = c.history.now()
	o.outcome, o.over = judged(err)
	if c.last = o.value; o.outcome != done {
		c.last = 0
	}
	return err
}

// nextValue returns a value that is put only once.
func (c *client) nextValue() int {
	c.puts++
	return c.id*1_000_000 + c.puts
}

// putIf puts a value if the last one is still there. If it is not, the operation was a get.
func (c *client) putIf(ctx context.Context, o *op) error {
	o.value = c.nextValue()
	row := map[string]any{}
	q := c.sessions[c.at].Query("UPDATE chaos.t USING LOCK ? SET v = ? WHERE k = ? IF v = ?", o.ref, o.value, o.key, c.last)
	applied, err := q.MapScanCASContext(ctx, row)
	if err == nil && !applied {
		o.put = false
		o.value, _ = row["v"].(int)
	}
	return err
}

// judged returns what an answer says about an operation.
func judged(err error) (x outcome, over bool) {
	var told gocql.RequestError
	switch {
	case err == nil:
		return done, true
	case errors.Is(err, gocql.ErrNoConnections):
		return refused, true // never sent
	case !errors.As(err, &told):
		return unknown, false
	case told.Code() == gocql.ErrCodeUnavailable:
		return refused, true
	case told.Code() == gocql.ErrCodeInvalid && !strings.Contains(told.Message(), "unknown"):
		return refused, true
	}
	return unknown, true
}
