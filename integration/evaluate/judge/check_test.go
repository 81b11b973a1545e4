package judge

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"music/integration/evaluate/section"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// step is an operation of a history that is told in order.
type step struct {
	client  int
	kind    Kind
	value   string
	outcome Outcome
}

// told makes a history of one key in which each operation takes a second and the next follows it.
func told(steps ...step) *History {
	h := new(History)
	inside := map[int]int{}
	for i, s := range steps {
		o := Op{Client: s.client, Serial: i + 1, Key: "k", Kind: s.kind, Value: s.value, Outcome: s.outcome}
		if o.Outcome == "" {
			o.Outcome = Done
		}
		if s.kind == Enter {
			inside[s.client] = o.Serial
		}
		o.Section = inside[s.client]
		o.Called, o.Returned = time.Duration(2*i+1)*time.Second, time.Duration(2*i+2)*time.Second
		if o.Outcome == Unknown {
			o.Returned = forever
		}
		h.Add(o)
	}
	return h
}

// faults returns those of the violations.
func faults(all []Violation) (names []Fault) {
	for _, v := range all {
		names = append(names, v.Fault)
	}
	return names
}

// Each fault is found in a history that has it, and none in those that have none.
func TestCheckFinds(t *testing.T) {
	enter := func(c int) step { return step{client: c, kind: Enter} }
	leave := func(c int) step { return step{client: c, kind: Leave} }
	taken := func(c int) step { return step{client: c, kind: Taken} }
	put := func(c int, v string, x Outcome) step { return step{c, Put, v, x} }
	get := func(c int, v string) step { return step{c, Get, v, Done} }
	for name, c := range map[string]struct {
		history []step
		want    []Fault
	}{
		"sections that follow each other": {[]step{enter(1), get(1, ""), put(1, "a", Done), get(1, "a"), leave(1), enter(2), get(2, "a"), put(2, "b", Done), leave(2)}, nil},
		"one is taken and told so":        {[]step{enter(1), put(1, "a", Done), taken(1), enter(2), get(2, "a"), put(1, "x", Refused), get(2, "a")}, nil},
		"one is taken and does nothing":   {[]step{enter(1), put(1, "a", Done), enter(2), get(2, "a"), put(2, "b", Done)}, nil},
		"an unanswered put shows":         {[]step{enter(1), put(1, "a", Done), put(1, "b", Unknown), enter(2), get(2, "b"), get(2, "b")}, nil},
		"an unanswered put does not show": {[]step{enter(1), put(1, "a", Done), put(1, "b", Unknown), enter(2), get(2, "a"), get(2, "a")}, nil},
		"an unanswered put within":        {[]step{enter(1), put(1, "a", Done), put(1, "b", Unknown), get(1, "a"), get(1, "b")}, nil},
		"a refused enter":                 {[]step{enter(1), {2, Enter, "", Refused}, put(1, "a", Done)}, nil},

		"both get":                          {[]step{enter(1), enter(2), get(2, ""), get(1, "")}, []Fault{TwoHolders}},
		"both put":                          {[]step{enter(1), enter(2), put(2, "b", Done), put(1, "a", Done), get(1, "a")}, []Fault{TwoHolders}},
		"a put after it was taken":          {[]step{enter(1), taken(1), put(1, "a", Done)}, []Fault{AfterTaken}},
		"a put after it was taken, entered": {[]step{enter(1), taken(1), enter(2), put(1, "a", Done), get(2, "a")}, []Fault{AfterTaken}},
		"a put of before it was taken":      {[]step{enter(1), put(1, "a", Done), taken(1), enter(2), get(2, "")}, []Fault{LostPut}},
		"an acknowledged put is gone":       {[]step{enter(1), put(1, "a", Done), put(1, "b", Done), leave(1), enter(2), get(2, "a")}, []Fault{LostPut}},
		"an acknowledged put is replaced":   {[]step{enter(1), put(1, "a", Done), leave(1), enter(2), put(2, "b", Done), get(2, "a")}, []Fault{LostPut}},
		"an unanswered put after a get":     {[]step{enter(1), put(1, "a", Done), put(1, "b", Unknown), enter(2), get(2, "a"), get(2, "b")}, []Fault{LatePut}},
		"an unanswered put after a put":     {[]step{enter(1), put(1, "a", Unknown), enter(2), put(2, "b", Done), get(2, "a")}, []Fault{LatePut}},
		"a refused put shows":               {[]step{enter(1), put(1, "a", Done), put(1, "b", Refused), get(1, "b")}, []Fault{Neither}},
		"what nobody put":                   {[]step{enter(1), get(1, "z")}, []Fault{Neither}},
		"shadowed, and two holders":         {[]step{enter(1), enter(2), put(2, "b", Done), put(1, "a", Done), get(2, "b")}, []Fault{TwoHolders, LostPut}},
	} {
		got := told(c.history...).Check()
		assert.Equal(t, c.want, faults(got), "%s: %v", name, got)
	}
}

