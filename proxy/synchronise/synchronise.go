// Package synchronise settles what a key of a data table holds: it reads the key at QUORUM and
// writes it back above a fence, so that no write from before the fence can surface again
// (docs/protocol.md 3.9, Synch).
package synchronise

import (
	"context"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend/refusal"
	"music/musiccore"
)

// Why an attempt ended early. errTooLarge holds until the key shrinks, errNotAgreed for a moment.
var (
	errTooLarge  = errors.New("row is larger than Cassandra takes")
	errNotAgreed = errors.New("nodes do not agree on the schema")
)

// Cluster is where a table is read and written. Its session must speak version 4 of the protocol or
// higher, and retry nothing by itself.
type Cluster struct {
	Session *gocql.Session
	Quorum  gocql.Consistency // QUORUM, or LOCAL_QUORUM where the locks of the table are decided within one data centre
	Known   *Descriptions     // what has been read of the tables of this cluster; nil remembers nothing
}

// Target names what is synchronised in a data table: a partition, or with Row one row. PK is the
// routing key as on the wire: the bytes of its only column, or of each column a length of 2 bytes,
// the bytes, and a 0. With Row its columns are those of the whole primary key.
type Target struct {
	Keyspace, Table string
	PK              string
	Row             bool
}

// Run is one attempt: it reads the key at QUORUM, of all data centres or of one, and writes it
// back, a DELETE at the fence and every cell at fence+1. What fits one page and one mutation is
// read and written at once. Of what does not, each interval of the clustering order is one
// mutation, one after the other.
//
// StatusDone: all of them are acknowledged, and nothing with a stamp up to the fence can surface
// again. StatusAbove, StatusTooLarge, StatusUnknown: some intervals may have been written, or be
// written later. That is safe, whatever comes next, because the fences of one key only rise: an
// interval was written as a QUORUM read had it, in one mutation whose stamps lie in the term's own
// window, so it loses nothing that was acknowledged; no put of the term is under way meanwhile; and
// the next attempt, of this term or of a later one, reads at QUORUM what it finds there and fences
// it in turn. StatusTooLarge is the result until the key changes; Cause says why,
// errNotSynchronisable where it is the table. Unavailable: too few replicas live, as Cassandra
// says. No fence may be used twice: lists would have their elements twice.
func Run(ctx context.Context, in Cluster, k Target, a musiccore.Synch) musiccore.Result {
	p, err := newPartition(ctx, in, k)
	if err != nil {
		return failed(err)
	}
	return p.run(ctx, a)
}

// newPartition reads the schema that an attempt rests on.
func newPartition(ctx context.Context, in Cluster, k Target) (partition, error) {
	p := partition{Cluster: in, sizes: usualSizes()}
	view, err := agreedView(ctx, in.Session)
	if err != nil {
		return p, err
	}
	p.now = view.now
	described, err := view.tableDescription(ctx, in, k)
	if err != nil {
		return p, err
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

// partition is where one attempt reads and writes. Both use the same now, in seconds of Unix time,
// so that what has a TTL expires when it would have, however long the attempt takes; where the
// protocol is below version 5 the driver leaves it out. 0 is Cassandra's own.
type partition struct {
	Cluster
	table tableLayout
	pk    []cqlTerm
	now   int
	host  string // id of the node that is asked, "" for any
	sizes sizes
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

// failed is the result of an attempt that ended with an error.
func failed(err error) musiccore.Result {
	var few *gocql.RequestErrUnavailable
	switch {
	case errors.Is(err, errNotSynchronisable), errors.Is(err, errTooLarge):
		return musiccore.Result{Status: musiccore.StatusTooLarge, Cause: err}
	case errors.As(err, &few):
		return musiccore.Result{Status: musiccore.StatusUnavailable, Cause: &refusal.ShortError{
			Text: few.Message(), Consistency: uint16(few.Consistency), Required: few.Required, Alive: few.Alive,
		}}
	}
	return musiccore.Result{Status: musiccore.StatusUnknown, Cause: fmt.Errorf("synchronise: %w", err)}
}

// copy goes through the key page by page. It ends at a stamp that reaches the fence, and answers
// it.
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
			p.table = p.table.withoutStatic() // they went with the first interval: now they stand above the fence
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

// write sends the statements as one mutation, or answers errTooLarge. The number of statements
// needs no check where there are several rows: 65535 of them are larger than such a batch may be.
func (p partition) write(ctx context.Context, b mutation) error {
	if b.weight > p.sizes.largest || len(b.writes) > maxStatements {
		return fmt.Errorf("%w: %d bytes in %d statements write it back, and %d bytes and %d statements are allowed",
			errTooLarge, b.weight, len(b.writes), p.sizes.largest, maxStatements)
	}
	batch := p.Session.Batch(gocql.UnloggedBatch).Consistency(p.Quorum).RetryPolicy(nil).
		SpeculativeExecutionPolicy(gocql.NonSpeculativeExecution{}).DefaultTimestamp(false).WithNowInSeconds(p.now)
	for _, w := range b.writes {
		batch.Query(w.text, bound(w.values)...)
	}
	if err := batch.ExecContext(ctx); err != nil {
		return fmt.Errorf("write the partition back: %w", err)
	}
	return nil
}

// bound are values as the driver takes them: nil is UNSET, never null.
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
