package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/experiment"
)

// What nobody knows is refused before anything is started.
func TestBadWordsAreRefused(t *testing.T) {
	for _, args := range [][]string{
		{"--only", "fig4a,fig99"}, {"--system", "none"}, {"--rounds", "-1"}, {"--workers", "0"}, {"--span", "-1s"}, {"--tries", "-1"}, {"--profile", "IUS"}, {"--paxos", "v3"}, {"--only", "lease", "--paxos", "v1"}, {"--against", filepath.Join(t.TempDir(), "none.json")}, {"safety"},
	} {
		c := command()
		c.SetArgs(append(args, "--out", t.TempDir()))
		ended, end := context.WithCancel(t.Context()) // what is not refused does nothing, then
		end()
		err := c.ExecuteContext(ended)
		require.Error(t, err, args)
		require.NotContains(t, err.Error(), "stopped", args)
	}
}

// A full run goes on where it was stopped; a figure of other settings is measured again.
func TestResume(t *testing.T) {
	s := settings{out: t.TempDir(), Settings: experiment.Settings{Rounds: 5, Full: true}}
	r, err := s.resume()
	require.NoError(t, err)
	r.Put(&experiment.Figure{Name: "fig4a", Profile: "IUs", Paxos: "v2", Settings: s.Settings})
	require.NoError(t, r.Save(s.path()))
	got, err := s.resume()
	require.NoError(t, err)
	assert.NotNil(t, got.Kept("fig4a", "IUs", "v2", s.Settings))
	s.Rounds = 7
	assert.Nil(t, got.Kept("fig4a", "IUs", "v2", s.Settings))
}

// A figure of some systems is not that of all: a full run measures it.
func TestSomeSystemsAreNotAll(t *testing.T) {
	s := settings{out: t.TempDir(), systems: []string{experiment.MUSIC}, Settings: experiment.Settings{Full: true, Workers: 1}}
	require.NoError(t, s.complete())
	r := &experiment.Report{}
	r.Put(&experiment.Figure{Name: "fig4a", Profile: "IUs", Paxos: "v2", Settings: s.Settings})
	assert.NotNil(t, r.Kept("fig4a", "IUs", "v2", s.Settings))
	s = settings{out: t.TempDir(), Settings: experiment.Settings{Full: true, Workers: s.Workers}}
	require.NoError(t, s.complete())
	assert.Nil(t, r.Kept("fig4a", "IUs", "v2", s.Settings))
}

// A short run has one world, a full one those of all profiles.
func TestWhatIsPlayedWhere(t *testing.T) {
	profiles := experiment.Profiles()
	e := experiment.Experiment{Name: "x", Profiles: []string{"I1", "IUs"}, Paxos: []string{"v1", "v2"}}
	short, full := settings{}, settings{Settings: experiment.Settings{Full: true, Span: time.Second}}
	assert.True(t, short.plays(e, profiles[1], "v2"))
	assert.False(t, short.plays(e, profiles[1], "v1"))
	assert.False(t, short.plays(e, profiles[0], "v2"))
	assert.True(t, full.plays(e, profiles[0], "v1"))
	assert.False(t, full.plays(e, profiles[2], "v2"))
	assert.True(t, short.plays(e, experiment.Local(), "v2"))
	full.only = []string{"y"}
	assert.False(t, full.plays(e, profiles[1], "v2"))
}

// Whatever an experiment times, the registry has or will have; it has nothing twice.
func TestRegistry(t *testing.T) {
	names := map[string]bool{}
	for _, s := range systems() {
		assert.False(t, names[s.Name], s.Name)
		names[s.Name] = true
	}
	assert.True(t, names[experiment.Ours])
}

// The report says by which command it was made.
func TestCommandIsTold(t *testing.T) {
	assert.Equal(t, "evaluate", (&settings{}).line())
	s := settings{given: []given{{"full", "true"}, {"only", "fig4a,safety"}, {"rounds", "7"}}}
	assert.Equal(t, `evaluate --full --only="fig4a,safety" --rounds=7`, s.line())
}

// In a full run, what needs servers beside Cassandra has worlds of its own; in a short one all share a world.
func TestWhatIsBeside(t *testing.T) {
	alone, beside := experiment.Experiment{Systems: []string{experiment.MUSIC}}, experiment.Experiment{Systems: []string{experiment.MUSIC, experiment.Etcd}}
	short, full := settings{}, settings{Settings: experiment.Settings{Full: true}}
	assert.False(t, full.beside(alone))
	assert.True(t, full.beside(beside))
	assert.True(t, short.beside(alone) && short.beside(beside))
	full.systems = []string{experiment.MUSIC}
	assert.False(t, full.beside(beside), "where the one that needs them was not asked for")
}

// A full run keeps what one of the same settings has measured, unless it is asked to measure it again; a short one keeps nothing.
func TestWhatIsKept(t *testing.T) {
	s := settings{Settings: experiment.Settings{Full: true, Rounds: 5}}
	e := &evaluation{settings: &s, report: &experiment.Report{}}
	f := &experiment.Figure{Name: "fig4a", Profile: "IUs", Paxos: "v2", Settings: s.Settings, Version: "of before"}
	e.report.Put(f)
	x, st := experiment.Experiment{Name: "fig4a"}, stage{profile: experiment.Profiles()[1], paxos: "v2"}
	assert.Same(t, f, e.kept(x, st))
	s.again = true
	assert.Nil(t, e.kept(x, st))
	s.again, s.Full = false, false
	assert.Nil(t, e.kept(x, st))
}

// A try, and a run of some systems, do not replace what a whole run has measured.
func TestAPartReplacesNoWhole(t *testing.T) {
	s := settings{out: t.TempDir(), only: []string{"fig4a", "services"}}
	e := &evaluation{settings: &s, report: &experiment.Report{}}
	stages := []stage{{profile: experiment.Profiles()[1], paxos: "v2", play: []experiment.Experiment{{Name: "fig4a"}}}}
	put := func(of experiment.Settings) {
		e.report.Put(&experiment.Figure{Name: "fig4a", Profile: "IUs", Paxos: "v2", Settings: of})
	}
	some, try := experiment.Settings{Systems: experiment.MUSIC}, experiment.Settings{Try: true}
	for _, part := range []experiment.Settings{some, try} {
		put(experiment.Settings{})
		s.Settings = part
		require.ErrorIs(t, e.spare(stages), errPart)
		put(part)
		require.NoError(t, e.spare(stages))
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.out, "services.md"), nil, 0o600))
	require.ErrorIs(t, e.spare(nil), errPart)
	s.Settings = experiment.Settings{}
	put(experiment.Settings{})
	require.NoError(t, e.spare(stages))
}

// A full run tries each cell of the safety table five times in all, a short one once more.
func TestTries(t *testing.T) {
	for want, s := range map[int]settings{5: {Settings: experiment.Settings{Full: true, Workers: 1}}, 0: {Settings: experiment.Settings{Workers: 1}}, 9: {tries: 9, Settings: experiment.Settings{Full: true, Workers: 1}}} {
		require.NoError(t, s.complete())
		assert.Equal(t, want, s.tries)
	}
}
