package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"music/config"
	"music/proxy"
)

// The statuses that the program ends with.
const (
	statusDone   = 0
	statusFailed = 1
	statusUsage  = 2
)

// errServe marks errors of a proxy that had started, or was tried; they have been told.
var errServe = errors.New("proxy failed")

// program is the command with everything that it uses of its environment.
type program struct {
	environ        []string
	stdout, stderr io.Writer
	serve          func(context.Context, config.Config, proxy.Logs, <-chan config.Config, ...prometheus.Collector) error // runs until the context ends
	try            func(context.Context, config.Config) []proxy.Checked                                                  // of --check
}

// run carries out the command in the arguments and returns the exit status.
func (p program) run(args []string) int {
	root := &cobra.Command{
		Use:           "music",
		Short:         "Locks over Cassandra's tables: the proxy, and commands for its operators",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.Version = built()
	root.SetVersionTemplate("{{.Version}}")
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetArgs(args)
	root.AddCommand(p.proxyCommand(), p.locksCommand(), p.unlockCommand(), p.lockCommand(), p.checkCommand(), p.versionCommand())
	err := root.Execute()
	if err == nil {
		return statusDone
	}
	if status := ended(0); errors.As(err, &status) {
		return int(status)
	}
	if errors.Is(err, errServe) {
		return statusFailed
	}
	p.complain(err)
	if errors.As(err, new(failed)) {
		return statusFailed
	}
	return statusUsage
}

// complain prints an error of several lines as a list.
func (p program) complain(err error) {
	lines := strings.Split(err.Error(), "\n")
	_, _ = fmt.Fprintf(p.stderr, "music: %s\n", strings.Join(lines, "\n  "))
}

func (p program) proxyCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "proxy",
		Short: "Run the proxy: serve drivers in front of a cluster of Cassandra",
		Long: "Run the proxy: serve drivers in front of a cluster of Cassandra.\n\n" +
			"Each setting is a flag, an environment variable (MUSIC_CONTACT_POINTS for --contact-points)\n" +
			"or a key of the YAML file that --config names; the first of these that gives it wins.",
		Args: cobra.NoArgs,
	}
	config.AddFlags(command.Flags())
	checks := command.Flags().Bool("check", false, "try what a start needs, say what was found, and end: with status 0, 1 where something is wrong, 2 where a setting is")
	command.RunE = func(*cobra.Command, []string) error {
		cfg, err := config.Load(command.Flags(), p.environ)
		if err != nil {
			return fmt.Errorf("the configuration has faults:\n%w", err)
		}
		if *checks {
			return p.checkStart(cfg)
		}
		return p.serveUntilSignal(cfg, func() (config.Config, error) { return config.Load(command.Flags(), p.environ) })
	}
	return command
}

// checkStart reports for each precondition of a start whether it is met.
func (p program) checkStart(cfg config.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var wrong error
	for _, c := range p.try(ctx, cfg) {
		line := "fine   " + c.What + ": " + c.Found
		if c.Err != nil {
			line = "fault  " + c.What + ": " + strings.ReplaceAll(c.Err.Error(), "\n", "; ")
			wrong = errServe
		}
		if _, err := fmt.Fprintln(p.stdout, line); err != nil {
			return fmt.Errorf("%w: %w", errServe, err)
		}
	}
	return wrong
}

// The end of a proxy: what it may take beside config's ShutdownTimeout, about a second in all.
const (
	overdueAfter = 700 * time.Millisecond // of SIGTERM and ShutdownTimeout: whatever hangs is left as it is
	logFlush     = 200 * time.Millisecond // for the last lines of the log, and of the audit, and for SIGHUP
)

// errOverdue means that the shutdown has taken too long.
var errOverdue = errors.New("it did not end in time after shutdown-timeout; the process ends without waiting for it")

// serveUntilSignal serves until SIGINT or SIGTERM asks for the end, and is done soon after
// shutdown-timeout whatever hangs. From the first signal on they are no longer caught: a second one
// ends a proxy that takes too long over it. On SIGHUP the configuration is loaded again.
func (p program) serveUntilSignal(cfg config.Config, load func() (config.Config, error)) error {
	lines := newLogWriter(formatted(cfg.Log, p.stderr))
	defer lines.close(logFlush)
	log, err := newLogger(cfg.Log, lines)
	if err != nil {
		return err
	}
	if _, err := memlimit.Set(); err != nil {
		log.Debug().Err(err).Msg("no memory limit of a cgroup could be read")
	}
	signal.Ignore(syscall.SIGPIPE) // a log that nobody reads any more is no reason to end
	audit, err := openAudit(cfg.Log, log)
	if err != nil {
		log.Error().Err(err).Msg("the proxy does not start")
		return fmt.Errorf("%w: %w", errServe, err)
	}
	defer audit.close(logFlush)
	reloads := make(chan config.Config, 1)
	running := cfg
	defer onSignal(syscall.SIGHUP, func() {
		audit.reopen()
		running = reload(running, load, log)
		select {
		case <-reloads: // which nobody has taken yet
		default:
		}
		reloads <- running
	})()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := p.serveInTime(ctx, cfg, proxy.Logs{Log: log, Audit: audit.log}, reloads, newDropped(lines, audit.lines)); err != nil {
		log.Error().Err(err).Msg("the proxy has failed")
		return fmt.Errorf("%w: %w", errServe, err)
	}
	return nil
}

// reload loads the configuration again, and returns the one that the running proxy has from now on.
// It logs what has changed and what has not.
func reload(running config.Config, load func() (config.Config, error), log zerolog.Logger) config.Config {
	next, err := load()
	if err != nil {
		log.Error().Err(err).Msg("SIGHUP: the configuration has faults: the proxy goes on with the one that it has")
		return running
	}
	now, taken, restart := config.Reload(running, next)
	if err := setLevel(now.Log); err != nil {
		log.Error().Err(err).Msg("SIGHUP: the level of the log stays")
	}
	level := map[bool]zerolog.Level{true: zerolog.WarnLevel, false: zerolog.InfoLevel}[len(restart) > 0]
	// A line without a level is logged whatever the level of the log is.
	line := log.Log().Stringer(zerolog.LevelFieldName, level)
	line.Strs("taken_over", taken).Strs("wait_for_a_restart", restart).Msg("SIGHUP: the configuration was read again")
	return now
}

// serveInTime serves until ctx ends, and waits for the proxy's end no longer than allowed.
func (p program) serveInTime(ctx context.Context, cfg config.Config, logs proxy.Logs, reloads <-chan config.Config, dropped prometheus.Collector) error {
	overdue := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(cfg.Limits.ShutdownTimeout+overdueAfter, func() { close(overdue) })
	})()
	served := make(chan error, 1)
	go func() { served <- p.serve(ctx, cfg, logs, reloads, dropped) }()
	select {
	case err := <-served:
		return err
	case <-overdue:
		return errOverdue
	}
}

// onSignal calls do each time a signal comes, until the function that it returns is called. That one
// waits for a call of do that is under way, but no longer than logFlush: a file of it may hang.
func onSignal(sig os.Signal, do func()) (stop func()) {
	came := make(chan os.Signal, 1)
	signal.Notify(came, sig)
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-came:
				do()
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(came)
		close(done)
		timer := time.NewTimer(logFlush)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
		}
	}
}

func (p program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say what was built",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(p.stdout, built())
			return err
		},
	}
}
