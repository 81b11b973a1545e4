package musiccore

import "time"

// Listing is one reference as this proxy knows it, for people (docs/design.md 5, LIST LOCKS).
type Listing struct {
	Key      Key
	Ref      LockRef // 0: not decided yet
	State    State   // Held or Queued
	Owner    string
	Age      time.Duration // since the grant, or since the LOCK
	Lease    time.Duration // left of a held one
	Position int           // references ahead
}

// List returns who holds and who waits here, in the order of the queues; if only is not zero, those
// of its table or key. It changes nothing.
func (c *Core) List(now Now, only Key) []Listing {
	var all []Listing
	for _, k := range c.matching(only) {
		for _, e := range k.queue.numbered {
			all = k.list(all, now, e)
		}
		for _, r := range k.blocks.list {
			for _, e := range r.waiters {
				all = k.list(all, now, e)
			}
		}
		for _, e := range k.queue.unnumbered {
			all = k.list(all, now, e)
		}
	}
	return all
}

// list appends the listing of an entry that somebody may still use.
func (k *key) list(all []Listing, now Now, e *entry) []Listing {
	if e.abandoned || e.phase == phaseEnded || e.standsForBlock() {
		return all
	}
	g := k.grantOf(now, e)
	return append(all, Listing{
		Key: k.id, Ref: e.ref, State: g.State, Owner: e.identity.name, Age: now.Boot - e.since, Lease: g.Lease, Position: g.Position,
	})
}
