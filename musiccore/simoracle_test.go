package musiccore

import (
	"errors"
	"time"
)

// moment is the progress of a key at one moment: its highest reference in use, its highest granted
// reference, its highest epoch.
type moment struct {
	entered, opened LockRef
	last            Stamp
	lender          bool // a lender made the verdict, and the moment is its
	suspect         bool // the lender was, then
}

func (c *checker) moment(k Key) moment {
	h := c.key(k)
	return moment{entered: h.entered, opened: h.opened, last: h.last}
}

// told checks an operation whose client is told its outcome: I3, E2, C5, C12. The state of the key
// counts as it was when the store answered, since a strict table's verdict, which comes later, is
// about that moment. It returns false if the clocks' rates excuse a wrong answer.
func (c *checker) told(p *proxy, tk Ticket, h moment) bool {
	other := c.window(tk.Key, h.last).session != c.window(tk.Key, tk.Epoch).session
	suspect := c.suspects(p, tk, h)
	switch after := max(h.entered, h.opened); {
	case (c.s.wild || suspect) && !c.s.strict && (after > tk.Ref || other || c.outlasted(tk)):
		c.s.metIf(c.s.wild, wildTold)
		return false
	case h.entered > tk.Ref:
		c.s.fail("I3: reference %d is told an outcome after %d has entered", tk.Ref, h.entered)
	case other:
		c.s.fail("I3: reference %d is told an outcome after it has entered elsewhere", tk.Ref)
	case h.opened > tk.Ref:
		c.s.fail("E2: reference %d is told an outcome after %d was granted", tk.Ref, h.opened)
	}
	// In a strict table, and for a lock of one statement, a read of the row decides, not the session.
	if !h.lender && !p.valid() && !c.s.strict && !c.window(tk.Key, tk.Epoch).once {
		c.s.fail("C5/C12: an outcome is told without a valid session")
	}
	if c.s.strict || !suspect {
		c.final(tk, h.lender)
	}
	return true
}

// outlasted reports whether the lender of a ticket of a loan no longer waits for the loan.
func (c *checker) outlasted(tk Ticket) bool {
	if tk.Loan == 0 {
		return false
	}
	k := c.s.bySession[tk.Lender].core.keys[tk.Key]
	return k == nil || k.term == nil || k.term.id != tk.Term || k.term.ops.flight.over(tk.Number)
}

// suspects reports whether clocks that stood still excuse what a client is told: those of the proxy
// that made the verdict or, of a loan, those of the lender when it lent.
func (c *checker) suspects(p *proxy, tk Ticket, at moment) bool {
	if at.lender {
		return at.suspect
	}
	return p.suspect() || (tk.Loan != 0 && c.key(tk.Key).doubtful[issue{epoch: tk.Epoch, number: tk.Number}])
}

// final checks E9: nothing succeeds under a reference that a client was told is lost. In a strict
// table this covers only operations that began after that: whoever ended the reference need not
// have waited for those in flight. A lender makes its verdict before it tells anybody that the reference
// is lost, and the borrower tells the verdict later.
func (c *checker) final(tk Ticket, lender bool) {
	h := c.key(tk.Key)
	if h.late[issueOf(tk)] || (h.lost[tk.Ref] && !c.s.strict && !lender) {
		c.s.fail("E9: reference %d was told to be lost, and then an outcome is told", tk.Ref)
	}
}

// lost records that a client was told that a reference is lost. That of a lock for one statement is
// told to nobody: a client that names it guesses.
func (c *checker) lost(k Key, r LockRef) {
	if r != 0 && !c.s.wild && !c.key(k).once[r] {
		c.key(k).lost[r] = true
	}
}

// ackedPut checks a put whose client is told of success.
func (c *checker) ackedPut(p *proxy, tk Ticket, v int, at moment) {
	h := c.key(tk.Key)
	c.s.tally.acks++
	if !c.told(p, tk, at) || h.issued[issueOf(tk)] != h.epoch {
		return
	}
	h.acked, h.root = max(h.acked, tk.Stamp), max(h.root, c.window(tk.Key, tk.Epoch).root)
	if c.values[v].excluded {
		c.s.fail("I4/E4: an excluded put is acknowledged: %v", c.named(v))
	}
}

