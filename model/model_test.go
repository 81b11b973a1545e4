// Package model checks the lock protocol in Spin: music.pml is the protocol of docs/protocol.md, lease.pml the
// session lease under it, loan.pml what one proxy lends to another, paper.pml the protocol of the MUSIC paper. runs_test.go lists what is checked: the protocol as it is,
// in which nothing may break, and its known-bad variants, each of which must break what the list says.
//
//	go test ./model          the small scopes, about a minute on two cores
//	go test ./model -large   the large ones as well
//	go test ./model -record  also writes the counter-examples to testdata, and the results to docs/model.md
//
// Spin and gcc are installed where that may be, else the tests are skipped.
package model

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"music/integration/cassandra"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The command line says which runs, and whether their results are kept.
var (
	large  = flag.Bool("large", false, "run the large scopes too: 4 GB each, the vast ones 20 minutes each")
	record = flag.Bool("record", false, "write the counter-examples, and the results to docs/model.md")
)

// TestModels makes every run of the list and compares what breaks in it.
func TestModels(t *testing.T) {
	need(t)
	seen := newLedger()
	t.Run("runs", func(t *testing.T) {
		for _, r := range runs() {
			if r.scope != smallScope && !*large {
				continue
			}
			t.Run(r.name, func(t *testing.T) {
				t.Parallel()
				verdict := check(t, r)
				seen.note(r, verdict)
				assert.Equal(t, r.breaks, verdict.broken, "breaks %q, not %q\n%s", verdict.broken, r.breaks, verdict.story)
				keep(t, r, verdict)
			})
		}
	})
	for _, line := range seen.lines() {
		t.Log(line)
	}
	if *record && !t.Failed() {
		writePage(t, seen)
	}
}

// need skips the test, loudly, where Spin or a compiler is missing and cannot be had.
func need(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short")
	}
	runDir, err := cassandra.DefaultRunDir()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	spin, gcc := cassandra.Program{Name: "spin", Package: "spin"}, cassandra.Program{Name: "gcc", Package: "gcc"}
	headers := cassandra.Program{Name: "gcc", Package: "libc6-dev"}
	err = cassandra.Ensure(ctx, runDir, os.Stderr, spin, gcc, headers)
	if errors.Is(err, cassandra.ErrMissing) {
		const bar = "************************************************************"
		fmt.Fprintf(os.Stderr, "%s\nTHE MODELS ARE NOT CHECKED: %v\n%s\n", bar, err, bar)
		t.Skip(err)
	}
	require.NoError(t, err)
}

// ledger collects the verdicts of runs that go in parallel.
type ledger struct {
	mu       sync.Mutex
	verdicts map[string]verdict // by name of the run
}

// newLedger returns an empty ledger.
func newLedger() *ledger { return &ledger{verdicts: map[string]verdict{}} }

// note keeps the verdict of a run.
func (l *ledger) note(r run, v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verdicts[r.name] = v
}

// lines returns the results, one line for each run in the order of the list.
func (l *ledger) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, r := range runs() {
		if v, ok := l.verdicts[r.name]; ok {
			lines = append(lines, fmt.Sprintf("%-28s %-14s %9s states, depth %3d, %6.1f s, %5.0f MB",
				r.name, r.said(v.broken), v.counted(), v.depth, v.took.Seconds(), v.megabytes))
		}
	}
	return lines
}

// said is the result of a run in which that broke. A vast scope is never known to be searched to the last state.
func (r run) said(broken string) string {
	switch {
	case broken != "":
		return broken
	case r.scope == vastScope:
		return "nothing found"
	}
	return "holds"
}

// counted tells the states that a search has been in.
func (v verdict) counted() string {
	if v.stopped {
		return fmt.Sprintf("%d, stopped", v.states)
	}
	return strconv.Itoa(v.states)
}

// TestNamesAreUnique: the list names files by the runs.
func TestNamesAreUnique(t *testing.T) {
	var names []string
	for _, r := range runs() {
		assert.NotContains(t, names, r.name, "twice")
		names = append(names, r.name)
	}
}
