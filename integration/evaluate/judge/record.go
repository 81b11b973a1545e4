package judge

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"music/integration/evaluate/section"
)

// Recorder is a section.Client that notes what is called and what came of it, the former before it is
// sent: what a process that dies has done is in its history.
type Recorder struct {
	client section.Client
	id     int
	note   func(Op)

	mu     sync.Mutex
	serial int
}

// Record returns a client whose operations are noted under a number of its own. note is called by any
// goroutine, twice for each operation: History.Add is one.
func Record(client section.Client, id int, note func(Op)) *Recorder {
	return &Recorder{client: client, id: id, note: note}
}

// call notes an operation, carries it out and notes its outcome.
func (r *Recorder) call(o Op, do func(*Op) error) (Op, error) {
	r.mu.Lock()
	r.serial++
	o.Client, o.Serial = r.id, r.serial
	r.mu.Unlock()
	if o.Kind == Enter {
		o.Section = o.Serial
	}
	o.Outcome, o.Called, o.Returned = Unknown, Now(), forever
	r.note(o)
	err := do(&o)
	o.Returned = Now()
	switch {
	case err == nil:
		o.Outcome = Done
	case errors.Is(err, section.ErrLost):
		o.Outcome = Refused
	}
	if err != nil {
		o.Error = err.Error()
	}
	r.note(o)
	return o, err
}

// Enter is that of the client.
func (r *Recorder) Enter(ctx context.Context, key string) (section.Held, error) {
	return r.enter(key, func() (section.Held, error) { return r.client.Enter(ctx, key) })
}

// errHeld is why a TryEnter does not enter.
var errHeld = fmt.Errorf("%w: another has it", section.ErrLost)

// TryEnter is that of the client, which is a section.Trier. Where another holds the key, an Enter is
// noted that was refused.
func (r *Recorder) TryEnter(ctx context.Context, key string) (section.Held, bool, error) {
	held, err := r.enter(key, func() (section.Held, error) {
		held, free, err := r.client.(section.Trier).TryEnter(ctx, key) //nolint:forcetypeassert // see above
		if err == nil && !free {
			return nil, errHeld
		}
		return held, err
	})
	if errors.Is(err, errHeld) {
		return nil, false, nil
	}
	return held, err == nil, err
}

// enter notes how a section is entered.
func (r *Recorder) enter(key string, do func() (section.Held, error)) (section.Held, error) {
	var held section.Held
	o, err := r.call(Op{Key: key, Kind: Enter}, func(o *Op) (err error) {
		held, err = do()
		if t, ok := held.(section.Token); ok && err == nil {
			o.Token = t.Token()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &recorded{recorder: r, held: held, op: Op{Key: key, Section: o.Section, Token: o.Token}}, nil
}

// Outside notes a put without a section; of value "" where it takes the key away.
func (r *Recorder) Outside(key, value string, do func() error) error {
	_, err := r.call(Op{Key: key, Kind: Put, Value: value}, func(*Op) error { return do() })
	return err
}

// Close is that of the client.
func (r *Recorder) Close() { r.client.Close() }

// Took notes that the section of another client of this key, entered by the operation given, has
// ended by now.
func (r *Recorder) Took(enter Op) {
	r.mu.Lock()
	r.serial++
	o := Op{Client: enter.Client, Serial: -r.id<<32 - r.serial, Section: enter.Section, Token: enter.Token, Key: enter.Key, Kind: Taken, Outcome: Done}
	r.mu.Unlock()
	o.Called = Now()
	o.Returned = o.Called
	r.note(o)
}

// recorded is a section whose operations are noted.
type recorded struct {
	recorder *Recorder
	held     section.Held
	op       Op
}

// Token is that of the section; 0 where it has none.
func (h *recorded) Token() int64 { return h.op.Token }

// Renew is that of the section; where it has none, nothing happens. It is not noted.
func (h *recorded) Renew(ctx context.Context) error {
	if n, ok := h.held.(section.Renewer); ok {
		return n.Renew(ctx)
	}
	return nil
}

// Get is that of the section. Nothing there is an answer.
func (h *recorded) Get(ctx context.Context) ([]byte, error) {
	o := h.op
	o.Kind = Get
	var value []byte
	none := false
	_, err := h.recorder.call(o, func(o *Op) (err error) {
		value, err = h.held.Get(ctx)
		o.Value = string(value)
		if none = errors.Is(err, section.ErrNoValue); none {
			return nil
		}
		return err
	})
	if none {
		return nil, section.ErrNoValue
	}
	return value, err
}

// Put is that of the section.
func (h *recorded) Put(ctx context.Context, value []byte) error {
	o := h.op
	o.Kind, o.Value = Put, string(value)
	_, err := h.recorder.call(o, func(*Op) error { return h.held.Put(ctx, value) })
	return err
}

// Leave is that of the section.
func (h *recorded) Leave(ctx context.Context) error {
	o := h.op
	o.Kind = Leave
	_, err := h.recorder.call(o, func(*Op) error { return h.held.Leave(ctx) })
	return err
}
