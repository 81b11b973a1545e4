package experiment

import (
	"context"
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/section"
)

// memory is a system in this process.
type memory struct {
	section chan struct{} // one lock for all keys; nil: none at all
	takes   time.Duration // a put
	mu      sync.Mutex
	values  map[string][]byte
}

func (m *memory) Close() {}

func (m *memory) Enter(_ context.Context, key string) (section.Held, error) {
	if m.section != nil {
		m.section <- struct{}{}
	}
	return &cell{m, key}, nil
}

// cell is a key of memory, held by a client.
type cell struct {
	*memory
	key string
}

func (c *cell) Get(context.Context) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, is := c.values[c.key]
	if !is {
		return nil, section.ErrNoValue
	}
	return v, nil
}

func (c *cell) Put(_ context.Context, v []byte) error {
	time.Sleep(c.takes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values[c.key] = v
	return nil
}

func (c *cell) Leave(context.Context) error {
	if c.section != nil {
		<-c.section
	}
	return nil
}

func (c *cell) PutMany(ctx context.Context, values [][]byte) error {
	return c.Put(ctx, values[len(values)-1])
}

// remembering returns a fleet whose clients share a memory.
func remembering(exclusive bool) *Fleet {
	m := &memory{values: map[string][]byte{}}
	if exclusive {
		m.section = make(chan struct{}, 1)
	}
	return &Fleet{System: System{Name: "memory", Exclusive: true}, clients: [Sites]section.Client{m, m, m}}
}

// A correct system passes the experiment's own check.
func TestASystemThatExcludesPassesItsTest(t *testing.T) {
	require.NoError(t, remembering(true).verify(t.Context()))
}

// slow is a client that lets others run between a get and a put.
type slow struct {
	*memory
	reads sync.WaitGroup
}

func (s *slow) Enter(_ context.Context, key string) (section.Held, error) {
	return &slowCell{&cell{s.memory, key}, s}, nil
}

// slowCell is a key of slow.
type slowCell struct {
	*cell
	slow *slow
}

func (c *slowCell) Get(ctx context.Context) ([]byte, error) {
	v, err := c.cell.Get(ctx)
	if errors.Is(err, section.ErrNoValue) { // the first reads of a number that all raise, whoever comes first
		c.slow.reads.Done()
		c.slow.reads.Wait()
	}
	return v, err
}

// A system whose sections overlap loses updates, and is not timed.
func TestASystemThatDoesNotExcludeFailsItsTest(t *testing.T) {
	s := &slow{memory: &memory{values: map[string][]byte{}}}
	s.reads.Add(Sites * 2) // as many as there are workers
	f := &Fleet{System: System{Name: "slow", Exclusive: true}, clients: [Sites]section.Client{s, s, s}}
	require.ErrorIs(t, f.verify(t.Context()), ErrTest)
}

// shut is a client that nobody gets into the first common key of.
type shut struct {
	*memory
	first sync.Once
	key   string
}

func (c *shut) Enter(ctx context.Context, key string) (section.Held, error) {
	if !strings.Contains(key, "/") {
		c.first.Do(func() { c.key = key })
	}
	if key == c.key {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return c.memory.Enter(ctx, key)
}

// That nobody gets in is no wrong answer: another key is tried.
func TestASystemThatIsBlockedIsTestedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shut{memory: &memory{values: map[string][]byte{}, section: make(chan struct{}, 1)}}
		f := &Fleet{System: System{Name: "shut", Exclusive: true}, clients: [Sites]section.Client{s, s, s}}
		require.NoError(t, f.verifyAgain(t.Context()))
		assert.NotEmpty(t, s.key)
	})
}

// Turns are taken in rounds, each round begins with another system, and one that fails twice is
// left out.
func TestTurns(t *testing.T) {
	r := &Run{Settings: Settings{Rounds: 3}, Figure: &Figure{}, Log: io.Discard, warmed: map[string]bool{"a": true, "b": true, "broken": true}}
	var order []string
	take := func(name string, err error) turn {
		return turn{name, "", func(context.Context, string) (map[string]float64, error) {
			order = append(order, name)
			return map[string]float64{"m": float64(len(order))}, err
		}}
	}
	fault := errors.New("it stands still")
	require.NoError(t, r.takeTurns(t.Context(), []turn{take("a", nil), take("b", nil), take("broken", fault)}))
	assert.Equal(t, []string{"a", "b", "broken", "b", "broken", "a", "a", "b"}, order)
	assert.Equal(t, Samples{1, 6, 7}, r.values("a", "", "m"))
	assert.Contains(t, r.Rows[r.find("broken", "")].Note, fault.Error())
	assert.Empty(t, r.values("broken", "", "m"))
}

