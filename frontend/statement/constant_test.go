package statement

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
