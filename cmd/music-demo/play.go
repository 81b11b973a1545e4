package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// errInterrupted says that the story was ended from outside before it was over.
var errInterrupted = errors.New("interrupted")

// play raises the stage, tells the story, and takes everything down again, however it ends.
func play(ctx context.Context, o options, s *screen) error {
	began := time.Now()
	defer s.rest()
	st, err := raise(ctx, o, s)
	if err == nil {
		s.note("%s", s.paint(dim, fmt.Sprintf("all is ready after %.1f s", time.Since(began).Seconds())))
		err = onStage(ctx, st, o, s)
		err = errors.Join(err, st.close())
	}
	switch {
	case errors.Is(err, errInterrupted), err != nil && ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	}
	s.note("demo: ok")
	return nil
}

// onStage tells the story and then, if the options say so, keeps everything running for the user to
// try.
func onStage(ctx context.Context, st *stage, o options, s *screen) error {
	began := time.Now()
	guarded, release := st.guard(ctx)
	defer release()
	if err := tell(guarded, o, st, s); err != nil {
		return s.reason(ctx, guarded, err)
	}
	s.note("\n%s", s.paint(dim, fmt.Sprintf("The story took %.1f s.", time.Since(began).Seconds())))
	if !o.keeps() {
		return nil
	}
	invite(o, s)
	<-guarded.Done()
	if ctx.Err() == nil {
		return context.Cause(guarded)
	}
	s.note("\nending the proxy and Cassandra")
	return nil
}

// reason returns why the story was broken off: not an error that is only a consequence of an end
// from outside.
func (s *screen) reason(ctx, guarded context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		s.note("\nending the proxy and Cassandra")
		return errInterrupted
	case guarded.Err() != nil:
		return context.Cause(guarded)
	}
	return err
}

// invite says how to try it oneself.
func invite(o options, s *screen) {
	host, port, _ := net.SplitHostPort(o.listen) // checked with the options
	cqlsh := filepath.Join(o.runDir, "venv", "bin", "cqlsh")
	if _, err := os.Stat(cqlsh); err != nil {
		cqlsh = "cqlsh"
	}
	s.note("Cassandra and the proxy go on running. Ctrl-C ends them. To try for yourself:\n")
	s.note("   %s", s.paint(bold, fmt.Sprintf("%s %s %s", shortPath(cqlsh), host, port)))
	s.note("   LOCK bank.accounts WHERE branch = '%s' WAIT 5s;\n", branch)
}

// statusOf returns the status that an end of the play asks for.
func statusOf(err error) int {
	if errors.Is(err, errInterrupted) {
		return statusInterrupted
	}
	return statusFailed
}