// over records that a put has ended: a later answer without it excludes it for ever.
func (c *checker) over(k Key, v int) {
	h := c.key(k)
	h.ended = append(h.ended, v)
	c.overs++
	c.values[v].over = c.overs
}

// getsAllowed returns what is known when a get begins. A put that ended after the get's ticket was
// given may be ordered behind the get, although the client, far from the proxy, reads later. still
// says that no put is in flight now.
func (c *checker) getsAllowed(tk Ticket, still bool) getting {
	h := c.key(tk.Key)
	kept := h.ended[:0]
	for _, v := range h.ended {
		if c.values[v].stamp > h.acked && !c.values[v].excluded {
			kept = append(kept, v)
		}
	}
	h.ended = kept
	var over []int
	for _, v := range kept {
		if c.values[v].over <= h.began[issueOf(tk)] {
			over = append(over, v)
		}
	}
	return getting{max(h.acked, h.answered), over, h.issued[issueOf(tk)], h.puts, still && len(over) == len(kept)}
}

// answeredGet checks a get whose client is told a value: I4, E3, E4.
func (c *checker) answeredGet(p *proxy, tk Ticket, v int, g getting, at moment) {
	h := c.key(tk.Key)
	c.s.tally.gets++
	if !c.told(p, tk, at) || g.epoch != h.epoch {
		return
	}
	s := c.values[v].stamp
	if s < g.floor {
		c.s.fail("I4/E3: a get answers %v, below stamp %d", c.named(v), g.floor)
	}
	if c.values[v].excluded {
		c.s.fail("E4/C9: a value has come back after an answer without it: %v", c.named(v))
	}
	if l := h.lastGet; g.still && l.ref == tk.Ref && l.puts == h.puts && g.puts == h.puts && l.value != v {
		c.s.fail("E3: two gets without a put between differ: %v, %v", c.named(l.value), c.named(v))
	}
	for _, o := range g.over {
		if c.values[o].stamp > s {
			c.values[o].excluded = true
		}
	}
	h.lastGet = lastGet{}
	if g.still && g.puts == h.puts {
		h.lastGet = lastGet{tk.Ref, v, h.puts}
	}
	h.answered, h.root = max(h.answered, s), max(h.root, c.window(tk.Key, tk.Epoch).root)
}

// holds takes what every quorum shows of a key as told: a get must not answer less.
func (c *checker) holds(k Key) {
	h, st := c.key(k), c.s.store
	for i, q := range st.quorums {
		told := c.values[st.data(k).sees(q).visible()].stamp
		if i == 0 || told < h.answered {
			h.answered = told
		}
	}
}

// reset forgets what clients were told, since the table was not critical for a while.
func (c *checker) reset(k Key) {
	h := c.key(k)
	h.epoch++
	h.acked, h.answered, h.root, h.ended, h.lastGet = 0, 0, 0, nil, lastGet{}
	for _, w := range h.windows {
		w.synced, w.unfenced = false, false
	}
}

// landing has a mutation arrive at a replica, and checks I5, I8, and that no quorum ever shows less
// than clients were told.
func (c *checker) landing(k Key, m *mutation, i int) {
	st, h := c.s.store, c.key(k)
	d := st.data(k)
	older := m.root < h.root
	if !older && m.dead == 0 {
		d.cells[i].take(m)
		return
	}
	var before [10]int
	for n, q := range st.quorums {
		before[n] = d.sees(q).visible()
	}
	was := d.cells[i].visible()
	d.cells[i].take(m)
	if was != 0 && m.value != 0 && d.cells[i].visible() == 0 {
		c.s.fail("I8: a Synch hides %v on a replica", c.named(was))
	}
	for n, q := range st.quorums {
		v := d.sees(q).visible()
		if older && v != before[n] {
			c.s.fail("I5: a mutation of an older term changes a read from %v to %v", c.named(before[n]), c.named(v))
		}
		if c.values[v].stamp < max(h.acked, h.answered) {
			c.s.fail("I8/I4: a quorum shows %v, below stamp %d", c.named(v), max(h.acked, h.answered))
		}
	}
	c.s.metIf(older && m.value != 0 && m.dead == 0, oldPutLanded)
	c.s.metIf(older && m.dead != 0, oldSynchLanded)
}

