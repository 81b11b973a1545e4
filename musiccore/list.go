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

// List returns who holds and who waits here, each key's in the order of its queue; if only is not
// zero, those of its table or key. It returns at most so many, of any keys, since there may be a
// million. It changes nothing.
func (c *Core) List(now Now, only Key, most int) (all []Listing) {
	if only.PK != "" {
		if k := c.keys[only]; k != nil {
			all = k.listAll(all, now)
		}
		return all[:min(len(all), most)]
	}
	for id, k := range c.keys {
		if len(all) >= most {
			break
		}
		if id.Table == only.Table || only.Table == [16]byte{} {
			all = k.listAll(all, now)
		}
	}
	return all[:min(len(all), most)]
}

// listAll appends the listings of a key, in the order of its queue.
func (k *key) listAll(all []Listing, now Now) []Listing {
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
