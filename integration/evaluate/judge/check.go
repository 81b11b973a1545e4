package judge

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Fault is a way to break entry consistency under failures.
type Fault string

// The faults. The first two break exclusivity, the others the latest state.
const (
	// TwoHolders: an operation was acknowledged that was called after one of a later section had been
	// acknowledged.
	TwoHolders Fault = "two holders"
	// AfterTaken: an operation was acknowledged that was called when its section had been taken away.
	AfterTaken Fault = "acknowledged after the section was taken away"
	// LostPut: a get returned what an acknowledged put had replaced.
	LostPut Fault = "an acknowledged put is lost"
	// LatePut: a get returned a put, its own section's or that of an earlier one, after a later section had
	// read or written something else, and the put had not been acknowledged before.
	LatePut Fault = "a put of an ended section came late"
	// Neither: a get returned what no put left there: nothing, a refused put, or what nobody put.
	Neither Fault = "a read of neither value"
	// Undecided: the history of a key is too long to be checked.
	Undecided Fault = "not decided"
)

// Violation is a fault with what shows it.
type Violation struct {
	Fault Fault
	Ops   []Op // those that contradict each other, the earlier first
}

// String returns the violation as a person reads it, one operation a line.
func (v Violation) String() string {
	var b strings.Builder
	b.WriteString(string(v.Fault))
	for _, o := range v.Ops {
		b.WriteString("\n\t" + o.String())
	}
	return b.String()
}

// checkLimit is how long one key may take to check.
const checkLimit = time.Minute

// Check returns what is wrong with the history, of every key; nothing where all is well. Clients may
// have any number of keys, and sections any number of operations.
func (h *History) Check() []Violation {
	byKey := map[string][]Op{}
	var keys []string
	for _, o := range h.Ops() {
		if byKey[o.Key] == nil {
			keys = append(keys, o.Key)
		}
		byKey[o.Key] = append(byKey[o.Key], o)
	}
	slices.Sort(keys)
	var all []Violation
	for _, key := range keys {
		all = append(all, exclusive(byKey[key])...)
		all = append(all, latest(byKey[key])...)
	}
	return all
}

// holding is a section that was entered.
type holding struct {
	enter Op
	taken time.Duration // forever if it was not
	shown time.Duration // when its first get or put was acknowledged; forever if none was
}

// before reports whether the section was entered before another: by the tokens if both have one.
func (s holding) before(other holding) bool {
	if s.enter.Token != 0 && other.enter.Token != 0 {
		return s.enter.Token < other.enter.Token
	}
	return s.enter.Returned < other.enter.Returned
}

// id names a section.
func (o Op) id() [2]int { return [2]int{o.Client, o.Section} }

// holdings returns the sections of a key that were entered.
func holdings(ops []Op) map[[2]int]holding {
	all := map[[2]int]holding{}
	for _, o := range ops {
		if o.Kind == Enter && o.Outcome == Done {
			all[o.id()] = holding{enter: o, taken: forever, shown: forever}
		}
	}
	for _, o := range ops {
		s, entered := all[o.id()]
		switch {
		case !entered || o.Outcome != Done:
			continue
		case o.Kind == Taken:
			s.taken = min(s.taken, o.Returned)
		case o.Kind == Get || o.Kind == Put:
			s.shown = min(s.shown, o.Returned)
		}
		all[o.id()] = s
	}
	return all
}

// exclusive returns, for each section, its first acknowledged operation that was called after the
// section had been taken away, or after an operation of a later section had been acknowledged. An
// acknowledged Enter is not enough: the grant may be older than its answer.
func exclusive(ops []Op) (all []Violation) {
	sections := holdings(ops)
	told := map[[2]int]bool{}
	for _, o := range ops {
		mine, entered := sections[o.id()]
		if !entered || told[o.id()] || o.Outcome != Done || o.Kind != Get && o.Kind != Put {
			continue
		}
		later, overtaken := overtakes(sections, mine, o.Called)
		switch {
		case o.Called > mine.taken:
			all = append(all, Violation{AfterTaken, []Op{mine.enter, takes(ops, o.id()), o}})
		case overtaken:
			all = append(all, Violation{TwoHolders, []Op{mine.enter, later.enter, o}})
		default:
			continue
		}
		told[o.id()] = true
	}
	return all
}

// overtakes returns a later section with an acknowledged operation before a time.
func overtakes(sections map[[2]int]holding, mine holding, at time.Duration) (first holding, found bool) {
	for _, other := range sections {
		if mine.before(other) && other.shown < at && (!found || other.shown < first.shown) {
			first, found = other, true
		}
	}
	return first, found
}

// takes returns the first operation that took a section away.
func takes(ops []Op, id [2]int) Op {
	i := slices.IndexFunc(ops, func(o Op) bool { return o.Kind == Taken && o.id() == id })
	return ops[i]
}

