package rewrite

import "unicode/utf8"

// Fits reports whether Cassandra accepts a value in wire form for the type (v4 spec section 6), as
// far as its length and characters show; Cassandra refuses other values in every statement. An
// empty value fits every type. Values of types that this package does not know are not checked.
func Fits(typ string, value []byte) bool {
	if len(value) == 0 {
		return true
	}
	switch typ {
	case "text", "varchar":
		return utf8.Valid(value)
	case "ascii":
		return isASCII(value)
	case "inet":
		return len(value) == 4 || len(value) == 16
	}
	size := sizeOf(typ)
	return size == 0 || len(value) == size
}

// sizeOf returns the length in bytes of every value of a type; 0 if lengths differ, or if the type
// is not known.
func sizeOf(typ string) int {
	switch typ {
	case "boolean", "tinyint":
		return 1
	case "smallint":
		return 2
	case "int", "float", "date":
		return 4
	case "bigint", "double", "timestamp", "time":
		return 8
	case "uuid", "timeuuid":
		return 16
	}
	return 0
}

// isASCII reports whether no byte is above the characters of ASCII.
func isASCII(value []byte) bool {
	for _, b := range value {
		if b >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
