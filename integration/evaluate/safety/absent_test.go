package safety

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A trial whose servers cannot be had has no clients: who sets the clocks passes it over.
func TestATrialWithoutClientsIsPassedOver(t *testing.T) {
	absent := &trial{err: errNoServer, clients: map[int]*process{}}
	require.NotPanics(t, func() { setRight([]*trial{absent}, 1) })
}

// A table in which the product is violated is an error, and nothing else is.
func TestAViolationOfTheProductIsAnError(t *testing.T) {
	kept := &table{}
	kept.of("MUSIC", "clocks").Verdict = Violated
	kept.of("ours", "clocks").Verdict = Blocked
	require.NoError(t, kept.broken())
	*kept.of("ours, strict", "paused") = Cell{System: "ours, strict", Fault: "paused", Verdict: Violated, Violations: []string{"two holders"}}
	require.EqualError(t, kept.broken(), "ours, strict, paused: two holders")
}

// A world that is closed leaves nothing behind, also where it was not complete; but one that was refused leaves the files of the other.
func TestAClosedWorldIsGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "world")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "etcd1"), 0o750))
	require.NoError(t, (&world{dir: dir}).close())
	require.DirExists(t, dir)
	require.NoError(t, (&world{dir: dir, mine: true}).close())
	require.NoDirExists(t, dir)
}
