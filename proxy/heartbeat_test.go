package proxy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// clusterClock answers looks at a session's own row and the cluster's clock, and what is written
// as said.
func clusterClock(at func() time.Time, rest message.Message) func(asked) message.Message {
	var mu sync.Mutex
	stored := map[string][]byte{} // the beat of each session
	return func(a asked) message.Message {
		mu.Lock()
		defer mu.Unlock()
		now, beat := bigint(at().UnixMilli()), stored[string(a.where["session"])]
		switch {
		case a.verb() != "SELECT":
			if _, written := rest.(*message.VoidResult); written {
				stored[string(a.set["session"])] = a.set["beat"]
			}
			return rest
		case strings.Contains(a.text, "system.local"):
			return rowOf("now", now)
		case beat == nil:
			return noRow("beat", "now")
		}
		return rowOf("beat", beat, "now", now)
	}
}

// beating returns a heartbeat before a node that is played.
func beating(t *testing.T) (*cqlNode, *heartbeat) {
	t.Helper()
	n := startCQLNode(t, nil)
	return n, newHeartbeat(n.session, new(clock), musiccore.Defaults(), sessionConfig{address: "here:1", references: new(references)}, zerolog.Nop())
}

// written are the statements that write.
func written(all []asked) (writes []asked) {
	for _, a := range all {
		if a.verb() != "SELECT" {
			writes = append(writes, a)
		}
	}
	return writes
}

