// Package parser asks Cassandra's own lexer and parser what they make of statements, and compares that with what rewrite makes
// of them: a statement that Cassandra takes and that the proxy reads otherwise could pass the fence of a critical table.
package parser

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"music/integration/cassandra"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	count = flag.Int("texts", 100_000, "how many statements are compared, for each release")
	seed  = flag.Uint64("seed", 1, "of the statements; 0: another each time")
)

// rewrite reads every statement that Cassandra's own parser accepts in the same way, or says that
// it cannot; for the corpus and for mutants of it.
func TestRewriteReadsWhatCassandraReads(t *testing.T) {
	if testing.Short() {
		t.Skip("needs Cassandra's jars")
	}
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	t.Logf("-seed %d", *seed)
	for _, release := range []string{"5.0.8", "4.1.10"} {
		t.Run(release, func(t *testing.T) { compare(t, fetched(t, release), texts(t)) })
	}
}

// fetched downloads the jars of a release if necessary.
func fetched(t *testing.T, release string) cassandra.Distribution {
	t.Helper()
	runDir, err := filepath.Abs("../../.run")
	require.NoError(t, err)
	d, err := cassandra.FetchRelease(t.Context(), runDir, release, os.Stderr)
	require.NoError(t, err)
	return d
}

// texts returns the statements of the corpus and mutants of them.
func texts(t *testing.T) []string {
	t.Helper()
	corpus, err := os.ReadFile("testdata/statements.txt")
	require.NoError(t, err)
	all := strings.Split(strings.TrimSpace(string(corpus)), "\n")
	m := newMutator(rand.New(rand.NewPCG(*seed, 0)), all)
	for len(all) < *count {
		all = append(all, m.mutant())
	}
	return all
}

// compare sends all texts to Cassandra's parser, and counts where rewrite differs or gives up. A
// statement that it gives up is refused on a critical table, which is safe but inconvenient.
func compare(t *testing.T, d cassandra.Distribution, texts []string) {
	t.Helper()
	var valid, faults int
	var unread []string
	for i, answer := range ask(t, d, texts) {
		v := judge(texts[i], answer)
		if v.valid {
			valid++
		}
		if v.unread {
			unread = append(unread, texts[i])
		}
		if v.fault == "" {
			continue
		}
		if faults++; faults <= 20 {
			assert.Fail(t, "a disagreement", "%q\n\t%s", texts[i], v.fault)
		}
	}
	t.Logf("%d texts, of which Cassandra takes %d; read otherwise: %d, not understood: %d", len(texts), valid, faults, len(unread))
	assert.Zero(t, faults, "disagreements")
	assert.GreaterOrEqual(t, valid, len(texts)/10, "only %d of %d texts are statements: nothing was compared", valid, len(texts))
	assert.Less(t, len(unread)*1000, valid, "%d statements are not understood, such as %q", len(unread), unread[:min(10, len(unread))])
}
