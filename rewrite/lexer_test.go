package rewrite

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// lexed returns the tokens of text as "kind:text", punctuation as it stands.
func lexed(text string) []string {
	names := map[TokenKind]string{
		TokenInvalid: "!", TokenIdent: "id", TokenQuoted: "name", TokenString: "str",
		TokenInteger: "int", TokenFloat: "float", TokenBlob: "hex", TokenUUID: "uuid",
		TokenDuration: "dur", TokenOperator: "op",
	}
	list := []string{}
	lexer := NewLexer([]byte(text))
	for t := lexer.Next(); t.Kind != TokenEOF; t = lexer.Next() {
		s := text[t.Start:t.End]
		if name, ok := names[t.Kind]; ok {
			s = name + ":" + s
		}
		list = append(list, s)
	}
	return list
}

const uuid1 = "d2177dd0-eaa2-11de-a572-001b779c76e3"

// The lexer splits a text into the tokens that Cassandra's lexer finds.
func TestLexer(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"empty", "", nil},
		{"blanks", " \t\r\n", nil},
		{"words", "SELECT a_1 FROM kS", []string{"id:SELECT", "id:a_1", "id:FROM", "id:kS"}},
		{"underscore first", "_a", []string{"!:_", "id:a"}},
		{"punctuation", "(),;[]{}?:=*%+-/<>.", strings.Split("(),;[]{}?:=*%+-/<>.", "")},
		{"two bytes", "<= >= != += -= ..", []string{"op:<=", "op:>=", "op:!=", "op:+=", "op:-=", "op:.."}},
		{"bang alone", "!a", []string{"!:!", "id:a"}},
		{"not CQL", "a @ #", []string{"id:a", "!:@", "!:#"}},
		{"not ASCII", "é", []string{"!:\xc3", "!:\xa9"}},
		{"no form feed", "a\fb", []string{"id:a", "!:\f", "id:b"}},

		{"line comment", "a -- b\nc // d\n e", []string{"id:a", "id:c", "id:e"}},
		{"line comment ends at CR", "a -- b\rc", []string{"id:a", "id:c"}},
		{"line comment ends with the text", "a -- b", []string{"id:a"}},
		{"block comment", "a/* b */c/**/d/***/e", []string{"id:a", "id:c", "id:d", "id:e"}},
		{"block comments do not nest", "/* /* */ a */", []string{"id:a", "*", "/"}},
		{"slash star slash is open", "a /*/ b", []string{"id:a", "!:/*/ b"}},
		{"block comment over lines", "/*\n--*/a", []string{"id:a"}},
		{"comment in a line comment", "-- /*\na", []string{"id:a"}},
		{"comment in a string", "'/* a */ -- b'", []string{"str:'/* a */ -- b'"}},
		{"quote in a comment", "/* ' */ a -- '\n b", []string{"id:a", "id:b"}},

		{"string", "'it''s' ''", []string{"str:'it''s'", "str:''"}},
		{"string of a quote", "''''", []string{"str:''''"}},
		{"backslash is no escape", `'a\' b`, []string{`str:'a\'`, "id:b"}},
		{"open string", "a 'b", []string{"id:a", "!:'b"}},
		{"dollars", "$$a 'b' $ c$$ d", []string{"str:$$a 'b' $ c$$", "id:d"}},
		{"dollars, empty", "$$$$", []string{"str:$$$$"}},
		{"dollars, open", "$$a$", []string{"!:$$a$"}},
		{"dollar alone", "$a", []string{"!:$", "id:a"}},
		{"quoted name", `"a""b" "" "x`, []string{`name:"a""b"`, `name:""`, `!:"x`}},

		{"integers", "1 -1 007", []string{"int:1", "int:-1", "int:007"}},
		{"minus", "a-1 a - b", []string{"id:a", "int:-1", "id:a", "-", "id:b"}},
		{"floats", "1.5 1. 1e5 1.5E-3 -2.0", []string{"float:1.5", "float:1.", "float:1e5", "float:1.5E-3", "float:-2.0"}},
		{"no float", ".5 1e 1.5e+", []string{".", "int:5", "int:1", "id:e", "float:1.5", "id:e", "+"}},
		{"ranges", "1..2 1...2", []string{"int:1", "op:..", "int:2", "float:1.", "op:..", "int:2"}},
		{"blobs", "0x 0xCafe 0XF -0x1", []string{"hex:0x", "hex:0xCafe", "hex:0XF", "int:-0", "id:x1"}},
		{"uuids", uuid1 + " 550E8400-e29b-41d4-a716-446655440000", []string{"uuid:" + uuid1, "uuid:550E8400-e29b-41d4-a716-446655440000"}},
		{"uuid and more", uuid1 + "4", []string{"uuid:" + uuid1, "int:4"}},
		{"no uuid", "d2177dd0-eaa2", []string{"id:d2177dd0", "-", "id:eaa2"}},
		{"no uuid, longer word", "x" + uuid1, []string{"id:xd2177dd0", "-", "id:eaa2", "dur:-11d", "id:e", "-", "id:a572", "int:-001", "id:b779c76e3"}},
		{
			"durations", "5s 500ms 1m30s 1h 2mo 1y 3d 4w 7us 7µs 9NS -1h",
			[]string{"dur:5s", "dur:500ms", "dur:1m30s", "dur:1h", "dur:2mo", "dur:1y", "dur:3d", "dur:4w", "dur:7us", "dur:7µs", "dur:9NS", "dur:-1h"},
		},
		{"duration and more", "5sx 1m5", []string{"dur:5s", "id:x", "dur:1m", "int:5"}},
		{"no duration", "5u 5n 5µ", []string{"int:5", "id:u", "int:5", "id:n", "int:5", "!:\xc2", "!:\xb5"}},
		{
			"ISO durations", "PT5S P1Y2M3DT4H5M6S P2W -P1D P0001-02-03T04:05:06",
			[]string{"dur:PT5S", "dur:P1Y2M3DT4H5M6S", "dur:P2W", "dur:-P1D", "dur:P0001-02-03T04:05:06"},
		},
		{"no ISO durations", "PT5 P p1y P1YX P1D2Y -P PT", []string{"id:PT5", "id:P", "id:p1y", "id:P1YX", "id:P1D2Y", "-", "id:P", "id:PT"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := lexed(test.text)
			if test.want == nil {
				require.Empty(t, got)
				return
			}
			require.Equal(t, test.want, got)
		})
	}
}