// A claim is the ratios of the same rounds, with a verdict if there is a goal.
func TestRatios(t *testing.T) {
	f := &Figure{Claims: []Claim{
		{Of: "a", To: "b", Metric: "m", Least: 2}, {Of: "b", To: "a", Metric: "m", Most: 0.1, Paper: "0.5"}, {Of: "a", To: "absent", Metric: "m"},
	}}
	for _, v := range [][2]float64{{10, 5}, {30, 10}, {12, 6}} {
		f.add("a", "", map[string]float64{"m": v[0]})
		f.add("b", "", map[string]float64{"m": v[1]})
	}
	all := f.ratios()
	require.Len(t, all, 2)
	assert.Equal(t, Samples{2, 3, 2}, all[0].Values)
	assert.Equal(t, "met", all[0].verdict())
	assert.Equal(t, "missed", all[1].verdict())
	assert.Len(t, f.Rows, 2, "to ask makes no rows")
}

// A claim that is missed tells what any protocol takes in the same rounds, and whether that alone would miss it, or else a reason
// that is known; one of a single system is its value.
func TestReasons(t *testing.T) {
	f := &Figure{Claims: []Claim{
		{Of: "a", To: "b", Metric: "m", Most: 1, Floor: [2]string{"c", "d"}},
		{Of: "a", To: "b", Metric: "m", Most: 1, Floor: [2]string{"c"}},
		{Of: "a", Metric: "m", Least: 9, Why: "as it is"},
		{Of: "a", Metric: "m", Most: 9, Why: "as it is"},
		{Of: "a", To: "b", Metric: "m", Most: 1, Floor: [2]string{"absent"}},
		{Of: "a", To: "b", Metric: "m", Most: 2, Floor: [2]string{"c"}},
		{Of: "b", To: "a", Metric: "m", Least: 1, Floor: [2]string{"c"}},
		{Of: "a", To: "b", Metric: "m", Most: 2, Floor: [2]string{"c"}, Why: "as it is"},
		{Of: "a", To: "b", Metric: "m", Most: 1, Floor: [2]string{"c"}, Why: "as it is"},
	}}
	for system, v := range map[string]float64{"a": 8, "b": 2, "c": 3, "d": 1} {
		f.add(system, "", map[string]float64{"m": v})
	}
	var verdicts []string
	for _, r := range f.ratios() {
		verdicts = append(verdicts, r.name()+" "+r.Values.String()+" "+r.verdict())
	}
	assert.Equal(t, []string{
		"a : b 4.00 missed, as it would be by one c and one d alone, 2.00 in the same rounds", "a : b 4.00 missed, as it would be by c alone, 1.50 in the same rounds",
		"a 8.00 missed: as it is", "a 8.00 met", "a : b 4.00 missed",
		"a : b 4.00 missed, and would not be by c alone, 1.50 in the same rounds", "b : a 0.25 missed, as it would be by c alone, 0.38 in the same rounds",
		"a : b 4.00 missed, and would not be by c alone, 1.50 in the same rounds: as it is", "a : b 4.00 missed, as it would be by c alone, 1.50 in the same rounds",
	}, verdicts)
}

// What the paper has at one point stands there, and nowhere else: of sections of one put it says that ZooKeeper does more of them.
func TestThePaperAtAPoint(t *testing.T) {
	f := &Figure{Name: "fig6a", Profile: "IUs", Paxos: "v2"}
	for _, x := range []string{onePut, "10 puts"} {
		for _, system := range []string{MUSIC, ZooKeeper} {
			f.add(system, x, map[string]float64{"puts": 1})
		}
	}
	r := &Report{Figures: []*Figure{f}}
	r.Define()
	page := r.Markdown(nil, nil)
	for _, want := range []string{"| MUSIC : ZooKeeper | 1 put | puts | 1.00 | 0.3 (885 to ~3,000 a second) |", "| MUSIC : ZooKeeper | 10 puts | puts | 1.00 | 1.4–2.3 |"} {
		assert.Equal(t, 2, strings.Count(page, want), want)
	}
}

