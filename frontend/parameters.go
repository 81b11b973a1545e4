package frontend

import (
	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// byPosition converts values bound by name to values bound by position, in place. A value is
// repeated as often as its marker occurs in the statement, so it refuses values that have more than
// most bytes then.
func byPosition(p *wire.Parameters, st *rewrite.Statement, text []byte, most int) *wire.Failure {
	if len(st.MarkerNames) < st.Markers {
		return wire.Invalid("MUSIC_SYNTAX: values are bound by name, but not every bind marker has one: name all markers (:name), or bind by position")
	}
	given := p.ByName()
	ordered, size := make([][]byte, 0, st.Markers), 0
	for _, n := range st.MarkerNames {
		name := n.AppendTo(nil, text)
		i, ok := given[string(name)]
		if n == (rewrite.Name{}) || !ok {
			return wire.Invalid("MUSIC_SYNTAX: no value is bound to the marker %q", name)
		}
		if size += len(p.Values[i]); size > most {
			return wire.Invalid("MUSIC_REFUSED: with its values repeated for each marker of their names the request has more than %d bytes: write fewer markers of one name", most)
		}
		ordered = append(ordered, p.Values[i])
	}
	p.Values, p.Names = ordered, nil
	p.Flags &^= primitive.QueryFlagValueNames
	if len(ordered) == 0 {
		p.Flags &^= primitive.QueryFlagValues
	}
	return nil
}

// checkNow refuses the parameter now_in_seconds of v5 under a lock. A deletion with a time long ago
// is purged at once, so that a late write of an earlier holder would come back. A read with a time
// in the far future does not see tombstones, but the data that they hide.
func checkNow(p *wire.Parameters, t *catalog.Table) *wire.Failure {
	if !p.Flags.Contains(primitive.QueryFlagNowInSeconds) {
		return nil
	}
	return wire.Invalid("MUSIC_REFUSED: %s is critical: now_in_seconds cannot stand in a request under a lock: leave it out", t)
}

// fenceParameters changes the parameters to those of an operation under a lock. The consistency is
// raised to QUORUM or, if local, set to LOCAL_QUORUM: a QUORUM over all data centres need not have
// a replica in common with a LOCAL_QUORUM. A stamp that is not 0 becomes the default timestamp of
// the request (docs/design.md 5, "one mechanism").
func fenceParameters(p *wire.Parameters, stamp int64, local bool) {
	switch c := p.Consistency; {
	case c == primitive.ConsistencyLevelAll, c == primitive.ConsistencyLevelEachQuorum:
	case local:
		p.Consistency = primitive.ConsistencyLevelLocalQuorum
	case c != primitive.ConsistencyLevelSerial:
		p.Consistency = primitive.ConsistencyLevelQuorum
	}
	if stamp != 0 {
		p.Flags |= primitive.QueryFlagDefaultTimestamp
		p.Timestamp = stamp
	}
}
