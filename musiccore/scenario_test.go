package musiccore

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewriteGolden = flag.Bool("rewrite", false, "write what comes out into testdata")

// TestGolden plays the scenarios of testdata. A line that starts with "> " is an event, "#" starts
// a comment, and the lines below an event are its effects. Update them with -rewrite, then read the
// diff. The events are those of verbs.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	require.NoError(t, err, "no scenarios")
	require.NotEmpty(t, files, "no scenarios: %v", err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			got := replay(t, string(raw))
			if *rewriteGolden {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
			}
			compare(t, string(raw), got)
		})
	}
}

// compare reports the first line that differs.
func compare(t *testing.T, want, got string) {
	t.Helper()
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(wants), len(gots)) {
		wants, gots := append(wants, "nothing more"), append(gots, "nothing more")
		require.Equal(t, wants[min(i, len(wants)-1)], gots[min(i, len(gots)-1)], "line %d", i+1)
	}
}

// replay returns the file as it should be.
func replay(t *testing.T, file string) string {
	s := newStage(t)
	var out strings.Builder
	for line := range strings.Lines(file) {
		if text, ok := strings.CutPrefix(line, "> "); ok {
			out.WriteString(line)
			for _, told := range s.play(strings.TrimSpace(text)) {
				out.WriteString(told + "\n")
			}
		} else if strings.HasPrefix(line, "#") || line == "\n" {
			out.WriteString(line)
		}
	}
	return out.String()
}

// play plays lines and returns what came of them. One string may have several, with semicolons between.
func (s *stage) play(lines ...string) []string {
	s.t.Helper()
	from := len(s.out)
	for line := range strings.SplitSeq(strings.Join(lines, ";"), ";") {
		words := strings.Fields(line)
		verb := s.verbs()[words[0]]
		require.NotNil(s.t, verb, "nobody knows how to %q", line)
		s.began = s.now
		require.NoError(s.t, verb(script{s, words[1:]}), "%q", line)
		s.settle()
		s.waiting(words)
	}
	return s.out[from:]
}

// waiting tells that the statement of this line has no answer yet.
func (s *stage) waiting(words []string) {
	if len(words) < 2 || words[0] == "move" {
		return
	}
	if c := s.clients[words[1]]; c != nil && c.op != 0 {
		s.tell("%s waits", c.name)
	}
}
