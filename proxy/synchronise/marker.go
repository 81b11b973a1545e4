package synchronise

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

const (
	farFuture  = math.MaxInt32 - 1 // a now at which all that has a TTL is gone; the last second that every version takes
	clockSlack = 24 * 60 * 60      // seconds by which a node's clock may be ahead
)

// errMoved says that a row changed between the two reads of an attempt, so that its marker is not
// known.
var errMoved = errors.New("a late write came between two reads")

// markerLife is how long a row's marker lives, which CQL does not show.
type markerLife struct {
	found bool
	ttl   int32 // 0: for ever
}

// markerTTL is the TTL of a row's marker: as it was found; else none if anything in the row has
// none, or if nothing is in it, and the largest otherwise, so that the row goes with its last
// column (docs/protocol.md 3.9, marker rule).
func (r dataRow) markerTTL() int32 {
	if r.marker.found {
		return r.marker.ttl
	}
	return r.longest()
}

// longest is the TTL of the column that lives longest: 0 if one has none, or if there is no column.
func (r dataRow) longest() int32 {
	ttls := r.ttls()
	if len(ttls) == 0 || slices.Contains(ttls, 0) {
		return 0
	}
	return slices.Max(ttls)
}

// ttls are those of all that the row has outside its key and the static columns.
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

// shows reports that the row's marker can be seen, by a read at a second at which nothing else of the
// row lives: now, where the row has its key alone, or once its last column has gone. Without such a
// read the rule guesses, wrongly for a row that was inserted without a TTL and got such columns
// later (`INSERT (k, c)`, then `UPDATE .. USING TTL 30 SET holder = ..`), and for a key that was
// inserted with a TTL.
func (r dataRow) shows() bool {
	return !r.staticOnly() && (r.longest() > 0 || len(r.ttls()) == 0)
}

// clusteringKey tells the row from the others of its partition.
func (r dataRow) clusteringKey() string { return fmt.Sprint(r.clustering) }

// learn notes which rows have a marker without a TTL, out of the same partition read once more at
// farFuture: a row that is still there, and has no column, is there by its marker. moved says that
// a late write hides some marker.
//
// Why two reads may be put together. The caller's term has no put in flight, so all that can change
// the partition between them are late writes of preempted terms: never acknowledged, free to have
// taken effect or not until the fence cuts them off. Every column is as the first read had it. A
// marker is one more such register, which CQL shows only once the columns have gone; it is as the
// second read had it, and that, being later and at QUORUM, has whatever was acknowledged. So each
// register has a value that a quorum read could have shown, although a late write that set several
// (or a late DELETE of several rows) may be kept in one and fenced off in another: as with any
// unacknowledged batch of a preempted term (docs/protocol.md 6, M1). By case:
//   - a row that only the second read has was written in between: it is ignored, and the fence deletes it;
//   - a row that only the first read has got no marker, or one that ends, or a late DELETE took it: findEnds asks;
//   - a row that now has columns without a TTL got them in between. They hide its marker, and the rule might take one that
//     was acknowledged: moved, for the next attempt to read them first;
//   - a row that has a TTL even now was read by the server's own clock, as below version 5 of the protocol, or lives longer
//     than farFuture: the rule holds.
//
// What this read cannot see: replicas leave out what expired or was deleted gc_grace_seconds before
// its now, which is all of it, and so one that missed a deletion shows what the others could have
// refuted. Hence the same node: the replicas that it asks were repaired by the first read. Where
// the table is never repaired so, moved is for ever, and the rule better than no end. The worst
// that remains is a row of nulls that should have gone; no value that was acknowledged is lost.
//
// Answered are the rows whose markers end, at a second that is to be found (findEnds).
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
