package synchronise

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// errMalformed means that bytes are not a value of their type.
var errMalformed = errors.New("malformed value")

// RawValue is a value in wire form: most values need not be decoded. Nil is null, which differs
// from an empty value.
type RawValue []byte

// MarshalCQL returns the bytes.
func (w RawValue) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return w, nil }

// UnmarshalCQL sets the value to a copy of data, nil for null. The buffer belongs to the driver.
func (w *RawValue) UnmarshalCQL(_ gocql.TypeInfo, data []byte) error {
	*w = bytes.Clone(data)
	return nil
}

// wireInt64 returns a bigint in wire form.
func wireInt64(n int64) RawValue { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// wireInt32 returns an int in wire form.
func wireInt32(n int32) RawValue { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// int64 decodes a bigint; some is false for null.
func (w RawValue) int64() (n int64, some bool, err error) {
	switch len(w) {
	case 0:
		return 0, false, nil
	case 8:
		return int64(binary.BigEndian.Uint64(w)), true, nil
	}
	return 0, false, fmt.Errorf("%w: bigint of %d bytes", errMalformed, len(w))
}

// int32 decodes an int; null is 0.
func (w RawValue) int32() (int32, error) {
	switch len(w) {
	case 0:
		return 0, nil
	case 4:
		return int32(binary.BigEndian.Uint32(w)), nil
	}
	return 0, fmt.Errorf("%w: int of %d bytes", errMalformed, len(w))
}

// take splits off the first [bytes] of the protocol: nil if its length is negative.
func (w RawValue) take() (value, rest RawValue, err error) {
	if len(w) < 4 {
		return nil, nil, fmt.Errorf("%w: %d bytes where a length was expected", errMalformed, len(w))
	}
	n, rest := int32(binary.BigEndian.Uint32(w)), w[4:]
	switch {
	case n < 0:
		return nil, rest, nil
	case int(n) > len(rest):
		return nil, nil, fmt.Errorf("%w: %d bytes of %d", errMalformed, len(rest), n)
	}
	return rest[:n:n], rest[n:], nil
}

// elements splits a collection into elements of per values each. An element contains the lengths of
// its values, so that collect can join elements again.
func (w RawValue) elements(per int) ([]RawValue, error) {
	if len(w) < 4 {
		return nil, fmt.Errorf("%w: collection of %d bytes", errMalformed, len(w))
	}
	count, rest := int32(binary.BigEndian.Uint32(w)), w[4:]
	var all []RawValue
	for range count {
		next := rest
		for range per {
			var err error
			if _, next, err = next.take(); err != nil {
				return nil, err
			}
		}
		all = append(all, rest[:len(rest)-len(next)])
		rest = next
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after a collection", errMalformed, len(rest))
	}
	return all, nil
}

// collect returns the collection of elements that were split by elements.
func collect(elements []RawValue) RawValue {
	return append(wireInt32(int32(len(elements))), bytes.Join(plainBytes(elements), nil)...)
}

// plainBytes converts the type.
func plainBytes(values []RawValue) [][]byte {
	plain := make([][]byte, len(values))
	for i, v := range values {
		plain[i] = v
	}
	return plain
}

// values splits a sequence of [bytes]: the fields of a UDT, or the elements of a list after its
// count.
func (w RawValue) values() ([]RawValue, error) {
	var all []RawValue
	for len(w) > 0 {
		var value RawValue
		var err error
		if value, w, err = w.take(); err != nil {
			return nil, err
		}
		all = append(all, value)
	}
	return all, nil
}

// ttls decodes the result of TTL() for a column that is not frozen: an int for each element, 0 for
// one without a TTL.
func (w RawValue) ttls() ([]int32, error) {
	if len(w) < 4 {
		return nil, fmt.Errorf("%w: list of TTLs of %d bytes", errMalformed, len(w))
	}
	values, err := w[4:].values()
	if err != nil {
		return nil, err
	}
	all := make([]int32, len(values))
	for i, v := range values {
		if all[i], err = v.int32(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
