package struck

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/service"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// result makes a result of puts on one key, each a second after the one before, in one section each, and of events.
func result(portal bool, values []string, events ...service.Event) *Result {
	r := &Result{portal: portal, History: new(judge.History)}
	for i, v := range values {
		at := time.Duration(10*i) * time.Second
		o := judge.Op{Client: 1, Section: 3 * i, Serial: 3*i + 1, Key: "k", Token: int64(i), Outcome: judge.Done}
		o.Kind, o.Value, o.Called, o.Returned = judge.Put, v, at+1, at+2
		r.History.Add(o)
		o.Kind, o.Serial, o.Called, o.Returned = judge.Get, 3*i+2, at+3, at+4
		r.History.Add(o)
	}
	r.Events = events
	return r
}

// Each fault of a service is found where it is, and nowhere else.
func TestFaultsAreFound(t *testing.T) {
	executed := func(client int, from, to time.Duration) service.Event {
		return service.Event{What: service.Executed, Client: client, Key: "k", From: from, To: to}
	}
	completed := service.Event{What: service.Completed, Key: "k"}
	changed := service.Event{What: service.Changed, Key: "k", Number: 2}
	job := []string{`{"state":0,"by":"1"}`, `{"state":1,"by":"2"}`, `{"state":2,"by":"3"}`}
	role := []string{`{"change":1,"by":"1"}`, `{"change":2,"by":"2"}`}
	left := result(false, job, completed)
	left.Left = []string{"k"}
	stopped := result(false, job, completed, executed(1, 1, 9), executed(2, 5, 6))
	stopped.Strikes = []Strike{{Kind: Paused, Client: 1, From: 2, To: 8}}
	stale := result(true, role, changed)
	stale.History.Add(judge.Op{Client: 2, Serial: 1, Key: "k", Kind: judge.Get, Value: role[0], Called: time.Hour, Returned: 2 * time.Hour, Outcome: judge.Done})
	for name, c := range map[string]struct {
		result *Result
		want   string
	}{
		"a job":                            {result(false, job, completed, executed(1, 1, 2), executed(2, 2, 3)), ""},
		"one that was stopped in its work": {stopped, ""},
		"two at once":                      {result(false, job, completed, executed(1, 1, 4), executed(1, 4, 5), executed(2, 3, 6)), "executed at once"},
		"a state twice":                    {result(false, append(job, `{"state":1,"by":"4"}`), completed), "carried out twice"},
		"not done":                         {result(false, job), "not DONE"},
		"there again":                      {left, "is there again"},
		"changes":                          {result(true, role, changed), ""},
		"a change twice":                   {result(true, append(role, `{"change":2,"by":"4"}`), changed), "carried out twice"},
		"a change that is lost":            {result(true, role[:1], changed), "an acknowledged change is lost"},
		"what the judge finds":             {stale, "an acknowledged put is lost"},
	} {
		got := strings.Join(c.result.Faults(), "\n")
		assert.True(t, c.want != "" || got == "", "%s: %q", name, got)
		assert.Contains(t, got, c.want, name)
	}
}

// The page tells what was found, and ratios of the same rounds.
func TestPage(t *testing.T) {
	all := []*tally{
		{Service: homing, Over: service.OverOurs, Struck: map[string]int{Killed: 2}, Rates: []float64{9, 4, 6}},
		{Service: homing, Over: service.OverMusic, Found: Found([]string{"two holders\n\ta", "two holders\n\tb", "not DONE: k"}), Rates: []float64{3, 2, 2}},
		{Service: portal, Over: service.OverOurs},
		{Service: portal, Over: service.OverMusic, Fault: "context deadline exceeded"},
	}
	page := (&report{Seed: 7, Command: "evaluate --only=services", Commit: "abc", Load: "1.00, 2.00", Tallies: all}).page()
	for _, want := range []string{
		"| homing | ours | 2 | 0 | 0 | 0 |  |\n", "two holders (2); not DONE (1)", "homing over music:\n```\ntwo holders\n\ta\n```",
		"| portal | music | 0 | 0 | 0 | 0 | it has not come to an end: context deadline exceeded |", "3.00 (2.00–3.00) |\n| portal | – | – | – |", "`evaluate --only=services`, the product abc,", "before and after) 1.00, 2.00", "Seed 7:",
	} {
		assert.Contains(t, page, want)
	}
}

