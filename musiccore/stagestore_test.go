package musiccore

import (
	"fmt"
	"slices"
)

const stageReplicas = 3

// stageStore is the store: lock rows as store has them, the data of each key on three replicas, and life signs.
type stageStore struct {
	s       *stage
	keys    map[string]*stageKey
	beats   map[SessionID]int64
	order   []int // which replicas a QUORUM prefers
	dead    [stageReplicas]bool
	lwt     string   // what befalls the next LWT
	parked  []func() // LWTs that hang
	copyTo  []int    // the next synchronise reaches these replicas and is not answered
	torn    bool
	large   bool
	hanging map[string]func() // puts on their way, by value
	served  []Action
}

// stageKey is one key: its lock row, all rows that it was, and its data.
type stageKey struct {
	*fakeStore
	past []*Row
	data [stageReplicas]cell
}

func (st *stageStore) key(pk string) *stageKey {
	if st.keys[pk] == nil {
		st.keys[pk] = &stageKey{fakeStore: &fakeStore{beat: st.beats}, past: []*Row{nil}}
	}
	return st.keys[pk]
}

// alive are the replicas that are up, in the order in which a QUORUM prefers them.
func (st *stageStore) alive() []int {
	return slices.DeleteFunc(slices.Clone(st.order), func(r int) bool { return st.dead[r] })
}

func (st *stageStore) reachable() bool { return len(st.alive()) > stageReplicas/2 }

// serve carries out one command.
func (st *stageStore) serve(p *stageProxy, c Command) {
	st.served = append(st.served, c.Action)
	back := func(r Result) { p.when(func() { p.take(p.core.Reply(p.time(), c.ID, r)) }) }
	if p.cut || !st.reachable() {
		back(unknown)
		return
	}
	k := st.key(c.Key.PK)
	switch a := c.Action.(type) {
	case Apply:
		st.swap(k, a, fmt.Sprint(p.name, " ", p.core.keys[c.Key].lwt.purpose), back)
	case Synch:
		back(st.copy(k, a, p.name))
	case ReadStamps:
		top := st.read(k).stamp
		st.s.tell("%s reads the highest stamp: %s", p.name, st.s.stamp(top))
		back(Result{Status: StatusDone, Stamp: top})
	case ReadRow:
		if !a.Quorum && p.lagging > 0 {
			back(Result{Status: StatusDone, Row: k.past[max(0, len(k.past)-1-p.lagging)]})
			return
		}
		back(k.do(a))
	default:
		back(k.do(a))
	}
}

// swap is an LWT and what the play does to it.
func (st *stageStore) swap(k *stageKey, a Apply, who string, back func(Result)) {
	decide := func() Result {
		r := k.do(a)
		if r.Status == StatusDone {
			k.past = append(k.past, k.row)
			st.s.tell("%s: %s", who, st.s.row(*k.row))
		} else {
			st.s.tell("%s: refused", who)
		}
		return r
	}
	fate := st.lwt
	st.lwt = ""
	switch fate {
	case "applied":
		decide()
		st.s.tell("%s: nobody hears of it", who)
	case "lost":
		st.s.tell("%s: lost on the way", who)
	case "late":
		st.s.tell("%s: told unknown, and still on its way", who)
		st.parked = append(st.parked, func() { decide() })
	case "hangs":
		st.s.tell("%s: on its way", who)
		st.parked = append(st.parked, func() { back(decide()) })
		return
	default:
		back(decide())
		return
	}
	back(unknown)
}

// row is a lock row on one line, but for its queue.
func (s *stage) row(r Row) string {
	text := fmt.Sprintf("head %d, guard %d, epoch %s", r.Head, r.Guard, s.stamp(r.Epoch))
	if r.Dirty {
		text += ", dirty"
	}
	if r.Owner != (SessionID{}) {
		text += fmt.Sprintf(", owner s%d", r.Owner[0])
	}
	return text
}

// read is the key as two replicas have it. Nothing is repaired.
func (st *stageStore) read(k *stageKey) cell {
	two := st.alive()
	seen := k.data[two[0]]
	seen.join(k.data[two[1]])
	return seen
}

// write puts a mutation on replicas.
func (st *stageStore) write(k *stageKey, m mutation, on []int) {
	for _, r := range on {
		k.data[r].take(&m)
	}
}

// copy is the one-page synchronise.
func (st *stageStore) copy(k *stageKey, a Synch, who string) Result {
	seen := st.read(k)
	value := seen.visible()
	if st.large {
		st.s.tell("%s cannot synchronise: a row is too large", who)
		return Result{Status: StatusTooLarge}
	}
	if seen.stamp >= a.Fence {
		st.s.tell("%s cannot synchronise at %s: there is a stamp at or above", who, st.s.stamp(a.Fence))
		return Result{Status: StatusAbove, Stamp: seen.stamp}
	}
	m := mutation{dead: a.Fence}
	if value != 0 {
		m.stamp, m.value = a.Fence+1, value
	}
	if st.torn {
		st.torn = false
		st.write(k, m, st.copyTo)
		st.s.tell("%s synchronises at %s: %s, and no answer", who, st.s.stamp(a.Fence), valueText(value))
		return unknown
	}
	st.write(k, m, st.alive())
	st.s.tell("%s synchronises at %s: %s", who, st.s.stamp(a.Fence), valueText(value))
	return Result{Status: StatusDone}
}

func valueText(v int) string {
	if v == 0 {
		return "nothing"
	}
	return fmt.Sprint(v)
}