// Tokens tell which section is the later one where the answers to Enter changed places.
func TestTokensOrderSections(t *testing.T) {
	ops := []Op{
		{Client: 1, Serial: 1, Section: 1, Kind: Enter, Token: 2, Called: 1, Returned: 2, Outcome: Done},
		{Client: 2, Serial: 1, Section: 1, Kind: Enter, Token: 1, Called: 1, Returned: 3, Outcome: Done},
		{Client: 1, Serial: 2, Section: 1, Kind: Get, Token: 2, Called: 4, Returned: 5, Outcome: Done},
		{Client: 2, Serial: 2, Section: 1, Kind: Get, Token: 1, Called: 6, Returned: 7, Outcome: Done},
	}
	for _, want := range []int{1, 0} {
		h := new(History)
		for _, o := range ops {
			o.Token *= int64(want)
			h.Add(o)
		}
		assert.Len(t, h.Check(), want)
	}
}

// A put that is acknowledged after a later section has read took effect before that, or nobody sees it.
func TestSlowAcknowledgements(t *testing.T) {
	for name, c := range map[string]struct {
		before, after string
		want          []Fault
	}{
		"before": {"b", "b", nil}, "lost": {"a", "a", []Fault{LostPut}}, "late": {"a", "b", []Fault{LatePut}},
	} {
		h := told(step{1, Enter, "", ""}, step{1, Put, "a", ""}, step{1, Put, "b", ""}, step{2, Enter, "", ""}, step{2, Get, c.before, ""})
		slow := h.Ops()[2]
		slow.Returned = 20 * time.Second
		h.Add(slow)
		h.Add(Op{Client: 2, Serial: 9, Section: 4, Key: "k", Kind: Get, Value: c.after, Called: 21 * time.Second, Returned: 22 * time.Second, Outcome: Done})
		assert.Equal(t, c.want, faults(h.Check()), name)
	}
}

// A put of an overtaken section that is acknowledged, and read by itself, came late: it is no value that nobody put.
func TestALatePutOfItsOwnSection(t *testing.T) {
	h := told(step{1, Enter, "", ""}, step{1, Put, "a", ""}, step{2, Enter, "", ""}, step{2, Get, "", ""}, step{2, Put, "b", ""}, step{1, Get, "a", ""})
	slow := h.Ops()[1]
	slow.Returned = 10*time.Second + 1 // acknowledged when the later section had put
	h.Add(slow)
	all := h.Check()
	assert.Equal(t, []Fault{TwoHolders, LatePut}, faults(all))
	const want = "a put of an ended section came late\n\tclient 1 section 1: put k \"a\", 3s–10.000000001s, done\n\tclient 2 section 3: get k \"\", 7s–8s, done\n\tclient 1 section 1: get k \"a\", 11s–12s, done"
	assert.Equal(t, want, all[1].String())
}

// A put that is acknowledged only after a later section has read what was there before it is lost, also where nobody reads again.
func TestAPutThatIsAcknowledgedTooLate(t *testing.T) {
	h := told(step{1, Enter, "", ""}, step{1, Put, "a", ""}, step{1, Put, "b", ""}, step{2, Enter, "", ""}, step{2, Get, "a", ""})
	slow := h.Ops()[2]
	slow.Returned = 20 * time.Second
	h.Add(slow)
	all := h.Check()
	assert.Equal(t, []Fault{LostPut}, faults(all))
	assert.Equal(t, []Op{h.Ops()[1], h.Ops()[2], h.Ops()[4]}, all[0].Ops)
}

