package statement

import (
	"encoding/binary"
	"math"
	"time"
	"unicode/utf8"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// Duration returns the value of a literal like 5s, or of a bound bigint in milliseconds; 0 if there
// is no term. what names the term in errors.
func (s *Statement) Duration(t rewrite.Term, what string) (time.Duration, *wire.Failure) {
	switch t.Kind {
	case rewrite.NoTerm:
		return 0, nil
	case rewrite.TermMarker:
		ms, f := s.Integer(t, what)
		if f == nil && (ms < 0 || ms > int64(catalog.MaxDuration/time.Millisecond)) {
			f = wire.Invalid("MUSIC_SYNTAX: %s of %d ms is out of range: bind 0 to %d milliseconds", what, ms, catalog.MaxDuration/time.Millisecond)
		}
		return time.Duration(ms) * time.Millisecond, f
	}
	d, err := rewrite.Duration(s.Text, t)
	if err != nil || d < 0 || d > catalog.MaxDuration {
		return 0, wire.Invalid("MUSIC_SYNTAX: %s must be a duration like 5s or 500ms, of at most %d hours", what, catalog.MaxDuration/time.Hour)
	}
	return d, nil
}

// TextOf returns a literal or bound text; "" if there is no term. what names the term in errors.
func (s *Statement) TextOf(t rewrite.Term, what string) (value string, f *wire.Failure) {
	switch t.Kind {
	case rewrite.NoTerm:
		return "", nil
	case rewrite.TermMarker:
		bound, ok := s.Bound(t)
		if !ok {
			return "", wire.Invalid("MUSIC_SYNTAX: the value bound to %s is null or unset: bind a text, or leave %[1]s out", what)
		}
		value = string(bound)
	default:
		var err error
		if value, err = rewrite.String(s.Text, t); err != nil {
			return "", wire.Invalid("MUSIC_SYNTAX: %s: %v", what, err)
		}
	}
	if !utf8.ValidString(value) { // other clients are shown it
		return "", wire.Invalid("MUSIC_SYNTAX: %s is not a text: it is not UTF-8", what)
	}
	return value, nil
}

// Bound returns the value of a marker; ok is false if it is null or not set.
func (s *Statement) Bound(t rewrite.Term) (value []byte, ok bool) {
	return wire.Bound(s.Values, t.Marker)
}

// Ref returns the statement's lock reference, as its client sees it; 0 if it has none.
func (s *Statement) Ref() (int64, *wire.Failure) {
	t := s.Parsed.Lock
	if t.Kind == rewrite.NoTerm {
		return 0, nil
	}
	n, f := s.Integer(t, "USING LOCK")
	if f == nil && n <= 0 {
		f = wire.Invalid("MUSIC_NOT_HELD: %d is not a lock reference: write the lock_ref that LOCK has returned", n)
	}
	return n, f
}

// Integer returns a literal or bound integer: a bigint or an int. what names the term in errors.
func (s *Statement) Integer(t rewrite.Term, what string) (int64, *wire.Failure) {
	if t.Kind != rewrite.TermMarker {
		n, err := rewrite.Int(s.Text, t)
		if err != nil {
			return 0, wire.Invalid("MUSIC_SYNTAX: %s takes a bigint, and %s is too large for one", what, rewrite.Excerpt(s.Text, t))
		}
		return n, nil
	}
	value, ok := s.Bound(t)
	switch {
	case ok && len(value) == 8:
		return wholeNumber(binary.BigEndian.Uint64(value), what)
	case ok && len(value) == 4:
		return int64(int32(binary.BigEndian.Uint32(value))), nil
	}
	return 0, wire.Invalid("MUSIC_SYNTAX: the value bound to %s must be a bigint, not null or unset", what)
}

// wholeNumber returns a bound bigint. It refuses a double: a driver that does not know the marker's
// type may send one, as that for Node.js does for a statement that is not prepared. The bits of a
// double from 1 on are larger than any integer that is used here.
func wholeNumber(bits uint64, what string) (int64, *wire.Failure) {
	if n := math.Float64frombits(bits); n >= 1 && n == math.Trunc(n) && !math.IsInf(n, 0) {
		return 0, wire.Invalid("MUSIC_SYNTAX: the value bound to %s is the double %v: prepare the statement, or bind a bigint (in Node.js a Long)", what, n)
	}
	return int64(bits), nil
}
