package proxy

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"music/integration/cassandra"
)

// TestMain starts the Cassandra that tests of this package need, unless MUSIC_TEST_CASSANDRA names one or the run is -short.
func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() || os.Getenv("MUSIC_TEST_CASSANDRA") != "" {
		return m.Run()
	}
	cluster, err := cassandra.Start(context.Background(), cassandra.Options{
		Dir: "../.run/proxy", Address: func(int) string { return "127.0.10.1" }, FastJIT: true, Log: os.Stderr,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = cluster.Close() }()
	if err := os.Setenv("MUSIC_TEST_CASSANDRA", cluster.ContactPoints()[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
