package proxy

import (
	"context"
	"errors"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend/catalog"
	"music/musiccore"
)

// plainSettings stands in music.tables for a table that is critical no more.
const plainSettings = "plain"

// errRaced tells that another proxy was first to store something: the schema is to be read again.
var errRaced = errors.New("another proxy was first")

// thisOne is how this proxy names itself among those that have not followed.
const thisOne = "this address (Cassandra owes it answers of before)"

// errNoClock tells that closed cannot be raised while own and cluster clock differ.
var errNoClock = errors.New("own clock and the cluster's differ too much")

// barrier makes sure that every write which did not know that the table is critical lies below
// closed: it waits until each living proxy has followed the schema, then raises closed and stores
// the settings in one LWT (docs/design.md 4, "Becoming critical is a barrier"). late names the
// proxies that it waits for.
func (s *schema) barrier(ctx context.Context, t *dataTable, version gocql.UUID) (late []string, err error) {
	known := t.stored
	if known.err != nil {
		return nil, known.err
	}
	if !t.Marked && t.Made {
		t.Closed = known.closed
		return nil, nil
	}
	if known.closed != 0 && known.text == t.storedText() && t.Made {
		t.Closed = known.closed
		return nil, nil
	}
	if s.owed != nil {
		return []string{thisOne}, nil
	}
	if t.Made && known.text != "" && known.text != plainSettings && !s.agreed(ctx, version) {
		return []string{disagreeing}, nil // older settings may be those of a node that is behind
	}
	if late, err = s.heartbeat.lagging(ctx, s.applied, t.named); err != nil || len(late) > 0 {
		return late, err
	}
	return nil, s.raise(ctx, t, known.text)
}

// closing returns what closed is raised to. A table without lock rows has no base that could be
// above it (docs/protocol.md 2.3, D); and where plain writes go on, a stamp ahead of the clock
// would hide them under what is written with a lock.
func (t *dataTable) closing(now musiccore.Now) musiccore.Stamp {
	if t.Made && t.Settings.Unlocked != catalog.Allow {
		return musiccore.Closing(now, t.stored.closed)
	}
	return max(now.Clk, t.stored.closed+1)
}

// raise writes a new closed beside the settings, unless another proxy was first: then the next
// refresh sees what it wrote.
func (s *schema) raise(ctx context.Context, t *dataTable, old string) error {
	if err := s.heartbeat.look(ctx); err != nil { // the clocks may have stood still since the last one
		return fmt.Errorf("raise closed of %s: %w", t, err)
	}
	now := s.heartbeat.clock.now()
	if now.Clk == 0 {
		return errNoClock
	}
	t.Closed = t.closing(now)
	query := s.session.Query("INSERT INTO music.tables (id, closed, settings) VALUES (?, ?, ?) IF NOT EXISTS",
		gocql.UUID(t.ID), int64(t.Closed), t.storedText())
	if old != "" {
		query = s.session.Query("UPDATE music.tables SET closed = ?, settings = ? WHERE id = ? IF settings = ?",
			int64(t.Closed), t.storedText(), gocql.UUID(t.ID), old)
	}
	applied, err := query.Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).MapScanCASContext(ctx, map[string]any{})
	if err != nil {
		return fmt.Errorf("raise closed of %s: %w", t, err)
	}
	if !applied {
		return fmt.Errorf("raise closed of %s: %w", t, errRaced)
	}
	return nil
}

// retire notes that a table is not critical any more: when it becomes so again, closed is raised
// anew.
func (s *schema) retire(ctx context.Context, t *dataTable) error {
	_, err := s.session.Query("UPDATE music.tables SET settings = ? WHERE id = ? IF settings = ?", plainSettings, gocql.UUID(t.ID), t.storedText()).
		Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).MapScanCASContext(ctx, map[string]any{})
	if err != nil {
		return fmt.Errorf("retire %s: %w", t, err)
	}
	return nil
}
