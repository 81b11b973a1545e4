package musiccore

import "time"

// Listing is one reference as this proxy knows it, for people (docs/design.md 5,
// LIST LOCKS).
type Listing struct {
	Key      Key
	Ref      LockRef // 0: not decided yet
	State    State   // Held or Queued
	Owner    string
	Age      time.Duration // since the grant, or since the LOCK
	Lease    time.Duration // left of a held one
	Position int           // references ahead
}

// List tells who holds and who waits here, in the order of the queues. It
// changes nothing.
func (c *Core) List(now Now) []Listing {
	var all []Listing
	for _, k := range c.sorted() {
		for _, p := range k.queued {
			all = k.list(all, now, p)
		}
		for _, r := range k.reserves {
			for _, p := range r.line {
				all = k.list(all, now, p)
			}
		}
		for _, p := range k.asking {
			all = k.list(all, now, p)
		}
	}
	return all
}

func (k *key) list(all []Listing, now Now, p *place) []Listing {
	if p.gone || p.phase == over || p.own() {
		return all
	}
	g := k.standing(now, p)
	return append(all, Listing{
		Key: k.id, Ref: p.ref, State: g.State, Owner: p.owner, Age: now.Boot - p.since, Lease: g.Lease, Position: g.Position,
	})
}
