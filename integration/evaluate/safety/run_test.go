package safety

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/judge"
)

// theatre plays trials without a world: each is told by a function.
type theatre struct {
	lacks  string // servers that it does not have
	plays  []string
	built  int
	closed int
	do     func(number int, f Fault, all []*trial) error
}

func (p *theatre) play(_ context.Context, f Fault, all []*trial) error {
	for _, t := range all {
		p.plays = append(p.plays, t.system.Name+" "+f.Name+" "+string('0'+rune(t.seed)))
	}
	if p.do == nil {
		return nil
	}
	return p.do(len(p.plays), f, all)
}

func (p *theatre) has(need string) bool { return need == "" || need != p.lacks }
func (p *theatre) close() error         { p.closed++; return nil }

// played runs a table of two systems and two faults at a theatre.
func played(ctx context.Context, p *theatre, o Options) (*table, error) {
	o.Log = &strings.Builder{}
	kept, err := load(o.Out)
	if err != nil {
		return nil, err
	}
	r := run{o: o, systems: []System{{Name: "one"}, {Name: "two", need: "servers"}}, table: kept, commit: "now"}
	r.build = func(context.Context) (stage, error) { p.built++; return p, nil }
	err = r.all(ctx, []Fault{{Name: "x"}, {Name: "y"}})
	return kept, err
}

// A fault that cannot be mended spoils one try: it is repeated in another world, and the others follow.
func TestAFailedRestartSpoilsOneTry(t *testing.T) {
	failure := errors.New("the node does not start")
	p := &theatre{}
	p.do = func(number int, _ Fault, all []*trial) error {
		if number > 2 {
			return nil
		}
		all[0].saw("a") // what was seen before counts
		return failure
	}
	o := Options{Out: t.TempDir(), Tries: 1}
	kept, err := played(t.Context(), p, o)
	require.NoError(t, err)
	assert.Equal(t, []string{"one x 1", "two x 1", "two x 1", "one y 1", "two y 1"}, p.plays)
	assert.Equal(t, 2, p.built)
	assert.Equal(t, 2, p.closed)
	assert.Equal(t, Violated, kept.of("one", "x").Verdict)
	for _, c := range kept.Cells {
		assert.Equal(t, 1, c.Tries, c)
		assert.Empty(t, c.Failed)
	}
}

// A cell of which nothing can be told is left after some tries, and the command says so.
func TestWhatTellsNothingIsLeft(t *testing.T) {
	p := &theatre{do: func(_ int, f Fault, all []*trial) error {
		if f.Name == "x" {
			all[0].clients[1] = &process{absent: "could not connect: refused"}
		}
		return nil
	}}
	kept, err := played(t.Context(), p, Options{Out: t.TempDir(), Tries: 2})
	require.EqualError(t, err, "one, x: left after 3 tries that told nothing, the last one: client 1 could not connect: refused")
	assert.Equal(t, 0, kept.of("one", "x").Tries)
	assert.Equal(t, "not tried: client 1 could not connect: refused", kept.cell("one", "x"))
	assert.Equal(t, "held (2)", kept.cell("one", "y"))
}

// A run that was stopped goes on where it was: what has its tries, or is violated, is not tried again, and a try that was under way
// counts for nothing.
func TestARunGoesOnWhereItWasStopped(t *testing.T) {
	o := Options{Out: t.TempDir(), Tries: 2}
	ctx, stop := context.WithCancel(t.Context())
	p := &theatre{do: func(number int, _ Fault, all []*trial) error {
		if number == 2 {
			all[0].saw("a")
		}
		if number > 4 {
			stop()
		}
		return nil
	}}
	_, err := played(ctx, p, o)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{"one x 1", "two x 1", "two x 2", "one y 1", "two y 1"}, p.plays)
	again := &theatre{}
	kept, err := played(t.Context(), again, o)
	require.NoError(t, err)
	assert.Equal(t, []string{"one y 1", "two y 1", "one y 2", "two y 2"}, again.plays)
	done := &theatre{}
	_, err = played(t.Context(), done, o)
	require.NoError(t, err)
	assert.Zero(t, done.built, "there is nothing to do")
	assert.Equal(t, "now", kept.of("two", "y").Commit)
	more := &theatre{}
	_, err = played(t.Context(), more, Options{Out: o.Out})
	require.NoError(t, err)
	assert.Equal(t, []string{"two x 3", "one y 3", "two y 3"}, more.plays, "one more of each")
}

// A cell begins anew by its first try that tells something: until then it has what it had.
func TestAgain(t *testing.T) {
	o := Options{Out: t.TempDir(), Tries: 1}
	broken := &theatre{do: func(_ int, _ Fault, all []*trial) error {
		all[0].saw("a")
		return nil
	}}
	_, err := played(t.Context(), broken, o)
	require.NoError(t, err)
	o.Again, o.Tries = true, 2
	ctx, stop := context.WithCancel(t.Context())
	p := &theatre{do: func(number int, _ Fault, _ []*trial) error {
		if number > 4 {
			stop()
		}
		return nil
	}}
	_, err = played(ctx, p, o)
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, []string{"one x 1", "two x 1", "one x 2", "two x 2", "one y 1", "two y 1"}, p.plays)
	kept, err := load(o.Out)
	require.NoError(t, err)
	assert.Equal(t, "held (2)", kept.cell("one", "x"))
	assert.Equal(t, Violated, kept.of("one", "y").Verdict)
}

