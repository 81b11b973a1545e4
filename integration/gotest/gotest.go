// Package gotest runs tests of others, and tells how each has ended.
package gotest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Verdict is how a test has ended.
type Verdict struct {
	Action string // pass, fail or skip
	Said   string // its output
}

// Run runs a command that prints what `go test -json` does, and returns the verdict of each test by its name. What the command
// prints is kept in the file log. That tests fail is no error: the caller judges.
func Run(cmd *exec.Cmd, log string) (all map[string]Verdict, err error) {
	said, err := os.Create(log) //nolint:gosec // the caller's own
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, said.Close()) }()
	cmd.Stdout, cmd.Stderr = said, os.Stderr
	var ended *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &ended) {
		return nil, err
	}
	if _, err := said.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	all = map[string]Verdict{}
	for lines := json.NewDecoder(said); lines.More(); {
		var line struct{ Action, Test, Output string }
		if err := lines.Decode(&line); err != nil {
			return nil, fmt.Errorf("%s: %w", log, err)
		}
		all[line.Test] = Verdict{line.Action, all[line.Test].Said + line.Output}
	}
	delete(all, "") // of the whole
	return all, nil
}
