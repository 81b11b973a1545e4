// Package judge finds violations in the history of a critical section, as its clients saw it: entry
// consistency under failures (MUSIC paper III) for any system of the evaluation.
package judge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Kind is what an operation does.
type Kind string

// The operations. Taken is noted by whoever ended the section of another, or knows that it has ended:
// it counts from its return.
const (
	Enter Kind = "enter"
	Get   Kind = "get"
	Put   Kind = "put"
	Leave Kind = "leave"
	Taken Kind = "taken"
)

// Outcome is what a client was told about an operation.
type Outcome string

// The outcomes. An operation that was never answered is Unknown, too.
const (
	Unknown Outcome = "unknown" // it may have happened, or happen yet
	Done    Outcome = "done"
	Refused Outcome = "refused" // it has not happened, and never will
)

// forever is the time of return of an operation that was not answered.
const forever = time.Duration(math.MaxInt64)

// Op is one operation as its client saw it. Values are put once in a history; "" stands for none.
type Op struct {
	Client   int           `json:"client"`
	Serial   int           `json:"serial"`  // numbers the operations of a client, from 1
	Section  int           `json:"section"` // Serial of the Enter that began it
	Token    int64         `json:"token,omitempty"`
	Key      string        `json:"key"`
	Kind     Kind          `json:"kind"`
	Value    string        `json:"value,omitempty"`
	Called   time.Duration `json:"called"` // of Now
	Returned time.Duration `json:"returned"`
	Outcome  Outcome       `json:"outcome"`
	Error    string        `json:"error,omitempty"`
}

// String returns the operation as text.
func (o Op) String() string {
	text := fmt.Sprintf("client %d section %d: %s %s", o.Client, o.Section, o.Kind, o.Key)
	if o.Token != 0 {
		text = fmt.Sprintf("client %d section %d (token %d): %s %s", o.Client, o.Section, o.Token, o.Kind, o.Key)
	}
	if o.Kind == Get || o.Kind == Put {
		text += fmt.Sprintf(" %q", o.Value)
	}
	if o.Returned == forever {
		return text + fmt.Sprintf(", from %v, not answered", o.Called)
	}
	text += fmt.Sprintf(", %v–%v, %s", o.Called, o.Returned, o.Outcome)
	if o.Error != "" {
		text += ": " + o.Error
	}
	return text
}

// Now returns the clock of a history: it goes on while a process is paused, does not depend on the
// wall clock, and is the same for all processes of the machine.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // no Linux is without it
	}
	return time.Duration(t.Nano())
}

// History is everything that the clients did. It is safe for concurrent use.
type History struct {
	mu  sync.Mutex
	ops map[[2]int]Op // by Client and Serial
}

// Add adds an operation, or completes one that was added when it was called.
func (h *History) Add(o Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ops == nil {
		h.ops = map[[2]int]Op{}
	}
	h.ops[[2]int{o.Client, o.Serial}] = o
}

// Read adds operations that another process has written, one JSON object after another, until r
// ends. A process that is killed may leave half an object, which ends the history.
func (h *History) Read(r io.Reader) error {
	for d := json.NewDecoder(r); ; {
		var o Op
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a history: %w", err)
		}
		h.Add(o)
	}
}

// Ops returns the operations in the order in which they were called.
func (h *History) Ops() []Op {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []Op
	for _, o := range h.ops {
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b Op) int {
		return cmp.Or(cmp.Compare(a.Called, b.Called), cmp.Compare(a.Client, b.Client), cmp.Compare(a.Serial, b.Serial))
	})
	return all
}

// Count returns how many operations of a kind had an outcome.
func (h *History) Count(k Kind, x Outcome) (n int) {
	for _, o := range h.Ops() {
		if o.Kind == k && o.Outcome == x {
			n++
		}
	}
	return n
}
