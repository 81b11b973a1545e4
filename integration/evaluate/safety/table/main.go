// Command table fills the safety table of docs/evaluation, or some cells of it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"music/integration/evaluate/safety"
)

func main() {
	safety.Client()
	o := safety.Options{Log: os.Stderr}
	pflag.StringArrayVar(&o.Systems, "system", nil, "a system, several times for several; default all")
	pflag.StringArrayVar(&o.Faults, "fault", nil, "a fault, several times for several; default all")
	pflag.IntVar(&o.Tries, "tries", 3, "of each cell in all, those of earlier runs among them, until the first violation; 0: one more than it has")
	pflag.BoolVar(&o.Again, "again", false, "cells begin anew; otherwise they go on")
	pflag.Uint64Var(&o.Seed, "seed", 0, "of the first try; with it cells begin anew, too")
	pflag.StringVar(&o.Out, "out", "../../docs/evaluation", "directory of the page")
	pflag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := safety.Run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}
