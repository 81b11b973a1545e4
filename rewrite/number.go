package rewrite

// uuidLength is the length of a uuid in text: 8-4-4-4-12 digits.
const uuidLength = 36

// isUUID reports whether text begins with a uuid: 8-4-4-4-12 hexadecimal digits.
func isUUID(text []byte) bool {
	if len(text) < uuidLength || text[8] != '-' {
		return false
	}
	for i, c := range text[:uuidLength] {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !isHex(c) {
			return false
		}
	}
	return true
}

// scanDigits reads what begins with a digit: a uuid, a blob, or a number.
func scanDigits(text []byte, at int) (TokenKind, int) {
	if isUUID(text[at:]) {
		return TokenUUID, at + uuidLength
	}
	if text[at] == '0' && at+1 < len(text) && text[at+1]|0x20 == 'x' {
		end := at + 2
		for end < len(text) && isHex(text[end]) {
			end++
		}
		return TokenBlob, end
	}
	return scanNumber(text, at)
}

// scanNumber reads what starts with digits and is neither uuid nor blob:
//
//	digits unit (digits unit)*             duration
//	digits [. digits*] [e [+|-] digits]    float, if it has a point or an exponent
//	digits                                 integer, also in 1..2
func scanNumber(text []byte, at int) (TokenKind, int) {
	end := digitsEnd(text, at)
	if long := unitsEnd(text, at); long > 0 {
		return TokenDuration, long
	}
	kind := TokenInteger
	if end < len(text) && text[end] == '.' && (!follows(text, end, '.') || follows(text, end+1, '.')) {
		kind, end = TokenFloat, digitsEnd(text, end+1)
		if end < len(text) && text[end] == '.' {
			return kind, end
		}
	}
	if long := exponentEnd(text, end); long > 0 {
		return TokenFloat, long
	}
	return kind, end
}

// digitsEnd returns where decimal digits end.
func digitsEnd(text []byte, at int) int {
	for at < len(text) && isDigit(text[at]) {
		at++
	}
	return at
}

// exponentEnd returns 0 where there is no exponent at at.
func exponentEnd(text []byte, at int) int {
	if at == len(text) || text[at]|0x20 != 'e' {
		return 0
	}
	at++
	if at < len(text) && (text[at] == '+' || text[at] == '-') {
		at++
	}
	if end := digitsEnd(text, at); end > at {
		return end
	}
	return 0
}

// unitsEnd returns the end of the longest run of digits-and-unit from at, 0 if
// there is none.
func unitsEnd(text []byte, at int) int {
	end := 0
	for {
		digits := digitsEnd(text, at)
		if digits == at {
			return end
		}
		n := unitLength(text[digits:])
		if n == 0 {
			return end
		}
		at = digits + n
		end = at
	}
}

// unitLength returns the length of the duration unit that text starts with:
// y mo w d h m s ms us µs ns, in any case.
func unitLength(text []byte) int {
	if len(text) == 0 {
		return 0
	}
	second := byte(0)
	if len(text) > 1 {
		second = text[1] | 0x20
	}
	switch text[0] | 0x20 {
	case 'm':
		if second == 'o' || second == 's' {
			return 2
		}
		return 1
	case 'u', 'n':
		if second == 's' {
			return 2
		}
	case 'y', 'w', 'd', 'h', 's':
		return 1
	case 0xC2 | 0x20:
		if len(text) > 2 && text[0] == 0xC2 && text[1] == 0xB5 && text[2]|0x20 == 's' {
			return 3
		}
	}
	return 0
}

// isoDurationEnd returns the end of the ISO 8601 duration whose P stands at at,
// 0 if there is none. Unlike the units, its letters are upper case only.
//
//	P0001-02-03T04:05:06 | P<n>W | P[<n>Y][<n>M][<n>D][T[<n>H][<n>M][<n>S]]
func isoDurationEnd(text []byte, at int) int {
	if end := isoAlternativeEnd(text, at); end > 0 {
		return end
	}
	at++
	end := fieldsEnd(text, at, "W")
	if end > at {
		return end
	}
	end = fieldsEnd(text, at, "YMD")
	if end < len(text) && text[end] == 'T' {
		if long := fieldsEnd(text, end+1, "HMS"); long > end+1 {
			return long
		}
	}
	if end > at {
		return end
	}
	return 0
}

// isoAlternativeEnd returns where a duration of the form P0000-00-00T00:00:00 ends, or 0 where there is none.
func isoAlternativeEnd(text []byte, at int) int {
	const form = "P0000-00-00T00:00:00"
	if len(text)-at < len(form) {
		return 0
	}
	for i := range len(form) {
		c := text[at+i]
		if form[i] == '0' && !isDigit(c) || form[i] != '0' && c != form[i] {
			return 0
		}
	}
	return at + len(form)
}

// fieldsEnd reads digits followed by a letter of letters, each letter at most
// once and in their order, and returns where that ends (at, if there is none).
func fieldsEnd(text []byte, at int, letters string) int {
	for len(letters) > 0 {
		digits := digitsEnd(text, at)
		if digits == at || digits == len(text) {
			return at
		}
		i := 0
		for i < len(letters) && letters[i] != text[digits] {
			i++
		}
		if i == len(letters) {
			return at
		}
		at, letters = digits+1, letters[i+1:]
	}
	return at
}
