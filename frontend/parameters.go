package frontend

import (
	"bytes"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// byPosition makes values that are bound by name values that are bound by position, each as often as its marker stands in the statement. Of
// several values with one name the first counts, as with Cassandra.
func byPosition(p *wire.Parameters, st *rewrite.Statement, text []byte) *wire.Failure {
	if len(st.MarkerNames) < st.Markers {
		return wire.Invalid("MUSIC_SYNTAX: values are bound by name, but not every bind marker has one")
	}
	ordered := make([][]byte, 0, st.Markers)
	for _, n := range st.MarkerNames {
		name := n.AppendTo(nil, text)
		i := slices.IndexFunc(p.Names, func(given []byte) bool { return bytes.Equal(given, name) })
		if n == (rewrite.Name{}) || i < 0 {
			return wire.Invalid("MUSIC_SYNTAX: no value is bound to the marker %q", name)
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

// checkNow refuses a time of the client's own (v5, now_in_seconds) under a lock. A deletion of long ago is purged at once, so that a late
// write of an earlier holder comes back; and a read of the far future is not shown what was deleted until then, but what it hid.
func checkNow(p *wire.Parameters, t *catalog.Table) *wire.Failure {
	if !p.Flags.Contains(primitive.QueryFlagNowInSeconds) {
		return nil
	}
	return wire.Invalid("MUSIC_REFUSED: %s is critical: now_in_seconds cannot stand in a request under a lock", t)
}

// fenceParameters makes the parameters those of an operation under a lock: QUORUM at least, or LOCAL_QUORUM where the lock is of one data
// centre, and the stamp of a write, if it is one, in the wire's own form of USING TIMESTAMP (docs/design.md 5, "one mechanism"). A
// QUORUM of all data centres need not meet a LOCAL_QUORUM of one: it is none that is higher.
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
