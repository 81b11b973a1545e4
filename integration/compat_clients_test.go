//go:build compat

package integration

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The helpers for other languages play the story that those for Go do.
func TestClientsTellTheSame(t *testing.T) { tellStory(t, "python", "asyncio", "node", "java") }

// The provider for ShedLock passes the tests that ShedLock ships for providers.
func TestClientsShedLock(t *testing.T) {
	s := readyTable(t, "clients_shedlock")
	table := s.keyspace + ".shedlock"
	s.works(s.client, "CREATE TABLE "+table+" (name text PRIMARY KEY) WITH comment = '@critical(lease=1h)'")
	s.works(s.client, "LOCK "+table+" WHERE name = 'ready'")
	dir := filepath.Join(needEnvironment(t).runDir, "clients", "shedlock")
	path := strings.Join([]string{filepath.Join(dir, "test-classes"), filepath.Join(dir, "classes"), filepath.Join(dir, "lib", "*")}, string(filepath.ListSeparator))
	cmd, _ := program(t, "java", "-XX:TieredStopAtLevel=1", "-Dio.netty.machineId=02:00:00:00:00:00:00:01", "-cp", path, "music.shedlock.Contract", hostOf(t, s.address), table)
	out := output(t, cmd, false)
	require.Contains(t, out, " passed, ")
	assert.Contains(t, out, " passed, 0 failed", out)
	t.Log(out)
}
