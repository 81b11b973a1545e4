package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"music/config"
)

// Keyspace music is dropped at the node while a proxy serves: no critical table is open to plain
// writes, the log says what to do, and a proxy that is started then restores it for both.
func TestKeyspaceMusicIsDropped(t *testing.T) {
	node := needDisposableNode(t)
	at := func(c *config.Config) {
		c.Cassandra.ContactPoints, c.Music.SessionLease = []string{node.Addr()}, killLease
	}
	running := startProxy(t, at)
	s := &tableFixture{t: t, driver: withGocql2(4, ""), address: running.address, keyspace: "dropped"}
	s.direct = openGocql2(t, cluster2(node.Addr(), "")).session
	s.create("@critical(lease=5m)")
	const write = "UPDATE ACCOUNTS USING LOCK %s SET balance = %d WHERE branch = '%s' AND id = 'x'"
	held := told(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b'"), "lock_ref")
	s.works(s.client, fmt.Sprintf(write, held, 1, "b"))

	require.NoError(t, s.direct.Query("DROP KEYSPACE music").Exec())
	eventually(t, time.Minute, "no lock is served", func() error {
		if o := s.do(s.client, fmt.Sprintf(write, held, 2, "b")); o.failure == nil {
			return errorf("%v", o)
		}
		return nil
	})
	s.refused(s.client, "MUSIC_UNAVAILABLE", fmt.Sprintf(write, held, 3, "b"))
	s.refused(s.client, "MUSIC_UNAVAILABLE", "LOCK ACCOUNTS WHERE branch = 'c' WAIT 100ms")
	s.refused(s.client, "MUSIC_UNLOCKED", "UPDATE ACCOUNTS SET balance = 666 WHERE branch = 'b' AND id = 'x'")
	running.log.tells(t, "a proxy that is started creates it again")

	started := startProxy(t, at)
	other := s.driver.open(t, started.address, s.keyspace)
	// There is another secret now: references from before are not held at either proxy, and each
	// reads what the other gives.
	for branch, c := range map[string]client{"c": s.client, "d": other} {
		var ref string
		eventually(t, time.Minute, "locks are given again", func() error {
			o := s.do(c, "LOCK ACCOUNTS WHERE branch = '"+branch+"' WAIT 500ms")
			if o.failure == nil && told(o, "state") != "held" {
				return errorf("%v", o)
			}
			ref = told(o, "lock_ref")
			return o.err()
		})
		s.works(c, fmt.Sprintf(write, ref, 1, branch))
		eventually(t, time.Minute, "who held before does not any more", func() error {
			o := s.do(c, fmt.Sprintf(write, held, 4, "b"))
			if o.failure == nil || !strings.HasPrefix(o.failure.text, "MUSIC_NOT_HELD") {
				return errorf("%v", o)
			}
			return nil
		})
		for _, at := range []client{s.client, other} {
			eventually(t, time.Minute, "what one proxy gives, the other reads, and blames nobody before it has read the new secret", func() error {
				o := s.do(at, fmt.Sprintf(write, ref, 2, branch))
				switch {
				case o.failure != nil && strings.HasPrefix(o.failure.text, "MUSIC_NOT_HELD"):
					return fatal{o.err()}
				case o.failure != nil && strings.Contains(o.failure.text, "keyspace music was dropped"):
					return o.err()
				}
				return nil
			})
		}
	}
}
