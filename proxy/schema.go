package proxy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"

	"music/frontend"
	"music/frontend/catalog"
	"music/musiccore"
)

const (
	schemaPoll   = time.Second            // between two looks at the schema's version
	schemaReread = 30 * time.Second       // the schema is read again even if its version stands still
	laggardPoll  = 100 * time.Millisecond // between two looks at who has followed, while a client waits

	homeLimit = 2 * time.Second // how long the home node may take to tell its schema's version

	answerPoll  = 5 * time.Millisecond   // between two looks at what is on its way to Cassandra …
	answerLimit = 500 * time.Millisecond // … for so long; then with the next look at the schema
)

// schema keeps the clients' view of the tables in step with the cluster's schema, and makes the companion of each critical table
// (docs/design.md 4).
type schema struct {
	session  *gocql.Session
	tables   *catalog.Tables
	clock    *clock
	life     *life
	home     func() string                     // host id of the home node; "" while it is not known
	release  string                            // of Cassandra
	locality *locality                         // where this proxy stands
	lease    time.Duration                     // of clients, where a table says nothing
	byName   func(keyspace, table string) bool // tells that a table is critical whatever its comment says
	patience time.Duration                     // how long a client's schema change may wait for other proxies
	log      zerolog.Logger
	tell     func(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) // to every core; nil until there are some

	mu     sync.Mutex                // one refresh at a time
	node   string                    // host id of the node that this refresh reads
	flight func() (left func() bool) // what clients have on its way to Cassandra: see frontend.Server.Outstanding; nil before there are any
	left   func() bool               // of what was on its way when a table was closed to plain writes; nil where none of it is
	byID   atomic.Pointer[map[[16]byte]*dataTable]
	seen   gocql.UUID // version that this refresh reads
	shown  catchUp
	unsure atomic.Bool                // what was read before is not relied on: see doubt
	known  atomic.Pointer[gocql.UUID] // the version that tables are of; nil before the first
	fresh  freshness
}

// newSchema knows no table until the first refresh.
func newSchema(s *gocql.Session, l *life, tables *catalog.Tables, byName func(keyspace, table string) bool, log zerolog.Logger) *schema {
	sc := &schema{
		session: s, tables: tables, clock: l.clock, life: l, lease: l.options.ClientLease, patience: l.options.SessionLease, log: log,
		byName: byName, shown: newCatchUp(),
	}
	sc.byID.Store(&map[[16]byte]*dataTable{})
	l.doubt = sc.doubt
	return sc
}

// table finds a critical table by its id, or nil.
func (s *schema) table(id [16]byte) *dataTable { return (*s.byID.Load())[id] }

// begin reads the schema for the first time. Of proxies that start together one raises closed; the others read what it has raised.
func (s *schema) begin(ctx context.Context) error {
	for {
		_, err := s.refresh(ctx)
		if !readAgain(err) || !pause(ctx, laggardPoll) {
			return err
		}
	}
}

// watch refreshes whenever the schema's version moves, while a table still waits for other proxies, and every schemaReread,
// until ctx ends.
func (s *schema) watch(ctx context.Context) {
	var seen gocql.UUID
	var read time.Time
	settled := false
	for pause(ctx, schemaPoll) {
		version, _, err := s.version(ctx)
		if err != nil || settled && !s.unsure.Load() && version == seen && time.Since(read) < schemaReread {
			continue
		}
		s.unsure.Store(false)
		late, err := s.refresh(ctx)
		if err != nil {
			s.life.sayGone(err)
			s.unsure.Store(true)
			s.log.Warn().Err(err).Msg("the schema could not be read")
			continue
		}
		seen, read, settled = version, time.Now(), len(late) == 0
	}
}

// version is the schema's version at the home node, or where that does not answer, at another one; node is its host id.
func (s *schema) version(ctx context.Context) (v gocql.UUID, node string, err error) {
	if node = s.home(); node != "" {
		limited, cancel := context.WithTimeout(ctx, homeLimit)
		defer cancel()
		if v, node, err = s.versionAt(limited, node); err == nil {
			return v, node, nil
		}
	}
	return s.versionAt(ctx, "")
}

// versionAt asks one node, or any.
func (s *schema) versionAt(ctx context.Context, node string) (v gocql.UUID, at string, err error) {
	iter := s.session.Query("SELECT schema_version FROM system.local").Consistency(gocql.One).SetHostID(node).IterContext(ctx)
	if host := iter.Host(); host != nil {
		at = host.HostID()
	}
	iter.Scan(&v)
	return v, at, iter.Close()
}

// ask asks the node that this refresh reads: each node knows the schema by itself, and one may be ahead of the other.
func (s *schema) ask(cql string, values ...any) *gocql.Query {
	return s.session.Query(cql, values...).Consistency(gocql.One).SetHostID(s.node)
}

