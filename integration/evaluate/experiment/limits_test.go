package experiment

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"music/integration/evaluate/section"
)

// heeding is memory whose puts end with their context, as those of every system do.
type heeding struct{ memory }

func (m *heeding) Enter(_ context.Context, key string) (section.Held, error) {
	return &heedingCell{cell{&m.memory, key}}, nil
}

// heedingCell is a key of heeding.
type heedingCell struct{ cell }

func (c *heedingCell) Put(ctx context.Context, v []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.cell.Put(ctx, v)
}

// The longest sections of a figure come to an end at the pace of the slowest system that was measured.
func TestLongSectionsAreCounted(t *testing.T) {
	for name, slowest := range map[string]struct {
		put  time.Duration
		turn func(*Run) turnFunc
	}{
		"fig6a": {270 * time.Millisecond, func(r *Run) turnFunc { return r.batchTurn(MSCP, batch{"", 1000, 10, true}, puts(1000, 10)) }},
		"fig7":  {350 * time.Millisecond, func(r *Run) turnFunc { return r.updatesTurn(MSCP, batch{"", 1000, 10, true}) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &heeding{memory{takes: slowest.put, values: map[string][]byte{}}}
			r := &Run{Settings: Settings{Span: 3 * time.Second, Workers: 16}, fleets: map[string]*Fleet{MSCP: fleetOf(m)}}
			_, err := slowest.turn(r)(t.Context(), "k")
			require.NoError(t, err, name)
		})
	}
}
