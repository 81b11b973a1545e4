package proxy

import (
	"context"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/musiccore"
)

// begin reads the schema for the first time, and passes it to the cores. If proxies start together
// one of them raises closed, and the others read again what it has written. A table that could not be made
// ready, since a right is missing in its keyspace, say, keeps no other one's locks from clients: watch goes on with it.
func (s *schema) begin(ctx context.Context) error {
	for {
		self := s.heartbeat.knownSession()
		_, err := s.refresh(ctx)
		if err != nil && s.known.Load() != nil && ctx.Err() == nil && !readAgain(err) && !unanswered(err) {
			s.notRead(err)
			err = nil
		}
		if err == nil {
			s.tellCores(self)
		}
		if !readAgain(err) || !pause(ctx, laggardPoll) {
			return err
		}
	}
}

// watch calls refresh when the schema's version changes, while a table waits for other proxies, and
// every schemaReread, until ctx ends.
func (s *schema) watch(ctx context.Context) {
	unsettled := 1 // refreshes in a row after which a table still waited
	var failure failedReading
	for next := schemaPoll; pause(ctx, next); {
		next = schemaPoll
		asked := boottime()
		version, _, err := s.version(ctx)
		settled := err == nil && s.confirm(asked, version)
		if s.rules.grown.Swap(false) {
			s.unsure.Store(true)
		}
		again := s.unsure.Load() && s.heartbeat.knownSession() != musiccore.SessionID{}
		if err != nil || !again && (unsettled == 0 && settled || failure.waits(version, asked)) {
			continue
		}
		if again {
			failure = failedReading{}
		}
		s.unsure.Store(false)
		late, err := s.refresh(ctx)
		switch {
		case readAgain(err), err == nil && len(late) > 0:
			unsettled++
			s.tellLate(unsettled, late)
		case err == nil:
			unsettled = 0
		}
		if 0 < unsettled && unsettled <= laggardLooks {
			next = laggardPoll
		}
		if err == nil || readAgain(err) {
			failure = failedReading{}
		} else {
			s.notRead(err)
			failure.failed(version, boottime())
		}
	}
}

// tellLate logs for whom tables have waited through so many refreshes in a row that they may wait for ever: a
// client that is told that its table is becoming critical is sent to the log for that.
func (s *schema) tellLate(unsettled int, late []string) {
	if unsettled > laggardLooks && len(late) > 0 {
		s.lateLog.Warn().Strs("waits_for", late).Msg("a change of a table has not been followed everywhere: no lock is given on one that becomes critical (at most one such line a minute)")
	}
}

// confirm is isComplete for the answer to a question that was asked then, by BOOTTIME: until a while after
// that, where the replicas of the tables' lock rows are may be relied on, if the tables are of this version. That one of them is not
// ready does not matter.
func (s *schema) confirm(asked time.Duration, version gocql.UUID) bool {
	settled := s.isComplete(version)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readings.taken == version {
		s.critical.checked.Store(int64(asked))
	}
	return settled
}

// isComplete reports whether the last reading of the schema, whoever wanted it, was of this version, not
// long ago, and has left nothing to do. It blocks while the schema is being read.
func (s *schema) isComplete(version gocql.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.readings.complete
	return last.version == version && time.Since(last.at) < schemaReread
}

// notRead logs that the schema could not be read, or what it asks for not be made.
func (s *schema) notRead(err error) {
	s.heartbeat.noticeDrop(err)
	s.log.Warn().Err(err).Msg("the schema could not be followed")
}
