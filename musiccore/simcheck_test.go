package musiccore

import (
	"fmt"
	"time"
)

// checker knows the whole history of a simulation and says what must not be.
type checker struct {
	s       *sim
	keys    map[Key]*keyHistory
	owners  map[Key]map[Stamp]string // base → who
	stamps  map[Key]map[Stamp]bool
	grants  map[Key]map[LockRef]bool
	fences  map[Stamp]bool
	acks    int
	gets    int
	entries int
}

// keyHistory is what has been told to clients of one key. Values are compared
// by the stamp of the put that first wrote them.
type keyHistory struct {
	stampOf  map[int]Stamp
	ended    map[int]bool // the put is over: its client was told something
	excluded map[int]bool // an answer said that this put did not happen
	acked    Stamp        // highest stamp of an acknowledged put
	answered Stamp        // highest stamp that an answer showed
	entered  LockRef      // highest reference that got a ticket or started a Synch
}

func newChecker(s *sim) *checker {
	return &checker{
		s: s, keys: map[Key]*keyHistory{}, owners: map[Key]map[Stamp]string{},
		stamps: map[Key]map[Stamp]bool{}, grants: map[Key]map[LockRef]bool{}, fences: map[Stamp]bool{},
	}
}

func (c *checker) key(k Key) *keyHistory {
	if c.keys[k] == nil {
		c.keys[k] = &keyHistory{stampOf: map[int]Stamp{}, ended: map[int]bool{}, excluded: map[int]bool{}}
		c.owners[k], c.stamps[k], c.grants[k] = map[Stamp]string{}, map[Stamp]bool{}, map[LockRef]bool{}
	}
	return c.keys[k]
}

// row is I1: every LWT moves the row forward.
func (c *checker) row(k Key, from, to *Row) {
	if from == nil {
		return
	}
	if to.Guard < from.Guard || to.Head < from.Head || to.Base < from.Base {
		c.s.fail("I1: %+v -> %+v", *from, *to)
	}
	if !to.sameTerm(*from) && to.Base <= from.Base {
		c.s.fail("I1: a term change without a higher base: %+v -> %+v", *from, *to)
	}
}

// entering is a ticket or a Synch of a reference.
func (c *checker) entering(p *proxy, k Key, r LockRef, base Stamp) {
	h := c.key(k)
	h.entered = max(h.entered, r)
	who := fmt.Sprintf("%x/%d", p.session.id[:2], r)
	if old, ok := c.owners[k][base]; ok && old != who {
		c.s.fail("I2: window %d of %v is used by %s and %s", base, k, old, who)
	}
	c.owners[k][base] = who
	c.entries++
}

// ticketed is I2 and I12: stamps are unique and in their window.
func (c *checker) ticketed(p *proxy, tk Ticket, value int) {
	c.entering(p, tk.Key, tk.Ref, tk.Base)
	if tk.Kind != Put {
		return
	}
	c.stamp(tk.Key, tk.Stamp, tk.Base)
	c.key(tk.Key).stampOf[value] = tk.Stamp
}

func (c *checker) stamp(k Key, s, base Stamp) {
	if c.stamps[k][s] {
		c.s.fail("I2: stamp %d is used twice", s)
	}
	if s <= base || s >= base+c.s.opts.Window {
		c.s.fail("I12: stamp %d is not in the window of %d", s, base)
	}
	c.stamps[k][s] = true
}

// synching is a Copy sent by a term.
func (c *checker) synching(p *proxy, k Key, a Copy) {
	if p.core.keys[k] == nil || p.core.keys[k].term == nil {
		c.s.fail("a Synch of %v without a term: %+v", k, p.core.keys[k])
		return
	}
	t := p.core.keys[k].term
	c.entering(p, k, t.place.ref, t.base)
	c.stamp(k, a.Fence, t.base)
	c.stamp(k, a.Fence+1, t.base)
	if t.flight.puts > 0 {
		c.s.fail("Synch with a put in flight")
	}
}

func (c *checker) copied(m mutation) { c.fences[m.dead] = true }

// told is an operation whose client was told its outcome, at this moment.
func (c *checker) told(tk Ticket, value int) {
	h := c.key(tk.Key)
	if h.entered > tk.Ref {
		c.s.fail("I3: reference %d is told an outcome after %d has entered", tk.Ref, h.entered)
	}
	if tk.Kind == Put {
		c.acks++
		h.acked = max(h.acked, tk.Stamp)
		if h.excluded[value] {
			c.s.fail("I4: an excluded put is acknowledged")
		}
	}
}

// answered is a get that was told a value: begun when `floor` was the highest
// acknowledged or shown stamp, and `over` the puts that had ended by then.
func (c *checker) answered(tk Ticket, value int, floor Stamp, over []int) {
	c.told(tk, value)
	c.gets++
	h := c.key(tk.Key)
	s := h.stampOf[value]
	if s < floor {
		c.s.fail("I4: key %v answers value %d of stamp %d below %d", tk.Key, value, s, floor)
	}
	if h.excluded[value] {
		c.s.fail("I4/C9: value %d has come back after an answer without it", value)
	}
	for _, v := range over {
		if h.stampOf[v] > s {
			h.excluded[v] = true
		}
	}
	h.answered = max(h.answered, s)
}

func (c *checker) floor(k Key) (Stamp, []int) {
	h := c.key(k)
	var over []int
	for v := range h.ended {
		if h.stampOf[v] > h.acked && !h.excluded[v] {
			over = append(over, v)
		}
	}
	return max(h.acked, h.answered), over
}

func (c *checker) granted(k Key, r LockRef, at time.Duration) {
	c.key(k)
	if c.grants[k][r] {
		c.s.fail("C15: reference %d granted twice, now at %v", r, at)
	}
	c.grants[k][r] = true
}
