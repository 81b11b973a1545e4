package frontend

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/catalog"
	"music/rewrite"
)

// parameters are the query parameters of QUERY, EXECUTE and BATCH (v4 spec section 4.1.4, v5 spec 4.1.4), as Cassandra reads them: in
// every version it obeys every flag that fits (QueryOptions.Codec). The slices lie in the body that they were read from.
type parameters struct {
	consistency primitive.ConsistencyLevel
	flags       primitive.QueryFlag
	names       [][]byte // one a value, or none
	values      [][]byte // each with its length before it, as on the wire
	pageSize    []byte   // in wire form, if its flag is set
	state       []byte   // of paging, if its flag is set; nil = null
	serial      []byte   // serial consistency in wire form, if its flag is set
	timestamp   int64    // if its flag is set
	keyspace    string   // in which the request names its tables, if its flag is set
	rest        []byte   // keyspace and now-in-seconds in wire form
}

// readParameters reads to the end of the body; cur.bad tells when they do not fit.
func readParameters(cur *cursor, version byte) parameters {
	p := parameters{consistency: primitive.ConsistencyLevel(cur.short())}
	p.flags = readFlags(cur, version)
	if p.flags.Contains(primitive.QueryFlagValues) {
		p.readValues(cur)
	}
	if p.flags.Contains(primitive.QueryFlagPageSize) {
		p.pageSize = cur.take(4)
	}
	if p.flags.Contains(primitive.QueryFlagPagingState) {
		p.state = cur.value()
	}
	if p.flags.Contains(primitive.QueryFlagSerialConsistency) {
		p.serial = cur.take(2)
	}
	if p.flags.Contains(primitive.QueryFlagDefaultTimestamp) {
		if b := cur.take(8); b != nil {
			p.timestamp = int64(binary.BigEndian.Uint64(b))
		}
	}
	start := cur.at
	if p.flags.Contains(primitive.QueryFlagWithKeyspace) {
		p.keyspace = string(cur.string())
	}
	if p.flags.Contains(primitive.QueryFlagNowInSeconds) {
		cur.take(4)
	}
	p.rest = cur.b[start:]
	return p
}

// knownFlags are the flags of Cassandra 5.0. Any other may say something of what stands behind it, or of what the statement means.
const knownFlags = primitive.QueryFlagNowInSeconds<<1 - 1

// readFlags reads the flags of a request, 32 bits from protocol 5 on. Where one is unknown nobody can say what the request means: it
// cannot be read.
func readFlags(cur *cursor, version byte) primitive.QueryFlag {
	var flags primitive.QueryFlag
	if version >= byte(primitive.ProtocolVersion5) {
		flags = primitive.QueryFlag(cur.int())
	} else {
		flags = primitive.QueryFlag(cur.byte())
	}
	cur.bad = cur.bad || flags&^knownFlags != 0
	return flags
}

func (p *parameters) readValues(cur *cursor) {
	n := cur.short()
	p.values = make([][]byte, 0, min(n, len(cur.b)/4)) // each has its length before it
	for ; n > 0 && !cur.bad; n-- {
		if p.flags.Contains(primitive.QueryFlagValueNames) {
			p.names = append(p.names, cur.string())
		}
		start := cur.at
		cur.value()
		p.values = append(p.values, cur.b[start:cur.at])
	}
}

// order makes values that are bound by name values that are bound by position, each as often as its marker stands in the statement. Of
// several values with one name the first counts, as with Cassandra.
func (p *parameters) order(st *rewrite.Statement, text []byte) *Failure {
	if len(st.MarkerNames) < st.Markers {
		return invalid("MUSIC_SYNTAX: values are bound by name, but not every bind marker has one")
	}
	ordered := make([][]byte, 0, st.Markers)
	for _, n := range st.MarkerNames {
		name := n.AppendTo(nil, text)
		i := slices.IndexFunc(p.names, func(given []byte) bool { return bytes.Equal(given, name) })
		if n == (rewrite.Name{}) || i < 0 {
			return invalid("MUSIC_SYNTAX: no value is bound to the marker %q", name)
		}
		ordered = append(ordered, p.values[i])
	}
	p.values, p.names = ordered, nil
	p.flags &^= primitive.QueryFlagValueNames
	if len(ordered) == 0 {
		p.flags &^= primitive.QueryFlagValues
	}
	return nil
}

