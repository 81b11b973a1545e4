package wire

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// Parameters are the query parameters of QUERY, EXECUTE and BATCH (v4 spec section 4.1.4, v5 spec
// 4.1.4), as Cassandra reads them: it obeys every flag that fits into the version's flag field,
// also those of later versions (QueryOptions.Codec). The slices lie in the body that they were read
// from.
type Parameters struct {
	Consistency primitive.ConsistencyLevel
	Flags       primitive.QueryFlag
	Names       [][]byte // one for each value, or nil
	Values      [][]byte // each with its length before it, as on the wire
	PageSize    []byte   // in wire form, if its flag is set
	PagingState []byte   // if its flag is set; nil = null
	Serial      []byte   // serial consistency in wire form, if its flag is set
	Timestamp   int64    // if its flag is set
	Keyspace    string   // in which the request names its tables, if its flag is set
	Rest        []byte   // keyspace and now-in-seconds in wire form
}

// ReadParameters reads the parameters from cur to the end of the body. It sets cur.Bad if they do
// not follow the protocol.
func ReadParameters(cur *Cursor, version byte) Parameters {
	return ReadParametersInto(nil, cur, version)
}

// ReadParametersInto is ReadParameters with memory for Values: it uses room if that is large
// enough.
func ReadParametersInto(room [][]byte, cur *Cursor, version byte) Parameters {
	p := Parameters{Consistency: primitive.ConsistencyLevel(cur.Short())}
	p.Flags = ReadFlags(cur, version)
	if p.Flags.Contains(primitive.QueryFlagValues) {
		p.readValues(room, cur, version)
	}
	if p.Flags.Contains(primitive.QueryFlagPageSize) {
		p.PageSize = cur.Take(4)
	}
	if p.Flags.Contains(primitive.QueryFlagPagingState) {
		p.PagingState = cur.Value()
	}
	if p.Flags.Contains(primitive.QueryFlagSerialConsistency) {
		p.Serial = cur.Take(2)
	}
	if p.Flags.Contains(primitive.QueryFlagDefaultTimestamp) {
		if b := cur.Take(8); b != nil {
			p.Timestamp = int64(binary.BigEndian.Uint64(b))
		}
	}
	start := cur.At
	if p.Flags.Contains(primitive.QueryFlagWithKeyspace) {
		p.Keyspace = string(cur.ShortBytes())
	}
	if p.Flags.Contains(primitive.QueryFlagNowInSeconds) {
		cur.Take(4)
	}
	p.Rest = cur.Body[start:]
	return p
}

// KnownFlags are the flags of Cassandra 5.0. Any other flag may change the fields that follow, or
// what the statement means.
const KnownFlags = primitive.QueryFlagNowInSeconds<<1 - 1

// ReadFlags reads the flags of a request: 32 bits from protocol 5 on, else 8. It sets cur.Bad if
// one is unknown, since the meaning of the request is then unknown, too.
func ReadFlags(cur *Cursor, version byte) primitive.QueryFlag {
	var flags primitive.QueryFlag
	if version >= byte(primitive.ProtocolVersion5) {
		flags = primitive.QueryFlag(cur.Int())
	} else {
		flags = primitive.QueryFlag(cur.Byte())
	}
	cur.Bad = cur.Bad || flags&^KnownFlags != 0
	return flags
}

// readValues reads the bound values, with their names if they have some, into room if that is large enough.
func (p *Parameters) readValues(room [][]byte, cur *Cursor, version byte) {
	n := cur.Short()
	if most := min(n, len(cur.Body)/4); most > cap(room) { // a value takes 4 bytes at least, its length
		room = make([][]byte, 0, most)
	}
	p.Values = room[:0]
	for ; n > 0 && !cur.Bad; n-- {
		if p.Flags.Contains(primitive.QueryFlagValueNames) {
			p.Names = append(p.Names, cur.ShortBytes())
		}
		p.Values = append(p.Values, cur.Bound(version))
	}
}

