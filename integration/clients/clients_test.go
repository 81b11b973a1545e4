package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
)

// root is the folder of the helpers.
const root = "../../clients"

// play plays every story with players of one language: most stories at once with one player, those
// that pause it with a player of their own.
func play(t *testing.T, language string, start func() *exec.Cmd) {
	t.Helper()
	all, err := Stories()
	require.NoError(t, err)
	require.Greater(t, len(all), 40)
	p, err := Start(start())
	require.NoError(t, err)
	defer p.Close()
	came := make([]error, len(all))
	var wait sync.WaitGroup
	for i, story := range all {
		wait.Go(func() {
			with := p
			if story.aloneIn(language) {
				if with, came[i] = Start(start()); came[i] != nil {
					return
				}
				defer with.Close()
			}
			if !slices.Contains(story.Not, language) {
				came[i] = Play(with, fmt.Sprint(i), story)
			}
		})
	}
	wait.Wait()
	for i, story := range all {
		t.Run(story.Name, func(t *testing.T) { assert.NoError(t, came[i]) })
	}
}

// command returns how to start the player of a language.
func command(t *testing.T, language string) func() *exec.Cmd {
	t.Helper()
	dir, err := cassandra.DefaultRunDir()
	require.NoError(t, err)
	start, err := Command(t.Context(), language, root, dir)
	require.NoError(t, err)
	return start
}

// The Go helpers for gocql 2 and gocql 1.7 pass all stories.
func TestGo(t *testing.T) {
	for _, module := range []string{"go", "gocql1"} {
		t.Run(module, func(t *testing.T) {
			t.Parallel()
			play(t, module, command(t, module))
		})
	}
}

// The helper for gocql 1.7 is that for gocql 2 but for the names of the older driver.
func TestGoHelpersAreOne(t *testing.T) {
	words := strings.NewReplacer(
		`gocql "github.com/apache/cassandra-gocql-driver/v2"`, `"github.com/gocql/gocql"`, "ordinary gocql session", "ordinary session of gocql 1.7",
		".IterContext(ctx)", ".WithContext(ctx).Iter()", ".ScanContext(ctx, ", ".WithContext(ctx).Scan(", ".ExecContext(ctx)", ".WithContext(ctx).Exec()",
	)
	files, err := filepath.Glob(filepath.Join(root, "go", "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		newer, err := os.ReadFile(file)
		require.NoError(t, err)
		older, err := os.ReadFile(filepath.Join(root, "gocql1", filepath.Base(file)))
		require.NoError(t, err)
		assert.Equal(t, words.Replace(string(newer)), string(older), file)
	}
}