// follow is told of a client's schema change before the client is. It returns when the change holds at every living proxy, or
// with a warning that names who lags; and with what else whoever makes a critical table should know.
func (s *schema) follow(change frontend.SchemaChange) (warnings []string) {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	late, err := s.followed(ctx, change)
	name := s.tables.Of(change.Keyspace, change.Name)
	switch critical := name.Critical(); {
	case err != nil:
		s.log.Warn().Err(err).Stringer("table", name).Msg("a schema change could not be followed")
		return []string{"MUSIC: the proxy could not follow this change yet: no lock is given on a new critical table until it has"}
	case len(late) > 0:
		return []string{"MUSIC: not followed yet by the proxies at " + strings.Join(late, ", ") + ": no lock is given on a new critical table until they have"}
	case critical == nil || change.Target != "TABLE":
		return nil
	case critical.Refused != "":
		return []string{fmt.Sprintf("%s is critical, but cannot be locked: %s", name, critical.Refused)}
	default:
		return append([]string{fmt.Sprintf("%s is critical: %s", name, critical.Settings)}, s.warnings(ctx, change.Keyspace)...)
	}
}

// followed refreshes until every living proxy has followed, or ctx ends: then late names those that have not.
func (s *schema) followed(ctx context.Context, change frontend.SchemaChange) (late []string, err error) {
	for ctx.Err() == nil {
		late, err = s.refresh(ctx)
		if err == nil && len(late) == 0 && !s.atHome() {
			err = errAway
		}
		if err == nil && len(late) == 0 && change.Change == string(primitive.SchemaChangeTypeDropped) {
			late, err = s.unaware(ctx)
		}
		if err == nil && len(late) == 0 || err != nil && !readAgain(err) {
			break
		}
		pause(ctx, laggardPoll)
	}
	return late, err
}

// unaware names the living proxies that have not read the version of the schema that the last refresh has read. To them a table that was
// dropped is still there, and would be open under its name if another one were made that is critical.
func (s *schema) unaware(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life.lagging(ctx, s.seen, false)
}

// readAgain tells whether the schema is to be read again at once: until it has been, a table that a client has just made critical is
// open to plain writes.
func readAgain(err error) bool {
	return errors.Is(err, errRaced) || errors.Is(err, errAway) || errors.Is(err, errChanged)
}

// errChanged tells that the schema has changed while it was read.
var errChanged = errors.New("the schema has changed meanwhile")

// errAway tells that the schema was read at another node than the home node, which alone is sure to know what it has just carried out.
var errAway = errors.New("the home node does not tell its schema")

// atHome tells whether the last refresh has read the schema of the home node.
func (s *schema) atHome() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node == s.home()
}

// refresh reads the schema, of one node and its version first, and publishes which tables are critical. late names living proxies that have not followed: a table that
// becomes critical waits for them.
func (s *schema) refresh(ctx context.Context) (late []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reading := s.shown.begin()
	version, node, err := s.version(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	s.node, s.seen = node, version
	found, names, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	before := *s.byID.Load()
	found, late = s.keep(ctx, before, found, version)
	byID := map[[16]byte]*dataTable{}
	for _, t := range found {
		byID[t.id] = t
		if old := before[t.id]; old != nil && old != t && old.companionID == t.companionID {
			t.counted.Store(old.counted.Load())
		}
	}
	s.byID.Store(&byID)
	s.forget(ctx, before, byID)
	defer s.known.Store(&version) // when all that it makes critical has been shown
	for _, t := range found {
		s.bury(before[t.id], t)
		if old := before[t.id]; old != nil && old.settings.Strict != t.settings.Strict {
			s.turn(t)
		}
		s.show(t, "it is becoming critical: try again")
	}
	s.tables.Read(names) // when those that are critical are known to be
	s.shown.end(reading)
	if s.answered(ctx) {
		s.life.applied(ctx, version)
	}
	var faults []error
	for _, t := range found {
		tableLate, err := s.settle(ctx, before[t.id], t, version)
		late = append(late, tableLate...)
		faults = append(faults, err)
	}
	if s.known.Load() == nil {
		s.tellAtStart(ctx, found)
	}
	if s.left != nil && len(late) == 0 {
		late = []string{thisOne}
	}
	return late, errors.Join(faults...)
}

// serving is told of the server of clients before it serves any.
func (s *schema) serving(server *frontend.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flight = server.Outstanding
}

// answered tells whether Cassandra has answered what was on its way to it when a table was closed to plain writes. It waits a little.
// Until then this proxy has not followed: such a write gets its stamp from Cassandra where the driver gives none, which would lie
// above closed where it stands in a queue for long.
func (s *schema) answered(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	for s.left != nil && s.left() {
		if !pause(ctx, answerPoll) {
			return false
		}
	}
	s.left = nil
	return true
}

// forget publishes that tables are critical no more, and ends their terms.
func (s *schema) forget(ctx context.Context, before, now map[[16]byte]*dataTable) {
	for id, t := range before {
		if now[id] != nil {
			continue
		}
		if !remade(t, now) {
			s.tables.Set(t.keyspace, t.name, nil)
		}
		s.event(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Dropped(now, id) })
		if err := s.retire(ctx, t); err != nil {
			s.log.Warn().Err(err).Stringer("table", t).Msg("it could not be noted that a table is not critical any more")
		}
		s.log.Info().Stringer("table", t).Msg("table is not critical any more")
	}
}

