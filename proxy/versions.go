package proxy

import (
	"cmp"
	"context"
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/proxy/peer"
)

// checkVersions refuses to run beside a living proxy whose version does not fit
// (docs/several-proxies.md, Upgrading). It is called before the first beat, so that nothing is done
// then, and once more after it: of two proxies that start at once at least one sees the other.
func (l *heartbeat) checkVersions(ctx context.Context) error {
	return l.others.refuseLiving(ctx, func() (map[gocql.UUID]error, error) {
		if err := l.others.look(ctx); err != nil {
			return nil, err
		}
		return l.others.misfits(), nil
	})
}

// misfits returns the sessions whose versions do not fit this proxy's, each with the reason.
func (s *sessions) misfits() map[gocql.UUID]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[gocql.UUID]error{}
	for id, seen := range s.seen {
		if !peer.Fits(seen.spoken) {
			all[id] = fmt.Errorf("the one at %s speaks version %d of what proxies say to each other, this one %d; proxies run together where these are "+
				"neighbours: upgrade one version after the other, or end all proxies and then start the new ones",
				cmp.Or(seen.addr, "session "+id.String()), seen.spoken, peer.Version)
		}
	}
	return all
}

// refuseLiving blocks until none of the sessions in conflict with this one is alive. It returns an
// error that wraps errMembers as soon as one of them beats. conflicts reads the sessions and
// returns those in conflict, with the reasons.
func (s *sessions) refuseLiving(ctx context.Context, conflicts func() (map[gocql.UUID]error, error)) error {
	beats := map[gocql.UUID]int64{}
	for {
		found, err := conflicts()
		if err != nil {
			return err
		}
		waiting := false
		for id, why := range found {
			beat, alive := s.alive(id)
			if !alive {
				continue
			}
			if first, seen := beats[id]; seen && first != beat {
				return fmt.Errorf("%w: %w", errMembers, why)
			} else if !seen {
				beats[id] = beat
			}
			waiting = true
		}
		if !waiting {
			return nil
		}
		if !pause(ctx, lookEvery) {
			return fmt.Errorf("look at the other proxies: %w", ctx.Err())
		}
	}
}
