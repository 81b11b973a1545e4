package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend"
	"music/frontend/catalog"
)

// follow implements frontend.Schema.DDL. It blocks until every living proxy has followed the
// change, for at most the session lease. It returns warnings: which proxies have not followed, and
// what the owner of a critical table should know.
func (s *schema) follow(change frontend.SchemaChange) (warnings []string) {
	ctx, cancel := context.WithTimeout(context.Background(), s.heartbeat.options.SessionLease)
	defer cancel()
	late, err := s.followed(ctx, change)
	table, critical := s.named(change)
	switch {
	case err != nil:
		s.log.Warn().Err(err).Str("table", change.Keyspace+"."+change.Name).Msg("a schema change could not be followed")
		return []string{"MUSIC: the proxy could not follow this change yet: no lock is given on a new critical table until it has; its log says why"}
	case len(late) > 0:
		return []string{"MUSIC: not followed yet by the proxies at " + strings.Join(late, ", ") + ": no lock is given on a new critical table until they have, and they read statements on a changed one by its former columns"}
	case critical == nil || change.Target != "TABLE":
		return nil
	case critical.Refused != "":
		return []string{fmt.Sprintf("%s is critical, but cannot be locked: %s", table, critical.Refused)}
	default:
		told := []string{fmt.Sprintf("%s is critical: %s", table, critical.Settings)}
		if !critical.Marked {
			told = append(told, fmt.Sprintf("%s stays critical without @critical in its comment, until its music_lock_… table is dropped", table))
		}
		if critical.Mortal {
			told = append(told, mortalRows)
		}
		return append(told, s.warnings(ctx, change.Keyspace)...)
	}
}

// followed calls followOnce until every living proxy has followed, or ctx ends. late names those that
// have not.
func (s *schema) followed(ctx context.Context, change frontend.SchemaChange) (late []string, err error) {
	for n := 0; ctx.Err() == nil; n++ {
		lateNow, errNow := s.followOnce(ctx, change)
		if errNow != nil && ctx.Err() != nil && n > 0 {
			break // that the time is over says nothing: who was late before still is
		}
		if late, err = lateNow, errNow; err == nil && len(late) == 0 || err != nil && !readAgain(err) {
			break
		}
		pause(ctx, laggardPoll)
	}
	return late, err
}

// followOnce reads the schema, and returns the living proxies that have not followed a change.
func (s *schema) followOnce(ctx context.Context, change frontend.SchemaChange) (late []string, err error) {
	late, err = s.refreshFor(ctx, concerned(change))
	if err == nil && len(late) == 0 && !s.atHome() {
		err = errAway
	}
	if err == nil && len(late) == 0 && s.forAll(change) {
		late, err = s.unaware(ctx)
	}
	return late, err
}

// concerned returns which tables a change may keep from being locked. Why others are not ready is no matter of who makes it, who
// would wait for that in vain.
func concerned(change frontend.SchemaChange) func(keyspace, table string) bool {
	return func(keyspace, table string) bool {
		return keyspace == change.Keyspace && (change.Target != "TABLE" || table == change.Name)
	}
}

// forAll reports whether every living proxy must have applied a change before it is answered, even
// if no lock waits for it. A proxy to which a dropped table still exists would take plain writes on
// a critical table that is created under its name. One that reads a critical table's statements by
// the former columns could lock another key than the one that is written, where key columns have
// exchanged their names, and acknowledge a write to a column that is hidden, since the column was
// dropped and is back.
func (s *schema) forAll(change frontend.SchemaChange) bool {
	switch primitive.SchemaChangeType(change.Change) {
	case primitive.SchemaChangeTypeDropped:
		return true
	case primitive.SchemaChangeTypeUpdated:
		_, critical := s.named(change)
		return critical != nil
	}
	return false
}

// named returns the table that a change names, and its state; both may be nil. It keeps nothing of a name,
// since DROP TABLE IF EXISTS may name anything.
func (s *schema) named(change frontend.SchemaChange) (table *catalog.Table, now *catalog.Critical) {
	if table = s.tables.Find(catalog.Key(change.Keyspace, change.Name)); table != nil {
		now = table.Critical()
	}
	return table, now
}

// unaware returns the names of the living proxies that have not applied the tables of the last
// refresh.
func (s *schema) unaware(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heartbeat.lagging(ctx, s.applied, false)
}

// readAgain reports whether the schema must be read again at once because of err.
func readAgain(err error) bool {
	return errors.Is(err, errRaced) || errors.Is(err, errAway) || errors.Is(err, errChanged)
}

// errChanged means that the schema has changed while it was read.
var errChanged = errors.New("the schema has changed meanwhile")

// errAway means that the schema was read at another node than the home node. Only the home node is
// sure to know the change that it has just carried out.
var errAway = errors.New("the home node does not answer about its schema")

// atHome reports whether the last refresh has read the schema of the home node.
func (s *schema) atHome() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node == s.home()
}
