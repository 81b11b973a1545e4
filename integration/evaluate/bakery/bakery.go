// Package bakery is Lamport's bakery on Cassandra, after the blog post of that name: two column
// families, Choosing and Numbers, read and written at QUORUM, and no conditional write anywhere.
//
// The post's ten steps are [Step]s 1 to 10:
//
//  1. look into Choosing until nobody is "withdrawing new number at the moment"
//  2. put own id into Choosing with true
//  3. fetch the last number in Numbers, and add one
//  4. put that number into Numbers under own id
//  5. change own true in Choosing to false
//  6. wait until nobody in Choosing is true
//  7. wait until all with lower numbers have removed theirs
//  8. where numbers are equal, the lower id goes first
//  9. nobody is before us: enter
//  10. leave: remove own id from Numbers and Choosing
//
// The post has "column values as boolean" in both families; in Numbers they can only be numbers.
// Its key is an integer and its id the PID, where "any other unique ID can be used"; here a
// key is a text, and an id a UUID of each Enter, since PIDs of two hosts may be the same. The PHP
// code, not the text, gives rows in Choosing a TTL of 300 s and those in Numbers one of 3600 s, and
// pauses for 100 µs; the TTLs are [Options], and the false of step 5, which has none there, has that
// of Choosing. The pause is longer. Where the text says "must be created with consistency level of
// QUORUM", it can only mean reads and writes.
//
// What breaks it. A process that dies between steps 2 and 5 blocks everybody for the TTL of Choosing,
// one that dies later for that of Numbers: an hour. A section longer than that TTL runs out of its
// number while it is being held, and the next process enters beside it; so does one whose true runs
// out between the steps 3 and 4, with a number that others have passed. Nobody tells the first one,
// and nothing fences its puts: numbers begin at 1 again when all have left, so that they cannot
// serve as fencing tokens. With Options.Renew, the repair, a holder writes its number anew and
// knows, by its own clock, when it may have run out; what a paused holder has sent already still
// arrives.
package bakery

import (
	"context"
	"fmt"
	"slices"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
)

// The two column families.
const (
	choosingTable = "CREATE TABLE IF NOT EXISTS choosing (key text, id uuid, choosing boolean, PRIMARY KEY (key, id))"
	numbersTable  = "CREATE TABLE IF NOT EXISTS numbers (key text, id uuid, number bigint, PRIMARY KEY (key, id))"
)

// The statements; hooks of tests know them by their first words.
const (
	chooseStatement       = "INSERT INTO choosing (key, id, choosing) VALUES (?, ?, ?) USING TTL ?"
	readChoosingStatement = "SELECT choosing FROM choosing WHERE key = ?"
	removeChoosing        = "DELETE FROM choosing WHERE key = ? AND id = ?"
	numberStatement       = "INSERT INTO numbers (key, id, number) VALUES (?, ?, ?) USING TTL ?"
	readNumbersStatement  = "SELECT id, number FROM numbers WHERE key = ?"
	removeNumber          = "DELETE FROM numbers WHERE key = ? AND id = ?"
)

// Step is one of the post's steps.
type Step int

// Options of a client.
type Options struct {
	store.Options
	ChoosingTTL time.Duration    // whole seconds; default 300 s
	NumberTTL   time.Duration    // whole seconds; default 3600 s
	Poll        time.Duration    // between two looks; default 5 ms
	Renew       bool             // repaired: Renew works, and a section ends when its number may have run out
	At          func(Step) error // called before each step, which fails with its error; default: none
}

// Client is one host; each Enter is a process of its own.
type Client struct {
	session *store.Session
	o       Options
}

// New opens a client.
func New(o Options) (*Client, error) {
	if o.ChoosingTTL == 0 {
		o.ChoosingTTL = 300 * time.Second
	}
	if o.NumberTTL == 0 {
		o.NumberTTL = 3600 * time.Second
	}
	if o.Poll == 0 {
		o.Poll = 5 * time.Millisecond
	}
	if o.At == nil {
		o.At = func(Step) error { return nil }
	}
	session, err := store.Open(o.Options, choosingTable, numbersTable)
	if err != nil {
		return nil, err
	}
	return &Client{session: session, o: o}, nil
}

// Close implements section.Client.
func (c *Client) Close() { c.session.Close() }

// Enter does steps 1 to 9. If its context ends it also does step 10, which the post does not
// mention; if a step fails it does not.
func (c *Client) Enter(ctx context.Context, key string) (section.Held, error) {
	p := &process{c: c, key: key, id: gocql.MustRandomUUID()}
	err := p.enter(ctx)
	if ctx.Err() != nil && err != nil {
		cleanup, cancel := store.Cleanup(ctx)
		defer cancel()
		_ = p.remove(cleanup)
	}
	if err != nil {
		return nil, fmt.Errorf("enter %q: %w", key, err)
	}
	if c.o.Renew {
		return renewer{p}, nil
	}
	return p, nil
}

