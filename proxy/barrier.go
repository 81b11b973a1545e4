package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"

	"music/frontend/catalog"
	"music/musiccore"
)

// plainSettings is the value in music.tables for a table that is no longer critical.
const plainSettings = "plain"

// errRaced means that another proxy has stored something first: the schema must be read again.
var errRaced = errors.New("another proxy was first")

// thisOne is this proxy's name among those that have not followed.
const thisOne = "this address (it still waits for earlier answers)"

// errNoClock means that closed cannot be raised while the clocks of this proxy and of the cluster
// differ.
var errNoClock = errors.New("the clocks of this proxy and of the cluster differ too much")

// barrier ensures that every write that was sent as a plain one before the table was critical has a
// stamp below closed: when each living proxy has followed the schema it raises closed and stores
// the settings in one LWT, and looks again which proxies there are (docs/design.md 4, "Becoming
// critical is a barrier"). It does not wait: late names the proxies that have not followed yet, after
// which barrier must be called again.
func (s *schema) barrier(ctx context.Context, t *dataTable, version gocql.UUID) (late []string, err error) {
	known := t.stored
	if known.err != nil {
		return nil, known.err
	}
	if !t.Marked && t.Made {
		t.Closed = known.closed
		return nil, nil
	}
	if known.closed != 0 && known.text == t.Settings.String() && t.Made {
		t.Closed = known.closed
		return nil, nil
	}
	if s.behind() {
		return []string{thisOne}, nil
	}
	if known.text != "" && known.text != plainSettings && known.text != t.Settings.String() && !s.agreed(ctx, version) {
		return []string{disagreeing}, nil // the settings may be older ones, from a node that is behind
	}
	if late, err = s.heartbeat.lagging(ctx, s.applied, t.named); err != nil || len(late) > 0 {
		return late, err
	}
	if err = s.raise(ctx, t, known.text); err != nil {
		return nil, err
	}
	// A proxy whose first beat came after that look may have read music.tables before the raise, at a node
	// that is behind, and forward plain writes for as long: above closed, in the end.
	if late, err = s.heartbeat.lagging(ctx, s.applied, t.named); err != nil || len(late) > 0 {
		t.stored = storedTable{closed: t.Closed, text: t.Settings.String(), unlocked: t.Settings.Unlocked}
		t.Closed = 0 // it is not settled
	}
	return late, err
}

// closing returns the value to raise closed to: ahead of every allowed clock by which plain writes or
// epochs may have been stamped (docs/protocol.md 2.3, D). A table that was critical from its CREATE on
// has neither before it has lock rows. With unlocked=allow closed must not be ahead, since plain
// writes would then be hidden by older writes under a lock. Where the table had lock rows that are
// gone, lived, that comes second: nothing but the stamps keeps what is under way of those locks below
// the next ones, and their epochs may be ahead by a closed that another proxy's clock has chosen.
func (t *dataTable) closing(now musiccore.Now, lived bool) musiccore.Stamp {
	switch {
	case lived:
		now.Clk += musiccore.Stamp(musiccore.ClockGap.Microseconds())
	case t.Settings.Unlocked == catalog.Allow, t.born && !t.Made:
		return max(now.Clk, t.stored.closed+1)
	}
	return musiccore.Closing(now, t.stored.closed)
}

// lived reports whether a table without lock rows may have had some: then a generation of its name
// began after its CREATE. The one of an older table of its name began before. It returns errChanged if
// another proxy has made the lock table meanwhile.
func (s *schema) lived(ctx context.Context, t *dataTable) (bool, error) {
	if t.Made || t.stored.closed == 0 {
		return false, nil
	}
	_, began, err := s.lastCounted(ctx, t)
	if err != nil || began == 0 || began <= t.created()-2*musiccore.ClockGap.Microseconds() {
		return false, err
	}
	switch err = s.readCompanionID(ctx, t); {
	case err == nil:
		return false, fmt.Errorf("%w: %s has its lock table", errChanged, t)
	case errors.Is(err, errChanged): // it is not there
		return true, nil
	}
	return false, err
}

// created returns when a node carried out the CREATE of the table, in microseconds, which its id tells
// unless somebody has chosen that: then it is 0.
func (t *dataTable) created() int64 {
	id := uuid.UUID(t.ID)
	if id.Version() != 1 {
		return 0
	}
	sec, nsec := id.Time().UnixTime()
	return time.Unix(sec, nsec).UnixMicro()
}

// raise stores a new closed with the settings, where both are still those that were read. It returns
// errRaced if another proxy has stored some first, which the next refresh reads. The settings alone
// would not do: they may be those that are there already, and earlier ones may come back while an
// LWT is under way.
func (s *schema) raise(ctx context.Context, t *dataTable, old string) error {
	lived, err := s.lived(ctx, t)
	if err != nil {
		return err
	}
	if err := s.heartbeat.look(ctx); err != nil { // the clocks may have stood still since the last look
		return fmt.Errorf("raise closed of %s: %w", t, err)
	}
	now := s.heartbeat.clock.now()
	if now.Clk == 0 {
		return errNoClock
	}
	closed := t.closing(now, lived)
	query := s.session.Query("INSERT INTO music.tables (id, closed, settings) VALUES (?, ?, ?) IF NOT EXISTS",
		gocql.UUID(t.ID), int64(closed), t.Settings.String())
	if old != "" {
		query = s.session.Query("UPDATE music.tables SET closed = ?, settings = ? WHERE id = ? IF settings = ? AND closed = ?",
			int64(closed), t.Settings.String(), gocql.UUID(t.ID), old, int64(t.stored.closed))
	}
	applied, err := cas(ctx, query, map[string]any{})
	if err != nil {
		return fmt.Errorf("raise closed of %s: %w", t, err)
	}
	if !applied {
		return fmt.Errorf("raise closed of %s: %w", t, errRaced)
	}
	t.Closed = closed
	return nil
}

// retire stores that a table is no longer critical, so that closed is raised again if it becomes
// critical again. An LWT that comes late finds another closed then, and changes nothing.
func (s *schema) retire(ctx context.Context, t *dataTable) error {
	_, err := cas(ctx, s.session.Query("UPDATE music.tables SET settings = ? WHERE id = ? IF settings = ? AND closed = ?",
		plainSettings, gocql.UUID(t.ID), t.Settings.String(), int64(cmp.Or(t.Closed, t.stored.closed))), map[string]any{})
	if err != nil {
		return fmt.Errorf("retire %s: %w", t, err)
	}
	return nil
}
