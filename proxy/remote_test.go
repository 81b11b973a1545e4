package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend"
	"music/musiccore"
	"music/proxy/peer"
)

// docs/protocol.md 3.15, Remote: the owner's sequencer gives every stamp, whichever proxy the
// client is at.
func TestOperationsAtAnotherProxyBorrowTheirStamps(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	stamps := []musiccore.Stamp{a.put(k, ref), b.put(k, ref), a.put(k, ref), b.put(k, ref)}
	for i := 1; i < len(stamps); i++ {
		assert.Equal(t, stamps[i-1]+1, stamps[i])
	}
	get := b.begin(k, ref, musiccore.Get)
	require.NoError(t, get.Err)
	assert.Equal(t, a.life.id(), get.Ticket.Lender)
	assert.Positive(t, get.Ticket.Left)
	assert.Equal(t, musiccore.VerdictTell, b.verdict(get.Ticket, musiccore.OutcomeAcked))

	reads := a.cluster.rowReads(k)
	for range 5 {
		b.put(k, ref)
	}
	assert.Equal(t, reads, a.cluster.rowReads(k), "who has the reference is remembered")

	given := b.unlock(k, ref)
	require.NoError(t, given.Err)
	assert.Equal(t, musiccore.Grant{Applied: true, Ref: ref, State: musiccore.StateReleased}, given.Grant)
	for _, s := range []*station{a, b} {
		assert.ErrorIs(t, s.begin(k, ref, musiccore.Put).Err, musiccore.ErrLost)
	}
}

// Who has a reference of a long key is not remembered: those would take too much memory.
func TestLongKeysAtAnotherProxy(t *testing.T) {
	a, b := two(t)
	k := keyOf(strings.Repeat("x", ownerKeyBytes))
	ref := a.held(k)
	b.put(k, ref)
	b.put(k, ref)
	assert.Zero(t, b.of(k).owners.Len())
}

// Errors of the owner's core are the client's, whichever proxy it is at.
func TestErrorsOfAnotherProxy(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	waiting := a.queued(k)
	assert.ErrorIs(t, b.begin(k, waiting, musiccore.Put).Err, musiccore.ErrNotHeld)
	assert.ErrorIs(t, b.begin(k, waiting+1, musiccore.Put).Err, musiccore.ErrNotHeld)
	b.put(k, ref)
	asked := b.lock(k, musiccore.Request{Ref: waiting, NoWait: true})
	require.NoError(t, asked.Err)
	assert.Equal(t, musiccore.StateQueued, asked.Grant.State)
}

// LOCK … USING LOCK waits, asks and renews from anywhere.
func TestWaitingAtAnotherProxy(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	next := a.queued(k)
	granted := make(chan musiccore.Answer, 1)
	b.Lock(k, musiccore.Request{Ref: next, Wait: 20 * time.Second}, func(told musiccore.Answer) { granted <- told })
	renewed := b.lock(k, musiccore.Request{Ref: ref, Lease: 7 * time.Second})
	require.NoError(t, renewed.Err)
	assert.Equal(t, musiccore.StateHeld, renewed.Grant.State)
	assert.InDelta(t, 7*time.Second, renewed.Grant.Lease, float64(time.Second))
	a.unlock(k, ref)
	told := <-granted
	require.NoError(t, told.Err)
	assert.Equal(t, musiccore.StateHeld, told.Grant.State)
	b.put(k, next)
}

// A client that goes away loses its place in the queue, also where it waits at another proxy than
// its reference.
func TestWhoGoesAwayAtAnotherProxyLosesItsPlace(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	next := a.queued(k)
	told := make(chan musiccore.Answer, 1)
	_, gone := b.Lock(k, musiccore.Request{Ref: next, Wait: 20 * time.Second}, func(a musiccore.Answer) { told <- a })
	require.Eventually(t, func() bool { // it has got there: the place is attached to an operation of its own
		s := a.of(k)
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.waiting) == 1
	}, 20*time.Second, time.Millisecond)
	gone()
	require.Error(t, (<-told).Err, "done is called all the same")
	require.Eventually(t, func() bool { return len(a.listHere(k, 9)) == 1 }, 20*time.Second, time.Millisecond)
	a.unlock(k, ref)
	after := a.lock(k, musiccore.Request{})
	assert.Equal(t, musiccore.StateHeld, after.Grant.State)
	assert.Equal(t, next+1, after.Grant.Ref)
}

