// Command music-demo tells the story of the product on a real Cassandra: it starts a cluster of one
// node and the proxy, plays a bank with an ordinary driver, and checks every step itself. It ends
// with status 0 when all steps showed what they should, 1 when one did not or could not be played,
// 2 when it was called wrongly, and 130 when it was interrupted.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The statuses that the program ends with.
const (
	statusDone        = 0
	statusFailed      = 1
	statusUsage       = 2
	statusInterrupted = 130
)

func main() {
	// From the first signal on they are no longer caught: a second one ends an end that takes too
	// long, and the kernel takes the children along.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:]))
}

// run does what the arguments say and returns the status to end with.
func run(ctx context.Context, args []string) int {
	status := statusUsage
	o := options{nodes: os.Getenv("NODES")}
	command := &cobra.Command{
		Use: "music-demo", Short: "The story of a lock, told on a real Cassandra",
		Args: cobra.NoArgs, SilenceErrors: true, SilenceUsage: true,
		PreRunE: func(*cobra.Command, []string) error { return o.complete() },
		RunE: func(*cobra.Command, []string) error {
			err := play(ctx, o, newScreen(os.Stdout))
			status = statusOf(err)
			return err
		},
	}
	o.addFlags(command.Flags())
	command.SetArgs(args)
	if err := command.Execute(); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		return status
	}
	return statusDone
}
