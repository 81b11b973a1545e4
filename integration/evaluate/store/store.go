// Package store is what the systems that stand on Cassandra have in common: a session of the plain
// driver, the table of the values that their sections are about, and the place where a test takes
// hold of a client's own statements.
//
// A statement outlives the context of whoever asked for it: it is sent, and its answer is waited
// for, for as long as the driver waits. So a system whose Enter is cancelled knows what it has to
// take back, and an answer is unknown only where Cassandra or the network makes it so.
package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/integration/evaluate/section"
)

// Hook is called for each statement of a client; send sends it and returns when it is answered. A
// hook may wait before or after send, not call it at all, or return another error: so it plays a
// paused process, a lost request or a lost answer.
type Hook func(statement string, send func() error) error

// Options are a client's contact points, and properties of its machine.
type Options struct {
	Hosts    []string         // host:port; the client speaks to these nodes only
	Keyspace string           // exists
	Clock    func() time.Time // of the client's machine; default time.Now
	Hook     Hook             // default: none
	Timeout  time.Duration    // until a statement's outcome counts as unknown; default 10 s
}

// valuesTable has the values that are put in sections.
const valuesTable = "CREATE TABLE IF NOT EXISTS section_values (key text PRIMARY KEY, value blob)"

// Session is the connection of one client. It is safe for concurrent use.
type Session struct {
	session *gocql.Session
	o       Options
}

// Open connects, and makes the table of the values and those of the system if they are missing.
func Open(o Options, tables ...string) (*Session, error) {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Hook == nil {
		o.Hook = func(_ string, send func() error) error { return send() }
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	cluster, err := o.cluster()
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	session, err := cluster.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	s := &Session{session: session, o: o}
	for _, table := range append([]string{valuesTable}, tables...) {
		if err := session.Query(table).Exec(); err != nil {
			session.Close()
			return nil, fmt.Errorf("open a session: %s: %w", table, err)
		}
	}
	return s, nil
}

// cluster returns the driver's configuration.
func (o Options) cluster() (*gocql.ClusterConfig, error) {
	cluster := gocql.NewCluster(o.Hosts...)
	cluster.Keyspace = o.Keyspace
	cluster.Timeout, cluster.ConnectTimeout = o.Timeout, 10*time.Second
	cluster.Consistency, cluster.SerialConsistency = gocql.Quorum, gocql.Serial
	cluster.RetryPolicy = nil // what becomes of a statement is the system's business
	var nodes []string
	for _, address := range o.Hosts {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, host)
	}
	cluster.HostFilter = gocql.WhiteListHostFilter(nodes...)
	return cluster, nil
}

// Close ends the connection; what was written stays.
func (s *Session) Close() { s.session.Close() }

// Now returns the time of the client's machine.
func (s *Session) Now() time.Time { return s.o.Clock() }

// Exec writes at QUORUM, with the client's clock as the timestamp, as drivers do.
func (s *Session) Exec(ctx context.Context, statement string, args ...any) error {
	return s.ExecAt(ctx, time.Time{}, statement, args...)
}

// ExecAt is Exec with a timestamp of the caller's choice, unless it is zero.
func (s *Session) ExecAt(ctx context.Context, at time.Time, statement string, args ...any) error {
	return s.send(ctx, statement, func(ctx context.Context) error {
		stamp := at
		if stamp.IsZero() {
			stamp = s.o.Clock()
		}
		return s.session.Query(statement, args...).WithTimestamp(stamp.UnixMicro()).ExecContext(ctx)
	})
}

// Swap executes a conditional statement, and reports whether it was applied. If it was not, it
// returns the row that did not meet the condition.
func (s *Session) Swap(ctx context.Context, statement string, args ...any) (bool, map[string]any, error) {
	var applied bool
	row := map[string]any{}
	err := s.send(ctx, statement, func(ctx context.Context) (err error) {
		applied, err = s.session.Query(statement, args...).MapScanCASContext(ctx, row)
		return err
	})
	return applied, row, err
}

// Statement is one of a batch.
type Statement struct {
	Text string
	Args []any
}

// SwapAll is Swap for several statements on one partition, of which all or none are executed.
func (s *Session) SwapAll(ctx context.Context, statements ...Statement) (bool, error) {
	var applied bool
	err := s.send(ctx, statements[0].Text, func(ctx context.Context) error {
		batch := s.session.Batch(gocql.UnloggedBatch)
		for _, one := range statements {
			batch.Query(one.Text, one.Args...)
		}
		ok, iter, err := batch.MapExecCASContext(ctx, map[string]any{})
		if err != nil {
			return err
		}
		applied = ok
		return iter.Close()
	})
	return applied, err
}

// Rows reads at the consistency.
func (s *Session) Rows(ctx context.Context, c gocql.Consistency, statement string, args ...any) ([]map[string]any, error) {
	var rows []map[string]any
	err := s.send(ctx, statement, func(ctx context.Context) (err error) {
		rows, err = s.session.Query(statement, args...).Consistency(c).IterContext(ctx).SliceMap()
		return err
	})
	return rows, err
}

// Value reads what was put under the key, at QUORUM, or returns section.ErrNoValue.
func (s *Session) Value(ctx context.Context, key string) ([]byte, error) {
	rows, err := s.Rows(ctx, gocql.Quorum, "SELECT value FROM section_values WHERE key = ?", key)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, section.ErrNoValue
	}
	return rows[0]["value"].([]byte), nil
}

// PutStatement is how SetValue's statement begins, for hooks.
const PutStatement = "INSERT INTO section_values"

// SetValue writes the key's value at QUORUM. Nothing fences it.
func (s *Session) SetValue(ctx context.Context, key string, value []byte) error {
	return s.Exec(ctx, PutStatement+" (key, value) VALUES (?, ?)", key, value)
}

// send passes a statement through the hook, unless ctx has ended.
func (s *Session) send(ctx context.Context, statement string, do func(context.Context) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	return s.o.Hook(statement, func() error { return do(ctx) })
}

// Unknown reports whether a statement that was answered with err may have been executed, or may
// still be. Such answers are common if clients contend for a row.
func Unknown(err error) bool {
	var timeout *gocql.RequestErrWriteTimeout
	var failure *gocql.RequestErrWriteFailure
	var swap *gocql.RequestErrCASWriteUnknown
	var read *gocql.RequestErrReadTimeout
	return errors.As(err, &timeout) || errors.As(err, &failure) || errors.As(err, &swap) ||
		errors.As(err, &read) || errors.Is(err, gocql.ErrTimeoutNoResponse)
}

// Poll calls held until it returns true or an error, other than one of unknown outcome, or until
// ctx ends. In between it pauses for as long as pause returns.
func Poll(ctx context.Context, pause func() time.Duration, held func() (bool, error)) error {
	for {
		ok, err := held()
		if ctx.Err() != nil && !ok {
			return context.Cause(ctx)
		}
		if ok || err != nil && !Unknown(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause()):
		}
	}
}

// Cleanup returns a context for cleaning up after ctx has ended.
func Cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
}
