package rewrite

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// value returns the text as a term, as it would stand in WHERE.
func value(t *testing.T, text string) ([]byte, Term) {
	t.Helper()
	p := newParser([]byte(text))
	term := p.term()
	p.finish()
	require.Nil(t, p.err, text)
	return []byte(text), term
}

// Each literal, marker and call gets the kind that Cassandra's grammar gives it.
func TestTermKinds(t *testing.T) {
	tests := []struct {
		text string
		want TermKind
	}{
		{"'a'", TermString},
		{"$$a$$", TermString},
		{"-5", TermInteger},
		{"1.5", TermFloat},
		{"nan", TermFloat},
		{"-NaN", TermFloat},
		{"Infinity", TermFloat},
		{"-infinity", TermFloat},
		{"- Infinity", TermOther},
		{"TRUE", TermBoolean},
		{"false", TermBoolean},
		{uuid1, TermUUID},
		{"0x", TermBlob},
		{"5s", TermDuration},
		{"null", TermNull},
		{"?", TermMarker},
		{":a", TermMarker},
		{`: "A"`, TermMarker},
		{"- 5", TermOther},
		{"5 + 1", TermOther},
		{"? * 2", TermOther},
		{"f()", TermOther},
		{"ks.f(1, (2))", TermOther},
		{"(1, 2)", TermOther},
		{"[1]", TermOther},
		{"{1: 2}", TermOther},
		{"(int)5", TermOther},
		{"(int)(text)f(1)", TermOther},
		{"(int) null", TermOther},
		{"CAST(5 AS text)", TermOther},
		{`"true"`, TermOther},
	}
	for _, test := range tests {
		text, term := value(t, test.text)
		require.Equal(t, test.want, term.Kind, test.text)
		require.Equal(t, Span{0, len(text)}, term.Span, test.text)
	}
}

// A marker has its position and its name; other terms have position -1.
func TestTermMarkers(t *testing.T) {
	_, term := value(t, "?")
	require.Equal(t, 0, term.Marker)
	require.True(t, term.Name.Empty())

	text, term := value(t, ":Name")
	require.Equal(t, "name", string(term.Name.AppendTo(nil, text)))

	_, term = value(t, "5")
	require.Equal(t, -1, term.Marker)
}

// Int reads integers of 64 bits, and refuses everything else.
func TestInt(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "007": 7, "-5": -5,
		"9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64,
	} {
		got, err := Int(value(t, text))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"9223372036854775808", "1.0", "'1'", "?", "1 + 1", "null"} {
		_, err := Int(value(t, text))
		require.ErrorIs(t, err, ErrNotRead, text)
		require.ErrorContains(t, err, strings.Trim(text, "'"))
	}
}

// String reads both kinds of string literals, and refuses everything else.
func TestString(t *testing.T) {
	for text, want := range map[string]string{
		"''": "", "'a'": "a", "'it''s'": "it's", "''''": "'", "''''''": "''", "$$$$": "", "$$it's $ 1''$$": "it's $ 1''", `'a\n'`: `a\n`, "'é'": "é",
	} {
		got, err := String(value(t, text))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"5", `"a"`, "?", "f('a')"} {
		_, err := String(value(t, text))
		require.ErrorIs(t, err, ErrNotRead, text)
	}
}

// Duration reads Cassandra's durations up to weeks; months and years have no fixed length and are
// refused.
func TestDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"5s": 5 * time.Second, "500ms": 500 * time.Millisecond, "1m30s": 90 * time.Second, "1H": time.Hour,
		"2d": 2 * day, "1w": 7 * day, "7us": 7 * time.Microsecond, "7µs": 7 * time.Microsecond, "9ns": 9, "0s": 0,
		"-5s": -5 * time.Second, "1h1h": 2 * time.Hour, "5M": 5 * time.Minute, "5MS": 5 * time.Millisecond,
		"PT5S": 5 * time.Second, "P1DT1H2M3S": day + time.Hour + 2*time.Minute + 3*time.Second, "P2W": 14 * day,
		"-PT1M": -time.Minute, "9223372036854775807ns": math.MaxInt64,
	} {
		got, err := Duration(value(t, text))
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{
		"1mo", "1y", "1MO", "P1M", "P1Y", "P1Y2M3DT4H", "P0001-02-03T04:05:06",
		"9223372036854775808ns", "9223372036854775807s", "9223372036854775807ns1ns", "106752d", "300000d", "99999999999999999999s",
		"5", "'5s'", "?", "PT5",
	} {
		_, err := Duration(value(t, text))
		require.ErrorIs(t, err, ErrNotRead, text)
	}
}

