package racing

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/evaluate/battery"
	"music/integration/evaluate/section"
	"music/integration/evaluate/store"
	"music/integration/evaluate/store/storetest"
)

func TestMain(m *testing.M) { battery.Main(m) }

// open opens a client that is closed at the end of the test.
func open(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// raise adds one to a number.
func raise(value []byte) []byte {
	n, _ := strconv.Atoi(string(value)) // no value is 0
	return []byte(strconv.Itoa(n + 1))
}

// number returns the value.
func number(t *testing.T, c *Client, key string) string {
	t.Helper()
	return storetest.Get(t, storetest.Enter(t, c, key))
}

// No update is lost among clients that race. (The battery is not for this system: Enter keeps nobody
// out.) A timeout among them would be counted twice without Identify.
func TestUpdatesAreNotLost(t *testing.T) {
	o := storetest.Options(t)
	const clients, updates = 4, 5
	var group sync.WaitGroup
	for range clients {
		c := open(t, Options{Options: o, Identify: true})
		group.Go(func() {
			for range updates {
				assert.NoError(t, c.Update(t.Context(), "k", raise))
			}
		})
	}
	group.Wait()
	assert.Equal(t, strconv.Itoa(clients*updates), number(t, open(t, Options{Options: o}), "k"))
}

// Of two sections of the same version the first put wins, and the other is told.
func TestFirstPutWins(t *testing.T) {
	o := storetest.Options(t)
	for _, begin := range []string{"", "begun"} {
		c := open(t, Options{Options: o})
		if begin != "" {
			storetest.Put(t, storetest.Enter(t, c, "k"+begin), begin)
		}
		one, two := storetest.Enter(t, c, "k"+begin), storetest.Enter(t, c, "k"+begin)
		storetest.Put(t, one, "one")
		require.ErrorIs(t, two.Put(t.Context(), []byte("two")), section.ErrLost)
		storetest.Put(t, one, "once more")
		assert.Equal(t, "once more", number(t, c, "k"+begin))
	}
}

// An answer that is lost makes one update two; a client that looks for its own mark makes it one.
func TestLostAnswer(t *testing.T) {
	o := storetest.Options(t)
	for _, begun := range []bool{false, true} {
		for _, identify := range []bool{false, true} {
			key := strconv.FormatBool(begun) + strconv.FormatBool(identify)
			lossy, plain, first := o, open(t, Options{Options: o}), 0
			lossy.Hook = storetest.LoseAnswer(insertStatement)
			if begun {
				require.NoError(t, plain.Update(t.Context(), key, raise))
				lossy.Hook, first = storetest.LoseAnswer(updateStatement), 1
			}
			c := open(t, Options{Options: lossy, Identify: identify})
			require.NoError(t, c.Update(t.Context(), key, raise))
			want := map[bool]int{false: first + 2, true: first + 1}[identify]
			assert.Equal(t, strconv.Itoa(want), number(t, plain, key), "identify %v", identify)
		}
	}
}

// A put whose answer is lost and that another client has overwritten before anybody looks:
// nothing tells whether it was done, and it is not done again.
func TestLostAnswerOverwritten(t *testing.T) {
	o := storetest.Options(t)
	plain := open(t, Options{Options: o})
	key := "overwritten"
	require.NoError(t, plain.Update(t.Context(), key, raise))
	lose := storetest.LoseAnswer(updateStatement)
	lossy := o
	lossy.Hook = func(statement string, send func() error) error {
		err := lose(statement, send)
		if store.Unknown(err) {
			require.NoError(t, plain.Update(t.Context(), key, raise))
		}
		return err
	}
	err := open(t, Options{Options: lossy, Identify: true}).Update(t.Context(), key, raise)
	assert.True(t, store.Unknown(err), "%v", err)
	assert.Equal(t, "3", number(t, plain, key))
}

// A site that is further away than another never succeeds while that one goes on: each of its
// writes arrives after another write of the other site. The hook is that distance.
func TestDistantSiteStarves(t *testing.T) {
	o := storetest.Options(t)
	near := open(t, Options{Options: o})
	const tries = 20
	computed, attempts := 0, 0
	distant := o
	distant.Hook = func(statement string, send func() error) error {
		if attempts < tries && (statement == insertStatement || statement == updateStatement) {
			attempts++
			if err := near.Update(context.Background(), "k", raise); err != nil {
				return err
			}
		}
		return send()
	}
	far := open(t, Options{Options: distant})
	require.NoError(t, far.Update(t.Context(), "k", func(value []byte) []byte {
		computed++
		return raise(value)
	}))
	assert.Equal(t, tries+1, computed, "it got in when the other stopped, and not before")
}