// remade tells whether a critical table has the name of t, which is gone: the name is never open between the two.
func remade(t *dataTable, now map[[16]byte]*dataTable) bool {
	for _, other := range now {
		if other.String() == t.String() {
			return true
		}
	}
	return false
}

// bury ends the terms of a table whose lock rows are gone: nobody sees them any more, so another proxy may give the lock as soon as
// this one is said to have followed.
func (s *schema) bury(before, t *dataTable) {
	if before == nil || !before.made || before.companionID == t.companionID {
		return
	}
	s.event(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Dropped(now, t.id) })
	s.log.Warn().Stringer("table", t).Str("lock_table", t.companion()).
		Msg("its lock table was dropped while it is critical: all of its locks have ended, and it gets a new one")
}

// turn tells the cores that how a table's operations are told may change: until it is settled they are checked, and nobody forces. Every
// proxy has done so when a table is settled anew, since it has followed then.
func (s *schema) turn(t *dataTable) {
	s.event(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.ModeChanging(now, t.id) })
}

// doubt makes the next look at the schema a whole one, and nothing that could have changed unseen is relied on until then: this proxy's session has
// ended, and while it was dead nobody waited for it to follow.
func (s *schema) doubt() {
	for _, t := range *s.byID.Load() {
		s.turn(t)
	}
	s.unsure.Store(true)
}

func (s *schema) event(event func(*musiccore.Core, musiccore.Now) musiccore.Effects) {
	if s.tell != nil {
		s.tell(event)
	}
}

// introduce tells the cores what they must know of each table that was read before there were any: an operation with another
// proxy's reference may come before any LOCK does.
func (s *schema) introduce() {
	for id, t := range *s.byID.Load() {
		s.countFrom(t)
		s.event(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Closed(now, id, t.closed) })
		if t.closed == 0 { // not settled
			s.turn(t)
			continue
		}
		s.event(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
			return c.Strict(now, id, t.settings.Strict)
		})
	}
}

// show publishes a table that is not published in this form yet: to plain writes it is critical at once, to LOCK only when it
// is settled.
func (s *schema) show(t *dataTable, refused string) {
	critical := s.tables.Of(t.keyspace, t.name).Critical()
	if critical != nil && critical.ID == t.id && critical.Settings == t.settings && t.made {
		return
	}
	shown := t.shown()
	s.publishAs(t, shown, refused)
	if shown.Unlocked == catalog.Allow || critical != nil && critical.Unlocked != catalog.Allow {
		return
	}
	if s.flight != nil {
		s.left = s.flight()
	}
	if critical != nil && t.made {
		// Until closed is known, no LWT says of a lock row that nothing was written beside its lock.
		s.event(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
			return c.Closed(now, t.id, musiccore.Closing(now, 0))
		})
	}
}

func (s *schema) publish(t *dataTable, refused string) { s.publishAs(t, t.settings, refused) }

func (s *schema) publishAs(t *dataTable, settings catalog.Settings, refused string) {
	lease := settings.Lease
	if lease == 0 {
		lease = s.lease
	}
	passing := refused != ""
	if t.refused != "" {
		refused, passing = t.refused, false
	}
	s.tables.Set(t.keyspace, t.name, &catalog.Critical{
		ID: t.id, Key: t.key, Primary: t.primary, Columns: t.all, Static: t.static, Closed: t.closed, MaxLease: lease,
		Mortal: t.mortal, Settings: settings, Marked: t.marked, Made: t.made, Generation: t.companionID, Refused: refused, Passing: passing,
	})
}

// settle gives a critical table its locks: it raises closed where that is due, makes the companion, and tells the cores what has
// changed.
func (s *schema) settle(ctx context.Context, before, t *dataTable, version gocql.UUID) (late []string, err error) {
	if t.ignored != "" && (before == nil || before.ignored != t.ignored) {
		s.log.Warn().Stringer("table", t).Msg(t.ignored)
	}
	if t.refused != "" {
		s.publish(t, t.refused)
		return nil, nil
	}
	late, err = s.barrier(ctx, t, version)
	if err != nil || len(late) > 0 {
		return late, err
	}
	if !t.made {
		if err := s.session.Query(t.companionDDL()).ExecContext(ctx); err != nil {
			return nil, fmt.Errorf("make the lock table of %s: %w", t, err)
		}
		if err := s.readCompanionID(ctx, t); err != nil {
			return nil, err
		}
		t.made = true
	}
	if err := s.count(ctx, t); err != nil {
		return nil, err
	}
	s.event(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		return c.Strict(now, t.id, t.settings.Strict)
	})
	if before == nil || before.closed != t.closed {
		s.event(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Closed(now, t.id, t.closed) })
		if s.known.Load() != nil { // at start all are told at once
			s.log.Info().Stringer("table", t).Stringer("settings", t.settings).Strs("warnings", s.warnings(ctx, t.keyspace)).Msg("table is critical")
		}
	} else if before.columns != t.columns {
		s.event(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Altered(now, t.id) })
	}
	s.publish(t, "")
	return nil, nil
}
