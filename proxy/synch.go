package proxy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/musiccore"
)

// What one page may be. Cassandra bounds a page by its rows alone: a first, short one tells whether the rows are so large
// that a full one would not fit in memory.
const (
	shortPage  = 100
	fullPage   = 5000
	pageBytes  = 4 << 20   // of a short page with more behind it
	batchBytes = 1 << 20   // of a batch: a mutation of this size is taken everywhere
	frameBytes = 128 << 10 // no native_transport_max_message_size is below this; larger batches ask for it
)

// Why an attempt ended without writing. errTooLarge holds until the key shrinks, errNotAgreed for a moment.
var (
	errTooLarge  = errors.New("key is larger than one page")
	errNotAgreed = errors.New("nodes do not agree on the schema")
)

// keyOfTable names one partition of a data table. PK is the routing key as on the wire: the bytes of its only column, or
// of each column a length of 2 bytes, the bytes, and a 0.
type keyOfTable struct {
	Keyspace, Table string
	PK              string
}

// synchronise reads the partition at QUORUM and writes it back: DELETE at fence, every cell at fence+1, one mutation
// (PROTOCOL.md 1, Synch, one page). Done: acknowledged, and nothing with a stamp up to the fence can surface again. Above:
// nothing was written. TooLarge: nothing was written, nor ever will be; Cause says why, errNotSynchronisable where it is
// the table. Unknown: it may have been written, or be written later; an attempt with a higher fence makes it good. The
// same fence twice is a mistake: lists would have their elements twice. The session must speak version 4 of the protocol
// or higher, and retry nothing by itself.
func synchronise(ctx context.Context, s *gocql.Session, t keyOfTable, a musiccore.Copy) musiccore.Result {
	top, err := copyPartition(ctx, s, t, a)
	switch {
	case errors.Is(err, errNotSynchronisable), errors.Is(err, errTooLarge):
		return musiccore.Result{Fate: musiccore.TooLarge, Cause: err}
	case err != nil:
		return musiccore.Result{Fate: musiccore.Unknown, Cause: fmt.Errorf("synchronise: %w", err)}
	case top >= a.Fence:
		return musiccore.Result{Fate: musiccore.Above, Stamp: top}
	}
	return musiccore.Result{Fate: musiccore.Done}
}

// copyPartition answers the highest stamp met; if it reaches the fence nothing was written.
func copyPartition(ctx context.Context, s *gocql.Session, t keyOfTable, a musiccore.Copy) (musiccore.Stamp, error) {
	view, err := agreedView(ctx, s)
	if err != nil {
		return 0, err
	}
	described, err := view.describe(ctx, s, t)
	if err != nil {
		return 0, err
	}
	table, err := newSynchTable(described)
	if err != nil {
		return 0, err
	}
	pk, err := table.key(t.PK)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errNotSynchronisable, err)
	}
	p := partition{session: s, table: table, pk: pk, now: view.now}
	page, err := p.read(ctx)
	if err != nil {
		return 0, err
	}
	top := highest(page.rows)
	if top >= a.Fence || a.Skip && len(page.rows) == 0 {
		return top, nil
	}
	if err := p.learnMarkers(ctx, page); err != nil {
		return 0, err
	}
	return top, p.write(ctx, table.rewrite(pk, page.rows, a.Fence))
}

// partition is where one attempt reads and writes. Both use the same now, in seconds of Unix time, so that what has a TTL
// expires when it would have; where the protocol is below version 5 the driver leaves it out.
type partition struct {
	session *gocql.Session
	table   synchTable
	pk      []synchTerm
	now     int
	host    string // id of the node that is asked, "" for any
}

// read answers all rows as one page had them, or errTooLarge.
func (p partition) read(ctx context.Context) (synchPage, error) {
	for _, size := range []int{shortPage, fullPage} {
		page, err := p.page(ctx, size)
		switch {
		case err != nil:
			return page, fmt.Errorf("read the partition: %w", err)
		case !page.more:
			return page, nil
		case page.bytes > pageBytes:
			return page, fmt.Errorf("%w: %d bytes in its first %d rows", errTooLarge, page.bytes, size)
		}
	}
	return synchPage{}, fmt.Errorf("%w: more than %d rows", errTooLarge, fullPage)
}