// ByName returns the indexes of the values that are bound by name. If several have one name the first
// counts, as in Cassandra.
func (p *Parameters) ByName() map[string]int {
	all := make(map[string]int, len(p.Names))
	for i, name := range slices.Backward(p.Names) {
		all[string(name)] = i
	}
	return all
}

// Clone returns a copy that no longer refers to the body it was read from.
func (p Parameters) Clone() Parameters {
	own := make([]byte, 0, p.Size())
	keep := func(b []byte) []byte {
		if b == nil {
			return nil // a null paging state differs from an empty one
		}
		own = append(own, b...)
		return own[len(own)-len(b) : len(own) : len(own)]
	}
	p.Values = slices.Clone(p.Values)
	for i, v := range p.Values {
		p.Values[i] = keep(v)
	}
	p.PageSize, p.PagingState, p.Serial, p.Rest = keep(p.PageSize), keep(p.PagingState), keep(p.Serial), keep(p.Rest)
	return p
}

// Size returns how many bytes the values and the optional fields take, without names.
func (p *Parameters) Size() int {
	n := len(p.PageSize) + len(p.PagingState) + len(p.Serial) + len(p.Rest)
	for _, v := range p.Values {
		n += len(v)
	}
	return n
}

// AppendTo appends the wire form.
func (p *Parameters) AppendTo(dst []byte, version byte) []byte {
	return p.AppendWithout(dst, version, func(int) bool { return false })
}

// AppendWithout appends the wire form without those values for whose index omitted returns true.
func (p *Parameters) AppendWithout(dst []byte, version byte, omitted func(i int) bool) []byte {
	n := 0
	for i := range p.Values {
		if !omitted(i) {
			n++
		}
	}
	flags := p.Flags
	if n < len(p.Values) && n == 0 {
		flags &^= primitive.QueryFlagValues | primitive.QueryFlagValueNames
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(p.Consistency))
	if version >= byte(primitive.ProtocolVersion5) {
		dst = binary.BigEndian.AppendUint32(dst, uint32(flags))
	} else {
		dst = append(dst, byte(flags))
	}
	if flags.Contains(primitive.QueryFlagValues) {
		dst = binary.BigEndian.AppendUint16(dst, uint16(n))
		for i, v := range p.Values {
			if omitted(i) {
				continue
			}
			if p.Names != nil {
				dst = binary.BigEndian.AppendUint16(dst, uint16(len(p.Names[i])))
				dst = append(dst, p.Names[i]...)
			}
			dst = append(dst, v...)
		}
	}
	dst = append(dst, p.PageSize...)
	if p.Flags.Contains(primitive.QueryFlagPagingState) {
		n := uint32(len(p.PagingState))
		if p.PagingState == nil {
			n = math.MaxUint32 // null
		}
		dst = append(binary.BigEndian.AppendUint32(dst, n), p.PagingState...)
	}
	dst = append(dst, p.Serial...)
	if p.Flags.Contains(primitive.QueryFlagDefaultTimestamp) {
		dst = binary.BigEndian.AppendUint64(dst, uint64(p.Timestamp))
	}
	return append(dst, p.Rest...)
}

// Unpage removes page size and paging state, so that Cassandra returns all rows at once.
func (p *Parameters) Unpage() {
	p.Flags &^= primitive.QueryFlagPageSize | primitive.QueryFlagPagingState
	p.PageSize, p.PagingState = nil, nil
}

// Bound returns value i without the length before it. ok is false if the value is null or not set,
// or there is no value i.
func Bound(values [][]byte, i int) (value []byte, ok bool) {
	if i < 0 || i >= len(values) || len(values[i]) < 4 {
		return nil, false
	}
	return values[i][4:], int32(binary.BigEndian.Uint32(values[i])) >= 0
}

// Unset returns the value "not set".
func Unset() []byte { return []byte{0xff, 0xff, 0xff, 0xfe} }

// IsUnset reports whether value i, which must exist, is "not set" (v4 spec section 3, a [value] of
// length -2).
func IsUnset(values [][]byte, i int) bool {
	return len(values[i]) == 4 && int32(binary.BigEndian.Uint32(values[i])) == -2
}
