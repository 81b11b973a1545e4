// Package paper is MUSIC as Balasubramanian et al. print it ("MUSIC: Multi-Site Critical Sections over
// Geo-Distributed State"): sections III and IV say what the operations do, VI and X-A how they are
// statements to Cassandra. Beside it are the two systems of VIII-b: MSCP, which is MUSIC with critical
// puts by lightweight transactions, and CassaEV, which writes at ONE and excludes nobody.
//
// A [Client] is a client that has MUSIC as a library (VI: "provided as a Java library that clients can
// import"). The operations of Table I and VII are its methods, each a sequence of the paper's steps:
//
//	CreateLockRef       IV-A, X-A4: the guard is read at ONE; one conditional batch raises it and
//	                    enqueues its value; tried again with the guard read anew
//	AcquireLock         IV-A: peek at ONE; for the first reference the synchFlag is read at QUORUM; if
//	                    true, the value is read and written back, and the flag reset, at QUORUM
//	CriticalPut, Get    IV-A, X-A4: peek at ONE, T, and a write at QUORUM stamped by v2s (VI), or a read
//	ReleaseLock         IV-A: peek at ONE; lsDequeue is a lightweight DELETE (VI)
//	ForcedRelease       IV-B: the flag at (lockRef+δ, time) at QUORUM, then lsDequeue
//	RemoveLockReference VII-a: lsDequeue of a reference that was not granted; TryEnter calls it
//	Put, GetEventual,   VI, VII-a: at ONE, without a lock
//	GetAllKeys
//	EnterMany           III-A: several keys are locked in lexicographic order
//
// Misprints that were mended:
//   - IV-B, forcedRelease: "dsPutQuorum (synchFlag, false, …)". The text below it sets the flag, which
//     is true. Options.FlagAsPrinted is the printed line.
//   - X-A4, createLockRef: "if (guard != null)" is prevGuard; the table's key is lockName in one
//     statement and key in the other two.
//   - X-A4, dsPutQuorum: "SET value = {lockRef}" is the value; createLockRef: "VALUE" is VALUES.
//   - X-A4, criticalPut: "(currentTime - startTime) > T" rejects; VI has "≥ T", which v2s needs (X-A2).
//   - IV-B: forcedRelease is "an internal function not exposed to clients", and VII-b has clients call it.
//   - X-A2, the proof's first case leaves out the factor T of VI: v2s is lockRef·T + time.
//   - VII-b, write at the back end: its criticalPut is indented into the branch of a new owner, with the
//     reference of the old one.
//
// Where the text is silent:
//   - The batch of createLockRef is tried again until the context ends (X-A4: a "configurable number of times").
//   - An empty queue has no first reference. A reference that the guard has reached has then been
//     dequeued; one that it has not has not arrived at the replica yet.
//   - startTime is written to the lock's row at ONE, for a grant costs one quorum read (Fig. 5b). Its
//     stamp is 1, below that of any dequeue, which it would otherwise undo. A replica that has not got
//     it yet is helped by the library's memory.
//   - Times are in microseconds, since puts of one millisecond would be ordered by their values. While
//     the lock is acquired, startTime is the start of AcquireLock; for ForcedRelease of a reference that
//     was never granted, time is 0. δ is 1 microsecond (IV-B).
//   - Put is stamped below every critical put: VII-a puts a job before it is ever locked.
//   - A key without a value that must be synchronised gets a null, stamped like a value.
//   - Who has been the first for Options.Patience without anybody noticing a change has failed (IV-B);
//     whoever waits for the key, or tries it, finds this out. Waiters pause for Options.Poll.
//   - Requests that are not acknowledged are sent again, to the next of Options.Hosts, until the context
//     ends (III-A, Failure Semantics).
//   - MSCP: VIII-b says "a sequentially-consistent (SC) LWT put rather than a quorum put". Such a write takes
//     no stamp, so what synchronises must be one, too; critical gets stay quorum reads.
//
// What breaks it, as its tests and the safety table show: a replica that is peeked has missed an enqueue
// or a dequeue, and two clients hold the key (missed enqueue, in the table). A put that has passed its peek is acknowledged after its section was
// taken away and synchronised, and is lost. With the flag as printed it even lands on the next section's
// values, as does a put of MSCP under any flag. A clock that goes back orders a later put before an
// earlier one. Options.Repaired peeks at QUORUM, once more when a put has been acknowledged, sets the
// flag above all stamps of its reference, and orders the puts of a section by more than the clock.
package paper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
)

// Variant is one of the systems of VIII-b.
type Variant string

// The variants.
const (
	MUSIC   Variant = "MUSIC"
	MSCP    Variant = "MSCP"
	CassaEV Variant = "CassaEV"
)

// Step is a message to the stores.
type Step string

// The steps, in the order of a section.
const (
	ReadGuard Step = "read guard"
	Enqueue   Step = "enqueue"
	Peek      Step = "peek"
	ReadFlag  Step = "read flag"
	SyncRead  Step = "synchronise: read"
	SyncWrite Step = "synchronise: write"
	ResetFlag Step = "reset flag"
	StartTime Step = "start time"
	DataPut   Step = "put"
	DataGet   Step = "get"
	SetFlag   Step = "set flag"
	Dequeue   Step = "dequeue"
)

