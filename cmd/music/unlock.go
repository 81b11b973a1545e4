package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Why a lock is not ended.
var (
	errNoForce  = errors.New("--force is missing: it takes the lock from whoever holds it, and everything that is sent under it is refused from then on")
	errNoReason = errors.New("--reason is missing: say for the audit why")
	errNotHeld  = errors.New("nobody holds it: nothing was done")
	errNoLock   = errors.New("the lock is missing: music unlock NAME, or music unlock TABLE KEY..., with --force --reason TEXT")
)

func (p program) unlockCommand() *cobra.Command {
	var from login
	var force bool
	var reason string
	command := &cobra.Command{
		Use: "unlock NAME | TABLE KEY... --force --reason TEXT", Short: "End a lock that somebody else holds",
		Long: "End the lock of a key, whoever holds it: nothing succeeds under its reference any more, and the next in the queue is told\n" +
			"owner_died. It needs the right AUTHORIZE on the table. NAME is a named lock; KEY is the value of the partition key, or\n" +
			"column=value for each column of the key.",
		Example: "  music unlock bank.accounts branch=zurich --force --reason 'anna is at lunch'",
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errNoLock
			case !force:
				return errNoForce
			case reason == "":
				return errNoReason
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return p.unlock(ctx, &from, args, reason)
		},
	}
	from.flags(command.Flags())
	command.Flags().BoolVar(&force, "force", false, "take the lock from whoever holds it")
	command.Flags().StringVar(&reason, "reason", "", "why, for the audit")
	return command
}

// unlock ends a lock and prints which.
func (p program) unlock(ctx context.Context, from *login, args []string, reason string) error {
	s, err := from.open(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	k, err := keyWords(ctx, s, args)
	if err != nil {
		return err
	}
	g, err := s.Force(ctx, k, reason)
	if err == nil && !g.Applied {
		err = fmt.Errorf("%s WHERE %s: %w", k.Table, k.Where, errNotHeld)
	}
	if err != nil {
		return failed{err}
	}
	_, err = fmt.Fprintf(p.stdout, "ended: the lock of %s WHERE %s\n", k.Table, k.Where)
	return err
}