// At the end of the text, Next returns the end again and again.
func TestLexerStaysAtTheEnd(t *testing.T) {
	lexer := NewLexer([]byte("a "))
	lexer.Next()
	for range 3 {
		require.Equal(t, Token{Kind: TokenEOF, Span: Span{2, 2}}, lexer.Next())
	}
}

// Reading from a copy of a lexer does not move the original.
func TestLexerCopyLooksAhead(t *testing.T) {
	lexer := NewLexer([]byte("a b"))
	ahead := lexer
	require.Equal(t, lexer.Next(), ahead.Next())
	ahead.Next()
	require.Equal(t, Span{2, 3}, lexer.Next().Span)
}

// The lexer does not allocate.
func TestLexerAllocatesNothing(t *testing.T) {
	text := []byte(`SELECT "a""b", 'it''s', $$x$$, 1.5e3, 0xff, 5s, ` + uuid1 + ` /* c */ FROM ks.t -- end`)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		lexer := NewLexer(text)
		for lexer.Next().Kind != TokenEOF {
		}
	}))
}

// AppendTo folds an unquoted name to lower case, and removes the quotes of a quoted one.
func TestNameAppendTo(t *testing.T) {
	tests := []struct {
		text, want string
	}{
		{"Accounts_1", "accounts_1"},
		{`"Accounts"`, "Accounts"},
		{`"a""b"""`, `a"b"`},
		{`""`, ""},
		{"P1Y", "p1y"},
	}
	for _, test := range tests {
		lexer := NewLexer([]byte(test.text))
		name, ok := nameOf([]byte(test.text), lexer.Next())
		require.True(t, ok, test.text)
		require.Equal(t, "ks."+test.want, string(name.AppendTo([]byte("ks."), []byte(test.text))))
	}
}

// Constants and punctuation are not names.
func TestNameOfOthers(t *testing.T) {
	for _, text := range []string{"5s", "-P1Y", "P0001-02-03T04:05:06", "'a'", uuid1, "1", "."} {
		lexer := NewLexer([]byte(text))
		_, ok := nameOf([]byte(text), lexer.Next())
		require.False(t, ok, text)
	}
	require.True(t, Name{}.Empty(), "the zero Name is absent")
}

// AppendTo does not allocate where dst has room.
func TestNameAppendToAllocatesNothing(t *testing.T) {
	text := []byte(`"a""B" Cde`)
	dst := make([]byte, 0, 16)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		dst = Name{Span: Span{0, 6}, Quoted: true}.AppendTo(dst[:0], text)
		dst = Name{Span: Span{7, 10}}.AppendTo(dst, text)
	}))
	require.Equal(t, `a"Bcde`, string(dst))
}
