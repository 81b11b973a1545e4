package parser

import (
	"math/rand/v2"
	"slices"
	"strings"

	"music/rewrite"
)

// mutator makes new statements from known ones: it removes, inserts, exchanges and joins tokens,
// and sometimes changes a byte.
type mutator struct {
	random *rand.Rand
	known  [][]string // tokens of the statements
	words  []string
}

// blanks are what may stand between two tokens; the empty one may join two tokens into one.
func blanks() []string {
	return []string{" ", " ", " ", "\n", "\t", "\r", "/**/", "/* x */", "-- c\n", "//c\r", " ", "/*'*/", "--'\n", ""}
}

func newMutator(random *rand.Rand, statements []string) *mutator {
	m := &mutator{random: random, words: strings.Fields(`lock unlock list locks from where set using and if in ; , ( ) [ ] { } : ? . ..
		-- // /* */ ' " $$ 'x' "q" 5 -5 1.5 5s 0x1 null true :n = < >= != + - * / % as json distinct token count update delete insert
		apply batch begin for wait P1Y PT1S NaN -NaN Infinity -Infinity limit order by group per partition ttl timestamp values default unset exists not
		contains key like is between d2177dd0-eaa2-11de-a572-001b779c76e3 (int) f(1) a b k t ks.t "K"."T"`)}
	for _, s := range statements {
		_, tokens, _ := lexed(s)
		m.known = append(m.known, tokens)
	}
	return m
}

// lexed is a text with the tokens of rewrite's lexer, their places, and whether the text is CQL at
// all.
func lexed(text string) (places []rewrite.Span, tokens []string, invalid bool) {
	l := rewrite.NewLexer([]byte(text))
	for t := l.Next(); t.Kind != rewrite.TokenEOF; t = l.Next() {
		invalid = invalid || t.Kind == rewrite.TokenInvalid
		places = append(places, t.Span)
		tokens = append(tokens, text[t.Start:t.End])
	}
	return places, tokens, invalid
}

func one[T any](m *mutator, of []T) T { return of[m.random.IntN(len(of))] }

// mutant returns a new text, which may be a statement or not.
func (m *mutator) mutant() string {
	tokens := slices.Clone(one(m, m.known))
	for n := m.random.IntN(4); n > 0 && len(tokens) > 1; n-- {
		tokens = m.change(tokens, m.random.IntN(len(tokens)))
	}
	text := []byte(m.join(tokens))
	if m.random.IntN(5) == 0 && len(text) > 0 {
		text[m.random.IntN(len(text))] = one(m, []byte("\"'$-/*\n\r .,:;?()[]{}0x1dePTYms=<>!abf_"))
	}
	return string(text)
}

// change makes one change at token i.
func (m *mutator) change(tokens []string, i int) []string {
	other := one(m, m.known)
	switch m.random.IntN(6) {
	case 0:
		return slices.Delete(tokens, i, i+1)
	case 1:
		return slices.Insert(tokens, i, one(m, m.words))
	case 2:
		tokens[i] = one(m, m.words)
	case 3:
		j := m.random.IntN(len(tokens))
		tokens[i], tokens[j] = tokens[j], tokens[i]
	case 4:
		from := m.random.IntN(len(other))
		return slices.Insert(tokens, i, other[from:from+m.random.IntN(len(other)-from)]...)
	case 5:
		tokens[i] = one(m, other)
	}
	return tokens
}

// join joins tokens with one of several styles of blanks, and some words in capitals.
func (m *mutator) join(tokens []string) string {
	var text strings.Builder
	idea := m.random.IntN(4)
	for i, token := range tokens {
		switch {
		case i == 0:
		case idea == 0:
			text.WriteString(one(m, blanks()))
		case idea > 1 || m.random.IntN(3) > 0:
			text.WriteByte(' ')
		}
		if m.random.IntN(8) == 0 && !strings.ContainsAny(token[:1], "'\"$P") {
			token = strings.ToUpper(token)
		}
		text.WriteString(token)
	}
	return text.String()
}
