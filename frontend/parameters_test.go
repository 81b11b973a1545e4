package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/rewrite"
)

// Values that are bound by name are put where their markers stand; what is missing is never guessed.
func TestValuesByName(t *testing.T) {
	const text = `UPDATE t USING LOCK :ref SET v = :v WHERE k = :"K" AND c = :v`
	st, err := rewrite.Parse([]byte(text))
	require.NoError(t, err)
	given := func(names ...string) *parameters {
		p := &parameters{flags: primitive.QueryFlagValues | primitive.QueryFlagValueNames}
		for i, name := range names {
			p.names, p.values = append(p.names, []byte(name)), append(p.values, []byte{byte(i)})
		}
		return p
	}
	p := given("v", "K", "unused", "ref", "v")
	require.Nil(t, p.order(&st, []byte(text)))
	assert.Equal(t, [][]byte{{3}, {0}, {1}, {0}}, p.values, "of two v the first")
	assert.Nil(t, p.names)
	assert.Equal(t, primitive.QueryFlagValues, p.flags)
	for _, missing := range [][]string{{}, {"v", "K"}, {"v", "k", "ref"}, {"v", "K", "REF"}, {"v", "K", ""}} {
		assert.NotNil(t, given(missing...).order(&st, []byte(text)), "%v", missing)
	}
	for _, mixed := range []string{"UPDATE t USING LOCK :v SET v = :v WHERE k = ?", "UPDATE t USING LOCK ? SET v = :v WHERE k = :v"} {
		st, err := rewrite.Parse([]byte(mixed))
		require.NoError(t, err)
		assert.NotNil(t, given("v", "").order(&st, []byte(mixed)), mixed)
	}
}

// An operation under a lock is done at QUORUM at least, or at LOCAL_QUORUM where the lock is of one data centre.
func TestConsistencyUnderALock(t *testing.T) {
	for _, tc := range []struct{ asked, global, local primitive.ConsistencyLevel }{
		{primitive.ConsistencyLevelAny, primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelLocalQuorum},
		{primitive.ConsistencyLevelLocalOne, primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelLocalQuorum},
		{primitive.ConsistencyLevelThree, primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelLocalQuorum},
		{primitive.ConsistencyLevelLocalQuorum, primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelLocalQuorum},
		{primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelLocalQuorum},
		{primitive.ConsistencyLevelSerial, primitive.ConsistencyLevelSerial, primitive.ConsistencyLevelLocalQuorum},
		{primitive.ConsistencyLevelLocalSerial, primitive.ConsistencyLevelQuorum, primitive.ConsistencyLevelLocalQuorum},
		{primitive.ConsistencyLevelEachQuorum, primitive.ConsistencyLevelEachQuorum, primitive.ConsistencyLevelEachQuorum},
		{primitive.ConsistencyLevelAll, primitive.ConsistencyLevelAll, primitive.ConsistencyLevelAll},
	} {
		p := parameters{consistency: tc.asked}
		p.fence(1, false)
		assert.Equal(t, tc.global, p.consistency, tc.asked)
		p = parameters{consistency: tc.asked}
		p.fence(1, true)
		assert.Equal(t, tc.local, p.consistency, tc.asked)
	}
}
