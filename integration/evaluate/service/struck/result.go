package struck

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/service"
)

// Result is what a service did.
type Result struct {
	History *judge.History
	Events  []service.Event
	Strikes []Strike
	Left    []string // keys of jobs in the end

	portal bool
}

// Faults returns what is wrong in it, each with what shows it.
func (r *Result) Faults() (all []string) {
	for _, v := range r.History.Check() {
		all = append(all, v.String())
	}
	all = append(all, r.twice()...)
	if r.portal {
		return append(all, r.changes()...)
	}
	all = append(all, r.atOnce()...)
	return append(all, r.jobs()...)
}

// Find is a kind of fault that was found.
type Find struct {
	Name, First string
	Times       int
}

// Found returns the kinds among faults, each with the first of it.
func Found(faults []string) (all []Find) {
	for _, f := range faults {
		name, _, _ := strings.Cut(f, "\n")
		name, _, _ = strings.Cut(name, ":")
		i := slices.IndexFunc(all, func(x Find) bool { return x.Name == name })
		if i < 0 {
			all = append(all, Find{Name: name, First: f})
			i = len(all) - 1
		}
		all[i].Times++
	}
	return all
}

// atOnce returns where two workers executed a job at one time. What a worker was at when it was stopped is not held against it.
func (r *Result) atOnce() (all []string) {
	byKey := map[string][]service.Event{}
	for _, e := range r.Events {
		if e.What == service.Executed && !r.stopped(e) {
			byKey[e.Key] = append(byKey[e.Key], e)
		}
	}
	for key, spans := range byKey {
		slices.SortFunc(spans, func(a, b service.Event) int { return int(a.From - b.From) })
		last := spans[0]
		for _, e := range spans[1:] {
			if e.From < last.To && e.Client != last.Client {
				all = append(all, fmt.Sprintf("executed at once: %s\n\t%s\n\t%s", key, span(last), span(e)))
				break
			}
			if e.To > last.To {
				last = e
			}
		}
	}
	slices.Sort(all)
	return all
}

// span is an event as a person reads it.
func span(e service.Event) string {
	return fmt.Sprintf("client %d (token %d): state %d, %v–%v", e.Client, e.Section, e.Number, e.From, e.To)
}

// stopped reports whether a worker stood still, or ended, in the middle of something.
func (r *Result) stopped(e service.Event) bool {
	return slices.ContainsFunc(r.Strikes, func(s Strike) bool {
		return s.Client == e.Client && s.Kind == Paused && s.From <= e.To && e.From <= s.To
	})
}

// twice returns what was put, with an acknowledgement, for the second time: a state of a job, or a change of a role.
func (r *Result) twice() (all []string) {
	type step struct {
		key    string
		number int
	}
	seen := map[step]judge.Op{}
	for _, o := range r.History.Ops() {
		if o.Kind != judge.Put || o.Outcome != judge.Done || o.Value == "" {
			continue
		}
		at := step{o.Key, number(o.Value)}
		if first, is := seen[at]; is {
			all = append(all, fmt.Sprintf("carried out twice: %d of %s\n\t%s\n\t%s", at.number, at.key, first, o))
			continue
		}
		seen[at] = o
	}
	return all
}

// number is that of the state or change that a value has.
func number(value string) int {
	var v struct{ State, Change int }
	_ = json.Unmarshal([]byte(value), &v) // ours
	return max(v.State, v.Change)
}

// jobs returns those that were submitted and are not done, or not gone.
func (r *Result) jobs() (all []string) {
	done := map[string]bool{}
	for _, e := range r.Events {
		done[e.Key] = done[e.Key] || e.What == service.Completed
	}
	for _, o := range r.History.Ops() {
		if o.Kind == judge.Put && o.Section == 0 && o.Value != "" && o.Outcome == judge.Done && !done[o.Key] {
			all = append(all, "not DONE: "+o.Key)
		}
	}
	for _, key := range r.Left {
		all = append(all, "is there again: "+key)
	}
	return all
}

// changes returns the users whose role is, in the end, not that of the last change.
func (r *Result) changes() (all []string) {
	last, acknowledged := map[string]int{}, map[string]int{}
	for _, e := range r.Events {
		if e.What == service.Changed {
			acknowledged[e.Key] = max(acknowledged[e.Key], e.Number)
		}
	}
	for _, o := range r.History.Ops() {
		if o.Kind == judge.Get && o.Outcome == judge.Done {
			last[o.Key] = number(o.Value)
		}
	}
	for user, n := range acknowledged {
		if last[user] != n {
			all = append(all, fmt.Sprintf("an acknowledged change is lost: the last of %s is %d, not %d", user, last[user], n))
		}
	}
	slices.Sort(all)
	return all
}

// Struck counts the faults of each kind that have struck a process in a section, as its history proves, and how often another process
// entered such a section before the fault was mended.
func (r *Result) Struck() (n map[string]int, overtaken int) {
	n = map[string]int{}
	ops := r.History.Ops()
	for _, s := range r.Strikes {
		inside := s.inside(ops)
		if len(inside) > 0 {
			n[s.Kind]++
		}
		if slices.ContainsFunc(ops, func(o judge.Op) bool {
			return inside[o.Key] && o.Client != s.Client && o.Kind == judge.Enter && o.Outcome == judge.Done && s.From < o.Returned && o.Returned < s.To
		}) {
			overtaken++
		}
	}
	return n, overtaken
}

// inside returns the keys that the process held when it was struck.
func (s Strike) inside(ops []judge.Op) map[string]bool {
	keys := map[string]bool{}
	for _, o := range ops {
		switch {
		case o.Client != s.Client:
		case o.Kind == judge.Enter && o.Outcome == judge.Done && o.Returned <= s.From:
			keys[o.Key] = true
		case (o.Kind == judge.Leave || o.Outcome == judge.Refused) && o.Called <= s.From:
			delete(keys, o.Key)
		}
	}
	return keys
}

// Rate is how many jobs, or changes, a second were completed.
func (r *Result) Rate() float64 {
	n, first, last := 0, time.Duration(1<<62), time.Duration(0)
	for _, e := range r.Events {
		if e.What == service.Completed || e.What == service.Changed {
			n, first, last = n+1, min(first, e.From), max(last, e.To)
		}
	}
	if n == 0 {
		return 0
	}
	return float64(n) / (last - first).Seconds()
}