// What servers cannot be had for is left as it is.
func TestWhatCannotBeHadIsLeft(t *testing.T) {
	p := &theatre{lacks: "servers"}
	kept, err := played(t.Context(), p, Options{Out: t.TempDir(), Tries: 1})
	require.NoError(t, err)
	assert.Equal(t, []string{"one x 1", "one y 1"}, p.plays)
	assert.Equal(t, "not tried: "+errNoServer.Error(), kept.cell("two", "x"))
}

// A client tells first that it is connected, or why it is not.
func TestAClientThatIsNotConnected(t *testing.T) {
	op, err := json.Marshal(judge.Op{Client: 1, Serial: 1, Kind: judge.Enter, Outcome: judge.Done})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		said, absent string
		ops          int
	}{
		"connected": {"{\"Refused\":\"\"}\n" + string(op), "", 1},
		"refused":   {`{"Refused":"no route"}`, "could not connect: no route", 0},
		"silent":    {"", "had not connected when the trial ended", 0},
	} {
		p, history := &process{heard: make(chan struct{})}, new(judge.History)
		early := &process{heard: make(chan struct{})}
		assert.False(t, (&trial{clients: map[int]*process{1: p}}).met(), name)
		p.listen(strings.NewReader(c.said), history)
		assert.True(t, (&trial{clients: map[int]*process{1: p}}).met(), name)
		assert.False(t, (&trial{clients: map[int]*process{1: p, 2: early}}).met(), name)
		assert.Equal(t, c.absent, p.absent, name)
		assert.Len(t, history.Ops(), c.ops, name)
	}
}

// A client that cannot connect ends with a greeting that says so.
func TestAClientGreets(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	text, err := json.Marshal(assignment{System: "etcd"})
	require.NoError(t, err)
	require.ErrorIs(t, beClient(string(text), nil, out), errNoServer)
	_, err = out.Seek(0, 0)
	require.NoError(t, err)
	p := &process{heard: make(chan struct{})}
	p.listen(out, new(judge.History))
	assert.Equal(t, "could not connect: "+errNoServer.Error(), p.absent)
}

// A try in which a client was not connected is none, and blocks nobody; but what it shows of a violation counts.
func TestATryWithoutAClientIsNone(t *testing.T) {
	absent := told(1, "b")
	absent.blocked, absent.clients = true, map[int]*process{1: {}, visitor: {absent: "could not connect: refused"}}
	c := &Cell{Verdict: Held, left: 2}
	require.NoError(t, c.judge(absent, t.TempDir()))
	assert.Equal(t, Cell{Verdict: Held, left: 2, void: 1, Failed: "client 5 could not connect: refused"}, *c)
	require.NoError(t, c.judge(told(1, "b"), t.TempDir()))
	assert.Equal(t, 1, c.Tries)
	assert.Empty(t, c.Failed, "it was repeated")
	broken := told(2, "a")
	broken.clients = absent.clients
	require.NoError(t, c.judge(broken, t.TempDir()))
	assert.Equal(t, Violated, c.Verdict)
}

// A cell of a system that was tried with other settings is marked, and begins anew.
func TestOtherSettingsBeginAnew(t *testing.T) {
	o := Options{Out: t.TempDir(), Tries: 1, Log: t.Output()}
	kept, err := load(o.Out)
	require.NoError(t, err)
	*kept.of("bakery", "paused") = Cell{System: "bakery", Fault: "paused", Verdict: Violated, Tries: 1, History: "x.txt"}
	*kept.of("etcd", "paused") = Cell{System: "etcd", Fault: "paused", Verdict: Held, Tries: 1}
	require.Contains(t, kept.page(), "| bakery | **[violated](x.txt)** (1) † |\n| etcd | held (1) |\n\n†: tried when")
	bakery, _ := find("bakery")
	etcd, _ := find("etcd")
	p := &theatre{}
	r := run{o: o, systems: []System{bakery, etcd}, table: kept, build: func(context.Context) (stage, error) { return p, nil }}
	require.NoError(t, r.all(t.Context(), []Fault{{Name: "paused"}}))
	require.Equal(t, []string{"bakery paused 1"}, p.plays)
	require.Contains(t, kept.page(), "| bakery | held (1) |\n| etcd | held (1) |\n\n## The systems")
}

// Clients begin when all of their trial are connected; a trial with one that is late tells nothing.
func TestClientsMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		soon, late := &process{heard: make(chan struct{})}, &process{heard: make(chan struct{})}
		one, two := &trial{clients: map[int]*process{1: soon}}, &trial{clients: map[int]*process{1: soon, 2: late}}
		go func() {
			time.Sleep(meeting / 2)
			close(soon.heard)
		}()
		meet(t.Context(), []*trial{one, two})
		require.NoError(t, one.told())
		require.ErrorIs(t, two.told(), errLate)
	})
}

// A client does nothing until it is told to.
func TestAClientWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cell{left: 3}
		w := &worker{assignment: assignment{Role: looks}, client: c, random: random(1)}
		told, parent := io.Pipe()
		go w.obey(told)
		ended := make(chan error)
		go func() { ended <- w.begin(t.Context()) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, c.done)
		_, err := parent.Write([]byte("go\n"))
		require.NoError(t, err)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"enter", "get", "leave"}, c.done)
		require.NoError(t, parent.Close())
		require.NoError(t, <-ended)
	})
}
