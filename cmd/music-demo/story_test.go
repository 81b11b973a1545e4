package main

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestShownIsWhatOneWouldType(t *testing.T) {
	assert.Equal(t, "SELECT 1;", shown("SELECT 1", nil))
	assert.Equal(t, "SELECT UNLOCK bank.accounts WHERE branch = 'zurich' USING LOCK 7;", shown(giveBack, []any{branch, int64(7)}))
	assert.Equal(t, "SELECT 'it''s ';", shown("SELECT ?", []any{"it's "}))
}

func TestAMoveKeepsTheSum(t *testing.T) {
	before := balances{"anna": 10, "ben": 1}
	after := move{"anna", "ben", 4}.after(before)
	assert.Equal(t, balances{"anna": 6, "ben": 5}, after)
	assert.Equal(t, "anna 6, ben 5", after.String())
}

func TestMissingMoney(t *testing.T) {
	assert.Equal(t, "7 are gone", missing(7))
	assert.Equal(t, "7 came from nowhere", missing(-7))
}

func TestGrants(t *testing.T) {
	assert.Equal(t, "HELD, lock_ref 7, lease 2000 ms", grant{ref: 7, state: "HELD", leaseMS: 2000}.String())
	assert.NotContains(t, grant{state: "QUEUED"}.String(), "0", "null is no number")
	assert.Equal(t, "QUEUED, lock_ref 8, position 1", grant{ref: 8, state: "QUEUED", position: 1}.String())
	assert.Equal(t, "LOST", grant{ref: 8, state: "LOST"}.String())
}

func TestOnlyTheRightRefusalIsOne(t *testing.T) {
	b := &bank{}
	l := &line{prompt: "proxy>", screen: &screen{out: io.Discard}}
	assert.NoError(t, b.refused(errors.New("MUSIC_LOST: lock_ref 7 …"), l, "MUSIC_LOST"))
	for _, err := range []error{nil, errors.New("no connections"), errors.New("MUSIC_UNLOCKED: …")} {
		assert.ErrorIs(t, b.refused(err, l, "MUSIC_LOST"), errUnexpected)
	}
}

func TestOnlyWhatSaysSoIsTooEarly(t *testing.T) {
	assert.True(t, early(errors.New("MUSIC_UNAVAILABLE: bank.accounts: it is becoming critical: try again; nothing was done")))
	for _, err := range []error{nil, errors.New("MUSIC_REFUSED: never"), errors.New("MUSIC_UNAVAILABLE: try again")} {
		assert.False(t, early(err))
	}
}

func TestAFenceIsOfOneHolder(t *testing.T) {
	row := lockRow{guard: 9, head: 7, base: 1000}
	assert.NoError(t, row.fences(7<<tagBits+5, 1000))
	assert.NoError(t, row.fences(7<<tagBits+5, 1000+window-1))
	assert.ErrorIs(t, row.fences(7<<tagBits+5, 999), errUnexpected)
	assert.ErrorIs(t, row.fences(7<<tagBits+5, 1000+window), errUnexpected)
	assert.ErrorIs(t, row.fences(8<<tagBits+5, 1000), errUnexpected)
}

func TestTheAuditKnowsTheSum(t *testing.T) {
	b := &bank{total: 4000}
	assert.NoError(t, b.exact(4000))
	assert.EqualError(t, b.exact(3999), "the story went wrong: expected the audit to find 4000; got: 3999")
}
