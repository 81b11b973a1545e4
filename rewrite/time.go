package rewrite

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"
)

// encodeTime reads dates, times of the day, timestamps and durations.
func encodeTime(typ string, text []byte, t Term) ([]byte, error) {
	if t.Kind == TermInteger {
		return encodeTimeNumber(typ, text, t)
	}
	if typ == "duration" {
		return encodeDuration(text, t)
	}
	literal, err := String(text, t)
	if err != nil {
		return nil, err
	}
	value, ok := []byte(nil), false
	switch typ {
	case "date":
		value, ok = encodeDate(literal)
	case "time":
		value, ok = encodeTimeOfDay(literal)
	case "timestamp":
		value, ok = encodeTimestamp(literal)
	}
	if !ok {
		return nil, notRead(text, t, typ)
	}
	return value, nil
}

// encodeTimeNumber reads milliseconds since 1970, nanoseconds since midnight, or days of which 2^31 is 1970-01-01.
func encodeTimeNumber(typ string, text []byte, t Term) ([]byte, error) {
	n, err := Int(text, t)
	switch {
	case err == nil && typ == "timestamp", err == nil && typ == "time" && n >= 0 && n < int64(24*time.Hour):
		return binary.BigEndian.AppendUint64(nil, uint64(n)), nil
	case err == nil && typ == "date" && n >= 0 && n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(nil, uint32(n)), nil
	}
	return nil, notRead(text, t, typ)
}

// exactly reads a time that is written exactly as the layout says: written again it gives the same
// text. Cassandra accepts more than that, and may read .5 seconds as 5 ms.
func exactly(layout, literal string) (time.Time, bool) {
	at, err := time.Parse(layout, literal)
	return at, err == nil && at.Format(layout) == literal
}

// encodeDate reads 2006-01-02.
func encodeDate(literal string) ([]byte, bool) {
	at, ok := exactly(time.DateOnly, literal)
	days := at.Unix() / (24 * 60 * 60) // midnight in UTC: nothing remains, before 1970 either
	return binary.BigEndian.AppendUint32(nil, uint32(days+1<<31)), ok
}

// encodeTimeOfDay reads 15:04:05, with up to nine digits behind a point.
func encodeTimeOfDay(literal string) ([]byte, bool) {
	clock, fraction, point := strings.Cut(literal, ".")
	at, ok := exactly(time.TimeOnly, clock)
	nanos := int64(0)
	if point {
		n, err := strconv.ParseUint(fraction+strings.Repeat("0", 9-min(9, len(fraction))), 10, 32)
		ok = ok && err == nil && fraction != "" && len(fraction) <= 9
		nanos = int64(n)
	}
	midnight := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	return binary.BigEndian.AppendUint64(nil, uint64(int64(at.Sub(midnight))+nanos)), ok
}

// maxOffset is the largest offset of a time zone.
const maxOffset = 14 * 60 * 60

// encodeTimestamp encodes a date with or without a time of the day, and with a time zone as an
// offset: without a zone it would mean another time at another node. Before 1583 Cassandra uses
// another calendar.
func encodeTimestamp(literal string) ([]byte, bool) {
	const day = time.DateOnly
	for _, form := range []string{day, day + " 15:04", day + " 15:04:05", day + " 15:04:05.000", day + "T15:04", day + "T15:04:05", day + "T15:04:05.000"} {
		for _, zone := range []string{"Z", "-07", "-0700", "-07:00"} {
			at, ok := exactly(form+zone, literal)
			if !ok {
				continue
			}
			_, offset := at.Zone()
			return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMilli())), at.Year() > 1582 && offset <= maxOffset && offset >= -maxOffset
		}
	}
	return nil, false
}

// Duration returns the value of a duration literal. It returns ErrNotRead for any other term, for a
// duration with months or years, which have no fixed length, and for one that time.Duration cannot
// represent.
func Duration(text []byte, t Term) (time.Duration, error) {
	const day = 24 * time.Hour
	d, ok := readDuration(text, t)
	total := time.Duration(d.days)*day + time.Duration(d.nanos)
	if !ok || d.months != 0 || d.days > int64(math.MaxInt64/day) || total < 0 {
		return 0, notRead(text, t, "duration without months")
	}
	if d.negative {
		total = -total
	}
	return total, nil
}

