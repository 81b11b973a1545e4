package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"

	gocql "github.com/apache/cassandra-gocql-driver/v2"

	"music/musiccore"
	"music/proxy/peer"
)

// beatTiming is how long each part of a beat took, for the log.
type beatTiming struct{ look, write, again time.Duration }

// observation is the result of a look at the session's row, with the clocks just after it.
type observation struct {
	look musiccore.Look
	beat int64
	now  musiccore.Now
}

// beat writes one beat, between two looks at the session's row and at the cluster's clock. The
// session lease counts from just before the beat was sent. It blocks for three queries.
func (l *heartbeat) beat(ctx context.Context) error {
	_, err := l.timedBeat(ctx, l.self.Load(), "")
	return err
}

// timedBeat writes a beat of session self, which may no longer be this proxy's session: the number
// of a beat belongs to the session that gave it. via is the id of the node to ask; "" leaves it to
// the driver.
func (l *heartbeat) timedBeat(ctx context.Context, self *musiccore.Session, via string) (took beatTiming, err error) {
	begun := time.Now()
	before, err := l.observe(ctx, self, via)
	took.look = time.Since(begun)
	if err != nil {
		return took, err
	}
	if err := self.Saw(before.now, before.look, before.beat); err != nil {
		return took, err
	}
	n, ok := self.Beat(before.now)
	if !ok {
		return took, nil // the session is dead: run begins a new one
	}
	begun = time.Now()
	err = l.write(ctx, self, n, via)
	took.write = time.Since(begun)
	if err != nil {
		return took, err
	}
	begun = time.Now()
	after, err := l.observe(ctx, self, via)
	took.again = time.Since(begun)
	if err != nil {
		return took, err
	}
	self.Acked(after.now, before.now, n)
	return took, self.Saw(after.now, after.look, after.beat)
}

// observe reads the session's row at QUORUM, and the cluster's clock.
func (l *heartbeat) observe(ctx context.Context, self *musiccore.Session, via string) (observation, error) {
	before := boottime()
	g := observation{look: self.Look(l.clock.now())}
	var beat *int64
	var cluster time.Time
	err := l.session.Query("SELECT beat, toTimestamp(now()) AS now FROM music.sessions WHERE session = ?", gocql.UUID(self.ID())).
		Consistency(gocql.Quorum).SetHostID(via).ScanContext(ctx, &beat, &cluster)
	if errors.Is(err, gocql.ErrNotFound) {
		before = boottime()
		err = l.session.Query("SELECT toTimestamp(now()) AS now FROM system.local").Consistency(gocql.One).SetHostID(via).ScanContext(ctx, &cluster)
	}
	if err != nil {
		return observation{}, fmt.Errorf("read this proxy's session and the cluster's clock: %w", err)
	}
	if beat != nil {
		g.beat = *beat
	}
	l.clock.observe(boottime()-before, cluster)
	g.now = l.clock.now()
	g.now.Store = musiccore.Stamp(cluster.UnixMicro())
	return g, nil
}

// look reads the session's row and the cluster's clock, and ends the session if these demand it.
func (l *heartbeat) look(ctx context.Context) error {
	self := l.self.Load()
	g, err := l.observe(ctx, self, "")
	if err != nil {
		return err
	}
	return self.Saw(g.now, g.look, g.beat)
}

// write writes a beat into music.sessions. Its number is its write timestamp, so that a clock that
// steps back does not hide it (C5).
func (l *heartbeat) write(ctx context.Context, self *musiccore.Session, n int64, via string) error {
	applied := l.schema.Load()
	err := l.session.Query("INSERT INTO music.sessions (session, beat, schema_version, addr, lease, rules, version) VALUES (?, ?, ?, ?, ?, ?, ?)",
		gocql.UUID(self.ID()), n, applied.digest, l.config.address, self.Lease().Milliseconds(), applied.rules, peer.Version).
		WithTimestamp(n).Consistency(gocql.Quorum).SetHostID(via).ExecContext(ctx)
	if err != nil {
		return fmt.Errorf("beat: %w", err)
	}
	return nil
}
