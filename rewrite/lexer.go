package rewrite

// Span is a part of a text as byte offsets, End not included.
type Span struct{ Start, End int }

// Empty reports whether the span has no bytes, which stands for "absent".
func (s Span) Empty() bool { return s.Start == s.End }

// Of returns the bytes of text that s covers; they share memory with text.
func (s Span) Of(text []byte) []byte { return text[s.Start:s.End] }

// TokenKind is the kind of a token. Punctuation of one byte is its own kind: TokenKind(';'),
// TokenKind('?').
type TokenKind byte

// Token kinds other than punctuation of one byte.
const (
	// TokenEOF is the end of the text, an empty span; it is returned for ever.
	TokenEOF TokenKind = iota
	// TokenInvalid is a byte that no token starts with, or all that follows an
	// opening quote or comment without its end.
	TokenInvalid
	// TokenIdent is a word without quotes: a name, a keyword, true, NaN.
	TokenIdent
	// TokenQuoted is a name in double quotes, the quotes included.
	TokenQuoted
	// TokenString is a text literal, its quotes or dollars included.
	TokenString
	// TokenInteger is a whole number; a minus right before it belongs to it.
	TokenInteger
	// TokenFloat is a number with a point or an exponent, -NaN or -Infinity.
	TokenFloat
	// TokenBlob is 0x and hexadecimal digits.
	TokenBlob
	// TokenUUID is a uuid without quotes.
	TokenUUID
	// TokenDuration is 1h30m, PT5S or P0001-02-03T04:05:06.
	TokenDuration
	// TokenOperator is an operator of two bytes: <= >= != += -= and the range ..
	TokenOperator
)

// Token is one token and its place in the text.
type Token struct {
	Kind TokenKind
	Span
}

// Lexer splits CQL into tokens as Cassandra does. It keeps the text, never writes to it and does
// not allocate. A copy of a Lexer continues from the same place, which allows to look ahead.
type Lexer struct {
	text []byte
	pos  int
}

// NewLexer returns a Lexer before the first token of text.
func NewLexer(text []byte) Lexer { return Lexer{text: text} }

// Next returns the next token; between tokens there are only blanks and comments.
func (l *Lexer) Next() Token {
	text, start := l.text, l.pos
	if start < len(text) && text[start] == ' ' {
		start++ // nearly always all there is to skip
	}
	if start < len(text) && text[start] <= '/' {
		start = skipBlanks(text, start)
	}
	kind, end := TokenEOF, start
	if start < len(text) {
		kind, end = scan(text, start)
	}
	l.pos = end
	return Token{Kind: kind, Span: Span{start, end}}
}

// skipBlanks returns where the next token starts. A block comment without an end is not skipped:
// scan reports it.
func skipBlanks(text []byte, at int) int {
	for at < len(text) {
		switch c := text[at]; {
		case isBlank(c):
			at++
		case c == '-' && follows(text, at, '-'), c == '/' && follows(text, at, '/'):
			at = lineEnd(text, at)
		case c == '/' && follows(text, at, '*'):
			end := blockEnd(text, at)
			if end < 0 {
				return at
			}
			at = end
		default:
			return at
		}
	}
	return at
}

// lineEnd returns where the line ends, at a carriage return too: Cassandra ends
// a comment there, and a lexer that did
// not would see a comment where Cassandra sees a statement.
func lineEnd(text []byte, at int) int {
	for at < len(text) && text[at] != '\n' && text[at] != '\r' {
		at++
	}
	return at
}

// blockEnd returns where the comment that begins with /* ends, or -1 if it does not end.
func blockEnd(text []byte, at int) int {
	for i := at + 2; i+1 < len(text); i++ {
		if text[i] == '*' && text[i+1] == '/' {
			return i + 2
		}
	}
	return -1
}

// scan reads the token at a byte that is neither blank nor comment, and returns where it ends.
func scan(text []byte, at int) (TokenKind, int) {
	c := text[at]
	if isLetter(c) {
		return scanWord(text, at)
	}
	switch c {
	case ',', ';', ':', '?', '=', '*', '%', '(', ')', '[', ']', '{', '}':
		return TokenKind(c), at + 1
	case '\'':
		return scanQuotes(text, at, TokenString)
	case '"':
		return scanQuotes(text, at, TokenQuoted)
	case '$':
		return scanDollars(text, at)
	case '-':
		return scanMinus(text, at)
	case '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return scanDigits(text, at)
	}
	return scanOperator(text, at)
}

