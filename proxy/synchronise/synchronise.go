// Package synchronise settles the data of a key: it reads the key at QUORUM and writes it back
// above a fence, so that no write from before the fence can surface again (docs/protocol.md 3.9,
// Synch).
package synchronise

import (
	"context"
	"errors"
	"fmt"
	"iter"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend/refusal"
	"music/musiccore"
)

// Why an attempt ended early. errTooLarge lasts until the key shrinks, errNotTaken until its values or
// what Cassandra demands of them change, errNotAgreed for a moment.
var (
	errTooLarge  = errors.New("row is larger than Cassandra takes")
	errNotTaken  = errors.New("a value of the key is not taken back by Cassandra")
	errNotAgreed = errors.New("nodes do not agree on the schema")
)

// Cluster is the cluster in which a table is read and written. Its session must speak version 4 of
// the protocol or higher, and must not retry.
type Cluster struct {
	Session *gocql.Session
	Ring    *gocql.Session    // knows all nodes, where Session has those of one data centre only; nil = Session
	Quorum  gocql.Consistency // QUORUM, or LOCAL_QUORUM for a table with scope=local
	Known   *Descriptions     // a cache for the cluster's tables; nil = none
}

// Target names the key to synchronise: a partition of a data table or, with Row, one row. PK is the
// routing key as on the wire: the bytes of its only column or, for each of several columns, a
// length of 2 bytes, the bytes, and a 0. With Row the columns are those of the whole primary key.
//
// Followed are columns that the table is known to have. A node that does not know one of them is behind: it
// would not be read, and yet be deleted, however much the nodes seem to agree.
type Target struct {
	Keyspace, Table string
	PK              string
	Row             bool
	Followed        iter.Seq[string]
}

// Run makes one attempt: it reads the key at QUORUM, or LOCAL_QUORUM, and writes it back, with a
// DELETE at the fence and every cell at fence+1. A key that fits one page and one mutation is read
// and written at once. Otherwise each interval of the clustering order is written in a mutation of its
// own, one after the other. It blocks until all have been acknowledged. No fence may be used twice:
// lists would have their elements twice.
//
// StatusDone: all mutations are acknowledged, and nothing with a stamp up to the fence can surface
// again.
//
// StatusAbove, StatusTooLarge, StatusUnknown: some intervals may have been written, or may be
// written later. That is safe, because the fences of one key only rise: an interval was written as
// a QUORUM read had it, in one mutation whose stamps are in the term's own window, so it loses
// nothing acknowledged; the term has no put in flight meanwhile; and the next attempt, of this term
// or of a later one, reads at QUORUM and fences in turn.
//
// StatusTooLarge is the result until the key changes; Cause says why, errNotSynchronisable if it is
// the table, errNotTaken if Cassandra refuses a value. StatusUnavailable: too few replicas are alive, by Cassandra's answer.
func Run(ctx context.Context, in Cluster, k Target, a musiccore.Synch) musiccore.Result {
	p, err := newPartition(ctx, in, k)
	if err != nil {
		return failed(err)
	}
	return p.run(ctx, a)
}

// newPartition reads the schema for an attempt.
func newPartition(ctx context.Context, in Cluster, k Target) (partition, error) {
	p := partition{Cluster: in, sizes: usualSizes()}
	view, err := agreedView(ctx, in)
	if err != nil {
		return p, err
	}
	p.now, p.version = view.now, view.version
	described, err := view.tableDescription(ctx, in, k)
	if err != nil {
		return p, err
	}
	if missing := described.table.lacks(k.Followed); missing != "" {
		return p, fmt.Errorf("%w: one does not know column %s of %s.%s", errNotAgreed, missing, k.Keyspace, k.Table)
	}
	p.sizes.largest = described.largest
	if p.table, err = newTableLayout(described.table); err != nil {
		return p, err
	}
	if k.Row {
		p.table = p.table.rowAlone()
	}
	if p.pk, err = p.table.key(k.PK); err != nil {
		return p, fmt.Errorf("%w: %w", errNotSynchronisable, err)
	}
	return p, nil
}

// partition is the partition that one attempt reads and writes. Reads and writes use the same now,
// in seconds of Unix time, so that values with a TTL expire when they would have, however long the
// attempt takes. Below version 5 of the protocol the driver leaves it out. 0 means Cassandra's own
// clock.
type partition struct {
	Cluster
	table   tableLayout
	pk      []cqlTerm
	now     int
	host    string     // id of the node to ask, "" for any
	version gocql.UUID // of the schema by which the key is read and written
	sizes   sizes
}

