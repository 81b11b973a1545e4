package client

import (
	"errors"
	"testing"
	"time"

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

// A LOCK is answered before the client stops waiting for the answer: else its place is never known.
func TestALockIsAnsweredInTime(t *testing.T) {
	for _, tc := range []struct {
		timeout, wait time.Duration
		forever       bool
		want          string
	}{
		{10 * time.Second, 0, true, ""},
		{10 * time.Second, time.Hour, false, ""},
		{time.Second, 0, true, " WAIT 500ms"},
		{time.Second, time.Hour, false, " WAIT 500ms"},
		{time.Second, -time.Second, false, " WAIT 0ms"},
		{0, 0, true, ""}, // the driver's own, which is longer
	} {
		q := &asking{Asking: Asking{Forever: tc.forever, Wait: time.Hour}, session: &Session{options: Options{Timeout: tc.timeout}}, key: Named("x"), token: "T"}
		q.until = Boottime() + tc.wait
		assert.Equal(t, "LOCK music.named WHERE name = 'x'"+tc.want+" TOKEN T", q.statement(), "%+v", tc)
		q.ref = 5
		assert.Equal(t, "LOCK music.named WHERE name = 'x' USING LOCK 5"+tc.want, q.statement(), "%+v", tc)
	}
}
