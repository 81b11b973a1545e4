package service

import (
	"encoding/json"
	"io"
	"sync"
	"time"

	"music/integration/evaluate/judge"
)

// What an Event can be.
const (
	Ready     = "ready"     // the process serves
	Executed  = "executed"  // a worker has worked on a state of a job
	Completed = "completed" // the client API has seen a job DONE, and it is deleted
	Changed   = "changed"   // a front end was told that a role was changed
)

// Event is something that a service did, beside the operations on its store.
type Event struct {
	What     string        `json:"what"`
	Client   int           `json:"client"`            // as in judge.Op
	Section  int64         `json:"section,omitempty"` // token of the section that it was done under
	Key      string        `json:"key,omitempty"`
	Number   int           `json:"number,omitempty"` // of the state, or of the change
	From, To time.Duration // of judge.Now
}

// Line is what a process of a service writes to its standard output, one JSON object a line.
type Line struct {
	Op    *judge.Op `json:"op,omitempty"`
	Event *Event    `json:"event,omitempty"`
}

// Tell takes what a process did. It is called by any goroutine.
type Tell func(Line)

// op tells an operation.
func (t Tell) op(o judge.Op) { t(Line{Op: &o}) }

// event tells an event.
func (t Tell) event(e Event) { t(Line{Event: &e}) }

// writing writes each line at once, so that a process which is killed has told what it did.
func writing(w io.Writer) Tell {
	var mu sync.Mutex
	out := json.NewEncoder(w)
	return func(l Line) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(l) // who does not listen any more has ended us
	}
}
