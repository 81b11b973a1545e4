package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/google/uuid"

	"music/frontend"
	"music/musiccore"
)

// firstReferences is how many references a new generation may give. Each time they are used up
// their number is doubled, so that this happens seldom.
const firstReferences = 1 << 16

var (
	// errNoGeneration means that the first reference of the table's generation is not known yet.
	errNoGeneration = errors.New("the first reference of the table is not known yet")
	// errGenerationOver means that the companion has been dropped and created again.
	errGenerationOver = errors.New("the lock table was dropped and created again")
	// errNotSureLast means that another companion of a table's name is counted, and this one may be the earlier.
	errNotSureLast = errors.New("another lock table of this name is counted, which may be the last one")
	// errUsedUp means that a table has no reference left.
	errUsedUp = errors.New("all references of the table are used up")
)

// generation is the life of one companion, from its creation to its end. The row of a data table's
// name in music.generations stays when the table is dropped, so that the references of its next
// generation are above all of this one, which clients may still have. It is safe for concurrent
// use.
type generation struct {
	keyspace, table string
	companion       uuid.UUID // id of the companion
	first           musiccore.LockRef

	last    atomic.Int64 // the highest reference that any proxy may give, as far as this one knows; it only rises
	raising sync.Mutex
}

// generation reads the generation of a table's companion, or begins it. It returns errRaced if
// another proxy was first, and errNotSureLast.
func (s *schema) generation(ctx context.Context, t *dataTable, sure func() bool) (*generation, error) {
	g := &generation{keyspace: t.keyspace, table: t.name, companion: t.Generation, first: 1}
	var companion gocql.UUID
	var first, last int64
	err := s.session.Query("SELECT companion, first, last FROM music.generations WHERE keyspace_name = ? AND table_name = ?", t.keyspace, t.name).
		Consistency(gocql.Quorum).ScanContext(ctx, &companion, &first, &last)
	var begin *gocql.Query
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		begin = s.session.Query("INSERT INTO music.generations (keyspace_name, table_name, companion, first, last) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS",
			t.keyspace, t.name, gocql.UUID(g.companion), int64(g.first), g.upTo(firstReferences))
	case err != nil:
		return nil, fmt.Errorf("read music.generations of %s: %w", t, err)
	case uuid.UUID(companion) == g.companion:
		g.first = musiccore.LockRef(first)
		g.last.Store(last)
		return g, nil
	case !sure():
		return nil, fmt.Errorf("%w: %s", errNotSureLast, t)
	default:
		g.first = musiccore.LockRef(last) + 1
		begin = s.session.Query("UPDATE music.generations SET companion = ?, first = ?, last = ? WHERE keyspace_name = ? AND table_name = ? IF companion = ? AND last = ?",
			gocql.UUID(g.companion), int64(g.first), g.upTo(firstReferences), t.keyspace, t.name, companion, last)
	}
	if g.first > frontend.MaxRef {
		return nil, fmt.Errorf("%w: %s", errUsedUp, t)
	}
	applied, err := cas(ctx, begin, map[string]any{})
	switch {
	case err != nil:
		return nil, fmt.Errorf("begin a generation of %s: %w", t, err)
	case !applied:
		return nil, fmt.Errorf("begin a generation of %s: %w", t, errRaced)
	}
	g.last.Store(g.upTo(firstReferences))
	s.log.Info().Stringer("table", t).Int64("first", int64(g.first)).Msg("generation of references begins")
	return g, nil
}

// upTo returns the last of n references.
func (g *generation) upTo(n int64) int64 { return min(int64(g.first)+n-1, int64(frontend.MaxRef)) }

// admit returns nil if an LWT may be sent: the references that it gives are of this generation. If
// there are not enough of them it raises last before, for which it blocks.
func (g *generation) admit(ctx context.Context, s *gocql.Session, swap musiccore.Swap) error {
	if !swap.Set.Q {
		return nil
	}
	guard := swap.Set.Row.Guard
	switch {
	case g == nil:
		return errNoGeneration
	case swap.If.What == musiccore.IfAbsent && swap.Set.Row.Head < g.first:
		return errGenerationOver
	case int64(guard) <= g.last.Load():
		return nil
	case guard > frontend.MaxRef:
		return errUsedUp
	}
	g.raising.Lock()
	defer g.raising.Unlock()
	for last := g.last.Load(); last < int64(guard); last = g.last.Load() {
		if err := g.raise(ctx, s, last); err != nil {
			return fmt.Errorf("raise the last reference of %s.%s: %w", g.keyspace, g.table, err)
		}
	}
	return nil
}

