package wire

import (
	"bytes"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Parameters that can be read are written as they were.
func FuzzParameters(f *testing.F) {
	options := &message.QueryOptions{
		Consistency: primitive.ConsistencyLevelQuorum, NamedValues: map[string]*primitive.Value{"a": primitive.NewValue([]byte("x"))},
		PageSize: 5, PagingState: []byte("more"), DefaultTimestamp: new(int64), Keyspace: "bank", NowInSeconds: new(int32),
	}
	for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
		for _, o := range []*message.QueryOptions{options, {}, {PositionalValues: []*primitive.Value{primitive.NewNullValue(), primitive.NewUnsetValue()}}} {
			var b bytes.Buffer
			if message.EncodeQueryOptions(o, &b, version) == nil {
				f.Add(byte(version), b.Bytes())
			}
		}
	}
	f.Fuzz(func(t *testing.T, version byte, b []byte) {
		cur := Cursor{Body: b}
		p := ReadParameters(&cur, version)
		if cur.Bad {
			return
		}
		require.Equal(t, b, p.AppendTo([]byte{}, version))
		if p.Timestamp == 0 {
			return
		}
		p.Consistency = primitive.ConsistencyLevelQuorum
		again := Cursor{Body: p.AppendTo(nil, version)}
		q := ReadParameters(&again, version)
		require.False(t, again.Bad)
		require.Equal(t, p.Timestamp, q.Timestamp)
		require.Equal(t, p.Values, q.Values)
		require.Equal(t, p.Rest, q.Rest)
	})
}

// Values that are left out take their names along, and the flags of values where none is left.
func TestParametersWithoutSomeValues(t *testing.T) {
	value := func(b string) *primitive.Value { return primitive.NewValue([]byte(b)) }
	for _, o := range []struct{ given, want message.QueryOptions }{
		{message.QueryOptions{PositionalValues: []*primitive.Value{value("own"), value("a"), value("b")}}, message.QueryOptions{PositionalValues: []*primitive.Value{value("a"), value("b")}}},
		{message.QueryOptions{PositionalValues: []*primitive.Value{value("a"), value("own")}}, message.QueryOptions{PositionalValues: []*primitive.Value{value("a")}}},
		{message.QueryOptions{PositionalValues: []*primitive.Value{value("own")}}, message.QueryOptions{}},
		{message.QueryOptions{NamedValues: map[string]*primitive.Value{"x": value("own")}}, message.QueryOptions{}},
		{message.QueryOptions{}, message.QueryOptions{}},
	} {
		for _, version := range []primitive.ProtocolVersion{primitive.ProtocolVersion4, primitive.ProtocolVersion5} {
			var given, want bytes.Buffer
			require.NoError(t, message.EncodeQueryOptions(&o.given, &given, version))
			require.NoError(t, message.EncodeQueryOptions(&o.want, &want, version))
			p := ReadParameters(&Cursor{Body: given.Bytes()}, byte(version))
			got := p.AppendWithout(nil, byte(version), func(i int) bool { return string(p.Values[i][4:]) == "own" })
			require.Equal(t, want.Bytes(), got)
		}
	}
}

// Protocol 3 has no value "not set": Cassandra takes every negative length for null there, and none below -2 later.
func TestNegativeLengthsOfBoundValues(t *testing.T) {
	for _, o := range []struct {
		version, last byte
		null, bad     bool
	}{
		{3, 0xff, true, false},
		{3, 0xfe, true, false},
		{3, 0xfd, true, false},
		{4, 0xff, true, false},
		{4, 0xfe, false, false},
		{4, 0xfd, false, true},
		{5, 0xfe, false, false},
		{5, 0xfd, false, true},
	} {
		body := []byte{0, 1, 1, 0, 1, 0xff, 0xff, 0xff, o.last}
		if o.version == 5 {
			body = []byte{0, 1, 0, 0, 0, 1, 0, 1, 0xff, 0xff, 0xff, o.last}
		}
		cur := Cursor{Body: body}
		p := ReadParameters(&cur, o.version)
		require.Equal(t, o.bad, cur.Bad, "%+v", o)
		if !o.bad {
			require.Equal(t, !o.null, IsUnset(p.Values, 0), "%+v", o)
		}
	}
}

// What the proxy reads of parameters is what the library has written.
func TestParametersAgreeWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		version := rapid.SampledFrom([]primitive.ProtocolVersion{primitive.ProtocolVersion3, primitive.ProtocolVersion4, primitive.ProtocolVersion5}).Draw(t, "version")
		o := &message.QueryOptions{Consistency: primitive.ConsistencyLevelEachQuorum, SkipMetadata: rapid.Bool().Draw(t, "skip")}
		for range rapid.IntRange(0, 3).Draw(t, "values") {
			o.PositionalValues = append(o.PositionalValues, primitive.NewValue(rapid.SliceOf(rapid.Byte()).Draw(t, "value")))
		}
		if rapid.Bool().Draw(t, "serial") {
			serial := primitive.ConsistencyLevelLocalSerial
			o.SerialConsistency = &serial
		}
		if rapid.Bool().Draw(t, "paging") {
			o.PageSize, o.PagingState = 7, []byte("more")
		}
		if rapid.Bool().Draw(t, "timestamp") {
			o.DefaultTimestamp = rapid.Ptr(rapid.Int64(), false).Draw(t, "at")
		}
		if version == primitive.ProtocolVersion5 {
			o.Keyspace = rapid.SampledFrom([]string{"", "bank"}).Draw(t, "keyspace")
			o.NowInSeconds = rapid.Ptr(rapid.Int32(), true).Draw(t, "now")
		}
		var b bytes.Buffer
		require.NoError(t, message.EncodeQueryOptions(o, &b, version))
		cur := Cursor{Body: b.Bytes()}
		p := ReadParameters(&cur, byte(version))
		require.False(t, cur.Bad)
		require.Equal(t, o.Consistency, p.Consistency)
		require.Equal(t, o.Keyspace, p.Keyspace)
		require.Len(t, p.Values, len(o.PositionalValues))
		for i, v := range o.PositionalValues {
			require.Equal(t, v.Contents, append([]byte{}, p.Values[i][4:]...))
		}
		if o.DefaultTimestamp != nil {
			require.Equal(t, *o.DefaultTimestamp, p.Timestamp)
		}
		p.Timestamp, p.Flags = 42, p.Flags|primitive.QueryFlagDefaultTimestamp
		p.Flags &^= primitive.QueryFlagSkipMetadata
		got, err := message.DecodeQueryOptions(bytes.NewReader(p.AppendTo(nil, byte(version))), version)
		require.NoError(t, err)
		at := int64(42)
		o.DefaultTimestamp, o.SkipMetadata = &at, false
		require.Equal(t, o, got)
	})
}
