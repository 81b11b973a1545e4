package chaos

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// outcome is what a client was told about an operation.
type outcome uint8

const (
	unknown outcome = iota // it may have happened, or happen yet
	done
	refused // it has not happened, and never will
)

// op is one operation under a lock as its client saw it: a put of a value that is put only once, or
// a get.
type op struct {
	client           int
	key              string
	ref              int64
	put              bool
	value            int // put, or got; 0: nothing was there
	called, returned time.Duration
	outcome          outcome
	over             bool // of unknown outcome, and the proxy itself has said so: it will not begin any more
}

// String returns the operation as text.
func (o op) String() string {
	what := map[bool]string{true: "put", false: "get"}[o.put]
	end := map[outcome]string{unknown: "?", done: "", refused: " refused"}[o.outcome]
	return fmt.Sprintf("%s %s %d under %d by %d, %v–%v%s", o.key, what, o.value, o.ref, o.client, o.called, o.returned, end)
}

// history is what the clients did. It is safe for concurrent use.
type history struct {
	mu    sync.Mutex
	ops   []op
	began time.Time
}

func (h *history) now() time.Duration { return time.Since(h.began) }

func (h *history) add(o op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, o)
}

// count returns how many operations had an outcome.
func (h *history) count(x outcome) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.ops {
		if o.outcome == x {
			n++
		}
	}
	return n
}

// check looks for violations of entry consistency under failures (paper §III): exclusivity, and
// that a get returns the latest state. It returns a text for each violation.
func (h *history) check() []string {
	byKey := map[string][]op{}
	for _, o := range h.ops {
		if o.outcome != refused {
			byKey[o.key] = append(byKey[o.key], o)
		}
	}
	var faults []string
	for key, ops := range byKey {
		slices.SortFunc(ops, func(a, b op) int { return cmp.Compare(a.called, b.called) })
		faults = append(faults, exclusive(ops)...)
		switch porcupine.CheckOperationsTimeout(register(), bounded(ops), checkLimit) {
		case porcupine.Illegal:
			faults = append(faults, fmt.Sprintf("key %s: what was got does not follow from what was put: %v", key, ops))
		case porcupine.Unknown:
			faults = append(faults, fmt.Sprintf("key %s: not decided in %v", key, checkLimit))
		case porcupine.Ok:
		}
	}
	return faults
}

// checkLimit is how long one key may take to check.
const checkLimit = time.Minute

// exclusive checks that no operation is acknowledged that began after an operation of a later
// reference had been acknowledged.
func exclusive(ops []op) (faults []string) {
	for i, o := range ops {
		for _, later := range ops[:i] {
			if o.outcome == done && later.outcome == done && later.ref > o.ref && later.returned < o.called {
				faults = append(faults, fmt.Sprintf("two holders: %v, and then %v", later, o))
			}
		}
	}
	return faults
}

// bounded returns the operations, each with the time within which it took effect, if it did. One of
// unknown outcome took effect before the next acknowledged one of a later reference, or never,
// because of fencing. If the proxy has reported the end of the operation, the next acknowledged one
// of its own reference counts, too, because of settling.
func bounded(ops []op) []porcupine.Operation {
	var all []porcupine.Operation
	for i, o := range ops {
		end := o.returned
		if o.outcome == unknown {
			if !o.put {
				continue
			}
			end = math.MaxInt64
			for _, next := range ops[i+1:] {
				if next.outcome == done && next.called >= o.returned && (next.ref > o.ref || o.over && next.ref == o.ref) {
					end = min(end, next.called-1) // intervals are closed
				}
			}
		}
		all = append(all, porcupine.Operation{ClientId: o.client, Input: o, Output: o, Call: int64(o.called), Return: int64(end)})
	}
	return all
}

// register is a cell with the value that was put last. A put of unknown outcome may have had no
// effect.
func register() porcupine.Model {
	type state = any // int
	m := porcupine.NondeterministicModel{
		Init: func() []state { return []state{0} },
		Step: func(s state, in, _ any) []state {
			o := in.(op)
			switch {
			case !o.put && s == o.value:
				return []state{s}
			case !o.put:
				return nil
			case o.outcome == done:
				return []state{o.value}
			}
			return []state{o.value, s}
		},
	}
	return m.ToModel()
}