// answer checks the answer to an operation: no client is told HELD for a reference that was not
// granted.
func (c *checker) answer(p *proxy, w pendingAnswer, a Answer) {
	k := w.key
	if a.Ticket.OK() {
		c.ticketed(p, a.Ticket)
	}
	switch {
	case errors.Is(a.Err, ErrLost), a.Verdict == VerdictLost:
		c.lost(k, w.ref)
	case a.Grant.State == StateLost && w.far: // told when the borrower hears of it, if it has not passed the lock on
	case a.Grant.State == StateLost:
		c.lost(k, a.Grant.Ref)
	case a.Err == nil && a.Grant.State == StateHeld && c.key(k).lost[a.Grant.Ref] && !c.s.strict && !p.suspect():
		c.s.fail("E9: reference %d was told to be lost, and then HELD", a.Grant.Ref)
	}
	if a.Grant.State == StateQueued && a.Grant.Ref != 0 && p.core.keys[k] != nil {
		at := p.core.keys[k].findEntry(a.Grant.Ref)
		c.s.metIf(at != nil && at.block != nil && !at.standsForBlock(), toldInLine)
	}
	if a.Err == nil && a.Grant.State == StateHeld && !c.key(k).granted(a.Grant.Ref, p.session.id) && !c.key(k).passed[a.Grant.Ref] && !c.s.wild && !p.suspect() {
		c.s.fail("E1: reference %d is told HELD and was not granted", a.Grant.Ref)
	}
}

// granted reports whether a session was granted a reference.
func (h *history) granted(ref LockRef, session SessionID) bool {
	return h.holder[ref] == session || h.excused[ref] == session
}

// verdicts checks the sessions that a process has newly found dead: I9.
func (c *checker) verdicts(p *proxy) {
	f := p.core.deadSessions
	for ; p.fallen < len(f); p.fallen++ {
		x := f[p.fallen]
		owner := c.s.bySession[x]
		c.dead[x] = true
		c.s.tell("proxy %d finds session %x dead", p.n, x[:2])
		if owner.session.id != x || !owner.valid() {
			continue
		}
		if owner.suspect() {
			c.s.met(frozenDead)
			continue
		}
		if !c.s.wild {
			c.s.fail("I9: session %x is found dead and is valid", x[:2])
		}
		c.s.met(wildDead)
	}
}

// local records what is missing in the result of a LOCAL_ONE read.
func (c *checker) local(r *lockRow, v version) {
	n := len(r.commits)
	c.s.metIf(max(v.q, v.t) < n, staleLocal)
	c.s.metIf(v.q != 0 && v.t != 0 && v.q < v.t && r.commits[v.t-1].row.Guard != r.commits[v.q-1].row.Guard, gapLocal)
}

func (c *checker) served() map[Key]int {
	n := map[Key]int{}
	for k, h := range c.keys {
		n[k] = h.grants
	}
	return n
}

func (c *checker) allServed(before map[Key]int) bool {
	for _, k := range c.s.keys {
		if c.key(k).grants <= before[k] {
			return false
		}
	}
	return true
}

// waited checks E6: after the faults have ended, no operation waits longer than any answer may
// take.
func (c *checker) waited(within time.Duration) {
	for _, p := range c.s.proxies {
		for op, w := range p.waits {
			if since := max(w.since, p.paused, c.s.healed); !p.quit && c.s.now-since > within {
				c.s.fail("E6: operation %d of proxy %d has no answer after %v", op, p.n, c.s.now-since)
			}
		}
	}
}
