package synchronise

import (
	"context"
	"errors"
	"slices"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// sizes bound one read and one write.
type sizes struct {
	short, full int // rows of the first page, and of any page
	page        int // bytes that a page should have
	batch       int // bytes of a batch with several rows: every node accepts a mutation of this size
	largest     int // bytes of any batch
}

// usualSizes returns the sizes of every attempt, except largest. Cassandra bounds a page only by
// its number of rows, so the first page is short, to see how large rows are.
func usualSizes() sizes {
	return sizes{short: 100, full: 5000, page: 4 << 20, batch: 1 << 20, largest: 1 << 20}
}

// rows returns how many rows the next page should have, after one with so many rows and bytes.
func (s sizes) rows(rows, bytes int) int {
	return max(1, min(s.full, s.page*max(1, rows)/max(1, bytes)))
}

// resultPage is one page of a partition.
type resultPage struct {
	after []cqlTerm // clustering columns of the last row before the page; nil for the first page
	rows  []dataRow
	bytes int
	more  bool   // there are more rows after the page
	state []byte // paging state of the next page
	host  string // id of the node that answered
}

// last returns the clustering columns of the last row up to the page's end, nil if there is none.
func (s resultPage) last() []cqlTerm {
	if len(s.rows) == 0 {
		return s.after
	}
	return s.rows[len(s.rows)-1].clustering
}

// interval returns the interval of which the page has all rows.
func (s resultPage) interval() interval {
	if !s.more {
		return interval{lo: s.after}
	}
	return interval{lo: s.after, hi: s.last()}
}

// first reads the whole partition if a page can hold it, else its beginning.
func (p partition) first(ctx context.Context) (resultPage, error) {
	page, err := p.fewer(ctx, p.sizes.short, nil)
	rows := p.sizes.rows(len(page.rows), page.bytes)
	if err != nil || !page.more || rows <= len(page.rows) {
		return page, err
	}
	whole, err := p.page(ctx, clause{}, rows, nil)
	if isTooMuch(err) {
		return page, nil
	}
	return whole, err
}

// next reads the page after before.
func (p partition) next(ctx context.Context, before resultPage) (resultPage, error) {
	page, err := p.fewer(ctx, p.sizes.rows(len(before.rows), before.bytes), before.state)
	page.after = before.last()
	return page, err
}

// fewer reads at most so many rows from the paging state on, or fewer where that is too much at once:
// rows may be much longer than those of the page before.
func (p partition) fewer(ctx context.Context, rows int, state []byte) (page resultPage, err error) {
	for ; ; rows = max(1, rows/64) {
		if page, err = p.page(ctx, clause{}, rows, state); rows == 1 || !isTooMuch(err) {
			return page, err
		}
	}
}

// isTooMuch reports whether a read may have failed because of the size of its page.
func isTooMuch(err error) bool {
	var slow *gocql.RequestErrReadTimeout
	var failed *gocql.RequestErrReadFailure
	return errors.As(err, &slow) || errors.As(err, &failed) || errors.Is(err, gocql.ErrTimeoutNoResponse) || errors.Is(err, gocql.ErrFrameTooBig)
}

// learnMarkers finds the rows' markers that the rule would have to guess, by a second read at
// QUORUM of the same interval. It is sent to the same node, which asks the same replicas unless one
// is slow: the first read has repaired those. Markers that it does not show follow the rule.
func (p partition) learnMarkers(ctx context.Context, page resultPage) error {
	if p.now+clockSlack >= p.table.forgotten || !slices.ContainsFunc(page.rows, dataRow.shows) {
		return nil
	}
	p.host = page.host
	var later []dataRow
	for _, c := range p.table.clauses(page.interval()) {
		rows, err := p.at(farFuture).all(ctx, c)
		if err != nil {
			return errors.Join(errors.New("read the markers"), err)
		}
		later = append(later, rows...)
	}
	ending, moved := learn(page.rows, later)
	if moved && p.table.repaired {
		return errMoved
	}
	return p.findEnds(ctx, ending)
}

// at returns the partition as of another second.
func (p partition) at(now int) partition {
	p.now = now
	return p
}

// all reads all rows of a clause, page by page. There can be more than the first read had, by late
// writes.
func (p partition) all(ctx context.Context, c clause) ([]dataRow, error) {
	var rows []dataRow
	var state []byte
	for {
		page, err := p.page(ctx, c, p.sizes.full, state)
		rows = append(rows, page.rows...)
		if err != nil || !page.more {
			return rows, err
		}
		state = page.state
	}
}

// page reads at most so many rows of a clause, from the paging state on.
func (p partition) page(ctx context.Context, c clause, rows int, state []byte) (resultPage, error) {
	selection := p.table.selection(p.pk, c)
	query := p.Session.Query(selection.text, bound(selection.values)...).Consistency(p.Quorum).Idempotent(false).
		RetryPolicy(nil).PageSize(rows).PageState(state).SetHostID(p.host)
	if p.now != 0 {
		query = query.WithNowInSeconds(p.now)
	}
	iter := query.IterContext(ctx)
	values := make([]RawValue, len(iter.Columns()))
	into := make([]any, len(values))
	for i := range values {
		into[i] = &values[i]
	}
	page := resultPage{state: iter.PageState()}
	page.more = len(page.state) > 0
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
