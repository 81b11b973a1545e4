package proxy

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend"
	"music/musiccore"
	"music/proxy/peer"
)

// A beat takes its number from one session and is written for the same one, also where another
// session takes its place in between.
func TestABeatIsWrittenForTheSessionThatNumberedIt(t *testing.T) {
	n, l := beating(t)
	told := clusterClock(time.Now, &message.VoidResult{})
	first := l.self.Load()
	n.says(func(a asked) message.Message {
		if a.verb() == "SELECT" && l.self.Load() == first {
			l.rejoin()
		}
		return told(a)
	})
	require.NoError(t, l.beat(t.Context()))
	require.NotSame(t, first, l.self.Load())
	beats := written(n.take())
	require.Len(t, beats, 1)
	id := first.ID()
	assert.Equal(t, id[:], beats[0].set["session"])
	assert.False(t, l.self.Load().Valid(l.clock.now()), "the new one has not beaten yet")
	assert.True(t, first.Valid(l.clock.now()))
}

// Two processes with one session, as a cloned machine has them: the first that sees a beat of the
// other gives up, writes nothing any more, and the other one goes on.
func TestTwoProcessesWithOneSession(t *testing.T) {
	n, one := beating(t)
	n.says(clusterClock(time.Now, &message.VoidResult{}))
	two := newHeartbeat(n.session, new(clock), musiccore.Defaults(), sessionConfig{address: "there:1", references: new(references)}, zerolog.Nop())
	two.self.Store(musiccore.NewSession(one.self.Load().ID(), musiccore.Defaults()))
	require.NoError(t, one.beat(t.Context()))
	n.take()
	require.ErrorIs(t, two.beat(t.Context()), musiccore.ErrForeignBeat)
	assert.Empty(t, written(n.take()))
	assert.True(t, two.self.Load().Dead())
	require.NoError(t, one.beat(t.Context()))
	assert.True(t, one.self.Load().Valid(one.clock.now()))
}

// Where every clock of the machine stood still, the cluster's has gone on: the session ends at the
// next look, before another beat makes it valid again.
func TestASessionWhoseClocksAllStoodStill(t *testing.T) {
	var stood atomic.Int64
	atCluster := func() time.Time { return time.Now().Add(time.Duration(stood.Load())) }
	lease := musiccore.Defaults().SessionLease
	for name, check := range map[string]func(*heartbeat) error{
		"a beat": func(l *heartbeat) error { return l.beat(t.Context()) },
		"a look": func(l *heartbeat) error { return l.look(t.Context()) },
	} {
		stood.Store(0)
		n, l := beating(t)
		n.says(clusterClock(atCluster, &message.VoidResult{}))
		require.NoError(t, l.beat(t.Context()))
		stood.Store(int64(lease / 2))
		require.NoError(t, l.look(t.Context()))
		assert.Less(t, l.self.Load().Left(l.clock.now()), lease/2+time.Second, "%s: what they stood still is taken off", name)
		stood.Store(int64(lease))
		n.take()
		require.NoError(t, check(l))
		assert.True(t, l.self.Load().Dead(), name)
		assert.Empty(t, written(n.take()), name)
	}
}

// The clocks stand still while a beat is under way: its acknowledgement makes nothing valid.
func TestClocksThatStandStillDuringABeat(t *testing.T) {
	n, l := beating(t)
	var stood time.Duration
	told := clusterClock(func() time.Time { return time.Now().Add(stood) }, &message.VoidResult{})
	n.says(func(a asked) message.Message {
		if a.verb() == "INSERT" {
			stood += 11 * time.Second
		}
		return told(a)
	})
	require.NoError(t, l.beat(t.Context()))
	assert.True(t, l.self.Load().Dead())
}

