package musiccore

// preempt passes over the head of a dead session, and over dead sessions right behind it, once the
// grace is over (docs/protocol.md 3.12, Preempt; paper §IV forcedRelease).
func (k *key) preempt(now Now) {
	x, foreign := k.remoteHead()
	if !foreign || !k.headAwaited(now) || k.adoptedHead() {
		return
	}
	r := k.view.row
	k.watchAhead(now)
	w := k.c.watch(now, x)
	if !w.dead || k.view.quorumEpoch != r.Epoch {
		return
	}
	if now.Boot < w.deadAt+k.c.opts.Grace && !r.retained(r.Head) { // a retained block goes on nowhere
		return
	}
	k.startLWT(now, lwt{purpose: purposePreempt, swap: Preempt(r, r.Next(k.passable(now)), k.c.opts.Window, now.Clk)})
}

// passable returns which references a Preempt passes over: those of sessions that have been dead
// for the grace, if no client of theirs waits here.
func (k *key) passable(now Now) func(LockRef, SessionID) bool {
	return func(r LockRef, x SessionID) bool {
		w := k.c.watches[x]
		return w != nil && w.dead && now.Boot >= w.deadAt+k.c.opts.Grace && k.liveEntry(r) == nil
	}
}

// watchAhead watches every session that is ahead, not only that of the head, so that sessions that
// died together are passed over together.
func (k *key) watchAhead(now Now) {
	r := k.view.row
	for _, b := range r.Queue {
		if b.Last() >= r.Head && b.Session != k.c.self.id {
			k.c.watch(now, b.Session)
		}
	}
}
