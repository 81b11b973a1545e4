package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/rs/zerolog"

	"music/frontend/catalog"
	"music/musiccore"
)

const (
	schemaPoll   = 250 * time.Millisecond // between two reads of the schema's version
	schemaReread = 30 * time.Second       // the schema is read again after that, even if its version has not changed
	laggardPoll  = 100 * time.Millisecond // between two refreshes while a table waits for other proxies to follow …
	laggardLooks = 100                    // … for so many refreshes; after that every schemaPoll

	homeLimit = 2 * time.Second // how long the home node may take to answer

	answerPoll  = 5 * time.Millisecond   // between two checks of whether requests have been answered …
	answerLimit = 500 * time.Millisecond // … for that long; after that with the next refresh
)

// schema keeps the published tables in step with the cluster's schema, and creates the companion of
// each critical table (docs/design.md 4).
type schema struct {
	schemaReader
	tables    *catalog.Tables // as published to clients' connections
	critical  *criticalTables
	heartbeat *heartbeat
	cores     coreEvents
	log       zerolog.Logger
	lateLog   zerolog.Logger // sampled

	mu          sync.Mutex                // one refresh at a time
	outstanding func() (left func() bool) // what clients have on its way to Cassandra: see frontend.Server.Outstanding; nil before there are any
	owed        func() bool               // see owes; nil where nothing is owed
	applied     appliedSchema             // what was read last …
	secrets     gocql.UUID                // … and the id of music.secrets then
	readings    readings
	unsure      atomic.Bool                // what was read before is not relied on: see doubt
	known       atomic.Pointer[gocql.UUID] // the version that tables are of; nil before the first
	currency    versionCheck
}

// coreEvents hands an event to the core of every shard.
type coreEvents func(event func(*musiccore.Core, musiccore.Now) musiccore.Effects)

// newSchema knows no table until begin has read them.
func newSchema(r schemaReader, tables *catalog.Tables, critical *criticalTables, l *heartbeat, cores coreEvents) *schema {
	return &schema{
		schemaReader: r, tables: tables, critical: critical, heartbeat: l, cores: cores, log: l.log, readings: newReadings(),
		lateLog: l.log.Sample(&zerolog.BurstSampler{Burst: 1, Period: time.Minute}),
	}
}

// refresh reads the schema of one node, its version first, and publishes which tables are critical.
// late names the living proxies that have not followed, for which a table that is becoming critical
// must wait.
func (s *schema) refresh(ctx context.Context) (late []string, err error) {
	return s.refreshFor(ctx, func(string, string) bool { return true })
}

// refreshFor is refresh for who is concerned by some tables only: neither late nor the error is about making
// another one ready.
func (s *schema) refreshFor(ctx context.Context, concerns func(keyspace, table string) bool) (late []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reading, self := s.readings.begin(), s.heartbeat.knownSession()
	s.readings.complete, s.readings.taken = completeReading{}, gocql.UUID{}
	version, node, err := s.version(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the schema's version: %w", err)
	}
	s.node = node
	contents, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	s.note(contents)
	before := s.critical.all()
	if s.known.Load() == nil {
		if before, err = s.criticalBefore(ctx, contents.plain); err != nil {
			return nil, err
		}
	}
	found, late := s.keep(ctx, before, contents.critical, version)
	s.take(ctx, before, found)
	defer s.known.Store(&version) // after all its critical tables have been published
	s.tables.Read(contents.names) // after the critical ones have been published
	s.readings.end(reading)
	if len(late) == 0 {
		s.readings.taken = version
	}
	if s.answered(ctx) && len(late) == 0 { // what was kept may be locked elsewhere as soon as this proxy has followed
		s.heartbeat.applied(ctx, contents.applied)
	}
	var faults []error
	unsettled := len(late) > 0
	for _, t := range found {
		if t == before[t.ID] { // kept, since what was read of it is doubtful
			continue
		}
		tableLate, err := s.makeReady(ctx, before[t.ID], t, version, self)
		unsettled = unsettled || err != nil || len(tableLate) > 0
		if concerns(t.keyspace, t.name) {
			late, faults = append(late, tableLate...), append(faults, err)
		}
	}
	if s.known.Load() == nil {
		s.tellAtStart(ctx, found)
	}
	if s.behind() && len(late) == 0 {
		late, unsettled = []string{thisOne}, true
	}
	slices.Sort(late)
	late = slices.Compact(late) // several tables may wait for one
	if (self == musiccore.SessionID{}) {
		s.unsure.Store(true)
	}
	if !unsettled {
		s.readings.complete = completeReading{version, time.Now()}
	}
	return late, errors.Join(faults...)
}