// learnMarkers asks for the rows' markers where the rule would have to guess them, by a second read at QUORUM. It goes to
// the same node, which asks the same replicas unless one is slow: the first read has repaired those. Rows that the second
// does not show, such as those beyond its page, follow the rule.
func (p partition) learnMarkers(ctx context.Context, page synchPage) error {
	if p.now+clockSlack >= p.table.forgotten || !slices.ContainsFunc(page.rows, synchRow.guessed) {
		return nil
	}
	p.now, p.host = farFuture, page.host
	later, err := p.page(ctx, fullPage)
	switch {
	case err != nil:
		return fmt.Errorf("read the markers: %w", err)
	case learn(page.rows, later.rows) && p.table.repaired:
		return errMoved
	}
	return nil
}

// synchPage is what one answer of Cassandra had of a partition.
type synchPage struct {
	rows  []synchRow
	bytes int
	more  bool   // rows are left
	host  string // id of the node that answered
}

// page reads the first rows of the partition.
func (p partition) page(ctx context.Context, size int) (synchPage, error) {
	selection := p.table.selection(p.pk)
	iter := p.session.Query(selection.text, bound(selection.values)...).Consistency(gocql.Quorum).Idempotent(false).
		RetryPolicy(nil).WithNowInSeconds(p.now).PageSize(size).PageState(nil).SetHostID(p.host).IterContext(ctx)
	values := make([]rawBytes, len(iter.Columns()))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	page := synchPage{more: len(iter.PageState()) > 0}
	if host := iter.Host(); host != nil {
		page.host = host.HostID()
	}
	for iter.Scan(into...) {
		row, err := p.table.row(values)
		if err != nil {
			return page, errors.Join(err, iter.Close())
		}
		page.rows = append(page.rows, row)
		for _, v := range values {
			page.bytes += 4 + len(v)
		}
	}
	return page, iter.Close()
}

// write sends the statements as one mutation, or answers errTooLarge.
func (p partition) write(ctx context.Context, writes []synchWrite) error {
	size := frameOverhead
	for _, w := range writes {
		size += w.size()
	}
	if err := p.fits(ctx, size); err != nil {
		return err
	}
	batch := p.session.Batch(gocql.UnloggedBatch).Consistency(gocql.Quorum).RetryPolicy(nil).
		SpeculativeExecutionPolicy(gocql.NonSpeculativeExecution{}).DefaultTimestamp(false).WithNowInSeconds(p.now)
	for _, w := range writes {
		batch.Query(w.text, bound(w.values)...)
	}
	if err := batch.ExecContext(ctx); err != nil {
		return fmt.Errorf("write the partition back: %w", err)
	}
	return nil
}

// frameOverhead is what a BATCH frame has around its statements.
const frameOverhead = 9 + 1 + 2 + 2 + 4 + 2 + 8 + 4

// fits answers errTooLarge for a batch that the cluster would not take. The number of statements needs no check: 65535 of
// them are larger than batchBytes.
func (p partition) fits(ctx context.Context, size int) error {
	limit := batchBytes
	if size > frameBytes && size <= batchBytes {
		var text string
		const setting = "SELECT value FROM system_views.settings WHERE name = 'native_transport_max_message_size'"
		err := p.session.Query(setting).Consistency(gocql.One).RetryPolicy(nil).ScanContext(ctx, &text)
		if err != nil && !errors.Is(err, gocql.ErrNotFound) {
			return fmt.Errorf("read native_transport_max_message_size: %w", err)
		}
		limit = min(limit, byteSize(text, limit))
	}
	if size > limit {
		return fmt.Errorf("%w: a batch of %d bytes, and %d are allowed", errTooLarge, size, limit)
	}
	return nil
}

// byteSize reads a size as Cassandra's settings have it, 4194304B or 16MiB; other is the answer for what is no size.
func byteSize(text string, other int) int {
	for unit, shift := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "B": 0, "": 0} {
		if n, err := strconv.Atoi(strings.TrimSuffix(text, unit)); err == nil && strings.HasSuffix(text, unit) {
			return n << shift
		}
	}
	return other
}

// bound are values as the driver takes them: nil is UNSET, never null.
func bound(values []rawBytes) []any {
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
