package config_test

import (
	"os"
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

func TestReferenceExampleLoads(t *testing.T) {
	_, rest, _ := strings.Cut(config.Reference(), "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	example = strings.ReplaceAll(example, "/run/secrets/cassandra", write(t, "hunter2"))

	c, err := load(t, []string{"--config", write(t, example)}, nil)

	require.NoError(t, err)
	assert.Equal(t, "10.0.0.7", c.Listen.AdvertiseHost())
}
