package rewrite

import "bytes"

// MayHoldLockClause reports whether USING LOCK or FOR UPDATE may stand in a text. It looks at words alone, at both ends of a
// long text, and allocates nothing.
func MayHoldLockClause(text []byte) bool {
	const ends = 1 << 10
	if len(text) > 2*ends {
		return MayHoldLockClause(text[:ends]) || MayHoldLockClause(text[len(text)-ends:])
	}
	return anyAt(text, 'k', endsLock) || anyAt(text, 'f', beginsForUpdate)
}

// anyAt reports whether is holds at any place where a letter, given in lower case, stands in either case.
func anyAt(text []byte, letter byte, is func(text []byte, at int) bool) bool {
	for _, c := range [...]byte{letter, letter &^ 0x20} {
		for at := bytes.IndexByte(text, c); at >= 0; {
			if is(text, at) {
				return true
			}
			next := bytes.IndexByte(text[at+1:], c)
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	return false
}

// endsLock reports whether LOCK behind USING or AND ends at a place.
func endsLock(text []byte, at int) bool {
	i := at - len("loc")
	return wordAt(text, i, "lock") && (wordBefore(text, i, "using") || wordBefore(text, i, "and"))
}

// beginsForUpdate reports whether FOR UPDATE begins at a place.
func beginsForUpdate(text []byte, at int) bool {
	if !wordAt(text, at, "for") {
		return false
	}
	i := at + len("for")
	for i < len(text) && isSpace(text[i]) {
		i++
	}
	return wordAt(text, i, "update")
}

// wordAt reports whether a word, given in lower case, stands at i.
func wordAt(text []byte, i int, word string) bool {
	end := i + len(word)
	if i < 0 || end > len(text) || i > 0 && isWordByte(text[i-1]) || end < len(text) && isWordByte(text[end]) {
		return false
	}
	for k := range len(word) {
		if text[i+k]|0x20 != word[k] {
			return false
		}
	}
	return true
}

// wordBefore reports whether a word, given in lower case, and white space stand right before i.
func wordBefore(text []byte, i int, word string) bool {
	end := i
	for end > 0 && isSpace(text[end-1]) {
		end--
	}
	return end < i && wordAt(text, end-len(word), word)
}

// isSpace reports whether c is white space.
func isSpace(c byte) bool { return c == ' ' || c-'\t' < 5 }
