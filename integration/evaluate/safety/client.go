package safety

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"music/integration/evaluate/judge"
	"music/integration/evaluate/section"
)

// role is what a client does in a trial.
type role string

const (
	holds role = "hold" // one section, and in it puts and now and then a get, until it is stopped
	takes role = "take" // one section, and in it gets; puts, too, when it is told to work
	loops role = "loop" // sections of a get, a put and a get
	looks role = "look" // one section and one get
)

// assignment is what the process of a client is told when it starts.
type assignment struct {
	System string
	Role   role
	ID     int
	Key    string
	Seed   uint64
	Ahead  time.Duration // of the client's clock, at first
	Place  Place
}

// assigned is the environment variable with an assignment, as JSON.
const assigned = "MUSIC_EVALUATE_CLIENT"

// Time-outs of a client.
const (
	enterLimit = time.Minute
	opLimit    = 8 * time.Second
	longest    = 20 * time.Millisecond // pause between two operations; a holder's are a tenth
)

// Client does not return if this process was started as a client of a trial. Every program that
// calls Run calls it first.
func Client() {
	text, ok := os.LookupEnv(assigned)
	if !ok {
		return
	}
	if err := beClient(text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// worker is a client at work.
type worker struct {
	assignment
	client section.Client
	random *rand.Rand
	puts   int

	going, working, stopped atomic.Bool
	skew                    atomic.Int64
}

// beClient does what the assignment says, writes a greeting, begins when it is told to, writes the history, and
// returns when it was told to stop.
func beClient(text string, from io.Reader, to io.Writer) error {
	w := &worker{}
	if err := json.Unmarshal([]byte(text), &w.assignment); err != nil {
		return err
	}
	w.random = random(w.Seed + uint64(w.ID)<<32) //nolint:gosec // a small number
	w.skew.Store(int64(w.Ahead))
	w.Place.Now = func() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) }
	s, ok := find(w.System)
	if !ok {
		return fmt.Errorf("no system %q", w.System)
	}
	out := json.NewEncoder(to)
	client, err := s.open(w.Place)
	if err != nil {
		return errors.Join(err, out.Encode(greeting{Refused: err.Error()}))
	}
	defer client.Close()
	if err := out.Encode(greeting{}); err != nil {
		return err
	}
	var mu sync.Mutex
	w.client = judge.Record(client, w.ID, func(o judge.Op) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(o) // a parent that is gone takes this process along
	})
	go w.obey(from)
	return w.begin(context.Background())
}

// random returns the random numbers of a seed.
func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) } //nolint:gosec // to be done again

// obey executes commands, one a line: go, work, stop, and skew with the milliseconds by which the
// client's clock is ahead.
func (w *worker) obey(from io.Reader) {
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "go":
			w.going.Store(true)
		case "work":
			w.working.Store(true)
		case "stop":
			w.stopped.Store(true)
		case "skew":
			ms, _ := strconv.ParseInt(rest, 10, 64) // our own words
			w.skew.Store(ms * int64(time.Millisecond))
		}
	}
	w.stopped.Store(true)
}

// begin plays the role from when it is told to.
func (w *worker) begin(ctx context.Context) error {
	for !w.going.Load() && !w.stopped.Load() {
		w.rest()
	}
	return w.work(ctx)
}

// work plays the role. Errors are in the history.
func (w *worker) work(ctx context.Context) error {
	for again := true; again && !w.stopped.Load(); again = w.Role == loops {
		short, cancel := context.WithTimeout(ctx, enterLimit)
		held, err := w.client.Enter(short, w.Key)
		cancel()
		if err != nil {
			fmt.Fprintln(os.Stderr, "enter:", err)
			w.rest()
			continue
		}
		if err := w.inside(ctx, held); err == nil {
			w.leave(ctx, held)
		} else {
			fmt.Fprintln(os.Stderr, "inside:", err)
		}
		w.rest()
	}
	for !w.stopped.Load() {
		w.rest()
	}
	return nil
}

// leave ends a section.
func (w *worker) leave(ctx context.Context, held section.Held) {
	ctx, cancel := context.WithTimeout(ctx, opLimit)
	defer cancel()
	if err := held.Leave(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "leave:", err)
	}
}

// rest pauses for a moment.
func (w *worker) rest() {
	span := longest
	if w.Role == holds {
		span /= 10 // a fault that strikes at some instant meets it at work
	}
	time.Sleep(time.Duration(w.random.Int64N(int64(span))))
}

// inside does the operations of a section. After an operation that was not acknowledged it does no
// more on the key (paper III-A), and returns the error.
func (w *worker) inside(ctx context.Context, held section.Held) error {
	switch w.Role {
	case looks:
		return w.get(ctx, held)
	case loops:
		for _, next := range []func(context.Context, section.Held) error{w.get, w.put, w.get} {
			if err := next(ctx, held); err != nil {
				return err
			}
			w.rest()
		}
		return nil
	}
	renewed := time.Now()
	for i := 0; !w.stopped.Load(); i++ {
		next := w.get
		if i%4 != 0 && (w.Role == holds || w.working.Load()) {
			next = w.put
		}
		if err := next(ctx, held); err != nil {
			return err
		}
		if time.Since(renewed) > Lease/5 {
			renewed = time.Now()
			if err := w.renew(ctx, held); err != nil {
				return err
			}
		}
		w.rest()
	}
	return nil
}

// renew renews a section, if it can be renewed.
func (w *worker) renew(ctx context.Context, held section.Held) error {
	r, ok := held.(section.Renewer)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, opLimit)
	defer cancel()
	return r.Renew(ctx)
}

func (w *worker) get(ctx context.Context, held section.Held) error {
	ctx, cancel := context.WithTimeout(ctx, opLimit)
	defer cancel()
	_, err := held.Get(ctx)
	if errors.Is(err, section.ErrNoValue) {
		return nil
	}
	return err
}

func (w *worker) put(ctx context.Context, held section.Held) error {
	ctx, cancel := context.WithTimeout(ctx, opLimit)
	defer cancel()
	w.puts++
	return held.Put(ctx, []byte(fmt.Sprintf("%d of client %d", w.puts, w.ID)))
}
