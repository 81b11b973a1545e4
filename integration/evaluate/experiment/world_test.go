package experiment

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/integration/cassandra"
	"music/integration/wan"
)

// Who finds that another evaluation runs leaves it its files; whoever fails otherwise leaves none.
func TestARefusedWorldSparesTheOther(t *testing.T) {
	dir := t.TempDir()
	for _, inUse := range []error{cassandra.ErrInUse, wan.ErrInUse} {
		refused := &World{dir: dir}
		refused.spare(fmt.Errorf("start: %w", inUse))
		require.NoError(t, refused.Close())
		assert.DirExists(t, dir)
	}
	failed := &World{dir: dir}
	failed.spare(os.ErrPermission)
	require.NoError(t, failed.Close())
	assert.NoDirExists(t, dir)
}
