//go:build compat

package apps

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"music/integration/gotest"
)

// temporal runs the tests of Temporal's persistence in Cassandra. They read the schema from a folder
// beside their own, so their tables become critical by ALTER statements behind that schema.
func temporal(t *testing.T, w *world, by way) map[string]gotest.Verdict {
	const schema, tests = "schema/cassandra/temporal", "common/persistence/tests"
	source, err := os.ReadFile(filepath.Join(w.dir, "temporal.cql"))
	require.NoError(t, err)
	statements := []string{string(source)}
	if by.critical {
		for _, created := range regexp.MustCompile(`CREATE TABLE (\w+)`).FindAllStringSubmatch(string(source), -1) {
			statements = append(statements, "ALTER TABLE "+created[1]+" WITH comment = '"+comment+"';")
		}
		require.Greater(t, len(statements), 10)
	}
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, schema), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(root, tests), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, schema, "schema.cql"), []byte(strings.Join(statements, "\n")), 0o600))

	cmd := w.goTests(t, "temporal.test", "^TestCassandra")
	cmd.Dir = filepath.Join(root, tests)
	cmd.Env = append(os.Environ(), "TEMPORAL_ROOT="+root, "CASSANDRA_SEEDS="+host(t, by.address), "CASSANDRA_PORT=9042")
	return w.verdicts(t, "temporal-"+by.name, cmd)
}
