package proxy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
	"music/proxy/peer"
)

// A proxy starts beside living ones of its own version and the next ones, and beside others only
// where they have ended; the refusal names the other proxy and both versions.
func TestVersionsBesideEachOther(t *testing.T) {
	const ended = musiccore.EndedBeat
	for _, tc := range []struct {
		theirs   int
		beat     int64
		addr     string
		goesWith string // of the refusal; empty = none
	}{
		{theirs: peer.Version - 1, beat: 1},
		{theirs: peer.Version, beat: 1},
		{theirs: peer.Version + 1, beat: 1},
		{theirs: peer.Version + 2, beat: ended},
		{theirs: peer.Version - 2, beat: ended},
		{theirs: peer.Version + 2, beat: 1, addr: "there:1", goesWith: "the one at there:1 speaks version 6 of what proxies say to each other, this one 4"},
		{theirs: peer.Version - 2, beat: 1, goesWith: "the one at session 07000000-0000-0000-0000-000000000000 speaks version 2"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, beat := new(heartbeat), tc.beat
			l.others.dead = musiccore.Defaults().DeadAfter
			l.others.read = func(context.Context, []gocql.UUID) (map[gocql.UUID]seenSession, error) {
				if beat != ended {
					beat++
				}
				return map[gocql.UUID]seenSession{{7}: {beat: beat, addr: tc.addr, spoken: tc.theirs}}, nil
			}
			err := l.checkVersions(t.Context())
			if tc.goesWith == "" {
				assert.NoError(t, err, "%+v", tc)
				return
			}
			require.ErrorIs(t, err, errMembers)
			assert.ErrorContains(t, err, tc.goesWith)
		})
	}
}

// Where the sessions cannot be read, no proxy starts.
func TestVersionsThatCannotBeRead(t *testing.T) {
	l := new(heartbeat)
	l.others.read = func(context.Context, []gocql.UUID) (map[gocql.UUID]seenSession, error) {
		return nil, errors.New("no quorum")
	}
	assert.ErrorContains(t, l.checkVersions(t.Context()), "no quorum")
}