// A lease holds four tries of a beat, each for itself: one that times out ends nothing.
func TestALeaseHoldsSeveralTries(t *testing.T) {
	for _, lease := range []time.Duration{time.Second, 10 * time.Second, 5 * time.Minute} {
		o := musiccore.Defaults()
		o.SessionLease = lease
		l := &heartbeat{options: o}
		self := l.rejoin()
		start := both(time.Hour)
		n, _ := self.Beat(start)
		self.Acked(start, start, n)
		var at []time.Duration
		for since := time.Duration(0); since < lease; since += lease / leasePulses {
			now := both(time.Hour + since)
			now.Wall = musiccore.Stamp(since.Microseconds())
			if l.due(now) {
				at = append(at, since*12/lease)
			}
		}
		assert.Equal(t, []time.Duration{4, 6, 8, 10}, at, "in twelfths of %v", lease)
	}
}

// Rows of sessions that have been dead for an hour are deleted for ever, and no others: not one
// that may live by its own lease.
func TestLongDeadSessionsAreDeleted(t *testing.T) {
	self, dead, ended, late, longLease := gocql.UUID{1}, gocql.UUID{2}, gocql.UUID{3}, gocql.UUID{4}, gocql.UUID{5}
	var gone []gocql.UUID
	s := &sessions{
		dead:   musiccore.Defaults().DeadAfter,
		remove: func(_ context.Context, id gocql.UUID) error { gone = append(gone, id); return nil },
		seen: map[gocql.UUID]seenSession{
			self:      {before: both(2 * time.Hour)},
			dead:      {beat: 7, before: both(time.Hour)},
			ended:     {beat: musiccore.EndedBeat, before: both(time.Hour)},
			late:      {beat: 7, before: both(time.Hour - 1)},
			longLease: {beat: 7, lease: 10 * time.Minute, before: both(time.Hour)},
		},
	}
	require.NoError(t, s.reap(t.Context(), self))
	assert.ElementsMatch(t, []gocql.UUID{dead, ended}, gone)
	s.remove = func(context.Context, gocql.UUID) error { return errors.New("no quorum") }
	assert.Error(t, s.reap(t.Context(), self))
}

// A session is judged by the lease that it says it has, where that is the longer one: until then it
// may forward plain writes, so that tables which become critical wait for it, and it has its locks.
func TestASessionIsDeadByItsOwnLease(t *testing.T) {
	dead, long := musiccore.Defaults().DeadAfter, gocql.UUID{1}
	for stood, lives := range map[time.Duration]bool{dead(0): true, dead(time.Minute) - 1: true, dead(time.Minute): false} {
		s := &sessions{dead: dead, seen: map[gocql.UUID]seenSession{long: {beat: 7, lease: time.Minute, before: both(stood)}}}
		_, alive := s.alive(long)
		assert.Equal(t, lives, alive, stood)
		assert.Equal(t, lives, len(s.living(musiccore.SessionID{})) == 1, stood)
		assert.Equal(t, lives, len(s.lagging(musiccore.SessionID{}, gocql.UUID{9})) == 1, stood)
		assert.Equal(t, lives, len(s.ruledOtherwise(musiccore.SessionID{}, "other")) == 1, stood)
	}
}

// A session that was deleted stays so: its row's tombstone lies above every beat of it, and above
// that of its end.
func TestADeletedSessionStaysDeleted(t *testing.T) {
	n := startCQLNode(t, nil)
	n.saysAlways(&message.VoidResult{})
	id := gocql.UUID{9}
	require.NoError(t, removeSession(t.Context(), n.session, id))
	all := n.take()
	require.Len(t, all, 1)
	assert.Equal(t, "DELETE", all[0].verb())
	assert.EqualValues(t, musiccore.EndedBeat, all[0].stamp)
	assert.Equal(t, primitive.ConsistencyLevelQuorum, all[0].level)
	assert.Equal(t, id[:], all[0].where["session"])
}

// A proxy whose setting critical is another has not followed, for a table that is critical by that
// setting alone.
func TestProxiesWithOtherRulesHaveNotFollowed(t *testing.T) {
	version := gocql.UUID{9}
	other, same := gocql.UUID{2}, gocql.UUID{3}
	l, ours := new(heartbeat), appliedSchema{digest: version, rules: `"bank"."*"`}
	l.rejoin()
	l.others.dead = musiccore.Defaults().DeadAfter
	l.others.read = func(context.Context, []gocql.UUID) (map[gocql.UUID]seenSession, error) {
		return map[gocql.UUID]seenSession{other: {schema: version, addr: "other"}, same: {schema: version, rules: ours.rules, addr: "same"}}, nil
	}
	late, err := l.lagging(t.Context(), ours, true)
	require.NoError(t, err)
	assert.Equal(t, []string{"other (its setting critical is another)"}, late)
	late, err = l.lagging(t.Context(), ours, false)
	require.NoError(t, err)
	assert.Empty(t, late)
}

