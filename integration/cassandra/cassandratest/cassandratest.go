// Package cassandratest gives the tests of a package a Cassandra, and each of them a keyspace on it.
package cassandratest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
)

// contactPoint is the environment variable with the address of the Cassandra that tests use, host:port.
const contactPoint = "MUSIC_TEST_CASSANDRA"

// Main runs the tests of a package, and is all that its TestMain does. It starts a node at an address of its own with its files
// in dir, unless MUSIC_TEST_CASSANDRA names another or the run is -short.
func Main(m *testing.M, dir, address string) {
	flag.Parse()
	os.Exit(run(m, dir, address))
}

// run returns the exit code of the tests.
func run(m *testing.M, dir, address string) int {
	if testing.Short() || os.Getenv(contactPoint) != "" {
		return m.Run()
	}
	cluster, err := cassandra.Start(context.Background(), cassandra.Options{
		Dir: dir, Address: func(int) string { return address }, FastJIT: true, Properties: cassandra.Once(), Log: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = cluster.Close() }()
	if err := os.Setenv(contactPoint, cluster.ContactPoints()[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Address returns the contact point of the node, host:port, and skips the test where there is none.
func Address(t testing.TB) string {
	t.Helper()
	address := os.Getenv(contactPoint)
	if testing.Short() || address == "" {
		t.Skip("needs a Cassandra: " + contactPoint + "=host:port")
	}
	return address
}

// Keyspace is a keyspace of one test, dropped at the test's end with the session that it is used by.
type Keyspace struct {
	Name    string
	Session *gocql.Session
	t       testing.TB
}

// NewKeyspace makes a keyspace with one replica. configure changes how the session is opened.
func NewKeyspace(t testing.TB, configure func(*gocql.ClusterConfig)) *Keyspace {
	t.Helper()
	cluster := gocql.NewCluster(Address(t))
	configure(cluster)
	cluster.Timeout = time.Minute
	cluster.RetryPolicy = nil
	session, err := cluster.CreateSession()
	require.NoError(t, err)
	k := &Keyspace{t: t, Session: session, Name: "test_" + strings.ReplaceAll(gocql.MustRandomUUID().String(), "-", "")}
	k.Do("CREATE KEYSPACE " + k.Name + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	t.Cleanup(func() {
		k.Do("DROP KEYSPACE " + k.Name)
		session.Close()
	})
	return k
}

// Version is a configuration for NewKeyspace: the session speaks a version of the protocol, 0 for the newest.
func Version(version int) func(*gocql.ClusterConfig) {
	return func(c *gocql.ClusterConfig) { c.ProtoVersion = version }
}

// Do executes a statement, in which KS stands for the keyspace.
func (k *Keyspace) Do(text string) {
	k.t.Helper()
	text = strings.ReplaceAll(text, "KS", k.Name)
	require.NoError(k.t, k.Session.Query(text).Exec(), text)
}

// JSON returns the rows that WHERE selects as JSON, as a client sees them.
func (k *Keyspace) JSON(table, where string) []string {
	k.t.Helper()
	iter := k.Session.Query("SELECT JSON * FROM " + k.Name + "." + table + " WHERE " + where).Iter()
	var rows []string
	for row := ""; iter.Scan(&row); {
		rows = append(rows, row)
	}
	require.NoError(k.t, iter.Close())
	return rows
}
