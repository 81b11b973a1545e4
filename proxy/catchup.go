package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// catchUpEvery is the least time from one reading of the schema for clients' writes to the next,
// whatever tables they name.
const catchUpEvery = 20 * time.Millisecond

// readings counts the readings of the schema, so that those who need one at the same time share it.
type readings struct {
	turn  chan struct{} // holds one while somebody reads
	last  time.Time     // when the last one of them ended; for who has the turn
	begun atomic.Uint64
	ended atomic.Uint64 // number of the last reading that was published
}

// newReadings counts from nothing.
func newReadings() readings { return readings{turn: make(chan struct{}, 1)} }

// begin numbers a reading that begins.
func (u *readings) begin() uint64 { return u.begun.Add(1) }

// end notes that what a reading has shown is published. Readings end in order.
func (u *readings) end(reading uint64) { u.ended.Store(reading) }

// readings reads the schema for a client's write on a table that it did not have. It returns when a
// reading is published that began after the call, or after homeLimit.
func (s *schema) catchUp() {
	ctx, cancel := context.WithTimeout(context.Background(), homeLimit)
	defer cancel()
	before := s.readings.begun.Load()
	select {
	case s.readings.turn <- struct{}{}:
		defer func() { <-s.readings.turn }()
	case <-ctx.Done():
		return
	}
	if s.readings.ended.Load() > before || !pause(ctx, time.Until(s.readings.last.Add(catchUpEvery))) {
		return
	}
	if _, err := s.refresh(ctx); err != nil {
		s.log.Debug().Err(err).Msg("the schema was read for a table that was not in it")
	}
	s.readings.last = time.Now()
}

// versionCheck is what the last look at the schema's version has told.
type versionCheck struct {
	mu      sync.Mutex
	at      time.Time
	current bool
}

// isCurrent reports whether tables are those of Cassandra's present schema. It looks at most once
// every laggardPoll, and blocks for homeLimit at most.
func (s *schema) isCurrent() bool {
	f := &s.currency
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) < laggardPoll {
		return f.current
	}
	ctx, cancel := context.WithTimeout(context.Background(), homeLimit)
	defer cancel()
	version, _, err := s.version(ctx)
	known := s.known.Load()
	f.at, f.current = time.Now(), err == nil && known != nil && version == *known
	return f.current
}
