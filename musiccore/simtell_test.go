package musiccore

import (
	"fmt"
	"strings"
)

// brief returns a row as text: queue and term, with stamps relative to t0.
func brief(r *Row) string {
	if r == nil {
		return "no row"
	}
	var q []string
	for _, b := range r.Queue {
		q = append(q, fmt.Sprintf("%d-%d of %x", b.First, b.Last(), b.Session[:2]))
	}
	return fmt.Sprintf("guard %d [%s] %s", r.Guard, strings.Join(q, ", "), r.briefTerm())
}

func (r *Row) briefTerm() string {
	s := fmt.Sprintf("epoch %d head %d", r.Epoch-t0, r.Head)
	if r.Dirty {
		s += " dirty"
	}
	if r.Owner != (SessionID{}) {
		s += fmt.Sprintf(" owner %x", r.Owner[:2])
	}
	return s
}

func (w Swap) brief() string {
	r := w.Set.Row
	to := r.briefTerm()
	if w.Set.Q {
		to = fmt.Sprintf("guard %d", r.Guard)
	}
	if w.Set.Q && w.Set.T {
		to += " " + r.briefTerm()
	}
	switch w.If.What {
	case IfAbsent:
		return "if absent: " + to
	case IfGuard:
		return fmt.Sprintf("if guard %d: %s", w.If.Guard, to)
	case IfEpoch:
		return fmt.Sprintf("if epoch %d: %s", w.If.Epoch-t0, to)
	}
	return fmt.Sprintf("if guard %d and epoch %d: %s", w.If.Guard, w.If.Epoch-t0, to)
}

// String returns the name of a status.
func (f Status) String() string {
	return [...]string{"unknown", "done", "refused", "above", "too large"}[f]
}

// String returns the name of an outcome.
func (o Outcome) String() string { return [...]string{"unknown", "acknowledged", "refused"}[o] }

// String returns the name of a verdict.
func (v Verdict) String() string { return [...]string{"uncertain", "as it was", "lost", "later"}[v] }
