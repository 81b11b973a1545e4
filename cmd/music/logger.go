package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"

	"music/config"
)

// newLogger returns the logger that everything else derives its own from. Its level is that of all
// loggers of the program, and changes with setLevel.
func newLogger(c config.Log, out io.Writer) (zerolog.Logger, error) {
	return zerolog.New(out).With().Timestamp().Logger(), setLevel(c)
}

// setLevel sets the level of the log to that of the configuration.
func setLevel(c config.Log) error {
	level, err := zerolog.ParseLevel(c.Level)
	if err != nil {
		return fmt.Errorf("log level: %w", err)
	}
	zerolog.SetGlobalLevel(level)
	return nil
}

// formatted returns a writer that takes lines of JSON and writes them in the configured form.
func formatted(c config.Log, out io.Writer) io.Writer {
	if c.Format == "text" || c.Format == "auto" && terminal(out) {
		return zerolog.ConsoleWriter{Out: out, TimeFormat: time.StampMilli, NoColor: !terminal(out)}
	}
	return out
}

// terminal reports whether the log is written to a terminal; elsewhere it has no colours.
func terminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}
