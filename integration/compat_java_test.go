//go:build compat

package integration

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// javaProgram returns a command that runs a Java program and records every address that it connects
// to.
func javaProgram(t *testing.T, class string, args ...string) (out string, dialled []string) {
	t.Helper()
	cmd, connects := program(t, "java", javaArgs(t, class, args...)...)
	return output(t, cmd, false), connected(t, connects)
}

// javaArgs returns java's arguments for a class of the compatibility programs.
func javaArgs(t *testing.T, class string, args ...string) []string {
	t.Helper()
	dir := filepath.Join(needEnvironment(t).runDir, "java")
	classes := filepath.Join(dir, "compat-1.jar") + string(filepath.ListSeparator) + filepath.Join(dir, "lib", "*")
	return append([]string{"-XX:TieredStopAtLevel=1", "-Dio.netty.machineId=02:00:00:00:00:00:00:01", "-cp", classes, "music." + class}, args...)
}

// A program with the Java driver prints the same through the proxy as at the node, and dials the
// proxy alone.
func TestJavaDriverShowsTheSame(t *testing.T) {
	proxy, direct := needProxy(t), needEnvironment(t).direct()
	for _, version := range []string{"V4", "V5"} {
		tell := func(address string) string {
			out, dialled := javaProgram(t, "Compat", hostOf(t, address), "java", version)
			assert.Equal(t, []string{address}, dialled)
			return out
		}
		want, got := tell(direct), tell(proxy)
		assert.Equal(t, want, got)
		assert.Greater(t, strings.Count(want, "\n"), 100, "the program did what it is for")
	}
}

// The Java driver locks, writes and unlocks, with prepared statements.
func TestJavaDriverLocks(t *testing.T) {
	s := readyTable(t, "compat_java")
	for _, version := range []string{"V4", "V5"} {
		out, dialled := javaProgram(t, "Locks", hostOf(t, s.address), s.keyspace, version)
		assert.Equal(t, "done\n", out)
		assert.Equal(t, []string{s.address}, dialled)
	}
}

// The Java driver sends each request to the proxy of a replica.
func TestJavaDriverRoutesThroughProxies(t *testing.T) {
	threeProxies(t)
	checkRouting(t, func(address string) map[int]string {
		out, dialled := javaProgram(t, "Ring", hostOf(t, address), "3", strconv.Itoa(spreadKeys))
		var hosts []string
		answered := map[int]string{}
		for line := range strings.Lines(out) {
			words := strings.Fields(line)
			if words[0] == "host" {
				hosts = append(hosts, words[1])
				continue
			}
			key, err := strconv.Atoi(words[1])
			require.NoError(t, err)
			answered[key] = words[2]
		}
		if address == proxyAddresses()[0] {
			assert.ElementsMatch(t, proxyAddresses(), dialled, "dialled")
			assert.ElementsMatch(t, proxyAddresses(), hosts, "hosts known to the driver")
		}
		return answered
	})
}
