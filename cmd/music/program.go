package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"music/config"
)

// The statuses that the program ends with.
const (
	statusDone   = 0
	statusFailed = 1
	statusUsage  = 2
)

// errServe marks errors of a proxy that had started; the log has told of them.
var errServe = errors.New("proxy failed")

// program is the command with all that it touches of the world around it.
type program struct {
	environ        []string
	stdout, stderr io.Writer
	serve          func(context.Context, config.Config, zerolog.Logger) error // runs until the context ends
}

// run does what the arguments say and returns the status to end with.
func (p program) run(args []string) int {
	root := &cobra.Command{
		Use:           "music",
		Short:         "Locks for Cassandra, in front of Cassandra",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetArgs(args)
	root.AddCommand(p.proxyCommand(), p.versionCommand())
	err := root.Execute()
	if err == nil {
		return statusDone
	}
	if errors.Is(err, errServe) {
		return statusFailed
	}
	p.complain(err)
	return statusUsage
}

// complain tells an error of several lines as a list under one.
func (p program) complain(err error) {
	lines := strings.Split(err.Error(), "\n")
	_, _ = fmt.Fprintf(p.stderr, "music: %s\n", strings.Join(lines, "\n  "))
}

func (p program) proxyCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "proxy",
		Short: "Serve Cassandra's drivers",
		Long: "Serve Cassandra's drivers in front of a Cassandra cluster.\n\n" +
			"Each setting is a flag, an environment variable (MUSIC_CONTACT_POINTS for --contact-points)\n" +
			"or a key of the YAML file that --config names; the first of these that gives it wins.",
		Args: cobra.NoArgs,
	}
	config.AddFlags(command.Flags())
	command.RunE = func(*cobra.Command, []string) error {
		cfg, err := config.Load(command.Flags(), p.environ)
		if err != nil {
			return fmt.Errorf("the configuration has faults:\n%w", err)
		}
		return p.serveUntilSignal(cfg)
	}
	return command
}

// serveUntilSignal serves until SIGINT or SIGTERM asks for the end. From then on signals are no longer
// caught: a second one ends a proxy that takes too long over it.
func (p program) serveUntilSignal(cfg config.Config) error {
	log, err := newLogger(cfg.Log, p.stderr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := p.serve(ctx, cfg, log); err != nil {
		log.Error().Err(err).Msg("the proxy has failed")
		return fmt.Errorf("%w: %w", errServe, err)
	}
	return nil
}

func (p program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say what was built",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, _ := debug.ReadBuildInfo()
			_, err := io.WriteString(p.stdout, describe(info))
			return err
		},
	}
}
