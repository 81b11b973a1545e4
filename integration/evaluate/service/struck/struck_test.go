package struck

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/service"
)

var (
	strikes = flag.Int("service.strikes", 3, "faults that strike each service over each system")
	long    = flag.Bool("evaluate.long", false, "also look for the fault of the portal without locks: minutes")
	seed    = flag.Uint64("service.seed", uint64(time.Now().UnixNano()), "chooses the faults")
)

// stage is that of all tests; nil with -short. It is written by TestMain alone.
var stage *Stage

func TestMain(m *testing.M) {
	Child()
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	os.Exit(func() int {
		var err error
		if stage, err = Start(context.Background(), os.Stderr); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = stage.Close() }()
		return m.Run()
	}())
}

// limit is how long a run may take, and brief that of one that may not come to an end.
const limit, brief = 3 * time.Minute, 30 * time.Second

// struckRun runs a service.
func struckRun(t *testing.T, o Options) *Result {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Cassandra; not with -short")
	}
	bound := brief
	if o.Over == service.OverOurs {
		bound = limit
	}
	o.Seed, o.Settle = o.Seed+*seed, 300*time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), bound+time.Duration(o.Strikes)*6*time.Second)
	defer cancel()
	r, err := stage.Run(ctx, o)
	if o.Over == service.OverMusic && err != nil {
		t.Logf("%s over %s has not come to an end: %v", o.Service, o.Over, err)
	} else {
		require.NoError(t, err)
	}
	struck, overtaken := r.Struck()
	t.Logf("%s over %s, seed %d: struck %v, of these overtaken %d; %.1f a second", o.Service, o.Over, o.Seed, struck, overtaken, r.Rate())
	for _, f := range Found(r.Faults()) {
		t.Logf("%d times: %s", f.Times, f.First)
	}
	return r
}

// Over the product no fault breaks either service.
func TestHomingOverOurs(t *testing.T) {
	t.Parallel()
	assert.Empty(t, struckRun(t, Options{Service: homing, Over: service.OverOurs, Strikes: *strikes}).Faults())
}

// No fault that strikes a worker makes the portal over this product carry out a state twice.
func TestPortalOverOurs(t *testing.T) {
	t.Parallel()
	assert.Empty(t, struckRun(t, Options{Service: portal, Over: service.OverOurs, Strikes: *strikes}).Faults())
}

// Over the paper's MUSIC, faults are printed and do not fail the test: they are not ours to fix.
func TestHomingOverMusic(t *testing.T) {
	t.Parallel()
	struckRun(t, Options{Service: homing, Over: service.OverMusic, Strikes: *strikes})
}

// The same for the portal over the paper's MUSIC.
func TestPortalOverMusic(t *testing.T) {
	t.Parallel()
	struckRun(t, Options{Service: portal, Over: service.OverMusic, Strikes: *strikes})
}

// Without locks, faults are found in homing even when no process fails.
func TestHomingOverNothing(t *testing.T) {
	t.Parallel()
	findsFaults(t, Options{Service: homing, Over: service.OverNothing})
}

// Without locks, a fault in the portal takes a put that arrives late and a read before the next
// put: a run in three or four shows it.
func TestPortalOverNothing(t *testing.T) {
	if !*long {
		t.Skip("takes minutes: -evaluate.long")
	}
	t.Parallel()
	findsFaults(t, Options{Service: portal, Over: service.OverNothing, Strikes: 3, Kinds: []string{Cut}})
}

// findsFaults runs a service until a fault is found, each time with another seed. On a busy machine its
// processes may have come too late to do anything in one run.
func findsFaults(t *testing.T, o Options) {
	t.Helper()
	for o.Seed = range 30 {
		if len(struckRun(t, o).Faults()) > 0 {
			return
		}
	}
	assert.Fail(t, "no fault was found")
}
