package rewrite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Apply removes the cut spans, and leaves one space between the tokens on either side.
func TestApply(t *testing.T) {
	tests := []struct {
		name, text string
		cut        []Span
		want       string
	}{
		{"nothing", "a b", nil, "a b"},
		{"in the middle", "a XX b", []Span{{2, 4}}, "a  b"},
		{"the beginning", "XXa", []Span{{0, 2}}, "a"},
		{"the end", "aXX", []Span{{1, 3}}, "a"},
		{"all", "XX", []Span{{0, 2}}, ""},
		{"two", "aXbXc", []Span{{1, 2}, {3, 4}}, "a b c"},
		{"two that touch", "aXYb", []Span{{1, 2}, {2, 3}}, "a  b"},
		{"words", "aXb", []Span{{1, 2}}, "a b"},
		{"numbers", "1X2", []Span{{1, 2}}, "1 2"},
		{"strings", "'a'X'b'", []Span{{3, 4}}, "'a' 'b'"},
		{"names", `"a"X"b"`, []Span{{3, 4}}, `"a" "b"`},
		{"a line comment would start", "-X-", []Span{{1, 2}}, "- -"},
		{"a line comment would start, of comments", "/**/X/**/", []Span{{4, 5}}, "/**/ /**/"},
		{"a block comment would start", "/X*", []Span{{1, 2}}, "/ *"},
		{"operators", "<X=", []Span{{1, 2}}, "< ="},
		{"dots", ".X.", []Span{{1, 2}}, ". ."},
		{"dollars", "$$a$$X$$b$$", []Span{{5, 6}}, "$$a$$ $$b$$"},
		{"brackets join nothing", "(X)", []Span{{1, 2}}, "()"},
		{"neither do semicolons", "aX;", []Span{{1, 2}}, "a;"},
		{"nor markers", "?X?", []Span{{1, 2}}, "??"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, "dst"+test.want, string(Apply([]byte("dst"), []byte(test.text), test.cut)))
		})
	}
}

// Apply does not allocate where dst has room.
func TestApplyAllocatesNothing(t *testing.T) {
	text := []byte("UPDATE t USING LOCK 5 SET a = 1 WHERE k = 1")
	s, err := Parse(text)
	require.NoError(t, err)
	dst := make([]byte, 0, 2*len(text))
	require.Zero(t, testing.AllocsPerRun(100, func() { dst = Apply(dst[:0], text, s.Cut) }))
}

// TestApplyLeavesTheTextAlone holds that what Parse was given is never written to.
func TestApplyLeavesTheTextAlone(t *testing.T) {
	const text = "INSERT INTO t (k) VALUES (1)USING LOCK 5 AND TTL 3"
	raw := []byte(text)
	s, err := Parse(raw)
	require.NoError(t, err)
	require.Equal(t, "INSERT INTO t (k) VALUES (1)USING  TTL 3", string(Apply(nil, raw, s.Cut)))
	require.Equal(t, text, string(raw))
}