// A session that ends because a shard stands still is not dead at once for the others: until an operation
// from before would be over, another proxy may tell the success of what it was lent.
func TestResigningWaitsForWhatIsLent(t *testing.T) {
	n, l := beating(t)
	l.options.OpTimeout = 300 * time.Millisecond
	n.says(clusterClock(time.Now, &message.VoidResult{}))
	require.NoError(t, l.beat(t.Context()))
	n.take()
	self, began, resigned := l.self.Load(), time.Now(), make(chan struct{})
	go func() {
		defer close(resigned)
		l.resign(t.Context())
	}()
	require.Eventually(t, self.Dead, 20*time.Second, time.Millisecond, "it lends nothing any more")
	<-resigned
	ends := written(n.take())
	require.Len(t, ends, 1)
	assert.Equal(t, bigint(musiccore.EndedBeat), ends[0].set["beat"])
	assert.GreaterOrEqual(t, time.Since(began), l.options.OpTimeout)

	n, l = beating(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	l.resign(over)
	assert.Empty(t, written(n.take()), "the proxy ends before that")
}

// A beat is written at QUORUM, stamped by its own number and never by a clock: one that steps back
// would hide the beats after it.
func TestBeatsAreStampedByTheirNumbers(t *testing.T) {
	n, l := beating(t)
	n.says(clusterClock(time.Now, &message.VoidResult{}))
	id := l.id()
	for last := int64(0); last>>24 < 3; {
		require.NoError(t, l.beat(t.Context()))
		beats := written(n.take())
		require.Len(t, beats, 1)
		assert.Equal(t, primitive.ConsistencyLevelQuorum, beats[0].level)
		number := beats[0].stamp
		assert.Equal(t, last>>24+1, number>>24, "they count up; what is below tells whose they are")
		last = number
		assert.Equal(t, bigint(number), beats[0].set["beat"])
		assert.Equal(t, bigint(10_000), beats[0].set["lease"], "others wait for as long as this session says")
		assert.Equal(t, id[:], beats[0].set["session"])
		assert.Equal(t, "here:1", string(beats[0].set["addr"]))
	}
	l.end(t.Context())
	ended := written(n.take())
	require.Len(t, ended, 1)
	assert.True(t, l.self.Load().Dead())
	assert.Equal(t, primitive.ConsistencyLevelQuorum, ended[0].level)
	assert.EqualValues(t, musiccore.EndedBeat, ended[0].stamp, "above all beats that may still come in")
	assert.Equal(t, bigint(musiccore.EndedBeat), ended[0].set["beat"])
}

// The lease counts from before the beat was sent, on either clock, however late its acknowledgement
// comes.
func TestLeaseCountsFromBeforeTheBeat(t *testing.T) {
	lease := musiccore.Defaults().SessionLease
	for name, after := range map[string]func(musiccore.Now, time.Duration) musiccore.Now{
		"BOOTTIME":  func(n musiccore.Now, d time.Duration) musiccore.Now { n.Boot += d; return n },
		"raw clock": func(n musiccore.Now, d time.Duration) musiccore.Now { n.Raw += d; return n },
		"wall clock": func(n musiccore.Now, d time.Duration) musiccore.Now {
			n.Wall += musiccore.Stamp(d.Microseconds())
			return n
		},
	} {
		n, l := beating(t)
		var sent musiccore.Now
		told := clusterClock(time.Now, &message.VoidResult{})
		n.says(func(a asked) message.Message {
			if a.verb() == "INSERT" {
				sent = l.clock.now()
				for l.clock.now().Wall == sent.Wall { // the acknowledgement comes later by all clocks
					continue
				}
			}
			return told(a)
		})
		self, before := l.self.Load(), l.clock.now()
		assert.False(t, self.Valid(before), "before the first beat there is no lease")
		require.NoError(t, l.beat(t.Context()))
		assert.True(t, self.Valid(after(before, lease-time.Microsecond)), name)
		assert.False(t, self.Valid(after(sent, lease)), name)
	}
}

// A beat of unknown outcome gives no lease, nor does one before which the cluster's clock could not
// be read.
func TestBeatThatIsNotAcknowledged(t *testing.T) {
	for name, failure := range failures() {
		n, l := beating(t)
		n.says(clusterClock(time.Now, failure))
		assert.Error(t, l.beat(t.Context()), name)
		assert.Len(t, written(n.take()), 1, name)
		assert.False(t, l.self.Load().Valid(l.clock.now()), name)
		if failure == nil {
			continue
		}
		n.saysAlways(failure)
		assert.Error(t, l.beat(t.Context()), name)
		assert.Empty(t, written(n.take()), "%s: without the cluster's clock there is no beat", name)
		assert.False(t, l.self.Load().Valid(l.clock.now()), name)
		over, end := context.WithCancel(t.Context())
		end()
		l.end(over)
		assert.True(t, l.self.Load().Dead(), "%s: it ends whether others hear of it or not", name)
	}
}

// A session that has ended writes no beat more.
func TestNoBeatOfAnEndedSession(t *testing.T) {
	n, l := beating(t)
	n.says(clusterClock(time.Now, &message.VoidResult{}))
	require.NoError(t, l.beat(t.Context()))
	l.self.Load().End()
	n.take()
	require.NoError(t, l.beat(t.Context()))
	assert.Empty(t, written(n.take()))
}

// watched are the life signs of one other session, as read says.
func watched(read func(ids []gocql.UUID) (map[gocql.UUID]seenSession, error)) *sessions {
	return &sessions{dead: func(time.Duration) time.Duration { return time.Hour }, read: func(_ context.Context, ids []gocql.UUID) (map[gocql.UUID]seenSession, error) { return read(ids) }}
}

// How long a beat has stood still is counted from the end of the first read that showed it to the
// start of the last: what happened while a read was under way counts for the session.
func TestABeatStandsStillBetweenReads(t *testing.T) {
	other := gocql.UUID{1}
	beat := int64(7)
	var within musiccore.Now
	s := watched(func([]gocql.UUID) (map[gocql.UUID]seenSession, error) {
		within = instant()
		return map[gocql.UUID]seenSession{other: {beat: beat}}, nil
	})
	look := func() (seenSession, musiccore.Now) {
		t.Helper()
		require.NoError(t, s.look(t.Context()))
		seen, ok := s.find(musiccore.SessionID(other))
		require.True(t, ok)
		return seen, within
	}
	first, firstRead := look()
	assert.GreaterOrEqual(t, first.since.Since(firstRead), time.Duration(0))
	assert.Equal(t, first.since, first.before, "it has not stood still at all")
	second, secondRead := look()
	assert.Equal(t, first.since, second.since)
	assert.GreaterOrEqual(t, secondRead.Since(second.before), time.Duration(0))
	assert.Positive(t, second.stood())
	beat++
	third, thirdRead := look()
	assert.GreaterOrEqual(t, third.since.Since(thirdRead), time.Duration(0), "it has moved")
	assert.Equal(t, third.since, third.before)
}

// A read of the sessions that fails says nothing of any of them; one of few says nothing of the
// others.
func TestSessionsThatCouldNotBeRead(t *testing.T) {
	one, two, gone := gocql.UUID{1}, gocql.UUID{2}, gocql.UUID{3}
	all := map[gocql.UUID]seenSession{one: {beat: 1, addr: "one"}, two: {beat: 1, addr: "two"}, gone: {beat: 1, addr: "gone"}}
	var err error
	s := watched(func(ids []gocql.UUID) (map[gocql.UUID]seenSession, error) {
		found := map[gocql.UUID]seenSession{}
		for id, seen := range all {
			if ids == nil || id == ids[0] {
				found[id] = seen
			}
		}
		return found, err
	})
	living := func() map[musiccore.SessionID]string { return s.living(musiccore.SessionID{}) }
	require.NoError(t, s.look(t.Context()))
	require.Len(t, living(), 3)
	err = errors.New("no quorum")
	delete(all, gone)
	require.ErrorIs(t, s.look(t.Context()), err)
	assert.Len(t, living(), 3)
	_, lookErr := (&heartbeat{others: sessions{read: s.read}}).lagging(t.Context(), appliedSchema{}, false)
	require.ErrorIs(t, lookErr, err, "who lags is not known then")
	err = nil
	require.NoError(t, s.lookAt(t.Context(), []gocql.UUID{one}))
	assert.Len(t, living(), 3)
	require.NoError(t, s.lookAt(t.Context(), []gocql.UUID{gone}))
	assert.Equal(t, map[musiccore.SessionID]string{musiccore.SessionID(one): "one", musiccore.SessionID(two): "two"}, living())
}

// A read that began before another one and ends after it says nothing that the other one knew better: a proxy that
// has come meanwhile is waited for.
func TestAnOldReadOfTheSessionsTakesNothingBack(t *testing.T) {
	one, two := gocql.UUID{1}, gocql.UUID{2}
	before := map[gocql.UUID]seenSession{one: {beat: 1, addr: "one"}}
	now := map[gocql.UUID]seenSession{one: {beat: 2, addr: "one", schema: gocql.UUID{9}}, two: {beat: 1, addr: "two"}}
	reading, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error)
	s := watched(func([]gocql.UUID) (map[gocql.UUID]seenSession, error) {
		close(reading)
		<-goOn
		return before, nil
	})
	go func() { ended <- s.look(t.Context()) }()
	<-reading
	s.read = func(context.Context, []gocql.UUID) (map[gocql.UUID]seenSession, error) { return now, nil }
	require.NoError(t, s.look(t.Context()))
	close(goOn)
	require.NoError(t, <-ended)
	assert.Equal(t, []string{"two"}, s.lagging(musiccore.SessionID{}, gocql.UUID{9}))
}