// clone is the same in memory of its own: what was read lies in a read buffer.
func (p parameters) clone() parameters {
	own := make([]byte, 0, p.size())
	keep := func(b []byte) []byte {
		if b == nil {
			return nil // a paging state that is null is not empty
		}
		own = append(own, b...)
		return own[len(own)-len(b) : len(own) : len(own)]
	}
	p.values = slices.Clone(p.values)
	for i, v := range p.values {
		p.values[i] = keep(v)
	}
	p.pageSize, p.state, p.serial, p.rest = keep(p.pageSize), keep(p.state), keep(p.serial), keep(p.rest)
	return p
}

// size is how many bytes the parameters carry, but for names.
func (p *parameters) size() int {
	n := len(p.pageSize) + len(p.state) + len(p.serial) + len(p.rest)
	for _, v := range p.values {
		n += len(v)
	}
	return n
}

// checkNow refuses a time of the client's own (v5, now_in_seconds) under a lock. A deletion of long ago is purged at once, so that a late
// write of an earlier holder comes back; and a read of the far future is not shown what was deleted until then, but what it hid.
func (p *parameters) checkNow(t *catalog.Table) *Failure {
	if !p.flags.Contains(primitive.QueryFlagNowInSeconds) {
		return nil
	}
	return invalid("MUSIC_REFUSED: %s is critical: now_in_seconds cannot stand in a request under a lock", t)
}

// appendTo appends the wire form.
func (p *parameters) appendTo(dst []byte, version byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(p.consistency))
	if version >= byte(primitive.ProtocolVersion5) {
		dst = binary.BigEndian.AppendUint32(dst, uint32(p.flags))
	} else {
		dst = append(dst, byte(p.flags))
	}
	if p.flags.Contains(primitive.QueryFlagValues) {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.values)))
		for i, v := range p.values {
			if p.names != nil {
				dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.names[i])))
				dst = append(dst, p.names[i]...)
			}
			dst = append(dst, v...)
		}
	}
	dst = append(dst, p.pageSize...)
	if p.flags.Contains(primitive.QueryFlagPagingState) {
		n := uint32(len(p.state))
		if p.state == nil {
			n = math.MaxUint32 // null is not empty
		}
		dst = append(binary.BigEndian.AppendUint32(dst, n), p.state...)
	}
	dst = append(dst, p.serial...)
	if p.flags.Contains(primitive.QueryFlagDefaultTimestamp) {
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.timestamp))
	}
	return append(dst, p.rest...)
}

// fence makes the parameters those of an operation under a lock: QUORUM at least, or LOCAL_QUORUM where the lock is of one data
// centre, and the stamp of a write, if it is one, in the wire's own form of USING TIMESTAMP (docs/design.md 5, "one mechanism"). A
// QUORUM of all data centres need not meet a LOCAL_QUORUM of one: it is none that is higher.
func (p *parameters) fence(stamp int64, local bool) {
	switch c := p.consistency; {
	case c == primitive.ConsistencyLevelAll, c == primitive.ConsistencyLevelEachQuorum:
	case local:
		p.consistency = primitive.ConsistencyLevelLocalQuorum
	case c != primitive.ConsistencyLevelSerial:
		p.consistency = primitive.ConsistencyLevelQuorum
	}
	if stamp != 0 {
		p.flags |= primitive.QueryFlagDefaultTimestamp
		p.timestamp = stamp
	}
}

// unpage asks for all rows at once, whatever page the client wants.
func (p *parameters) unpage() {
	p.flags &^= primitive.QueryFlagPageSize | primitive.QueryFlagPagingState
	p.pageSize, p.state = nil, nil
}

// drop takes a value out: that of a marker which Cassandra does not see.
func (p *parameters) drop(i int) {
	p.values = append(p.values[:i:i], p.values[i+1:]...)
	if p.names != nil {
		p.names = append(p.names[:i:i], p.names[i+1:]...)
	}
	if len(p.values) == 0 {
		p.flags &^= primitive.QueryFlagValues | primitive.QueryFlagValueNames
		p.names = nil
	}
}
