package experiment

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"music/integration/evaluate/section"
)

// System is one that experiments time.
type System struct {
	Name      string
	Exclusive bool   // sections of a key exclude each other
	Needs     string // servers beside Cassandra, by name; they acknowledge what is on disk, so all beside them must
	Open      func(Place) (section.Client, error)
}

// Fleet is a system with a client at each site.
type Fleet struct {
	System
	clients [Sites]section.Client
}

// Muster opens the clients one after another: the first makes the tables that the others find.
func Muster(w *World, s System) (*Fleet, error) {
	f := &Fleet{System: s}
	for site := 1; site <= Sites; site++ {
		var err error
		if f.clients[site-1], err = s.Open(w.Place(site)); err != nil {
			f.Close()
			return nil, fmt.Errorf("%s at site %d: %w", s.Name, site, err)
		}
	}
	return f, nil
}

// Close closes the clients.
func (f *Fleet) Close() {
	for _, c := range f.clients {
		if c != nil {
			c.Close()
		}
	}
}

// Worker is a goroutine of a load.
type Worker struct {
	Site, Number int // Number is that among those of its site, from 0
	Turn         int // of its sections, from 0
}

// Load is sections that workers do, one after the other.
type Load struct {
	Workers int           // at each site
	Sites   []int         // where they are; none: everywhere
	Span    time.Duration // after which no section is begun
	Turns   int           // at most, of each worker; 0: any number
	Limit   time.Duration // of a section; 0: a minute, or the span
	Key     func(Worker) string
	Body    func(context.Context, Worker, section.Held) error
}

// sectionLimit is the longest time for a section of a few operations, so that a blocked system does
// not stop a run.
const sectionLimit = time.Minute

// longLimit is that of a section of a thousand operations: one that ends before it is done counts as none, so that the rest of a figure
// would be how many were near enough.
const longLimit = 10 * sectionLimit

// Timing is one section: when it was requested, entered, when its body ended, and when it was left.
type Timing struct {
	Site                int
	Entered, Done, Left time.Duration
}

// Outcome is the result of a load.
type Outcome struct {
	Took     time.Duration
	Sections []Timing
	Lost     int   // sections that the system itself ended, or refused
	Unknown  int   // sections with an operation that has no answer
	Last     error // the last of them, for people
}

// Run runs a load, and returns when the last section has ended.
func (f *Fleet) Run(ctx context.Context, l Load) Outcome {
	if l.Sites == nil {
		l.Sites = []int{1, 2, 3}
	}
	if l.Limit == 0 {
		l.Limit = max(sectionLimit, l.Span)
	}
	var mu sync.Mutex
	var all Outcome
	var group sync.WaitGroup
	began := time.Now()
	for _, site := range l.Sites {
		for number := range l.Workers {
			group.Go(func() {
				one := f.work(ctx, l, Worker{Site: site, Number: number}, began)
				mu.Lock()
				defer mu.Unlock()
				all.add(one)
			})
		}
	}
	group.Wait()
	all.Took = time.Since(began)
	return all
}

// add adds the counts of another outcome.
func (o *Outcome) add(x Outcome) {
	o.Sections = append(o.Sections, x.Sections...)
	o.Lost, o.Unknown = o.Lost+x.Lost, o.Unknown+x.Unknown
	if x.Last != nil {
		o.Last = x.Last
	}
}

// work does sections until the span is over.
func (f *Fleet) work(ctx context.Context, l Load, w Worker, began time.Time) (o Outcome) {
	for ; time.Since(began) < l.Span && ctx.Err() == nil && (l.Turns == 0 || w.Turn < l.Turns); w.Turn++ {
		limited, end := context.WithTimeout(ctx, l.Limit)
		t, err := f.section(limited, l, w)
		end()
		switch {
		case err == nil:
			o.Sections = append(o.Sections, t)
		case errors.Is(err, section.ErrLost):
			o.Lost, o.Last = o.Lost+1, err
		default:
			o.Unknown, o.Last = o.Unknown+1, err
		}
	}
	return o
}

// section does one.
func (f *Fleet) section(ctx context.Context, l Load, w Worker) (t Timing, err error) {
	t.Site = w.Site
	asked := time.Now()
	held, err := f.clients[w.Site-1].Enter(ctx, l.Key(w))
	if err != nil {
		return t, err
	}
	t.Entered = time.Since(asked)
	bodyErr := l.Body(ctx, w, held)
	t.Done = time.Since(asked)
	err = held.Leave(ctx)
	t.Left = time.Since(asked)
	return t, errors.Join(bodyErr, err)
}

// Keys of a load. Each function is called with a name that no other load uses.

// fresh returns a new key each time.
func fresh(name string) func(Worker) string {
	return func(w Worker) string { return fmt.Sprintf("%s/%d/%d/%d", name, w.Site, w.Number, w.Turn) }
}

// returning returns the same keys to each worker in turn, each again only after all others.
func returning(name string, keys int) func(Worker) string {
	return func(w Worker) string { return fmt.Sprintf("%s/%d/%d/%d", name, w.Site, w.Number, w.Turn%keys) }
}

// common returns the same key to all workers.
func common(name string) func(Worker) string { return func(Worker) string { return name } }

// puts returns a body of several puts of values of a size.
func puts(n, size int) func(context.Context, Worker, section.Held) error {
	return func(ctx context.Context, w Worker, held section.Held) error {
		for i := range n {
			if err := held.Put(ctx, value(size, w, i)); err != nil {
				return err
			}
		}
		return nil
	}
}

// value returns a value of a size that differs from all others.
func value(size int, w Worker, i int) []byte {
	v := make([]byte, size)
	copy(v, fmt.Sprintf("%d/%d/%d/%d", i, w.Turn, w.Number, w.Site))
	return v
}