// encodeDuration returns months, days and nanoseconds, each as a signed vint (v5 spec section 6.8). Cassandra takes each unit once, the
// largest first.
func encodeDuration(text []byte, t Term) ([]byte, error) {
	d, ok := readDuration(text, t)
	if !ok || !d.descending || d.months > math.MaxInt32 || d.days > math.MaxInt32 {
		return nil, notRead(text, t, "duration")
	}
	var value []byte
	for _, n := range []int64{d.months, d.days, d.nanos} {
		if d.negative {
			n = -n
		}
		value = AppendVint(value, uint64(n<<1)^uint64(n>>63))
	}
	return value, nil
}

// AppendVint appends a number in one to nine bytes: as many bits of the first are set as bytes follow (v5 spec section 3).
func AppendVint(dst []byte, n uint64) []byte {
	size := 1
	for size < 9 && n >= 1<<(7*size) {
		size++
	}
	var wire [9]byte
	binary.BigEndian.PutUint64(wire[1:], n)
	at := len(dst)
	dst = append(dst, wire[9-size:]...)
	dst[at] |= byte(uint(0xff00) >> (size - 1))
	return dst
}

// duration is a duration literal: a month has no fixed number of days, and a day no fixed number of
// hours.
type duration struct {
	months, days, nanos int64
	negative            bool
	descending          bool // each unit is smaller than the one before
}

// readDuration reads 1h30m and P1DT1H30M. In the latter an M before T means months; W is a week in
// both.
func readDuration(text []byte, t Term) (d duration, ok bool) {
	if t.Kind != TermDuration {
		return d, false
	}
	s := t.Of(text)
	if s[0] == '-' {
		d.negative, s = true, s[1:]
	}
	iso, date := s[0] == 'P', s[0] == 'P'
	if iso {
		s = s[1:]
	}
	d.descending = true
	rank := -1
	for len(s) > 0 {
		if iso && s[0] == 'T' {
			s, date = s[1:], false
			continue
		}
		digits := digitsEnd(s, 0)
		n := unitLength(s[digits:])
		if n == 0 {
			return d, false
		}
		next := unitRank(s[digits:digits+n], date)
		if !d.add(s[:digits], next) {
			return d, false
		}
		d.descending = d.descending && next > rank
		rank, s = next, s[digits+n:]
	}
	return d, true
}

// unitSize returns the size of a unit by its rank, of which 0 is the largest: see unitRank.
func unitSize(rank int) duration {
	return [...]duration{
		{months: 12},
		{months: 1},
		{days: 7},
		{days: 1},
		{nanos: int64(time.Hour)},
		{nanos: int64(time.Minute)},
		{nanos: int64(time.Second)},
		{nanos: int64(time.Millisecond)},
		{nanos: int64(time.Microsecond)},
		{nanos: 1},
	}[rank]
}

// unitRank returns the rank of a unit among the sizes of unitSize; date means that M stands for
// months.
func unitRank(unit []byte, date bool) int {
	switch unit[0] | 0x20 {
	case 'y':
		return 0
	case 'w':
		return 2
	case 'd':
		return 3
	case 'h':
		return 4
	case 's':
		return 6
	case 'n':
		return 9
	case 'm':
		switch {
		case len(unit) > 1 && unit[1]|0x20 == 'o', len(unit) == 1 && date:
			return 1
		case len(unit) > 1:
			return 7
		}
		return 5
	}
	return 8
}

// add adds a number of units of a rank, and reports whether the sum fits.
func (d *duration) add(digits []byte, rank int) bool {
	n, err := strconv.ParseInt(string(digits), 10, 64)
	fits, unit := err == nil, unitSize(rank)
	for _, part := range []struct {
		total *int64
		each  int64
	}{{&d.months, unit.months}, {&d.days, unit.days}, {&d.nanos, unit.nanos}} {
		if part.each == 0 {
			continue
		}
		fits = fits && n <= (math.MaxInt64-*part.total)/part.each
		*part.total += n * part.each
	}
	return fits
}