// latest returns the first get of a key that does not follow from the puts, with the put that it
// contradicts.
func latest(ops []Op) []Violation {
	switch porcupine.CheckOperationsTimeout(register(), bounded(ops), checkLimit) {
	case porcupine.Illegal:
	case porcupine.Unknown:
		return []Violation{{Undecided, nil}}
	case porcupine.Ok:
		return nil
	}
	var gets []Op
	for _, o := range ops {
		if o.Kind == Get && o.Outcome == Done {
			gets = append(gets, o)
		}
	}
	slices.SortStableFunc(gets, func(a, b Op) int { return int(min(max(a.Returned-b.Returned, -1), 1)) })
	// If a history has a contradiction, so has every longer one.
	i := sort.Search(len(gets)-1, func(i int) bool {
		return porcupine.CheckOperationsTimeout(register(), bounded(until(ops, gets[i].Returned)), checkLimit) == porcupine.Illegal
	})
	return []Violation{why(ops, gets[i])}
}

// until returns the operations that had been called by a time, with what was known then.
func until(ops []Op, at time.Duration) (all []Op) {
	for _, o := range ops {
		switch {
		case o.Called > at || o.Kind == Get && o.Returned > at:
		case o.Returned > at && o.Kind == Put && o.Outcome == Done:
			o.Outcome, o.Returned = Unknown, forever
			all = append(all, o)
		default:
			all = append(all, o)
		}
	}
	return all
}

// why returns what an inexplicable get contradicts: the put that it returned, and what came after that.
func why(ops []Op, g Op) Violation {
	sections := holdings(ops)
	var read *Op
	for i, o := range ops {
		if o.Kind == Put && o.Value == g.Value && o.Outcome != Refused {
			read = &ops[i]
		}
	}
	newest := replaced(ops, sections, read, g)
	fault, after := Neither, newest
	switch {
	case newest != nil && (read == nil && g.Value == "" || read != nil && read.Outcome == Done):
		fault = LostPut
	case read != nil:
		fault = LatePut
		after = cmp.Or(decides(ops, sections, *read, g), newest)
	}
	v := Violation{Fault: fault}
	for _, o := range []*Op{read, after} {
		if o != nil {
			v.Ops = append(v.Ops, *o)
		}
	}
	v.Ops = append(v.Ops, g)
	return v
}

// replaced returns the acknowledged put called last of those that were called when the one that a get returned, if it was of any, had
// been acknowledged, and took effect before the get; nil if there is none.
func replaced(ops []Op, sections map[[2]int]holding, read *Op, g Op) (newest *Op) {
	for i, o := range ops {
		if o.Kind != Put || o.Outcome != Done || o.Value == g.Value || ended(ops, sections, o) >= g.Called {
			continue
		}
		if (read == nil || read.Returned < o.Called) && (newest == nil || o.Called > newest.Called) {
			newest = &ops[i]
		}
	}
	return newest
}

// decides returns the first acknowledged operation of a later section that was called after a put, and before a get that returned it,
// and read or wrote something else; nil if there is none.
func decides(ops []Op, sections map[[2]int]holding, put, g Op) *Op {
	mine, entered := sections[put.id()]
	i := slices.IndexFunc(ops, func(o Op) bool {
		return (o.Kind == Get || o.Kind == Put) && o.Outcome == Done && o.Value != put.Value &&
			put.Called < o.Called && o.Called < g.Called && entered && mine.before(sections[o.id()])
	})
	if i < 0 {
		return nil
	}
	return &ops[i]
}

// bounded returns the gets and puts with the time within which each took effect, if it did. A put did
// so before the next acknowledged get or put of a later section was called, and one that was not
// acknowledged may also never do so: that is what entry consistency under failures allows a preempted
// put. Gets that were not answered, and what was refused, tell nothing.
func bounded(ops []Op) []porcupine.Operation {
	sections := holdings(ops)
	var all []porcupine.Operation
	for _, o := range ops {
		if o.Kind != Get && o.Kind != Put || o.Outcome == Refused || o.Kind == Get && o.Outcome != Done {
			continue
		}
		end := o.Returned
		if o.Kind == Put {
			end = ended(ops, sections, o)
		}
		all = append(all, porcupine.Operation{ClientId: o.Client, Input: o, Output: o, Call: int64(o.Called), Return: int64(end)})
	}
	return all
}

// ended returns the latest time at which a put may take effect.
func ended(ops []Op, sections map[[2]int]holding, put Op) time.Duration {
	end := put.Returned
	if put.Outcome == Unknown {
		end = forever
	}
	mine, entered := sections[put.id()]
	for _, next := range ops {
		if !entered {
			break // put without a section
		}
		if mine.before(sections[next.id()]) && next.Outcome == Done && (next.Kind == Get || next.Kind == Put) && next.Called > put.Called {
			end = min(end, next.Called-1) // intervals are closed
		}
	}
	return end
}

// register is a cell that holds the value put last. A put of unknown outcome may also have done
// nothing.
func register() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{""} },
		Step: func(state, in, _ any) []any {
			o := in.(Op) //nolint:forcetypeassert // bounded made it
			switch {
			case o.Kind == Get && state == o.Value:
				return []any{state}
			case o.Kind == Get:
				return nil
			case o.Outcome == Done:
				return []any{o.Value}
			}
			return []any{o.Value, state}
		},
		DescribeOperation: func(in, _ any) string { return fmt.Sprint(in) },
	}
	return m.ToModel()
}
