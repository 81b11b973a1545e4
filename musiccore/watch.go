package musiccore

import "time"

// beatEvery is how often the beat of a watched session is read.
const beatEvery = time.Second

// watchFor is how long a watch goes on after a key last asked for it.
const watchFor = 5 * time.Second

// maxDeadSessions bounds the dead sessions that are remembered.
const maxDeadSessions = 256

// watch finds out whether another session is dead (docs/protocol.md 3.3): it observes the session's
// beat, by the own BOOTTIME and raw clock only. The interval counts from the END of the read that
// first showed a value to the START of a later one that still shows it (C5); a missing row is a
// value, too.
type watch struct {
	c      *Core
	id     SessionID
	cmd    CommandID // the read under way
	start  Now       // read before that read began
	seen   bool
	beat   int64
	lease  time.Duration // as written beside the beat
	since  Now           // not before the end of the first read of beat
	dead   bool
	deadAt time.Duration
	until  time.Duration
	timer  timer
}

// watch observes a session for a while; further calls extend that time.
func (c *Core) watch(now Now, x SessionID) *watch {
	w := c.watches[x]
	if w == nil {
		w = &watch{c: c, id: x}
		w.timer.who = w
		c.watches[x] = w
	}
	w.until = max(w.until, now.Boot+watchFor)
	if !w.dead && w.timer.slot == 0 && w.cmd == 0 {
		w.due(now)
	}
	return w
}

// due starts a read of the beat, or ends a watch that is no longer wanted.
func (w *watch) due(now Now) {
	if w.dead || w.cmd != 0 {
		return
	}
	if now.Boot >= w.until {
		delete(w.c.watches, w.id)
		return
	}
	w.start = now
	w.cmd = w.c.do(Key{}, ReadBeat{Session: w.id})
	w.c.commands[w.cmd] = w
}

// reply takes the result of a ReadBeat.
func (w *watch) reply(now Now, _ CommandID, r Result) {
	w.cmd = 0
	defer w.setTimer(now)
	if r.Status != StatusDone {
		return
	}
	w.lease = max(w.lease, r.Lease)
	switch {
	case r.Beat == EndedBeat:
		w.declareDead(now)
	case !w.seen || r.Beat != w.beat:
		w.seen, w.beat, w.since = true, r.Beat, now
	case w.start.Since(w.since) >= w.deadAfter():
		w.declareDead(now)
	}
}

// setTimer sets the time of the next read: at intervals, and as soon as a read could find the
// session dead.
func (w *watch) setTimer(now Now) {
	if w.dead {
		return
	}
	at := now.Boot + beatEvery
	if last := w.since.Boot + w.deadAfter(); w.seen && last > now.Boot {
		at = min(at, last)
	}
	w.c.timers.set(&w.timer, at)
}

// deadAfter returns how long the beat must not change.
func (w *watch) deadAfter() time.Duration { return w.c.opts.DeadAfter(w.lease) }

// declareDead records that the session is dead. That is final, since a session never comes back.
func (w *watch) declareDead(now Now) {
	c := w.c
	w.dead, w.deadAt = true, now.Boot
	c.timers.stop(&w.timer)
	c.deadSessions = append(c.deadSessions, w.id)
	if len(c.deadSessions) > maxDeadSessions {
		delete(c.watches, c.deadSessions[0])
		c.deadSessions = c.deadSessions[1:]
	}
}

// observe watches a session for a client's operation, for so long that a client that tries again is
// served once the session is dead. known is false before the first read, which may find that the
// session has ended by itself.
func (c *Core) observe(now Now, x SessionID) (known, dead bool) {
	w := c.watch(now, x)
	w.until = max(w.until, now.Boot+2*w.deadAfter())
	return w.seen || w.dead, w.dead
}

// deadAfter returns how long the beat of a session must not change, as far as its lease is known.
func (c *Core) deadAfter(x SessionID) time.Duration {
	if w := c.watches[x]; w != nil {
		return w.deadAfter()
	}
	return c.opts.DeadAfter(0)
}

// dead reports whether a session was found dead.
func (c *Core) dead(x SessionID) bool {
	w := c.watches[x]
	return w != nil && w.dead
}
