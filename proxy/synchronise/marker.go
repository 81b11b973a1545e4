package synchronise

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	farFuture  = math.MaxInt32 - 1 // a second at which everything with a TTL has expired; the last one that every version takes
	clockSlack = 24 * 60 * 60      // seconds by which a node's clock may be ahead
)

// errMoved means that a row changed between the two reads of an attempt, so that its marker is not
// known.
var errMoved = errors.New("a late write came between two reads")

// markerLife is the TTL of a row's marker, which CQL does not show.
type markerLife struct {
	found bool
	ttl   int32 // 0 = for ever
}

// markerTTL returns the TTL to write a row's marker with: the one that was found, or else that of
// the marker rule (docs/protocol.md 3.9). The rule gives 0 if a column has no TTL, or if there is
// no column, and else the longest TTL, so that the row expires with its last column.
func (r dataRow) markerTTL() int32 {
	if r.marker.found {
		return r.marker.ttl
	}
	return r.longest()
}

// longest returns the longest TTL of the row's columns; 0 if one has none, or if there is no
// column.
func (r dataRow) longest() int32 {
	ttls := r.ttls()
	if len(ttls) == 0 || slices.Contains(ttls, 0) {
		return 0
	}
	return slices.Max(ttls)
}

// ttls returns the TTLs of the row's regular columns, and of the elements of collections.
func (r dataRow) ttls() []int32 {
	var ttls []int32
	for _, c := range r.regular {
		if !c.term.null() && c.parts == nil {
			ttls = append(ttls, c.ttl)
		}
		for _, p := range c.parts {
			ttls = append(ttls, p.ttl)
		}
	}
	return ttls
}

// shows reports whether a read can show the row's marker: a read as of a second at which the row
// has no columns, which is now if it has none, or after its last column has expired. Without such a
// read the marker rule guesses. It is wrong for a row that was inserted without a TTL and got
// columns with one later (`INSERT (k, c)`, then `UPDATE .. USING TTL 30 SET holder = ..`), and for
// a row of key columns that was inserted with a TTL.
func (r dataRow) shows() bool {
	return !r.staticOnly() && (r.longest() > 0 || len(r.ttls()) == 0)
}

// clusteringKey returns a string that identifies the row within its partition.
func (r dataRow) clusteringKey() string { return fmt.Sprint(r.clustering) }

// learn stores which rows have a marker without a TTL. later are the rows of the same partition,
// read once more as of farFuture: a row that still exists, and has no column, exists because of its
// marker. It returns the rows whose markers expire, or do not exist: findEnds must find the second.
// moved reports whether a late write hides a marker.
//
// Why two reads may be combined: the caller's term has no put in flight, so only late writes of
// preempted terms can change the partition between them. Those were never acknowledged, and may
// take effect or not until the fence excludes them. Every column has its value from the first read.
// A marker is one more register, which CQL shows only when the columns have expired; it has its
// value from the second read, which is later and at QUORUM, so that it has everything acknowledged.
// So each register has a value that a quorum read could have shown. A late write of several
// registers (or a late DELETE of several rows) may be kept in one and excluded in another, as with
// any unacknowledged batch of a preempted term (docs/protocol.md 6, M1). By case:
//   - a row that only the second read has was written in between: it is ignored, and the fence deletes it;
//   - a row that only the first read has has no marker, or one that expires, or was deleted by a late DELETE: findEnds asks;
//   - a row that now has columns without a TTL got them in between. They hide its marker, and the rule might remove one that
//     was acknowledged: moved, so that the next attempt reads them first;
//   - a row that still has a TTL was read by the server's own clock, as below version 5 of the protocol, or expires after
//     farFuture: the rule applies.
//
// What this read cannot show: replicas leave out what has expired or was deleted more than
// gc_grace_seconds before the time of the read, which here is everything. So a replica that has
// missed a deletion shows a row that the others would have refuted. Therefore the same node is
// asked: the first read has repaired the replicas that it asks. If the table has no read repair,
// moved would be true for ever, and the rule is used instead. The worst result is a row of nulls
// that should be gone; no acknowledged value is lost.
func learn(rows, later []dataRow) (ending []*dataRow, moved bool) {
	known := map[string][]int32{}
	for _, r := range later {
		if !r.staticOnly() {
			known[r.clusteringKey()] = r.ttls()
		}
	}
	for i, r := range rows {
		ttls, there := known[r.clusteringKey()]
		switch {
		case !r.shows():
		case !there:
			ending = append(ending, &rows[i])
		case slices.ContainsFunc(ttls, func(ttl int32) bool { return ttl > 0 }):
		case len(ttls) > 0:
			moved = true
		default:
			rows[i].marker = markerLife{found: true}
		}
	}
	return ending, moved
}
