package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// fate is what became of a mutant.
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

// bench is where mutants of one target are judged.
type bench struct {
	target
	root, dir string
	address   string // of a Cassandra, or empty
	tests     []test
	known     map[string][]block // of each file, whoever reaches them
}

// test is one test, with what it costs and reaches.
type test struct {
	name   string
	took   time.Duration
	blocks map[string][]block // by file
	size   int                // how many blocks: a test that reaches few says more of each
	node   bool               // it needs a Cassandra
}

// judge builds a mutant and runs the tests that reach it: first the ten that reach least else, then all; those that need a Cassandra last.
func (b *bench) judge(ctx context.Context, m mutant, worker int) tried {
	if b.build(ctx, m, worker) != nil {
		return tried{m, broken}
	}
	reaching := b.reaching(m)
	switch {
	case len(reaching) == 0 && b.node && b.address == "":
		return tried{m, unjudged}
	case len(reaching) == 0:
		return tried{m, unreached}
	}
	slices.SortStableFunc(reaching, func(x, y test) int { return x.size - y.size })
	const first = 10
	for _, node := range []bool{false, true} {
		all := slices.DeleteFunc(slices.Clone(reaching), func(t test) bool { return t.node != node })
		for _, some := range [][]test{all[:min(first, len(all))], all[min(first, len(all)):]} {
			if len(some) > 0 && !b.passes(ctx, some, worker) {
				return tried{m, killed}
			}
		}
	}
	if b.node && b.address == "" {
		return tried{m, unjudged}
	}
	return tried{m, survived}
}

// binary is where a worker's test binary lies.
func (b *bench) binary(worker int) string {
	return filepath.Join(b.dir, fmt.Sprintf("%s%d.test", b.name(), worker))
}

// build makes the package's test binary with the mutant in it.
func (b *bench) build(ctx context.Context, m mutant, worker int) error {
	source, err := os.ReadFile(filepath.Join(b.root, m.file))
	if err != nil {
		return fmt.Errorf("read what is to be broken: %w", err)
	}
	changed := slices.Concat(source[:m.start], []byte(m.with), source[m.end:])
	to := filepath.Join(b.dir, fmt.Sprintf("mutant%d.go", worker))
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(b.root, m.file): to}})
	if err != nil {
		return fmt.Errorf("write the overlay: %w", err)
	}
	overlay := filepath.Join(b.dir, fmt.Sprintf("overlay%d.json", worker))
	if err := errors.Join(os.WriteFile(to, changed, 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return fmt.Errorf("write the mutant: %w", err)
	}
	return b.compile(ctx, b.binary(worker), "-ldflags=-s -w", "-overlay", overlay)
}

// compile makes the package's test binary.
func (b *bench) compile(ctx context.Context, to string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append(append([]string{"test", "-c", "-vet=off", "-o", to}, args...), "./"+b.folder)...) //nolint:gosec // our own arguments
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", b.folder, err, out)
	}
	return nil
}

// passes tells whether a worker's binary passes tests, of which all or none need a Cassandra, in a few times the time that they need.
func (b *bench) passes(ctx context.Context, some []test, worker int) bool {
	var names []string
	limit := 10 * time.Second
	for _, t := range some {
		names = append(names, t.name)
		limit += 5 * t.took
	}
	_, err := b.runTests(ctx, b.binary(worker), some[0].node, limit, "-test.failfast", "-test.run=^("+strings.Join(names, "|")+")$")
	return err == nil
}

// runTests runs tests of a binary, with a Cassandra or without, and returns what they say.
func (b *bench) runTests(ctx context.Context, binary string, node bool, limit time.Duration, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+5*time.Second)
	defer cancel()
	args = slices.Concat([]string{"-test.timeout=" + limit.String()}, b.args, args)
	address := b.address
	if !node {
		args, address = append(args, "-test.short"), ""
	}
	cmd := exec.CommandContext(ctx, binary, args...) //nolint:gosec // our own
	cmd.Dir = filepath.Join(b.root, b.folder)
	cmd.Env = append(os.Environ(), "MUSIC_TEST_CASSANDRA="+address)
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%w\n%s", err, out.Bytes())
	}
	return out.Bytes(), nil
}
