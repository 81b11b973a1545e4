package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

// catchUpEvery is the shortest time between two readings of the schema for clients' writes.
const catchUpEvery = 20 * time.Millisecond

// readings counts the readings of the schema, so that clients that need one at the same time share
// it.
type readings struct {
	turn  chan struct{} // a mutex for reading
	looks chan struct{} // see look
	last  time.Time     // when the last reading ended; guarded by turn
	begun atomic.Uint64
	ended atomic.Uint64 // number of the last reading that was published

	complete completeReading // the last one if it has left nothing to do, else zero; guarded by schema.mu, as is taken
	taken    gocql.UUID      // the version of the last one, whose tables are published; zero if it has failed, or earlier tables were kept
}

// completeReading is a reading of the schema after which nothing was left to do.
type completeReading struct {
	version gocql.UUID // read before the tables, which may be later
	at      time.Time
}

// newReadings returns a count without any reading.
func newReadings() readings {
	return readings{turn: make(chan struct{}, 1), looks: make(chan struct{}, looksAtOnce)}
}

// looksAtOnce is for how many statements of clients a part of the schema is read at a time. It is read on the
// proxy's own connections, on which the session's beats go, too, and a client may have thousands on its way.
const looksAtOnce = 16

// look blocks until a part of the schema may be read for a statement, and reports whether it may. Then release
// must be called.
func (u *readings) look(ctx context.Context) (release func(), ok bool) {
	select {
	case u.looks <- struct{}{}:
		return func() { <-u.looks }, true
	case <-ctx.Done():
		return nil, false
	}
}

// begin returns the number of a reading that begins.
func (u *readings) begin() uint64 { return u.begun.Add(1) }

// end notes that the result of a reading has been published. Readings must end in order.
func (u *readings) end(reading uint64) { u.ended.Store(reading) }

// longestName is more bytes than the name of a keyspace or a table may have in any release of Cassandra.
const longestName = 256

// catchUp reads the schema for a client's write on a table that is not in it, if Cassandra has that table.
// It blocks until a reading that began after the call has been published, for at most homeLimit.
func (s *schema) catchUp(table [2]string) {
	ctx, cancel := context.WithTimeout(context.Background(), homeLimit)
	defer cancel()
	if s.isMissing(ctx, table) {
		return
	}
	before := s.readings.begun.Load()
	select {
	case s.readings.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	ended := make(chan struct{})
	go func() { // it may wait for a reading that takes longer
		defer close(ended)
		defer func() { <-s.readings.turn }()
		s.readSince(ctx, before)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// isMissing reports whether Cassandra answers that it has no such table, also no virtual one. Any client may write to
// one that is not there, again and again, and this is two rows. What is created at this moment is not lost: a write on a
// table that the proxy does not know is not forwarded in any case.
func (s *schema) isMissing(ctx context.Context, table [2]string) bool {
	if max(len(table[0]), len(table[1])) > longestName || !utf8.ValidString(table[0]) || !utf8.ValidString(table[1]) {
		return true // Cassandra would not even look for it
	}
	release, ok := s.readings.look(ctx)
	if !ok {
		return true
	}
	defer release()
	at := s.at(s.home())
	return at.lacks(ctx, "system_schema", table) && at.lacks(ctx, "system_virtual_schema", table)
}

// lacks reports whether the node answers that a keyspace of its schema does not list a table.
func (r *schemaReader) lacks(ctx context.Context, schema string, table [2]string) bool {
	iter := r.ask("SELECT table_name FROM "+schema+".tables WHERE keyspace_name = ? AND table_name = ?", table[0], table[1]).IterContext(ctx)
	rows := iter.NumRows()
	return iter.Close() == nil && rows == 0
}

// readSince reads the schema unless a reading has been published that began after so many.
func (s *schema) readSince(ctx context.Context, before uint64) {
	if s.readings.ended.Load() > before || !pause(ctx, time.Until(s.readings.last.Add(catchUpEvery))) {
		return
	}
	if _, err := s.refresh(ctx); err != nil {
		s.log.Debug().Err(err).Msg("the schema was read for a table that was not in it")
	}
	s.readings.last = time.Now()
}

// versionCheck is the result of the last check of the schema's version.
type versionCheck struct {
	mu      sync.Mutex
	at      time.Time
	current bool
}

// isCurrent reports whether the published tables are those of Cassandra's present schema. It asks
// Cassandra at most once per laggardPoll, and blocks for at most homeLimit.
func (s *schema) isCurrent() bool {
	f := &s.currency
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) < laggardPoll {
		return f.current
	}
	ctx, cancel := context.WithTimeout(context.Background(), homeLimit)
	defer cancel()
	version, _, err := s.version(ctx)
	known := s.known.Load()
	f.at, f.current = time.Now(), err == nil && known != nil && version == *known
	return f.current
}
