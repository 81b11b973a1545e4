package proxy

import (
	"sync"
	"testing"

	"music/integration/cassandra/cassandratest"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Proxies that start at once have one secret, which stands in no table but its own, and one that
// comes later has the same.
func TestSecretOfTheCluster(t *testing.T) {
	s := cassandratest.NewKeyspace(t, cassandratest.Version(0))
	require.NoError(t, ensureKeyspace(t.Context(), s.Session, ""))
	require.NoError(t, s.Session.Query("TRUNCATE music.secrets").Exec())
	var all [4][]byte
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() {
			secret, err := clusterSecret(t.Context(), s.Session)
			assert.NoError(t, err)
			all[i] = secret
		})
	}
	starting.Wait()
	require.Len(t, all[0], secretSize)
	later, err := clusterSecret(t.Context(), s.Session)
	require.NoError(t, err)
	for _, secret := range all {
		assert.Equal(t, later, secret)
	}
	iter := s.Session.Query("SELECT * FROM system.paxos").Iter()
	for row := map[string]any{}; iter.MapScan(row); row = map[string]any{} {
		for column, value := range row {
			if b, ok := value.([]byte); ok {
				assert.NotContains(t, string(b), string(later), column)
			}
		}
	}
	require.NoError(t, iter.Close())

	require.NoError(t, s.Session.Query("UPDATE music.secrets SET chosen = ? WHERE name = 'references'", gocql.MustRandomUUID()).Exec())
	_, err = clusterSecret(t.Context(), s.Session)
	assert.ErrorIs(t, err, errSecret)
	require.NoError(t, s.Session.Query("TRUNCATE music.secrets").Exec())
}
