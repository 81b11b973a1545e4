package synchronise

import (
	"context"
	"errors"
	"slices"
	"sync"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const (
	longestTTL  = 20 * 365 * 24 * 60 * 60 // seconds; Cassandra takes none above
	rowsAtOnce  = 128                     // that one statement names
	mostSeconds = 256                     // of a page, at which last columns go: with more of them the rule holds
	readsAtOnce = 16
)

// search is for the second at which the markers of rows end: all are there at lo, and gone at hi.
// It began at a second at which the last column of each had not yet gone.
type search struct {
	rows         []*dataRow
	level        gocql.Consistency
	from, lo, hi int
}

// findEnds finds when the markers of the rows end, to the second, by reading the rows at later
// seconds: whoever is there and has no column is there by its marker. A row without any column is
// read at QUORUM. A row that has some is read at ONE, from the node that the partition was read
// from: at QUORUM a column that expires by the second of the read comes as a tombstone, and read
// repair would write that to a replica that has missed the column, which then would be gone before
// its time; what is at stake is how long a row of nulls remains.
//
// A late write of a preempted term that comes meanwhile may move the end of a marker, or be what a
// row is there by. Where a row without any column has one now, the attempt is to begin again. An
// end between the old and the new is as good as each of them: nobody sees more of a marker than
// that its row is there.
func (p partition) findEnds(ctx context.Context, rows []*dataRow) error {
	return findEnds(p.now, p.searches(rows), func(s search, at int) (there, gone []*dataRow, err error) {
		return p.look(ctx, s, at)
	})
}

// findEnds carries out searches; look tells which rows of one are there at a second, and which are
// not.
func findEnds(now int, open []search, look func(s search, at int) (there, gone []*dataRow, err error)) error {
	for len(open) > 0 {
		found := make([][]search, len(open))
		err := together(len(open), func(i int) (err error) {
			found[i], err = open[i].halve(now, look)
			return err
		})
		if err != nil {
			return err
		}
		open = slices.Concat(found...)
	}
	return nil
}

// searches are those that find the ends of the rows. Rows that can end together are in one.
func (p partition) searches(rows []*dataRow) []search {
	byLongest := map[int32][]*dataRow{}
	for _, r := range rows {
		byLongest[r.longest()] = append(byLongest[r.longest()], r)
	}
	var all []search
	for longest, rows := range byLongest {
		if longest > 0 && len(byLongest) > mostSeconds {
			continue
		}
		s := search{level: gocql.One, from: p.now + int(max(0, longest-1)), hi: farFuture}
		if longest == 0 && !p.table.staticAlone {
			s.level = p.Quorum
		}
		s.lo = s.from
		for s.rows = range slices.Chunk(rows, rowsAtOnce) {
			all = append(all, s)
		}
	}
	return all
}

// next is the second to look at: where nothing is known of the end, one that is four times as far
// from the beginning as the last.
func (s search) next() int {
	if far := s.lo + max(1, 3*(s.lo-s.from)); s.hi == farFuture && far < s.hi {
		return far
	}
	return s.lo + (s.hi-s.lo)/2
}

// halve looks once, and answers the searches that are left to do.
func (s search) halve(now int, look func(s search, at int) (there, gone []*dataRow, err error)) ([]search, error) {
	if s.hi == s.lo+1 {
		for _, r := range s.rows {
			r.marker = markerLife{found: true, ttl: int32(min(s.hi-now, longestTTL))}
		}
		return nil, nil
	}
	at := s.next()
	there, gone, err := look(s, at)
	var left []search
	if len(there) > 0 {
		left = append(left, search{there, s.level, s.from, at, s.hi})
	}
	if len(gone) > 0 {
		left = append(left, search{gone, s.level, s.from, s.lo, at})
	}
	return left, err
}

// look reads which rows are there at a second. One with a column is in neither: the rule holds for
// it.
func (p partition) look(ctx context.Context, s search, at int) (there, gone []*dataRow, err error) {
	q := p.at(at)
	q.Quorum, q.table = s.level, p.table.withoutStatic()
	rows, err := q.all(ctx, q.table.among(s.rows))
	if err != nil {
		return nil, nil, errors.Join(errors.New("read when markers end"), err)
	}
	columns := map[string]int{}
	for _, r := range rows {
		columns[r.clusteringKey()] = len(r.ttls())
	}
	for _, r := range s.rows {
		n, shown := columns[r.clusteringKey()]
		switch {
		case !shown:
			gone = append(gone, r)
		case n == 0:
			there = append(there, r)
		case r.longest() == 0 && p.table.repaired:
			return nil, nil, errMoved
		}
	}
	return there, gone, nil
}

// together calls f for 0 … n-1, a few at a time, and answers what all have to complain of.
func together(n int, f func(int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for w := range min(n, readsAtOnce) {
		all.Go(func() {
			for i := w; i < n; i += readsAtOnce {
				errs[i] = f(i)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
