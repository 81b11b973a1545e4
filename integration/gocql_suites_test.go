//go:build compat

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/gotest"
)

// suite is the integration tests in the module of a version of gocql, with their flags. Those that
// start and stop nodes with ccm or docker are not run, nor the one of login, which needs nodes at
// which the others could not log in.
type suite struct {
	name, driver string
	flags        []string
}

// suites returns both drivers, with every compression. In protocol 3, the tests of 1.7 panic at
// custom payloads.
func suites() []suite {
	const first, second = "github.com/gocql/gocql", "github.com/apache/cassandra-gocql-driver/v2"
	return []suite{
		{"1.7 protocol 4", first, []string{"-proto=4"}},
		{"1.7 protocol 4 snappy", first, []string{"-proto=4", "-compressor=snappy"}},
		{"2.1 protocol 4 snappy", second, []string{"-proto=4", "-compressor=snappy"}},
		{"2.1 protocol 5", second, []string{"-proto=5"}},
		{"2.1 protocol 5 lz4", second, []string{"-proto=5", "-compressor=lz4"}},
	}
}

// failing returns the tests that fail at the nodes, too, and why.
func failing() map[string]string {
	return map[string]string{
		"TestDiscoverViaProxy": "needs the first node at 127.0.0.1, where a relay of the test's own listens",
		"TestCAS":              "1.7 calls dateof(), which Cassandra 5.0 no longer has",
	}
}

// TestGocqlSuites runs the drivers' own tests at three nodes and then at the proxies in front of
// them. Each must end as it does at the nodes. It leaves some hundred tables behind, so its file
// comes after those of other long tests.
func TestGocqlSuites(t *testing.T) {
	threeProxies(t)
	for _, s := range suites() {
		t.Run(s.name, func(t *testing.T) {
			direct, proxied := s.run(t, "direct", nodeAddresses(t)), s.run(t, "proxied", proxyAddresses())
			count := map[string]int{}
			for test, at := range direct {
				through := proxied[test]
				count[at.Action]++
				assert.Equal(t, at.Action, through.Action, "%s: at the nodes\n%s\nthrough the proxies\n%s", test, at.Said, through.Said)
				if at.Action == "fail" {
					assert.Contains(t, failing(), test, "%s", at.Said)
				}
			}
			assert.Greater(t, count["pass"], 150, "the tests did what they are for")
			t.Log(count)
		})
	}
}

// run returns the verdict of each test at these addresses. The output of `go test -json` is kept in
// a file of the run directory.
func (s suite) run(t *testing.T, where string, addresses []string) map[string]gotest.Verdict {
	t.Helper()
	var hosts []string
	for _, address := range addresses {
		hosts = append(hosts, hostOf(t, address))
	}
	dir := filepath.Join(needEnvironment(t).runDir, "gocql")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-vet=off", "-count=1", "-timeout=15m", "-skip=^TestDocker$",
		"-tags=cassandra integration", s.driver, "-args",
		"-cluster="+strings.Join(hosts, ","), "-clusterSize=3", "-rf=3", "-autowait=2s", "-gocql.timeout=60s", "-gocql.cversion=5.0.8")
	cmd.Args = append(cmd.Args, s.flags...)
	all, err := gotest.Run(cmd, filepath.Join(dir, strings.ReplaceAll(s.name+" "+where, " ", "-")+".json"))
	require.NoError(t, err)
	return all
}
