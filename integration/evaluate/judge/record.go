package judge

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"music/integration/evaluate/section"
)

// Recorder is a section.Client that records each operation twice, before it is sent and with its
// outcome: so the history has what a process that dies has done.
type Recorder struct {
	client section.Client
	id     int
	note   func(Op)

	mu     sync.Mutex
	serial int
}

// Record returns a client whose operations are recorded under a number. note may be called by any
// goroutine; History.Add is one.
func Record(client section.Client, id int, note func(Op)) *Recorder {
	return &Recorder{client: client, id: id, note: note}
}

// call records an operation, executes it and records its outcome.
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

// Enter implements section.Client.
func (r *Recorder) Enter(ctx context.Context, key string) (section.Held, error) {
	return r.enter(key, func() (section.Held, error) { return r.client.Enter(ctx, key) })
}

// errHeld is the recorded error of a TryEnter that does not enter.
var errHeld = fmt.Errorf("%w: another has it", section.ErrLost)

// TryEnter implements section.Trier, if the client does. If another client holds the key, a refused
// Enter is recorded.
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

// enter records an Enter.
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

// Outside records a put without a section, or, with the value "", a deletion.
func (r *Recorder) Outside(key, value string, do func() error) error {
	_, err := r.call(Op{Key: key, Kind: Put, Value: value}, func(*Op) error { return do() })
	return err
}

// Close is that of the client.
func (r *Recorder) Close() { r.client.Close() }

// Took records that a section of another client of this key, entered by the given operation, has
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

// recorded is a section whose operations are recorded.
type recorded struct {
	recorder *Recorder
	held     section.Held
	op       Op
}

// Token returns the token of the section; 0 if it has none.
func (h *recorded) Token() int64 { return h.op.Token }

// Renew renews the section, if it can be renewed. It is not recorded.
func (h *recorded) Renew(ctx context.Context) error {
	if n, ok := h.held.(section.Renewer); ok {
		return n.Renew(ctx)
	}
	return nil
}

// Get implements section.Held. ErrNoValue counts as an answer.
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

// Put implements section.Held.
func (h *recorded) Put(ctx context.Context, value []byte) error {
	o := h.op
	o.Kind, o.Value = Put, string(value)
	_, err := h.recorder.call(o, func(*Op) error { return h.held.Put(ctx, value) })
	return err
}

// Leave implements section.Held.
func (h *recorded) Leave(ctx context.Context) error {
	o := h.op
	o.Kind = Leave
	_, err := h.recorder.call(o, func(*Op) error { return h.held.Leave(ctx) })
	return err
}
