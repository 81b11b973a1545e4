package proxy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// shortLease lets a session end within a test.
func shortLease(o *musiccore.Options) { o.SessionLease = 300 * time.Millisecond }

// An operation is judged by the moment at which Cassandra's answer is there, and the shard is free
// to look: a session that was valid when it began, or when it came to the shard, says nothing.
func TestEndIsJudgedByItsOwnMoment(t *testing.T) {
	for _, waitsForTheShard := range []bool{false, true} {
		s := startStation(t, newCluster(), shortLease)
		k := keyOf("x")
		ref := s.held(k)
		a := s.begin(k, ref, musiccore.Put)
		require.NoError(t, a.Err)
		begun := s.of(k).clock.now()
		over := func() bool { return s.of(k).clock.now().Boot-begun.Boot > s.life.options.SessionLease } // asked, the session would end by that
		if !waitsForTheShard {
			require.Eventually(t, over, 20*time.Second, time.Millisecond)
			assert.NotEqual(t, musiccore.VerdictTell, s.verdict(a.Ticket, musiccore.OutcomeAcked))
			continue
		}
		s.of(k).mu.Lock()
		verdict := make(chan musiccore.Verdict, 1)
		go func() { verdict <- s.verdict(a.Ticket, musiccore.OutcomeAcked) }()
		require.Eventually(t, over, 20*time.Second, time.Millisecond)
		s.of(k).mu.Unlock()
		assert.NotEqual(t, musiccore.VerdictTell, <-verdict)
	}
}
