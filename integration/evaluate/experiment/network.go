package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"music/integration/evaluate/section"
	"music/integration/wan"
)

// tolerance is by how much a round trip may be wrong.
const tolerance = 2 * time.Millisecond

// ErrNetwork is returned if the emulated network is not as it should be: nothing is measured in it.
var ErrNetwork = errors.New("the network's own test fails")

// Trip is the median round trip between two sites.
type Trip struct {
	A, B   int
	Wanted float64 // milliseconds, as the measured one
	Got    float64
}

// TestNetwork measures the round trips of all pairs of sites. A wrong one is measured up to ten
// times, a moment apart, since a busy machine is late now and then, while a wrong network is always wrong. Without
// an emulated network there is nothing to measure.
func (w *World) TestNetwork(ctx context.Context) ([]Trip, error) {
	if w.network == nil {
		return nil, nil
	}
	var all []Trip
	var faults []error
	for i, pair := range [][2]int{{1, 2}, {1, 3}, {2, 3}} {
		wanted := w.Profile.RTT[i]
		var got time.Duration
		for try := range 10 {
			section.Rest(ctx, time.Duration(try)*100*time.Millisecond)
			var err error
			if got, err = w.roundTrip(ctx, pair[0], pair[1]); err != nil {
				return all, fmt.Errorf("%w: %w", ErrNetwork, err)
			}
			if (got - wanted).Abs() <= tolerance {
				break
			}
		}
		all = append(all, Trip{A: pair[0], B: pair[1], Wanted: inMS(wanted), Got: inMS(got)})
		if (got - wanted).Abs() > tolerance {
			faults = append(faults, fmt.Errorf("%w: sites %d and %d are %v apart, not %v", ErrNetwork, pair[0], pair[1], got, wanted))
		}
	}
	return all, errors.Join(faults...)
}

// roundTrip returns the median of several round trips, over a connection from one site to another.
func (w *World) roundTrip(ctx context.Context, from, to int) (time.Duration, error) {
	const echoes, limit, port = 15, 20 * time.Second, ":7"
	var l net.Listener
	err := wan.Inside(w.network.Namespace(to), func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", w.host(to, 3)+port)
		return err
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	go echo(l)
	c, err := w.network.Dialer(from).DialContext(ctx, "tcp", w.host(to, 3)+port)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(limit))
	var all []time.Duration
	for range echoes {
		began := time.Now()
		if _, err := c.Write([]byte{1}); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			return 0, err
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// echo answers one connection until its end.
func echo(l net.Listener) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	_, _ = io.Copy(c, c) // until it is closed
	_ = c.Close()
}

// inMS returns a duration in milliseconds.
func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
