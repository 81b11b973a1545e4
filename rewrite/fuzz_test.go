package rewrite

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// seed adds what the other tests know to the corpus.
func seed(f *testing.F) {
	f.Helper()
	for _, h := range heads() {
		f.Add([]byte(h[0]))
	}
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(f, err)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(f, err)
		for line := range strings.SplitSeq(string(raw), "\n") {
			if text, ok := strings.CutPrefix(line, "> "); ok {
				f.Add([]byte(text))
			}
		}
	}
}

// tokens returns all tokens of text.
func tokens(text []byte) []Token {
	var list []Token
	lexer := NewLexer(text)
	for t := lexer.Next(); t.Kind != TokenEOF; t = lexer.Next() {
		list = append(list, t)
	}
	return list
}

// FuzzLexer: tokens stand in order, are not empty, and between them are only
// blanks and comments.
func FuzzLexer(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		at := 0
		for _, tok := range tokens(text) {
			require.Greater(t, tok.End, tok.Start)
			require.LessOrEqual(t, tok.End, len(text))
			require.Equal(t, tok.Start, skipBlanks(text, at))
			blankOnly(t, text[at:tok.Start])
			at = tok.End
		}
		require.Equal(t, len(text), skipBlanks(text, at))
		blankOnly(t, text[at:])
	})
}

// blankOnly reads blanks and comments another way than the lexer does.
func blankOnly(t *testing.T, gap []byte) {
	for len(gap) > 0 {
		switch {
		case bytes.HasPrefix(gap, []byte("--")), bytes.HasPrefix(gap, []byte("//")):
			end := bytes.IndexAny(gap, "\r\n")
			if end < 0 {
				return
			}
			gap = gap[end:]
		case bytes.HasPrefix(gap, []byte("/*")):
			end := bytes.Index(gap[2:], []byte("*/"))
			require.GreaterOrEqual(t, end, 0)
			gap = gap[end+4:]
		default:
			require.Contains(t, " \t\r\n", string(gap[:1]))
			gap = gap[1:]
		}
	}
}

// FuzzReadHead: a first part says what the whole says, or that it is too short.
func FuzzReadHead(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		whole := ReadHead(text, true)
		for i := range min(len(text), 200) {
			if h := ReadHead(text[:i], false); h.Complete && whole.Complete {
				require.Equal(t, whole, h, "%q of %q", text[:i], text)
			}
		}
		if h := ReadHead(text, false); h.Complete {
			require.Equal(t, whole, h)
		}
	})
}

// FuzzParse: no panic; verb and names are ReadHead's; spans lie in the text;
// markers are numbered as they stand.
func FuzzParse(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			var syntax *SyntaxError
			require.ErrorAs(t, err, &syntax)
			require.NotEmpty(t, syntax.Message)
			require.LessOrEqual(t, syntax.End, len(text))
			require.Equal(t, Statement{}, s)
			return
		}
		h := ReadHead(text, true)
		require.True(t, h.Complete)
		require.Equal(t, []any{h.Verb, h.AfterSelect, h.Keyspace, h.Table}, []any{s.Verb, s.AfterSelect, s.Keyspace, s.Table})
		checkTerms(t, text, s)
		for _, c := range s.Children {
			checkTerms(t, text, c)
		}
	})
}

func checkTerms(t *testing.T, text []byte, s Statement) {
	terms := []Term{s.Lock, s.TTL, s.Wait, s.Lease, s.Owner, s.Token, s.Limit, s.Reason}
	for _, r := range s.Where {
		terms = append(append(terms, r.Value), r.Values...)
		r.Column.AppendTo(nil, text)
	}
	for _, term := range terms {
		if term.Kind == NoTerm {
			require.True(t, term.Empty())
			continue
		}
		require.Greater(t, term.End, term.Start)
		require.LessOrEqual(t, term.End, len(text))
		require.Equal(t, term.Kind == TermMarker, term.Marker >= 0)
		checkMarker(t, text, s, term)
		for _, typ := range []string{"text", "int", "uuid", "blob", "boolean"} {
			_, _ = Encode(typ, text, term)
		}
		_, _ = Duration(text, term)
	}
}

// checkMarker counts plain markers by the lexer; named ones need a parser.
func checkMarker(t *testing.T, text []byte, s Statement, term Term) {
	if term.Kind != TermMarker || bytes.IndexByte(text, ':') >= 0 {
		return
	}
	before := 0
	for _, tok := range tokens(text[:term.Start]) {
		if tok.Kind == '?' {
			before++
		}
	}
	require.Equal(t, before, term.Marker)
	require.Positive(t, s.Markers)
}

// FuzzApply: bytes outside the cut stay, the tokens outside it too, and what
// comes out has nothing of the proxy's own left.
func FuzzApply(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		got := Apply(nil, text, s.Cut)
		require.Equal(t, outside(text, s.Cut), words(got))
		checkBytes(t, text, got, s.Cut)
		if len(s.Cut) == 0 {
			return
		}
		again, err := Parse(got)
		require.NoError(t, err)
		require.Empty(t, again.Cut)
		require.Equal(t, NoTerm, again.Lock.Kind)
		require.False(t, again.ForUpdate)
		require.Len(t, again.Where, len(s.Where))
		require.Equal(t, s.Conditional, again.Conditional)
	})
}

// outside returns the tokens of text that no span covers. A span that covers
// part of a token shows: the token stays.
func outside(text []byte, cut []Span) []string {
	list := []string{}
	for _, tok := range tokens(text) {
		covered := slices.ContainsFunc(cut, func(c Span) bool { return c.Start <= tok.Start && tok.End <= c.End })
		if !covered {
			list = append(list, string(tok.Of(text)))
		}
	}
	return list
}

func words(got []byte) []string {
	list := []string{}
	for _, tok := range tokens(got) {
		list = append(list, string(tok.Of(got)))
	}
	return list
}

// checkBytes holds that got is text without the spans, but for one space each.
func checkBytes(t *testing.T, text, got []byte, cut []Span) {
	at := 0
	for _, c := range cut {
		require.LessOrEqual(t, at, c.Start)
		require.Less(t, c.Start, c.End)
		piece := text[at:c.Start]
		require.True(t, bytes.HasPrefix(got, piece))
		got, at = got[len(piece):], c.End
		rest := text[at:]
		if len(got) > 0 && got[0] == ' ' && (len(rest) == 0 || rest[0] != ' ') {
			got = got[1:]
		}
	}
	require.Equal(t, string(text[at:]), string(got))
}