// Claims are those of the program that reads a report.
func TestDefine(t *testing.T) {
	r := &Report{Figures: []*Figure{{Name: "fig4a", Claims: []Claim{{Of: "of before"}}}, {Name: "gone", Claims: []Claim{{Of: "kept"}}}}}
	r.Define()
	assert.Equal(t, throughput().Claims, r.Figures[0].Claims)
	assert.Equal(t, []Claim{{Of: "kept"}}, r.Figures[1].Claims)
}

// Figures stand in the order of the experiments, those of a short run first, whenever they were made.
func TestFiguresAreArranged(t *testing.T) {
	r := &Report{}
	for _, key := range []string{"gone/IUs/v2", "fig5a/I1/v2", "fig5a/IUsEu/v2", "fig5a/IUs/v1", "fig4a/IUsEu/v1", "fig5a/IUs/v2"} {
		part := strings.Split(key, "/")
		r.Put(&Figure{Name: part[0], Profile: part[1], Paxos: part[2]})
	}
	var keys []string
	for _, f := range r.Figures {
		keys = append(keys, f.Key())
	}
	assert.Equal(t, []string{"fig4a/IUsEu/v1", "fig5a/IUs/v2", "fig5a/IUs/v1", "fig5a/IUsEu/v2", "fig5a/I1/v2", "gone/IUs/v2"}, keys)
}

// The page names the profile, what was not timed and why, and what has changed since an earlier
// run.
func TestMarkdown(t *testing.T) {
	page := func(v float64) *Report {
		f := &Figure{Name: "figX", Title: "a figure", Profile: Local().Name, Paxos: "v2", Metrics: []Metric{{"m", "ms"}}, Claims: []Claim{{Of: "a", To: "b", Metric: "m", Paper: "7"}}}
		for _, round := range []float64{0.9, 1, 1.1} {
			f.add("a", "", map[string]float64{"m": v * round})
			f.add("b", "", map[string]float64{"m": 1})
		}
		f.row("c", "").Note = "not timed: it cannot be had here"
		return &Report{Figures: []*Figure{f}}
	}
	text := page(10).Markdown(page(20), map[string]string{"figX/local/v2": "figX.svg"})
	for _, want := range []string{
		"## figX: a figure, LOCAL PROFILE\n", "| [figX](#figX-local-v2) | local, v2 | a : b |  | m | 10.0 (9.00–11.0) | 7 |", "not timed: it cannot be had here", "| a : b |  | m | 10.0 (9.00–11.0) **was 20.0 (18.0–22.0)** |", "![a figure](figX.svg)",
	} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, page(10).Markdown(page(10.5), nil), "**was", "within its spread")
}

// A saved report is read back unchanged, and knows which figures it has.
func TestReportIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "docs", "evaluation.json")
	none, err := Read(path)
	require.NoError(t, err)
	assert.Nil(t, none)
	r := &Report{Machine: "m"}
	r.Put(&Figure{Name: "f", Profile: "IUs", Paxos: "v1"})
	r.Put(&Figure{Name: "f", Profile: "IUs", Paxos: "v2"})
	r.Put(&Figure{Name: "f", Profile: "IUs", Paxos: "v1", Notes: []string{"again"}})
	require.NoError(t, r.Save(path))
	got, err := Read(path)
	require.NoError(t, err)
	assert.Equal(t, r, got)
	assert.Len(t, got.Figures, 2)
	assert.NotNil(t, got.Kept("f", "IUs", "v2", Settings{}))
	assert.Nil(t, got.Kept("f", "I1", "v2", Settings{}))
}

// Jain's index is one where all sites have their share, and a third where one site has all.
func TestFairness(t *testing.T) {
	sites := []int{1, 2, 3}
	even := Outcome{Sections: []Timing{{Site: 1}, {Site: 2}, {Site: 3}}}
	index, least := even.fairness(sites)
	assert.InDelta(t, 1, index, 1e-9)
	assert.InDelta(t, 1, least, 1e-9)
	index, least = Outcome{Sections: []Timing{{Site: 1}, {Site: 1}}}.fairness(sites)
	assert.InDelta(t, 1.0/3, index, 1e-9)
	assert.Zero(t, least)
}

