package client

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A lock is lost where a proxy says so. One that has not taken it over yet says QUEUED, and is asked again.
func TestWhatARenewalIsTold(t *testing.T) {
	busy := errors.New("too many connections")
	for _, tc := range []struct {
		state string
		err   error
		want  error
	}{
		{"HELD", nil, nil},
		{"QUEUED", nil, errNotYet},
		{"BUSY", nil, ErrLost},
		{"LOST", nil, ErrLost},
		{"", errors.New("MUSIC_LOST: lock_ref 5 has expired"), ErrLost},
		{"", errors.New("MUSIC_NOT_HELD: lock_ref 5 waits"), ErrLost},
		{"", busy, busy},
	} {
		assert.Equal(t, tc.want, renewed(Grant{State: tc.state}, tc.err), "%s %v", tc.state, tc.err)
	}
}
