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

// observation is what a look at the own row has shown, with the clocks as they stood after it.
type observation struct {
	look musiccore.Look
	beat int64
	now  musiccore.Now
}

// beat writes one beat between two looks at the own row and at the cluster's clock. The lease
// counts from before it was sent.
func (l *heartbeat) beat(ctx context.Context) error {
	_, err := l.timedBeat(ctx, l.self.Load(), "")
	return err
}

// timedBeat writes a beat of self, even where this proxy has another session by then: a number
// belongs to the session that gave it. via is the node that is asked; "" leaves it to the driver.
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
		return took, nil // dead: run takes a new session
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

// observe reads the session's own row at QUORUM and the cluster's clock. The caller judges what it
// has read.
func (l *heartbeat) observe(ctx context.Context, self *musiccore.Session, via string) (observation, error) {
	before := time.Now()
	g := observation{look: self.Look(l.clock.now())}
	var beat *int64
	var cluster time.Time
	err := l.session.Query("SELECT beat, toTimestamp(now()) AS now FROM music.sessions WHERE session = ?", gocql.UUID(self.ID())).
		Consistency(gocql.Quorum).SetHostID(via).ScanContext(ctx, &beat, &cluster)
	if errors.Is(err, gocql.ErrNotFound) {
		before = time.Now()
		err = l.session.Query("SELECT toTimestamp(now()) AS now FROM system.local").Consistency(gocql.One).SetHostID(via).ScanContext(ctx, &cluster)
	}
	if err != nil {
		return observation{}, fmt.Errorf("look at the own session and the cluster's clock: %w", err)
	}
	if beat != nil {
		g.beat = *beat
	}
	l.clock.observe(before, time.Now(), cluster)
	g.now = l.clock.now()
	g.now.Store = musiccore.Stamp(cluster.UnixMicro())
	return g, nil
}

// look looks at the own row and the cluster's clock, and ends the session where these say so.
func (l *heartbeat) look(ctx context.Context) error {
	self := l.self.Load()
	g, err := l.observe(ctx, self, "")
	if err != nil {
		return err
	}
	return self.Saw(g.now, g.look, g.beat)
}

// write puts a beat into music.sessions, stamped by its own number: a clock that steps back must
// not hide it (C5).
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
