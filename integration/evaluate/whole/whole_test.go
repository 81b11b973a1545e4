package whole

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A file is replaced as a whole, and where that fails the earlier one stays.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "page.md")
	for _, text := range []string{"first", "second"} {
		require.NoError(t, Write(path, text))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	require.NoError(t, os.Mkdir(path+".new", 0o755))
	require.Error(t, Write(path, "third"))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "second", string(got))
}

// What was saved is loaded; nothing where there is no file, and an error where it is none of ours.
func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	got, err := Load[map[string]int](path)
	require.NoError(t, err)
	require.Nil(t, got)
	require.NoError(t, Save(path, map[string]int{"a": 1}))
	got, err = Load[map[string]int](path)
	require.NoError(t, err)
	assert.Equal(t, &map[string]int{"a": 1}, got)
	require.NoError(t, Write(path, "{"))
	got, err = Load[map[string]int](path)
	require.ErrorContains(t, err, path)
	assert.Nil(t, got)
}
