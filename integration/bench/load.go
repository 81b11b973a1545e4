package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// work is what clients do, again and again.
type work struct {
	name    string
	dialect dialect
	query   bool // as QUERY with its text, else prepared and EXECUTEd
	value   int  // bytes that a request carries
	rows    int  // bytes that an answer carries
	clients int
	depth   int // requests that a client has in flight
}

// String names the work in reports.
func (w work) String() string {
	return fmt.Sprintf("%s %s, %d x %d", w.dialect, w.name, w.clients, w.depth)
}

// text is the statement.
func (w work) text() string {
	if w.rows > 0 {
		return "SELECT v FROM shop.orders WHERE id = ?"
	}
	return "UPDATE shop.orders SET v = ? WHERE id = 17"
}

// request is the n-th request of a window.
func (w work) request(n int, id []byte) message.Message {
	o := &message.QueryOptions{Consistency: primitive.ConsistencyLevelQuorum, PositionalValues: []*primitive.Value{primitive.NewValue(noise(n, w.value))}}
	if w.query {
		return &message.Query{Query: w.text(), Options: o}
	}
	return &message.Execute{QueryId: id, ResultMetadataId: []byte(preparedID), Options: o}
}

// client is one connection with the window that it sends again and again.
type client struct {
	*line
	window []byte
	depth  int
}

// dialClient connects, and prepares the statement.
func dialClient(address string, w work) (*client, error) {
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	l := newLine(c, w.dialect)
	if err := l.login(w); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("log in at %s: %w", address, err)
	}
	id, err := l.prepare(w)
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("prepare at %s: %w", address, err)
	}
	var envelopes []byte
	for stream := range w.depth {
		e := l.envelope(int16(stream), w.request(stream, id))
		envelopes = append(envelopes, e...)
	}
	return &client{line: l, window: l.framed(envelopes), depth: w.depth}, nil
}

// login is the handshake.
func (l *line) login(w work) error {
	if _, err := l.Write(l.envelope(0, w.dialect.startup(wantRows(w.rows)))); err != nil {
		return err
	}
	answer, err := l.next()
	if err != nil {
		return err
	}
	if op := primitive.OpCode(answer[4]); op != primitive.OpCodeReady {
		return fmt.Errorf("STARTUP is answered by %v", op)
	}
	l.begin()
	return nil
}

// prepare prepares the work's statement.
func (l *line) prepare(w work) ([]byte, error) {
	if _, err := l.Write(l.framed(l.envelope(0, &message.Prepare{Query: w.text()}))); err != nil {
		return nil, err
	}
	answer, err := l.next()
	if err != nil {
		return nil, err
	}
	m, err := decoded(answer)
	if err != nil {
		return nil, err
	}
	p, ok := m.(*message.PreparedResult)
	if !ok {
		return nil, fmt.Errorf("PREPARE is answered by %v", m)
	}
	return p.PreparedQueryId, nil
}

// round sends a window and waits for all its answers.
func (c *client) round() error {
	if _, err := c.Write(c.window); err != nil {
		return err
	}
	for range c.depth {
		answer, err := c.next()
		if err != nil {
			return err
		}
		if op := primitive.OpCode(answer[4]); op != primitive.OpCodeResult {
			m, _ := decoded(answer)
			return fmt.Errorf("stream %d is answered by %v %v", binary.BigEndian.Uint16(answer[2:]), op, m)
		}
	}
	return nil
}

// outcome is what a run of work came to.
type outcome struct {
	requests int
	took     time.Duration
	rounds   []time.Duration // each from the first byte sent to the last answer, in order of length
}

// perSecond is the throughput.
func (o outcome) perSecond() float64 { return float64(o.requests) / o.took.Seconds() }

// quantile is a length of rounds, 0.5 for the median.
func (o outcome) quantile(q float64) time.Duration {
	if len(o.rounds) == 0 {
		return 0
	}
	return o.rounds[min(len(o.rounds)-1, int(q*float64(len(o.rounds))))]
}

// crowd are the clients of one work at one address.
type crowd []*client

// gather connects them, some at a time.
func gather(address string, w work) (crowd, error) {
	all := make(crowd, w.clients)
	var group sync.WaitGroup
	faults := make(chan error, w.clients)
	gate := make(chan struct{}, 64)
	for i := range all {
		group.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			c, err := dialClient(address, w)
			if err != nil {
				faults <- err
				return
			}
			all[i] = c
		})
	}
	group.Wait()
	select {
	case err := <-faults:
		all.leave()
		return nil, err
	default:
		return all, nil
	}
}

// leave closes the connections.
func (all crowd) leave() {
	for _, c := range all {
		if c != nil {
			_ = c.Close()
		}
	}
}

// run has all clients work for some time.
func (all crowd) run(span time.Duration) (outcome, error) {
	var o outcome
	var mu sync.Mutex
	var group sync.WaitGroup
	var fault error
	began := time.Now()
	end := began.Add(span)
	for _, c := range all {
		group.Go(func() {
			rounds, err := c.work(end)
			mu.Lock()
			defer mu.Unlock()
			o.rounds = append(o.rounds, rounds...)
			o.requests += len(rounds) * c.depth
			if err != nil {
				fault = err
			}
		})
	}
	group.Wait()
	o.took = time.Since(began)
	slices.Sort(o.rounds)
	return o, fault
}

// work does rounds until a moment.
func (c *client) work(end time.Time) (rounds []time.Duration, err error) {
	for now := time.Now(); now.Before(end); {
		if err := c.round(); err != nil {
			return rounds, err
		}
		next := time.Now()
		rounds = append(rounds, next.Sub(now))
		now = next
	}
	return rounds, nil
}

// noise is data that does not compress, the same each time for a seed.
func noise(seed, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // never fails
	return b
}