// scanWord reads a token that begins with a letter. It prefers the longest, and, if lengths are
// equal, a literal: a uuid may start with letters, and P1Y is a duration for Cassandra.
func scanWord(text []byte, at int) (TokenKind, int) {
	end := wordEnd(text, at+1)
	if end-at == 8 && isUUID(text[at:]) {
		return TokenUUID, at + uuidLength
	}
	if text[at] == 'P' {
		if long := isoDurationEnd(text, at); long >= end {
			return TokenDuration, long
		}
	}
	return TokenIdent, end
}

// wordEnd returns the end of a run of letters, digits and underscores.
func wordEnd(text []byte, at int) int {
	for at < len(text) && isWordByte(text[at]) {
		at++
	}
	return at
}

// scanQuotes reads '…' and "…", in which the quote is written twice.
func scanQuotes(text []byte, at int, kind TokenKind) (TokenKind, int) {
	quote := text[at]
	for i := at + 1; i < len(text); i++ {
		if text[i] != quote {
			continue
		}
		if !follows(text, i, quote) {
			return kind, i + 1
		}
		i++
	}
	return TokenInvalid, len(text)
}

// scanDollars reads $$…$$, in which nothing is escaped.
func scanDollars(text []byte, at int) (TokenKind, int) {
	if !follows(text, at, '$') {
		return TokenInvalid, at + 1
	}
	for i := at + 2; i+1 < len(text); i++ {
		if text[i] == '$' && text[i+1] == '$' {
			return TokenString, i + 2
		}
	}
	return TokenInvalid, len(text)
}

// scanMinus reads a token that begins with a minus sign: a negative number or duration, -NaN,
// -Infinity, or an operator.
func scanMinus(text []byte, at int) (TokenKind, int) {
	next := at + 1
	switch {
	case next == len(text):
		return '-', next
	case text[next] == '=':
		return TokenOperator, next + 1
	case isDigit(text[next]):
		return scanNumber(text, next)
	case text[next] == 'P':
		if end := isoDurationEnd(text, next); end > 0 {
			return TokenDuration, end
		}
	}
	for _, word := range [...]string{"NAN", "INFINITY"} { // also if letters follow: -NaNo is -NaN and o
		if end := next + len(word); end <= len(text) && foldEqual(text[next:end], word) {
			return TokenFloat, end
		}
	}
	return '-', next
}

// scanOperator reads an operator, which may have two bytes.
func scanOperator(text []byte, at int) (TokenKind, int) {
	c := text[at]
	switch {
	case c == '/' && follows(text, at, '*'):
		return TokenInvalid, len(text)
	case c == '.' && follows(text, at, '.'), (c == '<' || c == '>' || c == '+' || c == '!') && follows(text, at, '='):
		return TokenOperator, at + 2
	case c == '.' || c == '/' || c == '<' || c == '>' || c == '+':
		return TokenKind(c), at + 1
	}
	return TokenInvalid, at + 1
}

// follows reports whether c stands behind the byte at.
func follows(text []byte, at int, c byte) bool { return at+1 < len(text) && text[at+1] == c }

// isBlank reports whether c is white space to Cassandra's lexer.
func isBlank(c byte) bool { return c == ' ' || c == '\n' || c == '\t' || c == '\r' }

// isDigit reports whether c is a decimal digit.
func isDigit(c byte) bool { return c-'0' < 10 }

// isLetter reports whether c is an ASCII letter.
func isLetter(c byte) bool { return (c|0x20)-'a' < 26 }

// isHex reports whether c is a hexadecimal digit.
func isHex(c byte) bool { return isDigit(c) || (c|0x20)-'a' < 6 }

// isWordByte reports whether c is part of an unquoted name.
func isWordByte(c byte) bool { return isLetter(c) || isDigit(c) || c == '_' }