// raise doubles the number of references in music.generations, or takes over the number that
// another proxy has stored. If what this one has stored is lost, since keyspace music was dropped or an older one
// brought back, it is stored again: the references up to last may have been given.
func (g *generation) raise(ctx context.Context, s *gocql.Session, last int64) error {
	next := g.upTo(2 * (last - int64(g.first) + 1))
	applied, now, err := g.swapLast(ctx, s, last, next)
	companion, _ := now["companion"].(gocql.UUID)
	raised, _ := now["last"].(int64)
	switch {
	case err != nil || applied:
	case companion == gocql.UUID{}:
		applied, err = cas(ctx, s.Query("INSERT INTO music.generations (keyspace_name, table_name, companion, first, last) VALUES (?, ?, ?, ?, ?) IF NOT EXISTS",
			g.keyspace, g.table, gocql.UUID(g.companion), int64(g.first), next), map[string]any{})
	case uuid.UUID(companion) != g.companion:
		return errGenerationOver
	case raised > last:
		applied, next = true, raised
	default:
		applied, _, err = g.swapLast(ctx, s, raised, next)
	}
	switch {
	case err != nil:
		return err
	case !applied:
		return errRaced
	}
	g.last.Store(next)
	return nil
}

// swapLast replaces the last reference in music.generations by the next one; now is what was there if that was another.
func (g *generation) swapLast(ctx context.Context, s *gocql.Session, last, next int64) (applied bool, now map[string]any, err error) {
	now = map[string]any{}
	applied, err = cas(ctx, s.Query("UPDATE music.generations SET last = ? WHERE keyspace_name = ? AND table_name = ? IF companion = ? AND last = ?",
		next, g.keyspace, g.table, gocql.UUID(g.companion), last), now)
	return applied, now, err
}

// makeCompanion creates the companion of a table that has none at the node that was read. late
// names what must be waited for first.
func (s *schema) makeCompanion(ctx context.Context, t *dataTable, version gocql.UUID) (late []string, err error) {
	last, late, err := s.lastCompanion(ctx, t, version)
	if err != nil || len(late) > 0 {
		return late, err
	}
	if err := s.session.Query(t.companionDDL(last)).ExecContext(ctx); err != nil {
		return nil, fmt.Errorf("create the lock table of %s: %w", t, err)
	}
	if err := s.readCompanionID(ctx, t); err != nil {
		return nil, err
	}
	t.Made = true
	return nil, nil
}

// lastCompanion returns the id of the last companion of a table of this name in music.generations;
// zero if there was none. All nodes must agree that this companion is gone: else another proxy may
// have just created it, and a second one would hide its lock rows.
func (r *schemaReader) lastCompanion(ctx context.Context, t *dataTable, version gocql.UUID) (last uuid.UUID, late []string, err error) {
	last, _, err = r.lastCounted(ctx, t)
	if last != uuid.Nil && !r.agreed(ctx, version) {
		return uuid.Nil, []string{disagreeing}, nil
	}
	return last, nil, err
}

// lastCounted returns the id of the last companion of a table of this name in music.generations, and
// when its generation began; zero if there was none.
func (r *schemaReader) lastCounted(ctx context.Context, t *dataTable) (last uuid.UUID, began int64, err error) {
	err = r.session.Query("SELECT companion, WRITETIME(companion) FROM music.generations WHERE keyspace_name = ? AND table_name = ?", t.keyspace, t.name).
		Consistency(gocql.Quorum).ScanContext(ctx, (*gocql.UUID)(&last), &began)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return uuid.Nil, 0, fmt.Errorf("read music.generations of %s: %w", t, err)
	}
	return last, began, nil
}

// readCompanionID reads the id of the companion, which the first proxy to create it has chosen.
func (r *schemaReader) readCompanionID(ctx context.Context, t *dataTable) error {
	var id gocql.UUID
	err := r.ask("SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?", t.keyspace, t.companion()).ScanContext(ctx, &id)
	if errors.Is(err, gocql.ErrNotFound) {
		err = errChanged
	}
	if err != nil {
		return fmt.Errorf("read the id of the lock table of %s: %w", t, err)
	}
	t.Generation = uuid.UUID(id)
	return nil
}

// count finds or begins the generation of a table, so that it can give references. sure is asked whether
// the companion is the last of its name. late names what must be waited for first.
func (s *schema) count(ctx context.Context, t *dataTable, sure func() bool) (late []string, err error) {
	if t.counted.Load() != nil {
		return nil, nil
	}
	g, err := s.generation(ctx, t, sure)
	switch {
	case errors.Is(err, errNotSureLast):
		return []string{disagreeing}, nil
	case err != nil:
		return nil, err
	}
	t.counted.Store(g)
	s.countFrom(t)
	return nil, nil
}

// countFrom tells the cores the first reference of a table's generation.
func (s *schema) countFrom(t *dataTable) {
	if g := t.counted.Load(); g != nil {
		s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
			return c.FirstReference(now, t.ID, g.first)
		})
	}
}