// What nobody waits for is not kept.
func TestAnOperationThatIsGivenUpIsForgotten(t *testing.T) {
	a, _ := two(t)
	k := keyOf("x")
	a.held(k)
	told := make(chan musiccore.Answer, 1)
	_, gone := a.Lock(k, musiccore.Request{Wait: 20 * time.Second}, func(a musiccore.Answer) { told <- a })
	gone()
	assert.ErrorIs(t, (<-told).Err, errGone)
	s := a.of(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	assert.Empty(t, s.waiting)
}

// No reply to end: nobody knows whether a put may be told. What Cassandra refused was not done,
// whoever has been told.
func TestEndWithoutReply(t *testing.T) {
	a, b := two(t, func(o *musiccore.Options) { o.Wait = 500 * time.Millisecond })
	k := keyOf("x")
	ref := a.held(k)
	put, refused, get := b.begin(k, ref, musiccore.Put), b.begin(k, ref, musiccore.Put), b.begin(k, ref, musiccore.Get)
	require.NoError(t, get.Err)
	a.stop()
	assert.Equal(t, musiccore.VerdictUncertain, b.verdict(put.Ticket, musiccore.OutcomeAcked))
	assert.Equal(t, musiccore.VerdictUncertain, b.verdict(get.Ticket, musiccore.OutcomeAcked))
	assert.Equal(t, musiccore.VerdictTell, b.verdict(refused.Ticket, musiccore.OutcomeRefused))
}

// A ticket not ended by its deadline is unsettled at its owner: what comes later is never
// acknowledged.
func TestLateEnd(t *testing.T) {
	a, b := two(t, func(o *musiccore.Options) { o.OpTimeout = 300 * time.Millisecond })
	k := keyOf("x")
	ref := a.held(k)
	late := b.begin(k, ref, musiccore.Put)
	require.NoError(t, late.Err)
	last := late.Ticket.Stamp
	require.Eventually(t, func() bool { // the owner settles before it goes on, which takes two stamps
		before := last
		last = a.put(k, ref)
		return last > before+1
	}, 5*time.Second, time.Millisecond)
	assert.Equal(t, musiccore.VerdictUncertain, b.verdict(late.Ticket, musiccore.OutcomeAcked))
}

// To end twice is to be told less, never more.
func TestEndTwice(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	put := b.begin(k, ref, musiccore.Put)
	assert.Equal(t, musiccore.VerdictTell, b.verdict(put.Ticket, musiccore.OutcomeAcked))
	assert.Equal(t, musiccore.VerdictUncertain, b.verdict(put.Ticket, musiccore.OutcomeAcked))
}

// Who is not there is named, and not waited for longer than a driver waits.
func TestOwnerThatDoesNotAnswer(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	b.put(k, ref)
	a.stop()
	for _, err := range []error{
		b.begin(k, ref, musiccore.Put).Err, b.unlock(k, ref).Err, b.lock(k, musiccore.Request{Ref: ref}).Err,
	} {
		require.ErrorIs(t, err, peer.ErrAway)
		assert.NotContains(t, err.Error(), "127.0.0.1", "clients learn no addresses")
	}
}

// Another session at the address of the one that was meant refuses: nothing is done under its name.
func TestAnotherSessionAtTheAddress(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	b.put(k, ref)
	a.life.rejoin()
	assert.ErrorIs(t, b.begin(k, ref, musiccore.Put).Err, peer.ErrAway)
}

// A proxy that shuts down lends no more, and takes back what it has lent.
func TestDrainingOwner(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	lent := b.begin(k, ref, musiccore.Put)
	require.NoError(t, lent.Err)
	a.server.Drain()
	assert.ErrorIs(t, b.begin(k, ref, musiccore.Put).Err, peer.ErrAway)
	assert.Equal(t, musiccore.VerdictTell, b.verdict(lent.Ticket, musiccore.OutcomeAcked))
}

// A session that has ended by itself is not waited for: its reference goes on where its client is.
func TestReferenceOfAnEndedSessionGoesOn(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	before := a.put(k, ref)
	b.put(k, ref)
	a.ended()
	a.stop()
	assert.Greater(t, b.put(k, ref), before+musiccore.Defaults().Window/2, "a window of its own")
	given := b.unlock(k, ref)
	require.NoError(t, given.Err)
	assert.Equal(t, musiccore.StateReleased, given.Grant.State)
}

// An answer of the session that had a reference may come when this proxy has taken that over, after a partition.
// Other proxies, which ask this one for it, are not sent back to that session.
func TestALateAnswerHidesNoReference(t *testing.T) {
	a, b := two(t)
	c := startStation(t, a.cluster)
	k := keyOf("x")
	ref := a.held(k)
	b.put(k, ref)
	a.ended()
	a.stop()
	b.put(k, ref) // taken over
	b.found(refKey{k, ref}, a.life.id(), nil)
	last := c.put(k, ref)
	b.found(refKey{k, ref}, a.life.id(), nil)
	assert.Greater(t, b.put(k, ref), last)
	b.found(refKey{k, ref}, a.life.id(), nil)
	assert.Equal(t, musiccore.StateHeld, c.lock(k, musiccore.Request{Ref: ref}).Grant.State)
	b.found(refKey{k, ref}, a.life.id(), nil)
	assert.Equal(t, musiccore.StateReleased, c.unlock(k, ref).Grant.State)
}

// FORCE through any proxy ends the lock where its holder is.
func TestForceIsCarriedOutByTheOwner(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	ref := a.held(k)
	next := a.queued(k)
	forced := answered(t, func(done func(musiccore.Answer)) { b.Force(k, frontend.Force{By: anna(), Reason: "stuck"}, done) })
	require.NoError(t, forced.Err)
	assert.Equal(t, ref, forced.Grant.Ref)
	assert.ErrorIs(t, a.begin(k, ref, musiccore.Put).Err, musiccore.ErrLost)
	a.lock(k, musiccore.Request{Ref: next, Wait: 20 * time.Second})
	b.put(k, next)
}

// A proxy lists a bounded number of locks, and says so.
func TestListIsBounded(t *testing.T) {
	a := startStation(t, newCluster())
	for i := range peer.MaxListed + 1 {
		require.Equal(t, musiccore.StateHeld, a.lock(keyOf(strconv.Itoa(i)), musiccore.Request{Lease: time.Hour}).Grant.State)
	}
	all, missing := a.List(musiccore.Key{})
	assert.Equal(t, peer.MaxListed, len(all)) // Len would print them all
	assert.Equal(t, []string{"only some of the locks of this proxy are shown: name a table or key"}, missing)
	all, missing = a.List(keyOf("7"))
	assert.Len(t, all, 1)
	assert.Empty(t, missing)
}

// LIST LOCKS shows the locks of all living proxies, and names the proxies that could not be asked.
func TestListOfAllProxies(t *testing.T) {
	a, b := two(t)
	x, y := keyOf("x"), keyOf("y")
	other := musiccore.Key{Table: [16]byte{1}, PK: "z"}
	a.held(x)
	b.held(y)
	a.held(other)
	all, missing := b.List(musiccore.Key{})
	assert.Empty(t, missing)
	assert.ElementsMatch(t, []musiccore.Key{x, y, other}, keysOf(all))
	all, _ = b.List(musiccore.Key{Table: x.Table})
	assert.ElementsMatch(t, []musiccore.Key{x, y}, keysOf(all))
	all, _ = b.List(x)
	require.Len(t, all, 1)
	assert.Equal(t, musiccore.StateHeld, all[0].State)

	self := a.life.id()
	a.cluster.say(self, 1, "")
	_, missing = b.List(musiccore.Key{})
	require.Len(t, missing, 1)
	assert.Contains(t, missing[0], "peer-listen is not set there")
	a.cluster.say(self, 1, a.address)
	a.stop()
	all, missing = b.List(musiccore.Key{})
	assert.ElementsMatch(t, []musiccore.Key{y}, keysOf(all))
	require.Len(t, missing, 1)
	assert.Contains(t, missing[0], a.address)
	a.ended()
	_, missing = b.List(musiccore.Key{})
	assert.Empty(t, missing, "nobody asks who has ended")
}

func keysOf(all []musiccore.Listing) []musiccore.Key {
	var keys []musiccore.Key
	for _, l := range all {
		keys = append(keys, l.Key)
	}
	return keys
}

// hintsSent returns how many hints a proxy has sent.
func hintsSent(t *testing.T, s *station) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == "music_peer_requests_total" && labels["asked"] == "hint" && labels["answered"] == "yes" {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// Who waits tells the owner so, and the releaser's word makes the next owner look at once, not at
// its next poll.
func TestHintsGetThere(t *testing.T) {
	c := newCluster()
	slow := func(o *musiccore.Options) { o.Wait = 20 * time.Second }
	a, b := startStation(t, c, slow), startStation(t, c, slow)
	k := keyOf("x")
	ref := a.held(k)
	granted := make(chan musiccore.Answer, 1)
	b.Lock(k, musiccore.Request{}, func(told musiccore.Answer) { granted <- told })
	require.Eventually(t, func() bool { l := b.listHere(k, 9); return len(l) == 1 && l[0].Ref == ref+1 }, 20*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return hintsSent(t, b) == 1 }, 20*time.Second, time.Millisecond) // from it the owner knows who comes next
	a.unlock(k, ref)
	told := <-granted
	require.NoError(t, told.Err)
	assert.Equal(t, musiccore.StateHeld, told.Grant.State)
	require.Eventually(t, func() bool { return hintsSent(t, a) > 0 }, 20*time.Second, time.Millisecond)
}

// FORCE by the word of another proxy ends the lock of the reference that it names, whenever it
// comes, and never the next one.
func TestForceNamesItsReference(t *testing.T) {
	a, b := two(t)
	k := keyOf("x")
	first := a.held(k)
	a.unlock(k, first)
	second := a.held(k)
	late, err := b.peers.Force(t.Context(), a.life.id(), k, first, frontend.Force{Reason: "late"})
	require.NoError(t, err)
	assert.False(t, late.Grant.Applied)
	a.put(k, second)
	told, err := b.peers.Force(t.Context(), a.life.id(), k, second, frontend.Force{Reason: "in time"})
	require.NoError(t, err)
	assert.True(t, told.Grant.Applied)
	assert.ErrorIs(t, a.begin(k, second, musiccore.Put).Err, musiccore.ErrLost)
	third := a.held(k)
	forced := answered(t, func(done func(musiccore.Answer)) { b.Force(k, frontend.Force{By: anna(), Reason: "stuck"}, done) })
	require.NoError(t, forced.Err)
	assert.Equal(t, third, forced.Grant.Ref)
}

// A core bears whatever another proxy may ask of it, and gives nothing away.
func TestNonsenseOfAnotherProxy(t *testing.T) {
	s := startStation(t, newCluster())
	for path, rest := range map[string]string{
		"/begin": `"ref":1,"kind":77`, "/end": `"ticket":{"Term":1,"Number":99},"outcome":1`, "/unlock": `"ref":-5`, "/hint": `"hints":[{},{"Kind":99}]`,
		"/lock": `"ref":9,"lock":{"Wait":-1,"Lease":-1}`, "/force": `"ref":-1`,
	} {
		body := fmt.Sprintf(`{"session":"%s",%s}`, uuid.UUID(s.life.id()), rest)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Music-Peer-Version", "3")
		w, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		told, err := io.ReadAll(w.Body)
		require.NoError(t, err)
		_ = w.Body.Close()
		assert.Equal(t, http.StatusOK, w.StatusCode, "%s: %s", path, told)
		assert.NotContains(t, string(told), fmt.Sprintf(`"verdict":%d`, musiccore.VerdictTell), path)
		assert.NotContains(t, string(told), `"ticket"`, path)
	}
	assert.Empty(t, s.listHere(musiccore.Key{}, 9), "nothing was given to anybody")
}
