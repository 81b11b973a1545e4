package peer

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/config"
)

// A proxy is asked in the version of the older of the two.
func TestAskedInTheOlderVersion(t *testing.T) {
	for theirs, want := range map[int]int{Version - 1: Version - 1, Version: Version, Version + 1: Version} {
		a, b := two(t)
		b.client.directory.(*directory).speaks[a.id] = theirs
		var asked string
		b.tamper(tampered{request: func(r *http.Request, body []byte) []byte {
			asked = r.Header.Get(headerVersion)
			return body
		}})
		require.NoError(t, b.borrow(t, a), theirs)
		assert.Equal(t, strconv.Itoa(want), asked, "of a proxy of version %d", theirs)
		assert.Len(t, a.core.take(), 1)
	}
}

// A question is answered in its own version, if that is this one or the one before; of any other
// nothing is carried out, and the refusal names both.
func TestVersionsThatAreAnswered(t *testing.T) {
	a := newCluster(t).start(config.Peers{})
	body := fmt.Sprintf(`{"session":%q,"ref":1}`, uuid.UUID(a.id))
	for version := Version - 2; version <= Version+2; version++ {
		status, told := send(t, a, "POST", pathBegin, http.Header{headerVersion: {strconv.Itoa(version)}}, body)
		if version == Version || version == Version-1 {
			assert.Equal(t, http.StatusOK, status, version)
			assert.Len(t, a.core.take(), 1)
			continue
		}
		assert.Equal(t, http.StatusUpgradeRequired, status, version)
		assert.Equal(t, fmt.Sprintf("this proxy speaks versions %d and %d of the peer protocol", Version-1, Version), told)
		assert.Empty(t, a.core.take())
	}
}

// A proxy that refuses this version is told apart from one that does not answer.
func TestProxyOfAnUnfitVersion(t *testing.T) {
	a, b := two(t)
	b.tamper(tampered{request: func(r *http.Request, body []byte) []byte {
		r.Header.Set(headerVersion, strconv.Itoa(Version+2)) // as if the other one spoke none of ours
		return body
	}})
	err := b.borrow(t, a)
	assert.ErrorIs(t, err, ErrAway)
	assert.ErrorContains(t, err, "another version")
	assert.Empty(t, a.core.take())
}

// Versions that are neighbours fit, and no others. A proxy that says none has the last one that
// said none.
func TestVersionsThatFit(t *testing.T) {
	for v, want := range map[int]bool{Version - 2: false, Version - 1: true, Version: true, Version + 1: true, Version + 2: false} {
		assert.Equal(t, want, Fits(v), v)
	}
	assert.Equal(t, versionUnsaid, Spoken(0))
	assert.Equal(t, Version+1, Spoken(Version+1))
}
