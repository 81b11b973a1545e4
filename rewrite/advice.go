package rewrite

// Excerpt returns a term as it is written, shortened if it is long, for messages to people.
func Excerpt(text []byte, t Term) string {
	const most = 100
	written := t.Of(text)
	if len(written) > most {
		return string(written[:most]) + "…"
	}
	return string(written)
}

// HowToWrite says in words how constants of a type are written.
func HowToWrite(typ string) string {
	switch typ {
	case "text", "varchar", "ascii":
		return "it in quotes ('x')"
	case "tinyint", "smallint", "int", "bigint", "varint":
		return "a whole number that fits, without quotes (5)"
	case "decimal", "float", "double":
		return "a number without quotes (1.5)"
	case "uuid", "timeuuid":
		return "it without quotes (123e4567-e89b-12d3-a456-426614174000)"
	case "blob":
		return "it in hexadecimal (0xcafe)"
	case "boolean":
		return "true or false"
	case "inet":
		return "an address, not a name ('10.0.0.1')"
	case "date":
		return "a day ('2024-02-29')"
	case "time":
		return "a time of the day ('23:59:59')"
	case "timestamp":
		return "a moment with its time zone ('2024-02-29 23:59:59+0000') or milliseconds since 1970"
	}
	return "a literal of it"
}
