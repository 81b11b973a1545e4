package proxy

import (
	"bytes"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Where max-connections needs more files than may be open, the start says so; one client less, and
// it does not.
func TestTooFewOpenFilesAreSaid(t *testing.T) {
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	enough := clientsFor(limit.Cur)
	for connections, said := range map[int]bool{1: enough < 1, enough: false, enough + 1: true, 1 << 40: true} {
		var log bytes.Buffer
		checkFiles(connections, zerolog.New(&log))
		assert.Equal(t, said, bytes.Contains(log.Bytes(), []byte("ulimit -n")), "%d: %s", connections, log.String())
	}
	assert.Zero(t, clientsFor(0))
	assert.Equal(t, 384, clientsFor(1024))
	assert.Equal(t, 1<<30, clientsFor(1<<64-1))
}
