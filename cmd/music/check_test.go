package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/check"
)

func TestFindingsAsLines(t *testing.T) {
	all := []check.Finding{
		{Level: check.Fine, Topic: "proxies", Text: "3 answer"},
		{Level: check.Warning, Topic: "paxos_variant", Text: "v1:\x1b[2J while the ring changes two clients could both be given a lock", Do: "paxos_variant: v2 in cassandra.yaml of every node"},
	}
	var text, json bytes.Buffer
	require.NoError(t, writeFindings(&text, outText, all))
	require.NoError(t, writeFindings(&json, outJSON, all[:1]))
	lines := strings.Split(text.String(), "\n")
	require.Len(t, lines, 4)
	assert.Equal(t, "fine     proxies: 3 answer", lines[0])
	assert.NotContains(t, text.String(), "\x1b")
	assert.Equal(t, "         → paxos_variant: v2 in cassandra.yaml of every node", lines[2])
	assert.Equal(t, `[{"level":"fine","topic":"proxies","text":"3 answer"}]`+"\n", json.String())
	for line := range strings.Lines("         " + wrapped(all[1].Do, 40)) {
		assert.LessOrEqual(t, len(strings.TrimSpace(line)), 40-findingIndent)
	}
}

// Where no proxy answers, that is the finding.
func TestCheckWithoutAProxy(t *testing.T) {
	o := run(done, nil, "check", "--proxy=127.0.0.1:1", "--timeout=1s", "-o", "json")
	assert.Equal(t, 2, o.status)
	assert.Contains(t, o.stdout, `"topic":"proxies"`)
	assert.Contains(t, o.stdout, "no proxy answers")
	assert.Empty(t, o.stderr)
}
