package music_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The helpers for gocql 2 and gocql 1.7 are the same code but for the driver's import and how a
// context is given to a statement.
func TestHelpersForGocqlAreTheSame(t *testing.T) {
	names, err := filepath.Glob("clients/go/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	ofGocql1 := strings.NewReplacer(
		`gocql "github.com/apache/cassandra-gocql-driver/v2"`, `"github.com/gocql/gocql"`,
		"in an ordinary gocql session", "in an ordinary session of gocql 1.7",
	)
	withContext := regexp.MustCompile(`\.(Iter|Scan|Exec)Context\(ctx(?:, )?`)
	for _, name := range names {
		two, err := os.ReadFile(name)
		require.NoError(t, err)
		one, err := os.ReadFile(filepath.Join("clients/gocql1", filepath.Base(name)))
		require.NoError(t, err)
		want := withContext.ReplaceAllString(ofGocql1.Replace(string(two)), ".WithContext(ctx).$1(")
		assert.Equal(t, want, string(one), "%s and clients/gocql1 differ", name)
	}
}