// Only a fault that comes while a process is in a section has struck it.
func TestStruckIsProved(t *testing.T) {
	r := &Result{History: new(judge.History), Strikes: []Strike{{Kind: Cut, Client: 1, From: 5, To: 9}, {Kind: Cut, Client: 1, From: 25, To: 29}, {Kind: Killed, Client: 2, From: 8, To: 9}}}
	for i, o := range []judge.Op{
		{Client: 1, Kind: judge.Enter, Called: 1, Returned: 2},
		{Client: 1, Kind: judge.Leave, Called: 20, Returned: 22},
		{Client: 2, Kind: judge.Enter, Called: 6, Returned: 7},
	} {
		o.Serial, o.Key, o.Outcome = i+1, "k", judge.Done
		r.History.Add(o)
	}
	struck, overtaken := r.Struck()
	assert.True(t, len(struck) == 2 && struck[Cut] == 1 && struck[Killed] == 1 && overtaken == 1, "%v %v", struck, overtaken)
}

// A run without faults that fails leaves its round out of the ratio, and not the last one.
func TestRatesAreOfTheSameRounds(t *testing.T) {
	mine, music := &tally{Service: homing, Over: service.OverOurs}, &tally{Service: homing, Over: service.OverMusic}
	for _, round := range []struct {
		mine, music float64
		err         error
	}{{8, 4, nil}, {0, 2, context.DeadlineExceeded}, {9, 3, nil}} {
		mine.rate(round.mine, round.err)
		music.rate(round.music, nil)
	}
	page := (&report{Tallies: []*tally{mine, music, {Service: portal, Over: service.OverOurs}, {Service: portal, Over: service.OverMusic}}}).page()
	assert.Contains(t, page, "| homing | 9.00 (8.00–9.00), 1 failed | 3.00 (2.00–4.00) | 3.00 (2.00–3.00) |")
}

// What is found over the product, or does not come to an end, is an error of the command, and over others it is not.
func TestAFaultOfTheProductIsAnError(t *testing.T) {
	found := Found([]string{"two holders"})
	assert.NoError(t, broken([]*tally{{Over: service.OverOurs}, {Over: service.OverMusic, Found: found, Fault: "context deadline exceeded"}}))
	err := broken([]*tally{{Service: homing, Over: service.OverOurs, Found: found}, {Service: portal, Over: service.OverOurs, Fault: "context deadline exceeded"}})
	assert.ErrorContains(t, err, "homing: two holders")
	assert.ErrorContains(t, err, "portal: context deadline exceeded")
}

// A run that is stopped leaves what the run before has left as it is.
func TestAStoppedRunKeepsThePage(t *testing.T) {
	all := []*tally{
		{Service: homing, Over: service.OverOurs},
		{Service: portal, Over: service.OverOurs},
		{Service: homing, Over: service.OverMusic},
		{Service: portal, Over: service.OverMusic},
	}
	s := Suite{Out: t.TempDir()}
	require.NoError(t, s.keep(t.Context(), &report{Commit: "of the whole run", Tallies: all}))
	page := filepath.Join(s.Out, "services.md")
	before, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(before), "of the whole run")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, s.keep(ctx, &report{Commit: "of a part", Tallies: all}), context.Canceled)
	after, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
}

// What a run has left is its page, whenever that is written, and is done for a run of the same settings.
func TestWhatARunHasLeft(t *testing.T) {
	s := Suite{Settings: Settings{Strikes: 111, Rounds: 5, Span: time.Second}, Out: t.TempDir()}
	kept, err := s.Kept()
	require.NoError(t, err)
	require.Empty(t, kept)
	require.NoError(t, Rewrite(s.Out))
	page := filepath.Join(s.Out, "services.md")
	require.NoFileExists(t, page)

	mine := &tally{Service: homing, Over: service.OverOurs, Struck: map[string]int{Cut: 3}, Rates: []float64{0, 2}}
	r := &report{Settings: s.Settings, Seed: 7, When: "today", Commit: "abc", Cores: 77, Tallies: []*tally{
		mine,
		{Service: portal, Over: service.OverOurs},
		{Service: homing, Over: service.OverMusic, Fault: "late", Found: Found([]string{"two holders"})},
		{Service: portal, Over: service.OverMusic},
	}}
	require.NoError(t, s.keep(t.Context(), r))
	before, err := os.ReadFile(page)
	require.NoError(t, err)
	require.NoError(t, os.Remove(page))
	require.NoError(t, Rewrite(s.Out))
	after, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
	assert.Contains(t, string(after), "on 77 cores")
	kept, err = s.Kept()
	require.NoError(t, err)
	assert.Equal(t, "of today, at abc", kept)
	s.Strikes = 6
	kept, err = s.Kept()
	require.NoError(t, err)
	assert.Empty(t, kept)
}
