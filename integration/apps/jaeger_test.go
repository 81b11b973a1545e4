//go:build compat

package apps

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"text/template"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/gotest"
)

const jaegerKeyspace = "jaeger_v1_dc1"

// jaeger runs the tests of Jaeger's storage in Cassandra, which connect to 127.0.0.1. Its tables
// need a longer gc_grace_seconds to be critical, and that of the traces lets writes through, because
// each test begins with TRUNCATE. The test of a trace of 10,008 spans is left out for its time.
func jaeger(t *testing.T, w *world, by way) map[string]gotest.Verdict {
	schema, err := template.ParseFiles(filepath.Join(w.dir, "jaeger.cql.tmpl"))
	require.NoError(t, err)
	var text strings.Builder
	require.NoError(t, schema.Execute(&text, map[string]any{
		"Keyspace": jaegerKeyspace, "Replication": "{'class': 'NetworkTopologyStrategy', 'replication_factor': '1'}",
		"CompactionWindowInMinutes": 120, "TraceTTLInSeconds": 172800, "DependenciesTTLInSeconds": 0,
	}))
	s := session(t, by.address)
	require.NoError(t, s.Query("DROP KEYSPACE IF EXISTS "+jaegerKeyspace).Exec())
	for statement := range strings.SplitSeq(uncommented(text.String()), ";") {
		if statement = strings.TrimSpace(statement); statement != "" {
			statement = strings.ReplaceAll(statement, "frozen<keyvalue>", "frozen<"+jaegerKeyspace+".keyvalue>")
			require.NoError(t, s.Query(statement).Exec(), statement)
		}
	}
	if by.critical {
		adopt(t, s, jaegerKeyspace, comment, " AND gc_grace_seconds = 864000")
		require.NoError(t, s.Query("ALTER TABLE "+jaegerKeyspace+".traces WITH comment = '@critical(unlocked=allow)'").Exec())
	}
	forward(t, "127.0.0.1:9042", by.address)
	cmd := w.goTests(t, "jaeger.test", "^TestCassandraStorage$")
	cmd.Args = append(cmd.Args, "-test.skip=/GetLargeTrace")
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "STORAGE=cassandra")
	return w.verdicts(t, "jaeger-"+by.name, cmd)
}

// uncommented returns CQL without comments at the end of lines.
func uncommented(cql string) string {
	lines := strings.Split(cql, "\n")
	for i, line := range lines {
		lines[i], _, _ = strings.Cut(line, "--")
	}
	return strings.Join(lines, "\n")
}

// forward carries connections from one address to another until the test ends.
func forward(t *testing.T, from, to string) {
	t.Helper()
	ln, err := net.Listen("tcp", from)
	require.NoError(t, err)
	var passing sync.WaitGroup
	t.Cleanup(func() {
		assert.NoError(t, ln.Close())
		passing.Wait()
	})
	passing.Go(func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			carry := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				_, _ = to.Close(), from.Close()
			}
			passing.Go(func() { carry(client, server) })
			passing.Go(func() { carry(server, client) })
		}
	})
}
