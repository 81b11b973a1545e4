package peer

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
	"music/musiccore"
)

// A proxy of another release is told apart from one that does not answer, and nothing of its reply
// is believed.
func TestAnotherVersionAnswers(t *testing.T) {
	a, b := two(t)
	b.tamper(tampered{response: func(w *http.Response) { w.Header.Set(headerVersion, "2") }})
	err := b.borrow(t, a)
	assert.ErrorIs(t, err, ErrAway)
	assert.ErrorContains(t, err, "another version")
}

// No more of a reply is read than its bound.
func TestReplyIsBounded(t *testing.T) {
	a, b := two(t)
	b.tamper(tampered{response: func(w *http.Response) { w.Body = readCloser{bytes.NewReader(make([]byte, maxReply+1))} }})
	_, err := b.client.ask(t.Context(), a.id, pathList, question{}, 20*time.Second)
	assert.ErrorIs(t, err, ErrAway)
}

// A proxy whose locks do not fit into a reply lists those that do.
func TestListOfLongKeys(t *testing.T) {
	a, b := two(t)
	a.core.long = 300
	all, more, err := b.client.List(t.Context(), a.id, musiccore.Key{})
	require.NoError(t, err)
	assert.True(t, more)
	assert.Greater(t, len(all), 10)
}

// Errors name no address, and say whether anything may have been carried out.
func TestErrorsOfTheClient(t *testing.T) {
	a, b := two(t)
	b.tamper(tampered{response: func(w *http.Response) { w.StatusCode = http.StatusInternalServerError }})
	err := b.borrow(t, a)
	require.ErrorIs(t, err, ErrAway)
	assert.NotErrorIs(t, err, ErrNotAsked, "it may have been")
	b.tamper(tampered{response: func(w *http.Response) { w.StatusCode = http.StatusUnauthorized }})
	assert.ErrorIs(t, b.borrow(t, a), ErrNotAsked)
	a.address = unreachable
	b.client.directory.(*directory).set(a.id, a.address)
	err = b.borrow(t, a)
	assert.ErrorIs(t, err, ErrNotAsked)
	assert.NotContains(t, err.Error(), "127.0.0.1")
	b.client.directory.(*directory).set(a.id, "")
	assert.ErrorIs(t, b.borrow(t, a), ErrNoAddress)
	assert.NotContains(t, ErrNoAddress.Error(), "try again", "which would not help while that proxy lives")
}

// A loan comes back with its UNLOCK in one piece: else the lender could lend to who has the lock by then, and
// whom the UNLOCK is about to end.
func TestALoanComesBackWithItsUnlock(t *testing.T) {
	a, b := two(t)
	lent := ticket()
	lent.Lender = a.id
	_, err := b.client.Unlock(t.Context(), Reference{a.id, testKey("x"), 2}, musiccore.Client{Role: "anna"}, musiccore.Return{Ticket: lent, Outcome: musiccore.OutcomeAcked})
	require.NoError(t, err)
	_, err = b.client.Unlock(t.Context(), Reference{a.id, testKey("x"), 3}, musiccore.Client{Role: "anna"}, musiccore.Return{})
	require.NoError(t, err)
	assert.Equal(t, []string{fmt.Sprintf("unlock 2 by anna, 3 comes back as %d, lent by 00", musiccore.OutcomeAcked), "unlock 3 by anna"}, a.core.take())
}

// A borrowed ticket goes back however short the wait of a LOCK is.
func TestATicketGoesBackWithoutAnyWait(t *testing.T) {
	a, b := two(t)
	b.client.channel.Wait = 0
	lent := ticket()
	lent.Lender = a.id
	assert.Equal(t, musiccore.VerdictTell, b.client.End(t.Context(), lent, musiccore.OutcomeAcked))
	assert.Equal(t, []string{ended(musiccore.OutcomeAcked)}, a.core.take())
}

// A loan goes back to its lender alone, wherever its reference goes on: at another proxy its numbers are those of
// an operation in flight there.
func TestALoanDoesNotGoToAnotherProxy(t *testing.T) {
	c := newCluster(t)
	a, b, other := c.start(config.Peers{}), c.start(config.Peers{}), c.start(config.Peers{})
	lent := ticket()
	lent.Lender = a.id
	_, err := b.client.Unlock(t.Context(), Reference{other.id, testKey("x"), 2}, musiccore.Client{Role: "anna"}, musiccore.Return{Ticket: lent, Outcome: musiccore.OutcomeAcked})
	require.NoError(t, err)
	assert.Equal(t, []string{"unlock 2 by anna"}, other.core.take())
}

// questionsOf returns how many questions with hints a client has had answered.
func questionsOf(t *testing.T, p *proxy) float64 {
	t.Helper()
	var m dto.Metric
	require.NoError(t, p.client.asked.WithLabelValues("hint", "yes").Write(&m))
	return m.GetCounter().GetValue()
}

// Hints for many keys share questions: a far proxy answers few of them a second.
func TestHintsOfManyKeysGoTogether(t *testing.T) {
	a, b := two(t)
	all := make([]musiccore.Hint, hintsKept)
	for i := range all {
		all[i] = musiccore.Hint{Key: testKey(strconv.Itoa(i)), To: b.id, Kind: musiccore.HintWaiting}
	}
	a.client.Hint(t.Context(), all)
	a.client.hints.running.Wait()
	assert.ElementsMatch(t, all, b.core.hints())
	assert.LessOrEqual(t, questionsOf(t, a), float64(hintSenders))
	assert.Empty(t, a.client.hints.queues)
}

// Hints for a proxy that does not answer are dropped, and Hint does not wait for it.
func TestHintsThatNobodyTakesAreDropped(t *testing.T) {
	a, b := two(t)
	a.client.directory.(*directory).set(b.id, unreachable)
	all := make([]musiccore.Hint, 4*hintsKept)
	for i := range all {
		all[i] = musiccore.Hint{Key: testKey("x"), To: b.id, Kind: musiccore.HintYourTurn}
	}
	var telling sync.WaitGroup
	for range 4 {
		telling.Go(func() { a.client.Hint(t.Context(), all) })
	}
	telling.Wait()
	a.client.hints.running.Wait()
	assert.Empty(t, b.core.hints())
}