// Numbers that are no settings, and on which safety rests at all proxies of a cluster alike: who
// changes one raises peer.Version by two, so that proxies with different ones refuse to start beside
// each other.
func TestNumbersOfTheVersion(t *testing.T) {
	o := musiccore.Defaults()
	assert.Equal(t, 4, peer.Version)
	assert.Equal(t, musiccore.Stamp(1<<20), o.Window, "windows would overlap")
	assert.Equal(t, 0.01, o.Drift)
	assert.Equal(t, 500*time.Millisecond, o.Margin)
	assert.Equal(t, 10*time.Second, musiccore.ClockGap, "closed would not lie above all bases")
	assert.Equal(t, time.Second, maxClockLead)
}

// Who drops keyspace music past the proxies is told what that means: at once, and not with every
// beat.
func TestDroppedKeyspaceIsSaid(t *testing.T) {
	n, _ := beating(t)
	for text, want := range map[string]int{"keyspace music does not exist": 1, "table sessions does not exist": 1, "no such thing": 0} {
		n.saysAlways(&message.Invalid{ErrorMessage: text})
		var log bytes.Buffer
		l := newHeartbeat(n.session, new(clock), musiccore.Defaults(), sessionConfig{references: new(references)}, zerolog.New(&log))
		for range 3 {
			l.try(t.Context(), true, "")
		}
		assert.Equal(t, want, strings.Count(log.String(), "was dropped: no lock is given"), "%s: %s", text, &log)
		assert.Equal(t, want == 1, l.config.references.Stale(), "%s: whose references are known now, it has to read again", text)
	}
}

// Once keyspace music is there again the beat reads its secret, and what other proxies give is known here; not before.
func TestSecretIsReadAgainWithABeat(t *testing.T) {
	n, l := beating(t)
	r, secret := l.config.references, bytes.Repeat([]byte{7}, secretSize)
	r.use([]byte("the one before"))
	r.stale.Store(true)
	k := keyOf("x")
	given := frontend.NewReferences(secret).Show([16]byte{1}, k, 5)
	chosen, clock := gocql.MustRandomUUID(), clusterClock(time.Now, &message.VoidResult{})
	n.saysAlways(&message.Invalid{ErrorMessage: "table secrets does not exist"})
	l.try(t.Context(), true, "")
	assert.True(t, r.Stale())
	n.says(func(a asked) message.Message {
		switch {
		case strings.Contains(a.text, "SELECT chosen"):
			return rowOf("chosen", chosen[:])
		case strings.Contains(a.text, "SELECT value"):
			return rowOf("value", secret)
		}
		return clock(a)
	})
	_, ok := r.Read([16]byte{1}, k, given)
	assert.False(t, ok)
	l.try(t.Context(), true, "")
	ref, ok := r.Read([16]byte{1}, k, given)
	assert.True(t, ok)
	assert.EqualValues(t, 5, ref)
	assert.False(t, r.Stale())
}

// What is read of the schema tells, too, that keyspace music is another one, or gone: a proxy that has just made it may give references
// long before the next beat here.
func TestSchemaTellsOfAnotherSecret(t *testing.T) {
	_, l := beating(t)
	s := &schema{heartbeat: l}
	one, other := gocql.MustRandomUUID(), gocql.MustRandomUUID()
	s.note(schemaContents{secrets: one}) // at the start
	s.known.Store(&gocql.UUID{})
	for _, c := range []struct {
		id    gocql.UUID
		stale bool
	}{{one, false}, {other, true}, {other, false}, {gocql.UUID{}, true}, {one, true}} {
		l.config.references.stale.Store(false)
		s.note(schemaContents{secrets: c.id})
		assert.Equal(t, c.stale, l.config.references.Stale(), c)
	}
}
