package experiment

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fails is a turn that has a value for each round, but for those in which it fails.
func fails(name string, value func(round int) float64, rounds ...int) turn {
	n := -1
	return turn{name, "", func(context.Context, string) (map[string]float64, error) {
		n++
		for _, r := range rounds {
			if r == n {
				return nil, errors.New("no section")
			}
		}
		return map[string]float64{"m": value(n)}, nil
	}}
}

// turned is a figure of some turns in four rounds.
func turned(t *testing.T, claim Claim, turns ...turn) *Figure {
	t.Helper()
	f := &Figure{Name: "figX", Profile: "IUs", Paxos: "v2", Claims: []Claim{claim}}
	r := &Run{Settings: Settings{Rounds: 4}, Figure: f, Log: io.Discard, warmed: map[string]bool{}}
	for _, x := range turns {
		r.warmed[x.system] = true
	}
	require.NoError(t, r.takeTurns(t.Context(), turns))
	return f
}

// A ratio is one of the same rounds: where two have missed different ones, there is none, however many are left of each.
func TestRatiosAreOfTheSameRounds(t *testing.T) {
	one, growing := func(int) float64 { return 1 }, func(round int) float64 { return float64(round + 1) }
	claim := Claim{Of: "a", To: "b", Metric: "m", Least: 1, Floor: [2]string{"c"}}
	f := turned(t, claim, fails("a", growing, 1), fails("b", growing, 2), fails("c", one))
	assert.Nil(t, f.ratioAt(claim, ""), "2 : 1 was in no round")
	f = turned(t, claim, fails("a", growing, 1), fails("b", growing, 1), fails("c", one, 3))
	assert.Equal(t, Samples{1, 1, 1}, f.ratioAt(claim, ""))
	assert.Nil(t, f.floorAt(claim, ""))
	f = turned(t, claim, fails("a", growing, 0, 2), fails("b", growing, 0, 2))
	assert.Nil(t, f.ratioAt(claim, ""), "who was left out is not judged by what it did before")
}

// What divides by nothing, or less, says nothing: a slowdown may be below none.
func TestNoRatioToLessThanNothing(t *testing.T) {
	f := &Figure{}
	for i := range 3 {
		f.add("a", "", map[string]float64{"m": 1})
		f.add("b", "", map[string]float64{"m": float64(i) - 1.5})
	}
	assert.Nil(t, f.ratioAt(Claim{Of: "a", To: "b", Metric: "m", Most: 0.5}, ""))
}

// A goal that was not measured is told, with the reason: it does not vanish from the page.
func TestWhatWasNotMeasuredIsTold(t *testing.T) {
	one := func(int) float64 { return 1 }
	f := turned(t, Claim{Of: "ours", To: "b", Metric: "m", Least: 1}, fails("ours", one, 1, 2), fails("b", one))
	page := (&Report{Figures: []*Figure{f}}).Markdown(nil, nil)
	assert.Contains(t, page, "| [figX](#figX-IUs-v2) | IUs, v2 | ours : b |  | m | – |  | ≥ 1 | not measured: ours: no section |")
	assert.Contains(t, page, "| ours : b |  | m | – |  | ≥ 1 | not measured: ours: no section |")
	f = turned(t, Claim{Of: "ours", Metric: "m", Most: 1}, fails("ours", one, 0, 3))
	assert.Contains(t, (&Report{Figures: []*Figure{f}}).Markdown(nil, nil), "| ours |  | m | – |  | ≤ 1 | not measured: ours: no section |")
	f = turned(t, Claim{Of: "ours", To: "b", Metric: "m", Least: 1}, fails("b", one))
	assert.Contains(t, (&Report{Figures: []*Figure{f}}).Markdown(nil, nil), "not measured: ours was not timed")
	f = turned(t, Claim{Of: "ours", To: "c", Metric: "m", Least: 1}, fails("b", one))
	assert.NotContains(t, (&Report{Figures: []*Figure{f}}).Markdown(nil, nil), "not measured", "neither is in this figure")
}
