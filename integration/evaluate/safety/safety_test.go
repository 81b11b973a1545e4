package safety

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
	"music/integration/evaluate/whole"
)

// cell is a client of one value: everybody enters, and after some operations the section is lost.
type cell struct {
	mu    sync.Mutex
	value []byte
	left  int // operations that are carried out
	done  []string
}

func (c *cell) Close() {}

func (c *cell) note(what string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left--; c.left < 0 {
		return section.ErrLost
	}
	c.done = append(c.done, what)
	return nil
}

func (c *cell) Enter(context.Context, string) (section.Held, error) { return c, c.note("enter") }
func (c *cell) Leave(context.Context) error                         { return c.note("leave") }
func (c *cell) Renew(context.Context) error                         { return c.note("renew") }
func (c *cell) Put(_ context.Context, v []byte) error {
	c.value = v
	return c.note("put")
}

func (c *cell) Get(context.Context) ([]byte, error) {
	if err := c.note("get"); err != nil || c.value != nil {
		return c.value, err
	}
	return nil, section.ErrNoValue
}

// A client does what its role is until it is told to stop, and nothing more when its section is lost.
func TestRoles(t *testing.T) {
	for r, want := range map[role]string{
		looks: "enter get leave",
		loops: "enter get put get leave enter get put get leave enter get",
		holds: "enter get put put put get put put put get put put",
		takes: "enter get get get get get get get get get get get",
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &cell{left: 12}
			w := &worker{assignment: assignment{Role: r}, client: c, random: random(1)}
			go func() {
				time.Sleep(time.Second / 2)
				w.stopped.Store(true)
			}()
			require.NoError(t, w.work(t.Context()))
			require.Equal(t, want, strings.Join(c.done, " "), r)
		})
	}
}

// What is commanded is obeyed; without a parent there is nothing more to do.
func TestCommands(t *testing.T) {
	w := &worker{}
	w.obey(strings.NewReader("go\nwork\nskew -60000\n"))
	require.True(t, w.going.Load())
	require.True(t, w.working.Load())
	require.True(t, w.stopped.Load())
	require.Equal(t, -time.Minute, time.Duration(w.skew.Load()))
}

// A section is renewed in time.
func TestRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cell{left: 1 << 30}
		w := &worker{assignment: assignment{Role: takes}, client: c, random: random(1)}
		go func() {
			time.Sleep(2 * Lease)
			w.stopped.Store(true)
		}()
		require.NoError(t, w.work(t.Context()))
		require.GreaterOrEqual(t, strings.Count(strings.Join(c.done, " "), "renew"), 8)
	})
}

// told is a trial of which nothing is wrong, or an acknowledged put is lost.
func told(seed uint64, read string) *trial {
	t := &trial{seed: seed, system: System{Name: "a system"}}
	t.saw(read)
	return t
}

// saw adds the history of told.
func (t *trial) saw(read string) {
	for i, o := range []judge.Op{{Kind: judge.Enter}, {Kind: judge.Put, Value: "a"}, {Kind: judge.Put, Value: "b"}, {Kind: judge.Get, Value: read}} {
		o.Client, o.Serial, o.Section, o.Outcome = 1, i+1, 1, judge.Done
		o.Called, o.Returned = time.Duration(2*i+1), time.Duration(2*i+2)
		t.history.Add(o)
	}
}

// A cell counts the tries that were carried out, and keeps the history of the violation.
func TestCell(t *testing.T) {
	out := t.TempDir()
	c := &Cell{System: "a system", Fault: "killed", Verdict: Held}
	failed := told(1, "b")
	failed.err = errors.New("no section")
	blocked := told(3, "b")
	blocked.blocked = true
	for _, step := range []struct {
		trial   *trial
		verdict Verdict
		tries   int
	}{{failed, Held, 0}, {told(2, "b"), Held, 1}, {blocked, Blocked, 2}, {told(4, "a"), Violated, 3}} {
		require.NoError(t, c.judge(step.trial, out))
		require.Equal(t, step.tries, c.Tries)
		require.Equal(t, step.verdict, c.Verdict)
	}
	require.Equal(t, uint64(4), c.Seed)
	require.Equal(t, []string{string(judge.LostPut)}, c.Violations)
	text, err := os.ReadFile(filepath.Join(out, c.History))
	require.NoError(t, err)
	require.Contains(t, string(text), "Up to there, 0 earlier operations left out:\n\tclient 1 section 1: enter")
}

// Cells that were not tried again stay in the table, and the page names every violation with its command.
func TestPage(t *testing.T) {
	out := t.TempDir()
	kept, err := load(out)
	require.NoError(t, err)
	*kept.of("MSCP", "killed") = Cell{System: "MSCP", Fault: "killed", Verdict: Held, Tries: 2}
	*kept.of("ours", "killed") = Cell{System: "ours", Fault: "killed", Verdict: Blocked, Tries: 3, Blocked: 1}
	require.NoError(t, kept.save(out))
	kept, err = load(out)
	require.NoError(t, err)
	kept.Cores = 77 // whoever writes the page has others
	c := kept.of("MSCP", "killed")
	require.Equal(t, 2, c.Tries)
	*c = Cell{System: "MSCP", Fault: "killed", Verdict: Violated, Tries: 4, Seed: 9, Violations: []string{"two holders"}, History: "safety/x.txt"}
	for _, name := range []string{"safety/x.txt", "safety/of-before.txt"} {
		require.NoError(t, whole.Write(filepath.Join(out, name), "a history"))
	}
	require.NoError(t, kept.save(out))
	require.FileExists(t, filepath.Join(out, "safety/x.txt"))
	require.NoFileExists(t, filepath.Join(out, "safety/of-before.txt"), "its cell has begun anew")
	text, err := os.ReadFile(filepath.Join(out, "safety.md"))
	require.NoError(t, err)
	for _, want := range []string{
		"| system | killed |\n|---|---|\n| ours | blocked in 1 of 3 |\n| MSCP | **[violated](safety/x.txt)** (4) |\n",
		"- MSCP, killed: two holders ([history](safety/x.txt)): `go run ./safety/table --system 'MSCP' --fault 'killed' --seed 9`",
		"a machine of 77 cores",
	} {
		require.Contains(t, string(text), want)
	}
	raw, err := os.ReadFile(filepath.Join(out, "safety.json"))
	require.NoError(t, err)
	require.True(t, json.Valid(raw))
}

// Names are unique, and those that nobody has are refused.
func TestNames(t *testing.T) {
	var names []string
	for _, s := range Systems() {
		names = append(names, s.Name)
		require.NotEmpty(t, s.How, s.Name)
		_, found := find(s.Name)
		require.True(t, found)
	}
	for _, f := range Faults() {
		names = append(names, f.Name)
	}
	slices.Sort(names)
	require.Len(t, slices.Compact(names), len(Systems())+len(Faults()))
	_, err := chosen(Faults(), []string{"killed", "no such"}, func(f Fault) string { return f.Name })
	require.ErrorContains(t, err, "no such")
}