// Options says which MUSIC a client uses. Hosts and Keyspace are required.
type Options struct {
	Hosts    []string // host:port of nodes, each with a MUSIC replica; the next is used when one does not answer
	Keyspace string   // exists; its two tables are made
	Variant  Variant  // default MUSIC

	T        time.Duration // bound of a section (VI); default 1 hour
	Patience time.Duration // after which the first of a queue has failed; default 10 s
	Poll     time.Duration // between two AcquireLocks; default 5 ms
	Timeout  time.Duration // of a request to the stores; default 5 s

	Anywhere      bool // each message goes to the next of Hosts ("can query any Cassandra node", VI): a peek is of any replica
	FlagAsPrinted bool // ForcedRelease writes false
	Repaired      bool

	Now  func() time.Time // the clock of the MUSIC replica; default time.Now
	Send func(Step)       // is called before a message is sent, and may hold it back; default: nothing
}

// Client is a client with its MUSIC replicas.
type Client struct {
	o Options

	mu       sync.Mutex
	sessions []*gocql.Session // by Hosts; nil before the first use
	at       int              // the replica in use
	starts   map[lock]time.Time
	last     map[lock]time.Duration // of a put since its start, if Repaired

	suspected map[string]suspect // by key
}

// lock names a reference.
type lock struct {
	key string
	ref int64
}

var (
	_ section.Client = (*Client)(nil)
	_ section.Forcer = (*Client)(nil)
	_ section.Trier  = (*Client)(nil)
	_ section.Token  = (*Held)(nil)
)

// New opens a client and makes the tables of its keyspace if they are not there yet.
func New(o Options) (*Client, error) {
	o.Variant = cmp.Or(o.Variant, MUSIC)
	o.T, o.Patience = cmp.Or(o.T, time.Hour), cmp.Or(o.Patience, 10*time.Second)
	o.Poll, o.Timeout = cmp.Or(o.Poll, 5*time.Millisecond), cmp.Or(o.Timeout, 5*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Send == nil {
		o.Send = func(Step) {}
	}
	c := &Client{o: o, sessions: make([]*gocql.Session, len(o.Hosts)), starts: map[lock]time.Time{}, last: map[lock]time.Duration{}, suspected: map[string]suspect{}}
	s, err := c.session()
	if err != nil {
		return nil, err
	}
	for _, table := range []string{
		"data_table (key text PRIMARY KEY, value blob, synchflag boolean, never boolean)", // Fig. 2; never is null
		"lock_table (lockname text, lockref bigint, guard bigint static, starttime bigint, PRIMARY KEY (lockname, lockref))",
	} {
		if err := s.Query("CREATE TABLE IF NOT EXISTS " + o.Keyspace + "." + table).Exec(); err != nil {
			c.Close()
			return nil, fmt.Errorf("make %s: %w", table, err)
		}
	}
	return c, nil
}

// session returns that of the replica in use.
func (c *Client) session() (*gocql.Session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.o.Anywhere {
		c.at = (c.at + 1) % len(c.o.Hosts)
	}
	if c.sessions[c.at] != nil {
		return c.sessions[c.at], nil
	}
	cluster := gocql.NewCluster(c.o.Hosts[c.at])
	cluster.ProtoVersion, cluster.NumConns = 4, 2
	cluster.Timeout, cluster.ConnectTimeout = c.o.Timeout, c.o.Timeout
	cluster.HostFilter = gocql.WhiteListHostFilter(hostOf(c.o.Hosts[c.at]))
	cluster.SerialConsistency = gocql.Serial
	cluster.RetryPolicy = nil // a message is sent once
	cluster.Logger = gocql.NewLogger(gocql.LogLevelNone)
	s, err := cluster.CreateSession()
	if err != nil {
		c.at = (c.at + 1) % len(c.o.Hosts)
		return nil, fmt.Errorf("connect: %w", err)
	}
	c.sessions[c.at] = s
	return s, nil
}

// moveFrom goes on to the next replica, unless another goroutine has.
func (c *Client) moveFrom(s *gocql.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions[c.at] == s {
		c.at = (c.at + 1) % len(c.o.Hosts)
	}
}

// Close closes the connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.sessions {
		if s != nil {
			s.Close()
		}
	}
}

// send carries out a step at a level.
func (c *Client) send(ctx context.Context, step Step, level gocql.Consistency, text string, values ...any) error {
	return c.ask(ctx, step, func(s *gocql.Session) error {
		return s.Query(c.in(text), values...).Consistency(level).ExecContext(ctx)
	})
}

// ask carries out a step at the replica in use, and goes on to the next one if it fails.
func (c *Client) ask(ctx context.Context, step Step, do func(*gocql.Session) error) error {
	s, err := c.session()
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	c.o.Send(step)
	err = do(s)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) && ctx.Err() == nil {
		c.moveFrom(s)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}
