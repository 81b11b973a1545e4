package relay

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is posted while another goroutine writes is left to that one: Finish waits for it.
func TestFinishWaitsForWhatIsPosted(t *testing.T) {
	near, far := net.Pipe() // a write ends when all of it has been read
	defer near.Close()      //nolint:errcheck // nothing depends on it
	o := NewOutbound(near)
	written, finished := make(chan struct{}), make(chan struct{})
	go func() {
		o.Post([]byte("first"))
		close(written)
	}()
	one := make([]byte, 1)
	_, err := io.ReadFull(far, one)
	require.NoError(t, err)
	o.Post([]byte("second"))
	assert.Equal(t, int64(len("second")), o.Backlog())
	go func() {
		o.Finish()
		assert.NoError(t, near.Close())
		close(finished)
	}()
	rest, err := io.ReadAll(far)
	require.NoError(t, err)
	assert.Equal(t, "firstsecond", string(one)+string(rest))
	<-written
	<-finished
}