// Encode writes a literal as Cassandra stores it.
func TestEncode(t *testing.T) {
	tests := []struct {
		typ, text string
		want      string
	}{
		{"text", "'it''s'", "it's"},
		{"varchar", "$$a$$", "a"},
		{"text", "'é'", "\xc3\xa9"},
		{"text", "''", ""},
		{"ascii", "'a~'", "a~"},
		{"tinyint", "-128", "\x80"},
		{"tinyint", "127", "\x7f"},
		{"smallint", "-2", "\xff\xfe"},
		{"int", "1", "\x00\x00\x00\x01"},
		{"int", "-2147483648", "\x80\x00\x00\x00"},
		{"bigint", "258", "\x00\x00\x00\x00\x00\x00\x01\x02"},
		{"bigint", "-1", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"uuid", "00112233-4455-6677-8899-AABBccddeeff", "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"},
		{"timeuuid", uuid1, "\xd2\x17\x7d\xd0\xea\xa2\x11\xde\xa5\x72\x00\x1b\x77\x9c\x76\xe3"},
		{"blob", "0x", ""},
		{"blob", "0XCafe", "\xca\xfe"},
		{"boolean", "True", "\x01"},
		{"boolean", "FALSE", "\x00"},
		{"varint", "0300", "\x01\x2c"},
		{"varint", "-129", "\xff\x7f"},
		{"varint", "128", "\x00\x80"},
		{"varint", "18446744073709551615", "\x00\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"decimal", "1.50", "\x00\x00\x00\x02\x00\x96"},
		{"decimal", "150e-2", "\x00\x00\x00\x02\x00\x96"},
		{"decimal", "-1e3", "\xff\xff\xff\xfd\xff"},
		{"double", "15e-1", "\x3f\xf8\x00\x00\x00\x00\x00\x00"},
		{"double", "-0", "\x80\x00\x00\x00\x00\x00\x00\x00"},
		{"double", "Infinity", "\x7f\xf0\x00\x00\x00\x00\x00\x00"},
		{"float", "0.1", "\x3d\xcc\xcc\xcd"},
		{"double", "-infinity", "\xff\xf0\x00\x00\x00\x00\x00\x00"},
		{"double", "-NaN", "\x7f\xf8\x00\x00\x00\x00\x00\x00"},
		{"float", "nan", "\x7f\xc0\x00\x00"},
		{"inet", "'10.0.0.1'", "\x0a\x00\x00\x01"},
		{"inet", "'::ffff:10.0.0.1'", "\x0a\x00\x00\x01"},
		{"inet", "'::1'", "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01"},
		{"date", "'1969-12-31'", "\x7f\xff\xff\xff"},
		{"date", "2147483649", "\x80\x00\x00\x01"},
		{"time", "'00:00:01.5'", "\x00\x00\x00\x00\x59\x68\x2f\x00"},
		{"time", "1", "\x00\x00\x00\x00\x00\x00\x00\x01"},
		{"timestamp", "'2024-02-29T00:00:00.000Z'", "\x00\x00\x01\x8d\xf2\x29\x28\x00"},
		{"timestamp", "'2024-02-29 01:30+01:30'", "\x00\x00\x01\x8d\xf2\x29\x28\x00"},
		{"timestamp", "'1970-01-01-01'", "\x00\x00\x00\x00\x00\x36\xee\x80"},
		{"timestamp", "-1", "\xff\xff\xff\xff\xff\xff\xff\xff"},
		{"duration", "1mo2d3ns", "\x02\x04\x06"},
		{"duration", "-P1Y", "\x17\x00\x00"},
		{"duration", "PT1M", "\x00\x00\xf8\x1b\xf0\x8e\xb0\x00"},
	}
	for _, test := range tests {
		text, term := value(t, test.text)
		got, err := Encode(test.typ, text, term)
		require.NoError(t, err, test.text)
		require.NotNil(t, got)
		require.Equal(t, test.want, string(got), "%s %s", test.typ, test.text)
	}
}

// Encode refuses literals that are not of the type, or whose value depends on where and when they
// are read.
func TestEncodeNotRead(t *testing.T) {
	tests := []struct{ typ, text string }{
		{"text", "5"},
		{"text", "null"},
		{"text", "?"},
		{"text", "'\xff'"},
		{"ascii", "'é'"},
		{"tinyint", "128"},
		{"smallint", "32768"},
		{"int", "2147483648"},
		{"bigint", "9223372036854775808"},
		{"int", "'1'"},
		{"int", "1.0"},
		{"int", "(int)1"},
		{"uuid", "'" + uuid1 + "'"},
		{"uuid", "uuid()"},
		{"timeuuid", "550e8400-e29b-41d4-a716-446655440000"},
		{"blob", "0x1"},
		{"blob", "'cafe'"},
		{"blob", "5"},
		{"boolean", "1"},
		{"boolean", "'true'"},
		{"varint", "1.5"},
		{"varint", "'5'"},
		{"varint", strings.Repeat("1", 1025)},
		{"decimal", "'1.5'"},
		{"decimal", "1e99999999999"},
		{"decimal", "nan"},
		{"double", "true"},
		{"double", "1e999"},
		{"float", "1e39"},
		{"inet", "'localhost'"},
		{"inet", "'10.1'"},
		{"inet", "'fe80::1%eth0'"},
		{"inet", "5"},
		{"date", "'today'"},
		{"date", "'2024-02-30'"},
		{"date", "'2024-2-3'"},
		{"date", "4294967296"},
		{"time", "'1:02:03'"},
		{"time", "'01:02:03.'"},
		{"time", "'01:02:03.0123456789'"},
		{"time", "'01:02:03.+5'"},
		{"time", "86400000000000"},
		{"timestamp", "'now'"},
		{"timestamp", "'2024-02-29'"},
		{"timestamp", "'2024-02-29 00:00:00'"},
		{"timestamp", "'2024-02-29 00:00:00.5Z'"},
		{"timestamp", "'2024-02-29 00:00:00 CET'"},
		{"timestamp", "'1500-01-01Z'"},
		{"timestamp", "'2024-02-29 00:00:00+15:00'"},
		{"timestamp", "1.5"},
		{"duration", "1h1h"},
		{"duration", "1h1d"},
		{"duration", "5"},
		{"frozen<list<int>>", "[1]"},
		{"TEXT", "'a'"},
		{"", "'a'"},
	}
	for _, test := range tests {
		text, term := value(t, test.text)
		got, err := Encode(test.typ, text, term)
		require.ErrorIs(t, err, ErrNotRead, "%s %s", test.typ, test.text)
		require.Nil(t, got)
	}
}

// A routing key is the only component as it is, or each component with its length and a zero byte.
func TestRoutingKey(t *testing.T) {
	one := []byte("a")
	require.Equal(t, one, RoutingKey([][]byte{one}))
	require.Equal(t, []byte{}, RoutingKey([][]byte{{}}))
	require.Equal(t, "\x00\x01a\x00\x00\x00\x00\x00\x02bc\x00", string(RoutingKey([][]byte{one, {}, []byte("bc")})))
	require.Empty(t, RoutingKey(nil))
	long := make([]byte, math.MaxUint16+1)
	require.Len(t, RoutingKey([][]byte{long, one}), 3+len(long)+4)
}

// SplitRoutingKey is the inverse of RoutingKey, and refuses malformed keys.
func TestRoutingKeysComeApart(t *testing.T) {
	one, ok := SplitRoutingKey("\x00\x01a\x00", 1)
	require.True(t, ok)
	require.Equal(t, []string{"\x00\x01a\x00"}, one)
	two, ok := SplitRoutingKey(string(RoutingKey([][]byte{[]byte("a"), {}})), 2)
	require.True(t, ok)
	require.Equal(t, []string{"a", ""}, two)
	for _, key := range []string{"", "\x00\x01a\x00", "\x00\x01a\x00\x00\x00", "\x00\x02a\x00\x00\x00\x00", "\x00\x01a\x00\x00\x00\x00\x00"} {
		_, ok := SplitRoutingKey(key, 2)
		require.False(t, ok, "%q", key)
	}
}

// A quoted name is read back as the same name.
func TestQuoteIsReadBack(t *testing.T) {
	for _, name := range []string{"t", "T", `a"b`, `"`, "select"} {
		text := []byte(Quote(name))
		lex := NewLexer(text)
		n, ok := nameOf(text, lex.Next())
		require.True(t, ok)
		require.Equal(t, name, string(n.AppendTo(nil, text)))
	}
}

// A value is written where nothing in it is called or computed, whatever brackets it has.
func TestValuesThatAreWritten(t *testing.T) {
	for value, written := range map[string]bool{
		"1": true, "null": true, "[1, 2]": true, "{'a': [1]}": true, "{f: 1, g: 'now()'}": true, "(1, 'x')": true, "(int) 1": false, "[-1]": true, "{}": true, "[]": true, "{true: 1, 'a': null}": true, "{\"F\": 1}": true,
		"[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]": true, "[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]": false, strings.Repeat("[", 300_000) + strings.Repeat("]", 300_000): false,
		"?": true, "now()": false, "[now()]": false, "{'a': ?}": true, "{'a': :x}": true, "[?, [:x]]": true, "1 + 1": false, "[1] + [2]": false, "(1, ks.f(2))": false, "-now()": false,
	} {
		text := []byte("UPDATE t SET v = 1 WHERE k = 1 IF v = " + value)
		statement, err := Parse(text)
		require.NoError(t, err, value)
		require.Equal(t, written, Written(text, statement.Conditions[0].Value), "%.80s", value)
	}
}
