package statement

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// What stands for now() is of the present time and each time another one, and shows the address of no network card.
func TestTimeUUIDsNameNoNode(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		u, err := uuid.Parse(newTimeUUID())
		require.NoError(t, err)
		assert.EqualValues(t, 1, u.Version())
		assert.NotZero(t, u[10]&1, "a random node has the multicast bit")
		seconds, _ := u.Time().UnixTime()
		assert.WithinDuration(t, time.Now(), time.Unix(seconds, 0), time.Minute)
		assert.False(t, seen[string(u[10:])], "a node of its own")
		seen[string(u[10:])] = true
	}
}

// Only a term that is nothing but such a call stands for the present time: one that adds to it, or that another call is part of, is
// Cassandra's to evaluate.
func TestTermsWithACallInThem(t *testing.T) {
	for term, constant := range map[string]bool{
		"toTimestamp(now())": true, "currentTimestamp( )": true, "toTimestamp(now()) - 1h": false, "currentTimestamp() + 1d": false, "currentTimestamp() - 1h + 1m": false,
		"(timestamp) currentTimestamp()": false, "- currentTimestamp()": false,
	} {
		for _, text := range []string{"DELETE FROM t WHERE a = " + term, "UPDATE t SET v = 1 WHERE a = 1 IF w < " + term} {
			s := keyStatement(t, "timestamp", text)
			s.Critical.Columns = map[string]catalog.Column{"a": {Name: "a", Type: "timestamp"}, "w": {Name: "w", Type: "timestamp"}}
			assert.Equal(t, constant, s.FixTerms(), text)
		}
	}
}