// run reads the partition and writes it back.
func (p partition) run(ctx context.Context, a musiccore.Synch) musiccore.Result {
	top, err := p.copy(ctx, a)
	switch {
	case err != nil:
		return failed(err)
	case top >= a.Fence:
		return musiccore.Result{Status: musiccore.StatusAbove, Stamp: top}
	}
	return musiccore.Result{Status: musiccore.StatusDone}
}

// failed returns the result of an attempt that ended with an error.
func failed(err error) musiccore.Result {
	var few *gocql.RequestErrUnavailable
	switch {
	case errors.Is(err, errNotSynchronisable), errors.Is(err, errTooLarge), errors.Is(err, errNotTaken):
		return musiccore.Result{Status: musiccore.StatusTooLarge, Cause: err}
	case errors.As(err, &few):
		return musiccore.Result{Status: musiccore.StatusUnavailable, Cause: &refusal.ShortError{
			Text: few.Message(), Consistency: uint16(few.Consistency), Required: few.Required, Alive: few.Alive,
		}}
	}
	return musiccore.Result{Status: musiccore.StatusUnknown, Cause: fmt.Errorf("synchronise: %w", err)}
}

// copy copies the key page by page. If it finds a stamp that is not below the fence it stops, and
// returns that stamp.
func (p partition) copy(ctx context.Context, a musiccore.Synch) (musiccore.Stamp, error) {
	page, err := p.first(ctx)
	for err == nil {
		top := highest(page.rows)
		if top >= a.Fence {
			return top, nil
		}
		if err := p.copyPage(ctx, page, a.Fence); err != nil || !page.more {
			return top, err
		}
		if len(page.rows) > 0 {
			p.table = p.table.withoutStatic() // they were written with the first interval
		}
		page, err = p.next(ctx, page)
	}
	return 0, fmt.Errorf("read the partition: %w", err)
}

// copyPage writes a page back.
func (p partition) copyPage(ctx context.Context, page resultPage, fence musiccore.Stamp) error {
	if err := p.learnMarkers(ctx, page); err != nil {
		return err
	}
	for _, b := range p.table.rewrite(p.pk, page, rewriting{fence: fence, batch: min(p.sizes.batch, p.sizes.largest/2)}) {
		if err := p.write(ctx, b); err != nil {
			return err
		}
	}
	return nil
}

// write sends the statements as one mutation, or returns errTooLarge.
func (p partition) write(ctx context.Context, b mutation) error {
	if b.weight > p.sizes.largest || len(b.writes) > maxStatements {
		return fmt.Errorf("%w: writing it back takes %d bytes in %d statements; at most %d bytes and %d statements are allowed",
			errTooLarge, b.weight, len(b.writes), p.sizes.largest, maxStatements)
	}
	batch := p.Session.Batch(gocql.UnloggedBatch).Consistency(p.Quorum).RetryPolicy(nil).
		SpeculativeExecutionPolicy(gocql.NonSpeculativeExecution{}).DefaultTimestamp(false).WithNowInSeconds(p.now)
	for _, w := range b.writes {
		batch.Query(w.text, bound(w.values)...)
	}
	err := batch.ExecContext(ctx)
	switch {
	case err == nil:
		return nil
	case p.notTaken(ctx, err):
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	return fmt.Errorf("write the partition back: %w", err)
}

// notTaken reports whether Cassandra has refused a mutation for its values: a constraint of a column, or
// a guardrail, may be newer than they are. It is not sure where the schema has changed meanwhile.
func (p partition) notTaken(ctx context.Context, err error) bool {
	var refused gocql.RequestError
	if !errors.As(err, &refused) || refused.Code() != gocql.ErrCodeInvalid {
		return false
	}
	view, _, err := askView(ctx, p.Cluster)
	return err == nil && view.version == p.version
}

// bound returns values for the driver to bind. nil becomes UNSET, never null.
func bound(values []RawValue) []any {
	all := make([]any, len(values))
	for i, v := range values {
		if v == nil {
			all[i] = gocql.UnsetValue
		} else {
			all[i] = v
		}
	}
	return all
}
