package integration

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// logLines returns the lines of a log in JSON.
func logLines(t *testing.T, text string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(text) {
		var l map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		all = append(all, l)
	}
	return all
}

// The first line of the log names the node and the addresses; one line names all critical tables.
func TestStartIsToldOnFewLines(t *testing.T) {
	node := needEnvironment(t).direct()
	for _, locks := range []string{"on", "off"} {
		p := startProcess(t, node, "--locks", locks, "--max-connections", "100")
		p.log.tells(t, `"MUSIC proxy"`)
		lines := logLines(t, p.log.String())
		first, tables := lines[0], 0
		for _, l := range lines {
			switch l["message"] {
			case "MUSIC proxy":
				first = l
			case "tables are critical":
				tables++
				assert.NotEmpty(t, l["names"])
			}
			assert.NotEqual(t, "table is critical", l["message"])
		}
		if locks == "on" {
			assert.Equal(t, "MUSIC proxy", lines[0]["message"])
			assert.Equal(t, 1, tables)
		}
		for _, field := range []string{"release", "cluster", "node", "cassandra", "data_center"} {
			assert.NotEmpty(t, first[field], "%s: %v", field, first)
		}
		assert.Equal(t, p.address, first["listen"])
		assert.Equal(t, p.metrics, first["health"])
		assert.Equal(t, "off", first["peers"])
	}
}

// If the address for health is in use, the start fails with one line, which names the setting, and
// no line is wrong.
func TestHealthAddressThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", ownAddress(t))
	require.NoError(t, err)
	defer func() { _ = taken.Close() }()
	p := newProcess(t, needEnvironment(t).direct(), needEnvironment(t).address(), "--metrics-listen", taken.Addr().String())
	p.begin(t)
	assert.Equal(t, 1, p.status(t))
	lines := logLines(t, p.log.String())
	require.NotEmpty(t, lines)
	assert.Contains(t, lines[len(lines)-1]["error"], "metrics-listen")
	assert.NotContains(t, p.log.String(), "cannot be reached yet")

	c := needEnvironment(t).config()
	c.Listen.Metrics, c.Listen.MetricsAsked = taken.Addr().String(), false
	served := startProxy(t, func(o *config.Config) { *o = c })
	served.log.tells(t, "metrics-listen")
}