// The sessions are read at QUORUM, all or those that are asked for, and a read that breaks off is
// none.
func TestReadOfTheSessions(t *testing.T) {
	one, version := gocql.UUID{1}, gocql.UUID{9}
	n := startCQLNode(t, nil)
	n.saysAlways(rowOf("session", one[:], "beat", bigint(4), "schema_version", version[:], "addr", []byte("there:1"), "lease", bigint(30_000), "rules", []byte("r"), "version", []byte{0, 0, 0, 9}))
	for _, ids := range [][]gocql.UUID{nil, {one}} {
		found, err := readSessions(t.Context(), n.session, ids)
		require.NoError(t, err)
		assert.Equal(t, map[gocql.UUID]seenSession{one: {beat: 4, schema: version, addr: "there:1", lease: 30 * time.Second, rules: "r", spoken: 9}}, found)
		asked := n.take()
		require.Len(t, asked, 1)
		assert.Equal(t, primitive.ConsistencyLevelQuorum, asked[0].level)
		assert.Equal(t, ids != nil, asked[0].where["session"] != nil)
	}
	for name, failure := range failures() {
		n := startCQLNode(t, func(asked) message.Message { return failure })
		_, err := readSessions(t.Context(), n.session, nil)
		assert.Error(t, err, name)
	}
}
