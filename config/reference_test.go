package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// referencePage is written by `make docs`, which sets UPDATE_DOCS.
const referencePage = "../docs/configuration.md"

func TestReferencePageIsCurrent(t *testing.T) {
	if os.Getenv("UPDATE_DOCS") != "" {
		require.NoError(t, os.MkdirAll("../docs", 0o750))
		require.NoError(t, os.WriteFile(referencePage, []byte(config.Reference()), 0o600))
	}
	page, err := os.ReadFile(referencePage)
	require.NoError(t, err)
	assert.Equal(t, config.Reference(), string(page), "out of date: run make docs")
}

func TestReferenceNamesEveryFlag(t *testing.T) {
	flags := pflag.NewFlagSet("music", pflag.ContinueOnError)
	config.AddFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		assert.Contains(t, config.Reference(), f.Name)
		assert.NotEmpty(t, f.Usage)
	})
}

// Each name of several words in a page for users, such as `local-dc`, is that of a setting; models name their runs so, and mutants what they break.
func TestDocsNameSettingsThatExist(t *testing.T) {
	flags := pflag.NewFlagSet("music", pflag.ContinueOnError)
	config.AddFlags(flags)
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	found := 0
	for _, page := range append(pages, "../README.md", "../SECURITY.md") {
		if name := filepath.Base(page); name == "model.md" || name == "mutants.md" {
			continue
		}
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, name := range regexp.MustCompile("`([a-z]+(?:-[a-z]+)+)`").FindAllStringSubmatch(string(text), -1) {
			found++
			assert.NotNil(t, flags.Lookup(name[1]), "%s: %s", page, name[1])
		}
	}
	assert.Greater(t, found, 100)
}

func TestReferenceExampleLoads(t *testing.T) {
	_, rest, _ := strings.Cut(config.Reference(), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	example = strings.ReplaceAll(example, "/run/secrets/cassandra", write(t, "hunter2"))

	c, err := load(t, []string{"--config", write(t, example)}, nil)

	require.NoError(t, err)
	assert.Equal(t, "10.0.0.7", c.Listen.AdvertiseHost())
}
