package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// fate is the result of judging a mutant.
type fate string

const (
	killed    fate = "killed"
	survived  fate = "SURVIVED"
	unreached fate = "UNREACHED" // by any test: it survives without having been run
	broken    fate = "broken"    // it does not build, and says nothing
	unjudged  fate = "unjudged"  // only tests with a Cassandra could tell, and there is none
)

// tried is a mutant that was judged.
type tried struct {
	mutant
	fate fate
}

// bench is where mutants of one target are tested.
type bench struct {
	target
	root, dir string
	journal   *journal
	address   string // of a Cassandra, or empty
	tests     []test
	known     map[string][]block // of each file, whoever reaches them
}

// test is one test, with its duration and the lines that it runs through.
type test struct {
	folder string // of its package
	name   string
	took   time.Duration
	blocks map[string][]block // by file
	size   int                // how many blocks: a test that reaches few says more of each
	node   bool               // it needs a Cassandra
}

// slow is the duration from which on a test is run after the others.
const slow = time.Second

// judge runs the tests that reach a mutant of a bundle: first the ten that reach fewest other
// lines, then the quick ones, then all; last those that need a Cassandra.
func (b *bundle) judge(ctx context.Context, id int) tried {
	m := b.mutants[id]
	if b.broken[id] {
		return tried{m, broken}
	}
	reaching := slices.DeleteFunc(b.reaching(m), func(t test) bool { return slices.Contains(b.unfit, t.folder+" "+t.name) })
	switch {
	case len(reaching) == 0 && b.node && b.address == "":
		return tried{m, unjudged}
	case len(reaching) == 0:
		return tried{m, unreached}
	}
	for _, lot := range inTurn(reaching) {
		for _, folder := range b.folders {
			some := slices.DeleteFunc(slices.Clone(lot), func(t test) bool { return t.folder != folder })
			if len(some) > 0 && !b.passes(ctx, some, id) {
				return tried{m, killed}
			}
		}
	}
	if b.node && b.address == "" {
		return tried{m, unjudged}
	}
	return tried{m, survived}
}

// inTurn splits tests into groups that are run together, one group after the other.
func inTurn(all []test) [][]test {
	slices.SortStableFunc(all, func(x, y test) int { return x.size - y.size })
	const first = 10
	lots := make([][]test, 4)
	for _, t := range all {
		switch {
		case t.node:
			lots[3] = append(lots[3], t)
		case t.took > slow:
			lots[2] = append(lots[2], t)
		case len(lots[0]) == first:
			lots[1] = append(lots[1], t)
		default:
			lots[0] = append(lots[0], t)
		}
	}
	return lots
}

// binary returns the path of a package's test binary.
func (b *bench) binary(folder, suffix string) string {
	return filepath.Join(b.dir, strings.ReplaceAll(folder, "/", "-")+suffix)
}

// compile makes the test binary of a package.
func (b *bench) compile(ctx context.Context, folder, to string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"test", "-c", "-vet=off", "-o", to}, args...), "./"+folder)...) //nolint:gosec // our own arguments
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return &buildError{folder: folder, out: out, err: err}
	}
	return nil
}

// buildError returns the compiler's error for a test binary.
type buildError struct {
	folder string
	out    []byte // of the compiler
	err    error
}

// Error implements error.
func (e *buildError) Error() string {
	return fmt.Sprintf("build the tests of %s: %v\n%s", e.folder, e.err, e.out)
}

// Unwrap returns the cause.
func (e *buildError) Unwrap() error { return e.err }

// passes reports whether tests of one package pass with a mutant. All or none of them need a
// Cassandra. The run is ended if it prints nothing for much longer than the longest test needs.
func (b *bundle) passes(ctx context.Context, some []test, id int) bool {
	var names []string
	var longest time.Duration
	for _, t := range some {
		names = append(names, t.name)
		longest = max(longest, t.took)
	}
	chosen := runOf{binary: b.binary(some[0].folder, ".test"), folder: some[0].folder, node: some[0].node, silence: 20*time.Second + 4*longest, mutant: id + 1}
	_, err := b.runTests(ctx, chosen, "-test.failfast", "-test.v", "-test.run=^("+strings.Join(names, "|")+")$")
	return err == nil
}

// runOf returns how to run a test binary.
type runOf struct {
	binary  string
	folder  string        // of its package
	node    bool          // beside a Cassandra
	silence time.Duration // it is ended when it has said nothing for so long
	mutant  int           // that is at work; 0 = none
}

// listener keeps what is written, and calls a function for each write.
type listener struct {
	bytes.Buffer
	heard func()
}

// Write implements io.Writer.
func (l *listener) Write(p []byte) (int, error) {
	l.heard()
	return l.Buffer.Write(p)
}

// runTests runs tests of a binary and returns their output.
func (b *bench) runTests(ctx context.Context, r runOf, args ...string) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	args = slices.Concat([]string{"-test.timeout=0"}, b.args, args)
	address := b.address
	if !r.node {
		args, address = append(args, "-test.short"), ""
	}
	cmd := exec.CommandContext(ctx, r.binary, args...) //nolint:gosec // our own
	cmd.Dir = filepath.Join(b.root, r.folder)
	cmd.Env = append(os.Environ(), "MUSIC_TEST_CASSANDRA="+address, fmt.Sprintf("%s=%d", chosenMutant, r.mutant))
	cmd.WaitDelay = time.Second
	quiet := time.AfterFunc(r.silence, cancel)
	defer quiet.Stop()
	out := listener{heard: func() { quiet.Reset(r.silence) }}
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%w\n%s", err, out.Bytes())
	}
	return out.Bytes(), nil
}
