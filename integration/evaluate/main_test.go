package main

import (
	"context"
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
		{"--only", "fig4a,fig99"}, {"--system", "none"}, {"--rounds", "-1"}, {"--workers", "0"}, {"--span", "-1s"}, {"--profile", "IUS"}, {"--paxos", "v3"}, {"--only", "lease", "--paxos", "v1"}, {"--against", filepath.Join(t.TempDir(), "none.json")}, {"safety"},
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
	assert.True(t, got.Has("fig4a", "IUs", "v2", s.Settings))
	s.Rounds = 7
	assert.False(t, got.Has("fig4a", "IUs", "v2", s.Settings))
}

// A figure of some systems is not that of all: a full run measures it.
func TestSomeSystemsAreNotAll(t *testing.T) {
	s := settings{out: t.TempDir(), systems: []string{experiment.MUSIC}, Settings: experiment.Settings{Full: true, Workers: 1}}
	require.NoError(t, s.complete())
	r := &experiment.Report{}
	r.Put(&experiment.Figure{Name: "fig4a", Profile: "IUs", Paxos: "v2", Settings: s.Settings})
	assert.True(t, r.Has("fig4a", "IUs", "v2", s.Settings))
	s = settings{out: t.TempDir(), Settings: experiment.Settings{Full: true, Workers: s.Workers}}
	require.NoError(t, s.complete())
	assert.False(t, r.Has("fig4a", "IUs", "v2", s.Settings))
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
