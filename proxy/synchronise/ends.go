package synchronise

import (
	"context"
	"errors"
	"slices"
	"sync"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

const (
	longestTTL  = 20 * 365 * 24 * 60 * 60 // seconds, Cassandra's limit
	rowsAtOnce  = 128                     // rows named by one statement
	mostSeconds = 256                     // different seconds at which the last columns of a page's rows expire; with more, markers follow the rule
	readsAtOnce = 16                      // questions of a search that are under way
)

// search is a binary search for the second at which the markers of rows expire: all exist at lo,
// and none at hi. It begins at the second before the last column of each expires.
type search struct {
	rows         []*dataRow
	level        gocql.Consistency
	from, lo, hi int
}

// findEnds finds when the markers of rows expire, to the second, by reading the rows as of later
// seconds: a row that exists and has no column exists because of its marker.
//
// A row without any column is read at QUORUM. A row that has columns is read at ONE, from the node
// that the partition was read from. At QUORUM a column that expires by the second of the read comes
// as a tombstone. Read repair would write that to a replica that has missed the column, where the
// column would then be gone too early. All that is at stake is how long a row of nulls remains.
//
// A late write of a preempted term that arrives meanwhile may change the end of a marker, or create
// a row's marker or column. If a row without any column has one now, the attempt must begin again.
// An end between the old and the new one is as good as either: a marker shows nothing but that its
// row exists.
func (p partition) findEnds(ctx context.Context, rows []*dataRow) error {
	return findEnds(p.now, p.searches(rows), func(s search, at int) (there, gone []*dataRow, err error) {
		return p.look(ctx, s, at)
	})
}

// findEnds carries out searches. look returns which rows of a search exist at a second and which do
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

// searches returns the searches for the ends of the rows' markers. Rows whose last columns expire
// together share one.
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

// next returns the next second to read at. While there is no upper bound it is four times as far
// from the beginning as the last one.
func (s search) next() int {
	if far := s.lo + max(1, 3*(s.lo-s.from)); s.hi == farFuture && far < s.hi {
		return far
	}
	return s.lo + (s.hi-s.lo)/2
}

// halve reads once, and returns the searches that are left to do.
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

// look reads which rows exist at a second. A row that has a column is in neither result: its marker
// follows the rule.
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

// together calls f for 0 … n-1, at most readsAtOnce at a time. It blocks until all have returned,
// and joins their errors.
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
