package proxy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"music/config"
	"music/frontend/traffic"
	"music/musiccore"
	"music/proxy/peer"
)

// exposed returns a registry with what a proxy with locks shows.
func exposed() *prometheus.Registry {
	r := newRegistry(new(traffic.Stats))
	newLockMetrics(r, newCriticalTables(), []config.TableName{{Keyspace: "bank", Table: "accounts"}})
	newHeartbeat(nil, new(clock), musiccore.Defaults(), sessionConfig{references: new(references)}, zerolog.Nop()).register(r)
	peer.NewClient(peer.Channel{}, nil, zerolog.Nop(), r)
	return r
}

// The metrics keep to Prometheus' conventions.
func TestMetricsKeepToConventions(t *testing.T) {
	families, err := exposed().Gather()
	require.NoError(t, err)
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// alertRules are docs/alerts.yml.
type alertRules struct {
	Groups []struct {
		Rules []struct {
			Alert, Expr string
			Annotations map[string]string
		}
	}
}

// readAlerts returns the rules by name, with their expressions.
func readAlerts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/alerts.yml")
	require.NoError(t, err)
	var rules alertRules
	require.NoError(t, yaml.Unmarshal(text, &rules))
	all := map[string]string{}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			assert.NotContains(t, all, rule.Alert)
			assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			all[rule.Alert] = rule.Expr
		}
	}
	return all
}

// Each alert asks for metrics that there are, and with them from the start: Prometheus sees no increase from nothing to 1.
func TestAlertsNameMetricsThatExist(t *testing.T) {
	families, err := exposed().Gather()
	require.NoError(t, err)
	known := map[string]bool{"music_log_lines_dropped_total": true} // the command's own
	for _, f := range families {
		known[f.GetName()], known[f.GetName()+"_bucket"] = true, true
	}
	alerts := readAlerts(t)
	assert.GreaterOrEqual(t, len(alerts), 10)
	for alert, expression := range alerts {
		names := regexp.MustCompile(`music_\w+`).FindAllString(expression, -1)
		assert.True(t, len(names) > 0 || strings.HasPrefix(expression, "up{"), alert)
		for _, name := range names {
			assert.True(t, known[name], "%s: %s", alert, name)
		}
	}
}

// words returns the first words of the errors that clients get.
func words(t *testing.T) map[string]bool {
	t.Helper()
	all, literal := map[string]bool{}, regexp.MustCompile(`"(MUSIC_[A-Z_]+): `)
	for _, folder := range []string{"../frontend", "../rewrite", "../musiccore", "."} {
		require.NoError(t, filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile(name)
			for _, found := range literal.FindAllStringSubmatch(string(text), -1) {
				all[found[1]] = true
			}
			return err
		}))
	}
	return all
}

// The runbook has a section for each alert and for each first word of an error, and for nothing else but findings.
func TestRunbookHasASectionForEach(t *testing.T) {
	page, err := os.ReadFile("../docs/runbook.md")
	require.NoError(t, err)
	before, _, _ := strings.Cut(string(page), "\n## Findings of") // those are looked at in package check
	var sections, want []string
	for _, found := range regexp.MustCompile(`(?m)^### (\w+)$`).FindAllStringSubmatch(before, -1) {
		sections = append(sections, found[1])
	}
	for alert := range readAlerts(t) {
		want = append(want, alert)
	}
	for word := range words(t) {
		want = append(want, word)
	}
	assert.ElementsMatch(t, want, sections)
}

// Each first word of an error is counted as itself.
func TestErrorsAreCountedByTheirWords(t *testing.T) {
	shown := values(t, exposed())
	for word := range words(t) {
		assert.Contains(t, shown, "music_errors_total "+word)
	}
}
