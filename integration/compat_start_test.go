//go:build compat

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// docs/start.md, Through your own driver: the page's commands lead to a section on a table of one's
// own, with each driver. The log has how long it took.
func TestDocsStartThroughEachDriver(t *testing.T) {
	begun := time.Now()
	node := needEnvironment(t).direct()
	p := onPage(t, "docs/start.md")
	parts := p.under("Through your own driver", kindConsole)
	require.Len(t, parts, 1)
	lines := parts[0].lines
	require.Len(t, lines, 3)
	require.Equal(t, "$ make build", lines[0])
	build := exec.Command("make", "-C", docRoot, "build")
	t.Logf("%s%s: %v", output(t, build, false), lines[0], took(&begun))
	words := strings.Fields(lines[1])
	require.Equal(t, []string{"$", "bin/music", "proxy", "--contact-points", "127.0.1.1", "--listen", "127.0.0.1:9042", "&"}, words)
	proxy := startProcess(t, node) // with these flags, at addresses of the test's
	t.Logf("%s: %v", lines[1], took(&begun))

	direct := openGocql2(t, cluster2(node, ""))
	require.NoError(t, direct.run(statement{cql: "DROP KEYSPACE IF EXISTS till"}).err())
	require.NoError(t, direct.run(statement{cql: "CREATE KEYSPACE till WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"}).err())
	t.Cleanup(func() { _ = direct.run(statement{cql: "DROP KEYSPACE till"}) })
	here := strings.NewReplacer("127.0.0.1", hostOf(t, proxy.address))
	shell := exec.Command("sh", "-c", here.Replace(strings.TrimPrefix(lines[2], "$ ")))
	shell.Env = append(os.Environ(), "PATH="+filepath.Dir(needPython(t).Cqlsh)+":"+os.Getenv("PATH"))
	output(t, shell, false)
	t.Logf("%s: %v", lines[2], took(&begun))

	classes := filepath.Join(needEnvironment(t).runDir, "java", "lib", "*")
	for kind, c := range map[string]struct{ file, program string }{
		"go program": {"main.go", "go run"}, "python program": {"section.py", needPython(t).Python},
		"java program": {"Section.java", "java -XX:TieredStopAtLevel=1 -cp " + classes}, "js program": {"section.js", "node"},
	} {
		begun = time.Now()
		parts := p.under("Through your own driver", kind)
		require.Len(t, parts, 1, kind)
		path := filepath.Join(t.TempDir(), c.file)
		require.NoError(t, os.WriteFile(path, []byte(here.Replace(strings.Join(parts[0].lines, "\n"))+"\n"), 0o600))
		words := append(strings.Fields(c.program), path)
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Env = append(os.Environ(), "NODE_PATH="+filepath.Join(needEnvironment(t).runDir, "node", "node_modules"))
		said, err := cmd.Output()
		require.NoError(t, err, "%s: %s", kind, said)
		require.Equal(t, "70", strings.TrimSpace(string(said)), kind)
		t.Logf("%s: %v", kind, took(&begun))
	}
}

// took returns the time since then, and sets it to now.
func took(since *time.Time) time.Duration {
	d := time.Since(*since).Round(100 * time.Millisecond)
	*since = time.Now()
	return d
}
