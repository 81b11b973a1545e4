package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/frontend"
	"music/musiccore"
)

// plainSettings stands in music.tables for a table that is critical no more.
const plainSettings = "plain"

// errRaced tells that another proxy was first to store something: the schema is to be read again.
var errRaced = errors.New("another proxy was first")

// errNoClock tells that closed cannot be raised while own and cluster clock differ.
var errNoClock = errors.New("own clock and the cluster's differ too much")

// barrier makes sure that every write which did not know that the table is critical lies below closed: it waits until each
// living proxy has followed the schema, then raises closed and stores the settings in one LWT (DESIGN.md 4, "Becoming critical
// is a barrier"). late names the proxies that it waits for.
func (s *schema) barrier(ctx context.Context, t *dataTable, version gocql.UUID) (late []string, err error) {
	closed, stored, err := s.readTable(ctx, t)
	if err != nil {
		return nil, err
	}
	settings, born := strings.CutSuffix(stored, bornMark)
	t.born = born && t.settings.Unlocked != frontend.Allow
	if !t.marked && t.made {
		return nil, t.takeStored(closed, settings)
	}
	if closed != 0 && settings == t.settings.String() && t.made {
		t.closed = closed
		return nil, s.markBorn(ctx, t, stored)
	}
	if late, err = s.life.lagging(ctx, version); err != nil || len(late) > 0 {
		return late, err
	}
	t.born = t.born || s.bornCritical(t)
	return nil, s.raise(ctx, t, stored)
}

// bornMark stands behind the settings in music.tables of a table that nobody has ever written without a lock.
const bornMark = ", born critical"

// stored is what stands in music.tables for a table.
func (t *dataTable) stored() string {
	if t.born {
		return t.settings.String() + bornMark
	}
	return t.settings.String()
}

// markBorn notes of a table that a client of this proxy is just making what the proxy that was first to store its settings did not know.
func (s *schema) markBorn(ctx context.Context, t *dataTable, stored string) error {
	if t.born || !s.bornCritical(t) {
		return nil
	}
	t.born = true
	applied, err := s.session.Query("UPDATE music.tables SET settings = ? WHERE id = ? IF settings = ?", t.stored(), gocql.UUID(t.id), stored).
		Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).MapScanCASContext(ctx, map[string]any{})
	if err != nil {
		return fmt.Errorf("store the settings of %s: %w", t, err)
	}
	t.born = applied
	return nil
}

// bornCritical tells whether it is certain that a table has been critical from its first moment on.
func (s *schema) bornCritical(t *dataTable) bool {
	return t.settings.Unlocked != frontend.Allow && (t.keyspace == musicKeyspace || s.born[t.String()])
}

// takeStored gives a table whose comment is lost the settings that it had.
func (t *dataTable) takeStored(closed musiccore.Stamp, settings string) error {
	t.closed = closed
	stored, _, err := frontend.ReadSettings("@critical(" + settings + ")")
	t.settings = stored
	if err != nil {
		return fmt.Errorf("settings of %s in music.tables: %w", t, err)
	}
	return nil
}

// readTable reads closed and settings, 0 and "" where there are none.
func (s *schema) readTable(ctx context.Context, t *dataTable) (musiccore.Stamp, string, error) {
	var closed int64
	var settings string
	err := s.session.Query("SELECT closed, settings FROM music.tables WHERE id = ?", gocql.UUID(t.id)).Consistency(gocql.Quorum).
		ScanContext(ctx, &closed, &settings)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return 0, "", fmt.Errorf("read music.tables of %s: %w", t, err)
	}
	return musiccore.Stamp(closed), settings, nil
}

// raise writes a new closed beside the settings, unless another proxy was first: then the next refresh sees what it wrote.
func (s *schema) raise(ctx context.Context, t *dataTable, old string) error {
	now := s.clock.now()
	if now.Clk == 0 {
		return errNoClock
	}
	t.closed = now.Clk
	query := s.session.Query("INSERT INTO music.tables (id, closed, settings) VALUES (?, ?, ?) IF NOT EXISTS",
		gocql.UUID(t.id), int64(t.closed), t.stored())
	if old != "" {
		query = s.session.Query("UPDATE music.tables SET closed = ?, settings = ? WHERE id = ? IF settings = ?",
			int64(t.closed), t.stored(), gocql.UUID(t.id), old)
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

// retire notes that a table is not critical any more: when it becomes so again, closed is raised anew.
func (s *schema) retire(ctx context.Context, t *dataTable) error {
	_, err := s.session.Query("UPDATE music.tables SET settings = ? WHERE id = ? IF settings = ?", plainSettings, gocql.UUID(t.id), t.stored()).
		Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).MapScanCASContext(ctx, map[string]any{})
	if err != nil {
		return fmt.Errorf("retire %s: %w", t, err)
	}
	return nil
}
