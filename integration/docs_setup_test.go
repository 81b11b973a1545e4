package integration

import (
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The commands of docs/several-proxies.md lead to three proxies that ask each other. Only the
// addresses and the folder are the test's.
func TestDocsSetUpOfSeveralProxies(t *testing.T) {
	threeNodes(t)
	forgetProxies(t)
	binary, err := needEnvironment(t).binary()
	require.NoError(t, err)
	here := strings.NewReplacer("10.0.0.", "127.0.7.", "10.0.1.", "127.0.6.", "/etc/music", t.TempDir())
	var all []*process
	parts := onPage(t, "docs/several-proxies.md").of(kindShell)
	require.NotEmpty(t, parts)
	for _, line := range parts[0].lines {
		words := strings.Fields(here.Replace(line))
		if words[0] != "music" {
			out, err := exec.Command("sh", "-c", here.Replace(line)).CombinedOutput()
			require.NoError(t, err, "%s: %s", line, out)
			continue
		}
		p := &process{args: words[1:], log: new(logBuffer)}
		for i, word := range words {
			switch word {
			case "--listen":
				p.address = words[i+1]
			case "--metrics-listen":
				p.metrics = words[i+1]
			}
		}
		out, err := exec.Command(binary, append(p.args, "--check")...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.NotContains(t, string(out), "fault")
		assert.Contains(t, string(out), "contact point", "it says what it has found")
		all = append(all, p)
	}
	require.Len(t, all, 3)
	for _, p := range all {
		p.begin(t)
	}
	for _, p := range all {
		p.listens(t)
		status, body, err := (&instance{metrics: p.metrics}).get("/ready")
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, "ok\n", body)
	}
	began := time.Now()
	seen := exec.Command(binary, "check", "-o", "json", "--proxy", all[1].address)
	topics, _ := found(t, seen)
	t.Logf("music check took %v", time.Since(began))
	for topic, want := range map[string]string{
		"proxies": "fine: 3 answer: 127.0.6.1:9042, 127.0.6.2:9042, 127.0.6.3:9042", "nodes": "fine: ", "clocks": "fine: ",
		"commitlog_sync": "fine: batch",
	} {
		assert.Contains(t, topics[topic], want)
	}
	for _, p := range all {
		assert.NotContains(t, topics["peers"], hostOf(t, p.address), "it is answered, and answers; proxies of earlier tests may not")
	}
	require.NoError(t, all[2].cmd.Process.Signal(syscall.SIGSTOP))
	topics, status := found(t, exec.Command(binary, "check", "-o", "json", "--timeout", "2s", "--proxy", all[0].address))
	require.NoError(t, all[2].cmd.Process.Signal(syscall.SIGCONT))
	assert.Equal(t, 2, status)
	assert.Contains(t, topics["proxies"], "fault: the proxy at 127.0.6.3:9042 does not answer")
	assert.Contains(t, topics["peers"], "127.0.6.3")
	taken, err := exec.Command(binary, append(all[0].args, "--check")...).CombinedOutput()
	require.Error(t, err, "its addresses are in use")
	assert.Contains(t, string(taken), "fault  listen 127.0.6.1:9042")

	one, other := pinned(t, all[0].address), pinned(t, all[1].address)
	var ref string
	eventually(t, time.Minute, "named locks are served", func() error {
		o := one.run(statement{cql: "LOCK music.named WHERE name = 'set up' NOWAIT"})
		ref = told(o, "lock_ref")
		return o.err()
	})
	o := other.run(statement{cql: "LOCK music.named WHERE name = 'set up' USING LOCK " + ref})
	require.NoError(t, o.err(), "asked at another proxy, while its own lives")
	assert.Equal(t, "held", told(o, "state"))
	require.NoError(t, other.run(statement{cql: "UNLOCK music.named WHERE name = 'set up' USING LOCK " + ref}).err())
}
