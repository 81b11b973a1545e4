package battery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"music/integration/cassandra"
	"music/integration/cassandra/cassandratest"
)

// Main runs the tests of a package with one Cassandra node for all of them, and is all that its
// TestMain does. cassandratest.Address tells a test where it is, and cassandratest.NewKeyspace makes a
// keyspace of its own. MUSIC_TEST_CASSANDRA names a node that packages share; without it, the node is
// the package's own, at an address that no other process of this machine takes.
func Main(m *testing.M) {
	runDir, err := cassandra.DefaultRunDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	pid := os.Getpid()
	cassandratest.Main(m, filepath.Join(runDir, "evaluate-"+name), fmt.Sprintf("127.%d.%d.%d", 64+pid>>16, pid>>8&0xff, 1+pid&0xff%250))
}