// take publishes which tables are critical now, in the place of the earlier ones.
func (s *schema) take(ctx context.Context, before map[[16]byte]*dataTable, found []*dataTable) {
	byID := map[[16]byte]*dataTable{}
	for _, t := range found {
		byID[t.ID] = t
		if old := before[t.ID]; old != nil && old != t && old.Generation == t.Generation {
			t.counted.Store(old.counted.Load())
		}
	}
	s.critical.set(byID)
	s.forget(ctx, before, byID)
	for _, t := range found {
		if old := before[t.ID]; old != nil {
			s.changed(old, t)
		} else if t.hidden != 0 {
			s.altered(t)
		}
		s.show(t, "it is becoming critical: try again when every living proxy has followed, which takes a moment; where it stays so, the proxies' logs say why")
	}
}

// note keeps what was read. Where keyspace music was dropped or made anew, its secret is another
// one.
func (s *schema) note(contents schemaContents) {
	if s.known.Load() != nil && s.secrets != contents.secrets {
		s.heartbeat.config.references.stale.Store(true)
	}
	s.applied, s.secrets = contents.applied, contents.secrets
}

// forget publishes which tables are no longer critical, and ends their terms.
func (s *schema) forget(ctx context.Context, before, now map[[16]byte]*dataTable) {
	for id, t := range before {
		if now[id] != nil {
			continue
		}
		if !remade(t, now) {
			s.tables.Set(t.keyspace, t.name, nil)
		}
		s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Ordinary(now, id) })
		if err := s.retire(ctx, t); err != nil {
			s.log.Warn().Err(err).Stringer("table", t).Msg("it could not be stored that a table is no longer critical")
		}
		s.log.Info().Stringer("table", t).Msg("table is no longer critical")
	}
}

// remade reports whether another critical table now has the name of t: then the name must not be
// opened to plain writes in between.
func remade(t *dataTable, now map[[16]byte]*dataTable) bool {
	for _, other := range now {
		if other.String() == t.String() {
			return true
		}
	}
	return false
}

// changed tells the cores at once what concerns terms that are open, whether or not the table can be
// settled now: the next reading finds no difference any more.
func (s *schema) changed(before, t *dataTable) {
	s.endTerms(before, t)
	if before.Settings.Strict != t.Settings.Strict {
		s.modeChanging(t)
	}
	if before.definition != t.definition {
		s.altered(t)
	}
}

// altered tells the cores that the columns of a table have changed, or that one of them hides
// stamps.
func (s *schema) altered(t *dataTable) {
	s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Altered(now, t.ID, t.hidden) })
}

// endTerms ends the terms of a table whose lock rows are gone. No proxy can see these, so another
// one may give its locks as soon as this one has followed.
func (s *schema) endTerms(before, t *dataTable) {
	if !before.Made || before.Generation == t.Generation {
		return
	}
	s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Dropped(now, t.ID) })
	s.log.Warn().Stringer("table", t).Str("lock_table", t.companion()).
		Msg("its lock table was dropped while it is critical: all of its locks have ended, and it gets a new one")
}

// modeChanging tells the cores that a table may change between strict and not: until the table is
// settled operations are checked against the lock row, and FORCE is refused. When it is settled
// again every proxy has done so, since it has followed.
func (s *schema) modeChanging(t *dataTable) {
	s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.ModeChanging(now, t.ID) })
}

// rereadSchema has the whole schema read again, because this proxy's session has ended: until others know
// the next one, no other proxy waits for this one to follow. The cores know that, too.
func (s *schema) rereadSchema() { s.unsure.Store(true) }

// tellCores passes each table's state to the cores, also of those that are not settled: an
// operation with another proxy's reference may come before any LOCK. self is this proxy's session
// as it was before they were read.
func (s *schema) tellCores(self musiccore.SessionID) {
	for id, t := range s.critical.all() {
		s.countFrom(t)
		s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Closed(now, id, t.Closed) })
		if t.Closed == 0 { // not settled
			s.modeChanging(t)
			continue
		}
		s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
			return c.Strict(now, id, t.Settings.Strict, self)
		})
	}
}