// Each figure is drawn in its way, and one without values not at all.
func TestPlots(t *testing.T) {
	dir := t.TempDir()
	bars := &Figure{Name: "bars", Metrics: []Metric{{"m", "ms"}}}
	bars.add("a", "", map[string]float64{"m": 1})
	lines := &Figure{Name: "lines", Metrics: []Metric{{"m", "ms"}}}
	lines.add("a", "1 put", map[string]float64{"m": 1})
	lines.add("a", "10 puts", map[string]float64{"m": 2})
	lines.row("not timed", "").Note = "why"
	curve := &Figure{Name: "cdf", Metrics: bars.Metrics}
	curve.row("a", "").CDF = quantiles([]float64{3, 1, 2})
	for _, f := range []*Figure{bars, lines, curve} {
		name, err := f.Plot(dir)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(name, f.Name), name)
		assert.FileExists(t, filepath.Join(dir, name))
	}
	name, err := (&Figure{Name: "empty", Metrics: bars.Metrics}).Plot(dir)
	require.NoError(t, err)
	assert.Empty(t, name)
}

// Every experiment has a name of its own, and times systems.
func TestExperimentsAreWhole(t *testing.T) {
	names := map[string]bool{}
	for _, e := range All() {
		assert.False(t, names[e.Name], e.Name)
		names[e.Name] = true
		assert.NotEmpty(t, e.Systems, e.Name)
		assert.NotEmpty(t, e.Metrics, e.Name)
		assert.Contains(t, e.Profiles, "IUs", e.Name)
		assert.Contains(t, e.Paxos, "v2", e.Name)
	}
}

// Each experiment gives values for all that it says it measures, over systems that are in memory; what needs nodes, leases or a queue is left out.
func TestExperimentsMeasureWhatTheySay(t *testing.T) {
	for _, e := range All() {
		if slices.Contains([]string{"cost", "leaders", "takeover", "lease", "bakery", "conflicts", "fig4b-3", "fig4b-9"}, e.Name) {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			r := &Run{
				Settings: Settings{Rounds: 2, Span: 100 * time.Millisecond, Workers: 2}, World: &World{Setup: Setup{Profile: Profiles()[1]}},
				Figure: &Figure{Metrics: e.Metrics, Claims: e.Claims}, Log: io.Discard, wanted: e.Systems, fleets: map[string]*Fleet{}, warmed: map[string]bool{},
			}
			for _, name := range e.Systems {
				m := &memory{takes: time.Millisecond, values: map[string][]byte{}}
				r.fleets[name] = &Fleet{System: System{Name: name}, clients: [Sites]section.Client{m, m, m}}
			}
			require.NoError(t, e.Run(t.Context(), r), e.Name)
			for _, row := range r.Rows {
				assert.Empty(t, row.Note, e.Name)
				for _, m := range e.Metrics {
					if step, _, _ := strings.Cut(m.Name, " "); step == "reference" || step == "acquire" {
						continue // of the paper's systems only
					}
					assert.Len(t, row.Values[m.Name], 2, "%s %s %s", e.Name, row.System, m.Name)
				}
			}
			ratios := map[Claim]bool{}
			for _, q := range r.ratios() {
				ratios[q.Claim] = ratios[q.Claim] || q.Values != nil
			}
			assert.NotContains(t, slices.Collect(maps.Values(ratios)), false, e.Name)
			assert.Len(t, ratios, len(e.Claims), "claims of %s name rows that there are", e.Name)
		})
	}
}

// The nearest site is what a quorum waits for.
func TestNearest(t *testing.T) {
	p := Profiles()[1]
	assert.Equal(t, p.RTT[0], p.Nearest(1))
	assert.Equal(t, p.RTT[2], p.Nearest(2))
	assert.Equal(t, p.RTT[2], p.Nearest(3))
}

// Rows of a group have their turns at the same time, in the order of the group in the figure, and one that fails twice is left out.
func TestTurnsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Run{Settings: Settings{Rounds: 3}, Figure: &Figure{}, Log: io.Discard, warmed: map[string]bool{"a": true, "b": true, "broken": true}}
		wait := func(name string, d time.Duration, err error) turn {
			return turn{name, "", func(context.Context, string) (map[string]float64, error) {
				time.Sleep(d)
				return map[string]float64{"m": d.Seconds()}, err
			}}
		}
		began := time.Now()
		require.NoError(t, r.takeTurnsTogether(t.Context(), [][]turn{{wait("a", 30*time.Second, nil), wait("broken", time.Minute, io.EOF), wait("b", 10*time.Second, nil)}}))
		assert.Equal(t, 2*time.Minute+30*time.Second, time.Since(began))
		assert.Equal(t, Samples{30, 30, 30}, r.values("a", "", "m"))
		assert.Equal(t, []int{0, 1, 2}, []int{r.find("a", ""), r.find("broken", ""), r.find("b", "")})
		assert.Equal(t, io.EOF.Error(), r.Rows[1].Note)
	})
}