// A violation names the operations that contradict each other.
func TestViolationsAreTold(t *testing.T) {
	h := told(step{1, Enter, "", ""}, step{1, Put, "a", ""}, step{1, Put, "b", ""}, step{1, Get, "a", ""})
	got := h.Check()
	const want = "an acknowledged put is lost\n\tclient 1 section 1: put k \"a\", 3s–4s, done\n\tclient 1 section 1: put k \"b\", 5s–6s, done\n\tclient 1 section 1: get k \"a\", 7s–8s, done"
	assert.True(t, len(got) == 1 && got[0].String() == want, "%v", got)
}

// cell is a client of one value without any exclusion.
type cell struct{ value []byte }

func (c *cell) Enter(context.Context, string) (section.Held, error) { return c, nil }
func (c *cell) Close()                                              {}
func (c *cell) Leave(context.Context) error                         { return context.Canceled }

func (c *cell) TryEnter(context.Context, string) (section.Held, bool, error) {
	return c, c.value == nil, nil
}
func (c *cell) Token() int64 { return 7 }

func (c *cell) Get(context.Context) ([]byte, error) {
	if c.value == nil {
		return nil, section.ErrNoValue
	}
	return c.value, nil
}

func (c *cell) Put(_ context.Context, value []byte) error {
	if string(value) == "late" {
		return section.ErrLost
	}
	c.value = value
	return nil
}

// What a recorder notes, also of what is cut off in the middle, is read again by another process.
func TestRecorderNotesWhatIsDone(t *testing.T) {
	var file bytes.Buffer
	r := Record(new(cell), 3, func(o Op) { _ = json.NewEncoder(&file).Encode(o) })
	ctx := t.Context()
	held, err := r.Enter(ctx, "k")
	require.NoError(t, err)
	_, none := held.Get(ctx)
	errs := []error{none, held.Put(ctx, []byte("a")), held.Put(ctx, []byte("late")), held.Leave(ctx)}
	want := []error{section.ErrNoValue, nil, section.ErrLost, context.Canceled}
	assert.Equal(t, want, errs)
	lines := strings.SplitAfter(file.String(), "\n")
	h := new(History)
	// The last line, Leave's answer, is torn.
	require.NoError(t, h.Read(strings.NewReader(strings.Join(lines[:9], "")+lines[9][:20])))
	var got []string
	for _, o := range h.Ops() {
		assert.Equal(t, 3, o.Client)
		assert.Equal(t, 1, o.Section)
		assert.NotZero(t, o.Called)
		assert.GreaterOrEqual(t, o.Returned, o.Called)
		if o.Serial > 1 {
			assert.EqualValues(t, 7, o.Token)
		}
		got = append(got, string(o.Kind)+" "+o.Value+" "+string(o.Outcome))
	}
	assert.Equal(t, []string{"enter  done", "get  done", "put a done", "put late refused", "leave  unknown"}, got)
	assert.True(t, h.Count(Put, Done) == 1 && h.Ops()[4].Returned == forever, "%v", h.Ops())
}

// A section that a recorder took is taken.
func TestTook(t *testing.T) {
	h := new(History)
	first, second := Record(new(cell), 1, h.Add), Record(new(cell), 2, h.Add)
	held, err := first.Enter(t.Context(), "k")
	require.NoError(t, err)
	second.Took(h.Ops()[0])
	require.NoError(t, held.Put(t.Context(), []byte("a")))
	assert.Equal(t, []Fault{AfterTaken}, faults(h.Check()))
}

// Who tries is noted as one who enters, and who is not let in has no section; what is put without one is the value of the next.
func TestTryingAndPutsOutside(t *testing.T) {
	h, c := new(History), new(cell)
	r := Record(c, 1, h.Add)
	held, free, err := r.TryEnter(t.Context(), "k")
	require.True(t, free, "%v %v", free, err)
	require.NoError(t, err, "%v", free)
	require.NoError(t, r.Outside("k", "a", func() error { c.value = []byte("a"); return nil }))
	_, err = held.Get(t.Context())
	assert.NoError(t, err)
	_, free, err = r.TryEnter(t.Context(), "k")
	assert.False(t, free, "%v %v", free, err)
	assert.NoError(t, err, "%v", free)
	require.NoError(t, r.Outside("k", "b", func() error { return nil }))
	got := h.Count(Enter, Refused)
	assert.Equal(t, 1, got, "%d refused, %v", got, h.Check())
	assert.Empty(t, h.Check(), "%d", got)
	_, err = held.Get(t.Context())
	assert.NoError(t, err)
	assert.Equal(t, []Fault{LostPut}, faults(h.Check()))
}