// process is one customer of the bakery.
type process struct {
	c      *Client
	key    string
	id     gocql.UUID
	number int64
	until  time.Time // when the number may have run out, by the monotonic clock
}

// enter goes through the steps in turn.
func (p *process) enter(ctx context.Context) error {
	for i, step := range []func(context.Context) error{
		p.waitForChoosing, // 1
		func(ctx context.Context) error { return p.choose(ctx, true) }, // 2
		p.fetchNumber, // 3
		p.putNumber,   // 4
		func(ctx context.Context) error { return p.choose(ctx, false) }, // 5
		p.waitForChoosing, // 6
		p.waitForLower,    // 7 and 8
	} {
		if err := p.c.o.At(Step(i + 1)); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return p.c.o.At(9)
}

// pause implements store.Poll's pause.
func (p *process) pause() time.Duration { return p.c.o.Poll }

// waitForChoosing waits until no process is choosing.
func (p *process) waitForChoosing(ctx context.Context) error {
	return store.Poll(ctx, p.pause, func() (bool, error) {
		rows, err := p.c.session.Rows(ctx, gocql.Quorum, readChoosingStatement, p.key)
		choosing := func(row map[string]any) bool { return row["choosing"] == true }
		return err == nil && !slices.ContainsFunc(rows, choosing), err
	})
}

// choose writes whether this process is choosing. After an unknown outcome it writes the same
// again.
func (p *process) choose(ctx context.Context, choosing bool) error {
	return store.Poll(ctx, p.pause, func() (bool, error) {
		err := p.c.session.Exec(ctx, chooseStatement, p.key, p.id, choosing, seconds(p.c.o.ChoosingTTL))
		return err == nil, err
	})
}

// fetchNumber returns one more than the greatest number.
func (p *process) fetchNumber(ctx context.Context) error {
	return store.Poll(ctx, p.pause, func() (bool, error) {
		rows, err := p.c.session.Rows(ctx, gocql.Quorum, readNumbersStatement, p.key)
		p.number = 1
		for _, row := range rows {
			number, _ := row["number"].(int64)
			p.number = max(p.number, number+1)
		}
		return err == nil, err
	})
}

// putNumber writes the number. Its time to live is counted from when the write is sent.
func (p *process) putNumber(ctx context.Context) error {
	return store.Poll(ctx, p.pause, func() (bool, error) {
		sent := time.Now()
		err := p.c.session.Exec(ctx, numberStatement, p.key, p.id, p.number, seconds(p.c.o.NumberTTL))
		if err == nil {
			p.until = sent.Add(p.c.o.NumberTTL - time.Second) // Cassandra counts whole seconds
		}
		return err == nil, err
	})
}

// waitForLower waits until no process is before this one.
func (p *process) waitForLower(ctx context.Context) error {
	return store.Poll(ctx, p.pause, func() (bool, error) {
		rows, err := p.c.session.Rows(ctx, gocql.Quorum, readNumbersStatement, p.key)
		return err == nil && !slices.ContainsFunc(rows, p.after), err
	})
}

// after reports whether another process goes first, because its (number, id) is lower.
func (p *process) after(row map[string]any) bool {
	number, _ := row["number"].(int64)
	id, _ := row["id"].(gocql.UUID)
	return number < p.number || number == p.number && id.String() < p.id.String()
}

// Get returns section.ErrLost if the number may have expired, as far as the client can know.
func (p *process) Get(ctx context.Context) ([]byte, error) {
	if p.over() {
		return nil, section.ErrLost
	}
	return p.c.session.Value(ctx, p.key)
}

// Put is refused as Get is.
func (p *process) Put(ctx context.Context, value []byte) error {
	if p.over() {
		return section.ErrLost
	}
	return p.c.session.SetValue(ctx, p.key, value)
}

// over reports whether the number may have expired. The post does not ask.
func (p *process) over() bool { return p.c.o.Renew && !time.Now().Before(p.until) }

// Leave is step 10.
func (p *process) Leave(ctx context.Context) error {
	if err := p.c.o.At(10); err != nil {
		return err
	}
	return p.remove(ctx)
}

// remove removes the process from both column families, from Choosing first: a process without a
// number is not waited for any more.
func (p *process) remove(ctx context.Context) error {
	return store.Poll(ctx, p.pause, func() (bool, error) {
		err := p.c.session.Exec(ctx, removeChoosing, p.key, p.id)
		if err == nil {
			err = p.c.session.Exec(ctx, removeNumber, p.key, p.id)
		}
		return err == nil, err
	})
}

// renewer is a process that keeps its number.
type renewer struct{ *process }

// Renew writes the number anew.
func (r renewer) Renew(ctx context.Context) error {
	if r.over() {
		return section.ErrLost
	}
	return r.putNumber(ctx)
}

// seconds is a TTL as CQL has it.
func seconds(d time.Duration) int { return int(d / time.Second) }