// show publishes a table. From then on plain writes see it as critical; LOCK is refused until it is
// settled, unless it is published with these settings already: then only its columns may be others,
// by which statements must be read before this proxy tells that it has followed.
func (s *schema) show(t *dataTable, refused string) {
	critical := s.tables.Of(t.keyspace, t.name).Critical()
	otherKeys := critical != nil && !t.SameKeys(critical) // they have other names, or it was dropped and made anew
	if critical != nil && critical.ID == t.ID && critical.Settings == t.Settings && t.Made {
		if !t.SameColumns(critical) {
			c := t.Critical
			c.Closed, c.MaxLease, c.Refused, c.Passing = critical.Closed, critical.MaxLease, critical.Refused, critical.Passing
			s.tables.Set(t.keyspace, t.name, &c)
		}
		s.owes(false, otherKeys)
		return
	}
	shown := t.shown()
	s.publishAs(t, shown, refused)
	closes := shown.Unlocked != catalog.Allow && (critical == nil || critical.Unlocked == catalog.Allow)
	s.owes(closes, otherKeys)
	if !closes {
		return
	}
	if critical != nil && t.Made {
		// Until closed is known, no LWT may write that a key had no plain writes.
		s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
			return c.Closed(now, t.ID, musiccore.Closing(now, 0))
		})
	}
}

// publish publishes a table under its own settings. refused is as for publishAs.
func (s *schema) publish(t *dataTable, refused string) { s.publishAs(t, t.Settings, refused) }

// publishAs publishes a table under other settings than its own. refused tells why it cannot be
// locked for the moment, "" if it can. t.Refused, which is permanent, takes precedence.
func (s *schema) publishAs(t *dataTable, settings catalog.Settings, refused string) {
	c := t.Critical
	c.Settings = settings
	c.MaxLease = cmp.Or(settings.Lease, s.heartbeat.options.ClientLease)
	s.cores(func(core *musiccore.Core, now musiccore.Now) musiccore.Effects {
		return core.ClientLease(now, t.ID, c.MaxLease)
	})
	if c.Refused == "" {
		c.Refused, c.Passing = refused, refused != ""
	}
	s.tables.Set(t.keyspace, t.name, &c)
}

// makeReady makes a critical table ready for locks: it raises closed if needed, creates the companion,
// and tells the cores what has changed. late names what it must wait for; then it must be called
// again. self is this proxy's session as it was before the table was read.
func (s *schema) makeReady(ctx context.Context, before, t *dataTable, version gocql.UUID, self musiccore.SessionID) (late []string, err error) {
	if t.ignored != "" && (before == nil || before.ignored != t.ignored) {
		s.log.Warn().Stringer("table", t).Msg(t.ignored)
	}
	if t.Refused != "" && (before == nil || before.Refused != t.Refused) { // a change at a node has no client that could be told
		s.log.Warn().Stringer("table", t).Str("why", t.Refused).Msg("table is critical, but cannot be locked")
	}
	if t.Refused == "" || t.shown() != t.Settings { // what cannot be locked opens to plain writes like any other
		if late, err = s.barrier(ctx, t, version); err != nil || len(late) > 0 {
			return late, err
		}
	}
	raised := before == nil || before.Closed != t.Closed
	if raised && t.Closed != 0 { // at once, since the next reading finds no difference
		s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects { return c.Closed(now, t.ID, t.Closed) })
	}
	if t.Refused != "" {
		s.publish(t, "")
		return nil, nil
	}
	made := !t.Made
	if made {
		if late, err = s.makeCompanion(ctx, t, version); err != nil || len(late) > 0 {
			return late, err
		}
	}
	// A node that is behind may have a companion that is gone.
	if late, err = s.count(ctx, t, func() bool { return made || s.agreed(ctx, version) }); err != nil || len(late) > 0 {
		return late, err
	}
	s.cores(func(c *musiccore.Core, now musiccore.Now) musiccore.Effects {
		return c.Strict(now, t.ID, t.Settings.Strict, self)
	})
	if raised && s.known.Load() != nil { // at start tellAtStart logs all tables in one line
		s.log.Info().Stringer("table", t).Stringer("settings", t.Settings).Strs("warnings", s.warnings(ctx, t.keyspace)).Msg("table is critical")
	}
	s.publish(t, "")
	return nil, nil
}
