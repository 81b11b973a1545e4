package client

import (
	"context"
	"errors"
	"testing"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
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

// A lock that the proxy does not know, as after DROP and CREATE of its table, was not held to the end.
func TestWhatAReleaseIsTold(t *testing.T) {
	busy := errors.New("too many connections")
	for _, tc := range []struct {
		g    Grant
		err  error
		want error
	}{
		{Grant{Applied: true, State: "RELEASED"}, nil, nil},
		{Grant{State: "LOST"}, nil, ErrLost},
		{Grant{}, errors.New("MUSIC_LOST: lock_ref 5 has expired"), ErrLost},
		{Grant{}, errors.New("MUSIC_NOT_HELD: lock_ref 5 is not one of this key"), ErrLost},
		{Grant{}, busy, busy},
	} {
		assert.Equal(t, tc.want, released(tc.g, tc.err), "%v %v", tc.g, tc.err)
	}
}

// The lock may be held by a LOCK that got no answer: it is asked for by its TOKEN, and released.
func TestALockWithoutAnAnswerIsLeft(t *testing.T) {
	for _, tc := range []struct {
		g       Grant
		err     error
		perhaps bool
	}{
		{Grant{}, context.Canceled, true},
		{Grant{}, gocql.ErrTimeoutNoResponse, true},
		{Grant{State: "QUEUED"}, nil, true},
		{Grant{State: "BUSY"}, nil, false},
		{Grant{}, told{}, false},
	} {
		q := &asking{session: &Session{}, key: Named("x"), token: "T"}
		assert.Equal(t, "LOCK music.named WHERE name = 'x' NOWAIT TOKEN T", q.statement())
		q.heard(tc.g, tc.err)
		assert.Equal(t, tc.perhaps, q.queued, "%v %v", tc.g, tc.err)
	}
	q := &asking{session: &Session{}, key: Named("x"), token: "T", queued: true}
	assert.Equal(t, "LOCK music.named WHERE name = 'x' WAIT 0ms TOKEN T", q.statement())
}

// told is an answer of the proxy that is an error.
type told struct{}

func (told) Code() int       { return gocql.ErrCodeInvalid }
func (told) Message() string { return "MUSIC_REFUSED" }
func (t told) Error() string { return t.Message() }

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
