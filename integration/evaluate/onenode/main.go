// Command onenode runs a command, as `go test ./...`, with one Cassandra node that the tests of all packages share: it starts the
// node, names it in MUSIC_TEST_CASSANDRA, and ends it when the command has ended, with its exit code.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"music/integration/cassandra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		os.Exit(ended.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "onenode:", err)
		os.Exit(1)
	}
}

// run runs the command.
func run(ctx context.Context, words []string) (err error) {
	if len(words) == 0 {
		return errors.New("which command?")
	}
	dir, err := cassandra.DefaultRunDir()
	if err != nil {
		return err
	}
	cluster, err := cassandra.Start(ctx, cassandra.Options{
		Dir: filepath.Join(dir, "evaluate-onenode"), Address: func(int) string { return "127.0.30.1" }, FastJIT: true, Properties: cassandra.Once(), Log: os.Stderr,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Wipe()) }()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...) //nolint:gosec // what was asked for
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "MUSIC_TEST_CASSANDRA="+cluster.ContactPoints()[0])
	return cmd.Run()
}
