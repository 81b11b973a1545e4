package frontend

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/wire"
	"music/rewrite"
)

// Values that are bound by name are put where their markers stand; what is missing is never guessed.
func TestValuesByName(t *testing.T) {
	const text = `UPDATE t USING LOCK :ref SET v = :v WHERE k = :"K" AND c = :v`
	st, err := rewrite.Parse([]byte(text))
	require.NoError(t, err)
	given := func(names ...string) *wire.Parameters {
		p := &wire.Parameters{Flags: primitive.QueryFlagValues | primitive.QueryFlagValueNames}
		for i, name := range names {
			p.Names, p.Values = append(p.Names, []byte(name)), append(p.Values, []byte{byte(i)})
		}
		return p
	}
	p := given("v", "K", "unused", "ref", "v")
	require.Nil(t, byPosition(p, &st, []byte(text), 99))
	assert.Equal(t, [][]byte{{3}, {0}, {1}, {0}}, p.Values, "of two v the first")
	assert.Nil(t, p.Names)
	assert.Equal(t, primitive.QueryFlagValues, p.Flags)
	for _, missing := range [][]string{{}, {"v", "K"}, {"v", "k", "ref"}, {"v", "K", "REF"}, {"v", "K", ""}} {
		assert.NotNil(t, byPosition(given(missing...), &st, []byte(text), 99), "%v", missing)
	}
	for _, mixed := range []string{"UPDATE t USING LOCK :v SET v = :v WHERE k = ?", "UPDATE t USING LOCK ? SET v = :v WHERE k = :v"} {
		st, err := rewrite.Parse([]byte(mixed))
		require.NoError(t, err)
		assert.NotNil(t, byPosition(given("v", ""), &st, []byte(mixed), 99), mixed)
	}
}

// A value that many markers name is sent once for each of them: the request gets no larger by that than a client may send one. To find
// the values of as many names as there can be takes no long time.
func TestManyMarkersOfAName(t *testing.T) {
	const n = math.MaxUint16
	p := &wire.Parameters{Names: [][]byte{[]byte("v")}, Values: [][]byte{make([]byte, 1<<20)}}
	text := []byte("DELETE FROM t WHERE k IN (" + strings.Repeat(":v,", n-1) + ":v)")
	st, err := rewrite.Parse(text)
	require.NoError(t, err)
	f := byPosition(p, &st, text, 16<<20)
	require.NotNil(t, f, "it would have %d bytes", p.Size())
	assert.Contains(t, f.Text, "has more than 16777216 bytes")
	p = &wire.Parameters{}
	text = []byte("DELETE FROM t WHERE k IN (")
	for i := range n {
		name := fmt.Appendf(nil, "v%05d", i)
		p.Names, p.Values = append(p.Names, name), append(p.Values, name)
		text = append(append(append(text, ':'), name...), ',')
	}
	text = append(text, "1)"...)
	st, err = rewrite.Parse(text)
	require.NoError(t, err)
	want := slices.Clone(p.Values)
	require.Nil(t, byPosition(p, &st, text, 16<<20))
	assert.True(t, slices.EqualFunc(want, p.Values, bytes.Equal))
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
		p := wire.Parameters{Consistency: tc.asked}
		fenceParameters(&p, 1, false)
		assert.Equal(t, tc.global, p.Consistency, tc.asked)
		p = wire.Parameters{Consistency: tc.asked}
		fenceParameters(&p, 1, true)
		assert.Equal(t, tc.local, p.Consistency, tc.asked)
	}
}
