//go:build compat

package apps

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
	"music/integration/child"
	"music/integration/gotest"
)

const (
	nodeAddress  = "127.0.1.1"
	proxyAddress = "127.0.2.1:9042"
	comment      = "@critical(unlocked=auto)"
	startLimit   = 10 * time.Minute // the first start downloads Cassandra
)

// world is a node and a proxy in front of it, and the folder of what `make apps` has built.
type world struct {
	node *cassandra.Cluster
	dir  string
}

// start returns a new one, which ends with the test.
func start(t *testing.T) *world {
	t.Helper()
	runDir, err := cassandra.DefaultRunDir()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	node, err := cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(runDir, "apps-node"), RunDir: runDir, Heap: "768m", FastJIT: true,
		Address: func(int) string { return nodeAddress }, Log: os.Stderr,
		Yaml:       map[string]string{"cas_contention_timeout": "30s", "write_request_timeout": "30s", "read_request_timeout": "30s"}, // on a busy machine
		Properties: cassandra.Once("cassandra.unsafesystem", "true"),                                                                  // a schema change is not flushed: the suites make hundreds
	})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, node.Wipe()) })
	w := &world{node: node, dir: filepath.Join(runDir, "apps")}
	w.startProxy(t)
	return w
}

// startProxy starts the program as an operator does. Its log is a file of the folder.
func (w *world) startProxy(t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(w.dir, "proxy.log"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, log.Close()) })
	cmd := exec.Command(filepath.Join(w.dir, "music"), "proxy", "--contact-points", w.node.Nodes()[0].Addr(), "--listen", proxyAddress, "--metrics-listen", "")
	cmd.Stderr = log
	proxy, err := child.Start(cmd)
	require.NoError(t, err)
	t.Cleanup(proxy.Kill)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, proxy.Ready(ctx, func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", proxyAddress)
		if err != nil {
			return err
		}
		return conn.Close()
	}))
}

// session returns a driver's session at an address.
func session(t *testing.T, address string) *gocql.Session {
	t.Helper()
	c := gocql.NewCluster(address)
	c.Timeout, c.ConnectTimeout = time.Minute, time.Minute
	s, err := c.CreateSession()
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// fresh makes a keyspace anew.
func fresh(t *testing.T, s *gocql.Session, keyspace string) {
	t.Helper()
	require.NoError(t, s.Query("DROP KEYSPACE IF EXISTS "+keyspace).Exec())
	require.NoError(t, s.Query("CREATE KEYSPACE "+keyspace+" WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}").Exec())
}

// adopt alters all tables of a keyspace, those of the proxy aside, by what else they need and the
// comment.
func adopt(t *testing.T, s *gocql.Session, keyspace, comment, also string) {
	t.Helper()
	tables := s.Query("SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?", keyspace).Iter()
	for name := ""; tables.Scan(&name); {
		if !strings.HasPrefix(name, "music_lock_") {
			require.NoError(t, s.Query("ALTER TABLE "+keyspace+`."`+name+`" WITH comment = '`+comment+"'"+also).Exec(), name)
		}
	}
	require.NoError(t, tables.Close())
}

// verdicts returns how each test has ended that a command runs. What it prints is kept in a file of the folder.
func (w *world) verdicts(t *testing.T, log string, cmd *exec.Cmd) map[string]gotest.Verdict {
	t.Helper()
	all, err := gotest.Run(cmd, filepath.Join(w.dir, log+".json"))
	require.NoError(t, err)
	return all
}

// goTests returns the command that runs tests of a binary.
func (w *world) goTests(t *testing.T, binary, tests string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(t.Context(), "go", "tool", "test2json", "-t", filepath.Join(w.dir, binary), "-test.v=test2json", "-test.timeout=40m", "-test.run="+tests)
}

// host returns an address without its port.
func host(t *testing.T, address string) string {
	t.Helper()
	name, _, err := net.SplitHostPort(address)
	require.NoError(t, err)
	return name
}

// programs returns where programs of other languages find what `make apps` has installed.
func (w *world) programs() []string {
	return []string{
		"NODE_PATH=" + filepath.Join(w.dir, "node", "node_modules"), "PYTHONPATH=" + filepath.Join(w.dir, "python"), "PYTHONDONTWRITEBYTECODE=1",
	}
}

// record logs a table of docs/applications.md, and keeps it in a file of the folder.
func (w *world) record(t *testing.T, name string, table []string) {
	t.Helper()
	text := strings.Join(table, "\n") + "\n"
	t.Log("\n" + text)
	require.NoError(t, os.WriteFile(filepath.Join(w.dir, name+".md"), []byte(text), 0o600))
}
