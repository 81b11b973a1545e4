package main

import (
	"context"
	"crypto/tls"
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

// work is what clients do repeatedly.
type work struct {
	name    string
	dialect dialect
	query   bool // as QUERY with its text, else prepared and EXECUTEd
	value   int  // bytes that a request carries
	rows    int  // bytes that an answer carries
	clients int
	depth   int // requests that a client has in flight
}

// String returns the name of the work in reports.
func (w work) String() string {
	return fmt.Sprintf("%s %s, %d x %d", w.dialect, w.name, w.clients, w.depth)
}

// text returns the statement.
func (w work) text() string {
	if w.rows > 0 {
		return "SELECT v FROM shop.orders WHERE id = ?"
	}
	return "UPDATE shop.orders SET v = ? WHERE id = 17"
}

// request returns the n-th request of a window.
func (w work) request(n int, id []byte) message.Message {
	o := &message.QueryOptions{Consistency: primitive.ConsistencyLevelQuorum, PositionalValues: []*primitive.Value{primitive.NewValue(noise(n, w.value))}}
	if w.query {
		return &message.Query{Query: w.text(), Options: o}
	}
	return &message.Execute{QueryId: id, ResultMetadataId: []byte(preparedID), Options: o}
}

// client is one connection and what it does repeatedly.
type client struct {
	*line
	depth int          // requests of a round
	round func() error // returns when all of them are answered
	again int          // errors after which it has tried again
}

// dialLine connects to a server, with name as the driver's name.
func dialLine(address string, d dialect, name string) (*line, error) {
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return nil, err
	}
	if d.tls {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // G402: the certificate is one of the moment
	}
	l := newLine(c, d)
	if err := l.login(name); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("log in at %s: %w", address, err)
	}
	return l, nil
}

// dialClient connects, and prepares the statement of a work and the window of its requests.
func dialClient(address string, w work) (*client, error) {
	l, err := dialLine(address, w.dialect, wantRows(w.rows))
	if err != nil {
		return nil, err
	}
	id, err := l.prepare(w.text())
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("prepare at %s: %w", address, err)
	}
	var envelopes []byte
	for stream := range w.depth {
		e := l.envelope(int16(stream), w.request(stream, id))
		envelopes = append(envelopes, e...)
	}
	window := l.framed(envelopes)
	return &client{line: l, depth: w.depth, round: func() error { return l.exchange(window, w.depth) }}, nil
}

// login is the handshake.
func (l *line) login(name string) error {
	if _, err := l.Write(l.envelope(0, l.startup(name))); err != nil {
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

// ask sends a request while no other is open, and returns its answer; an ERROR is returned as an
// error.
func (l *line) ask(request message.Message) (message.Message, error) {
	if _, err := l.Write(l.framed(l.envelope(0, request))); err != nil {
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
	if m.GetOpCode() == primitive.OpCodeError {
		return nil, fmt.Errorf("%v", m)
	}
	return m, nil
}

// prepare prepares a statement.
func (l *line) prepare(text string) ([]byte, error) {
	m, err := l.ask(&message.Prepare{Query: text})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	p, ok := m.(*message.PreparedResult)
	if !ok {
		return nil, fmt.Errorf("PREPARE is answered by %v", m)
	}
	return p.PreparedQueryId, nil
}

// exchange sends a window and waits for all its answers.
func (l *line) exchange(window []byte, answers int) error {
	if _, err := l.Write(window); err != nil {
		return err
	}
	for range answers {
		answer, err := l.next()
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

// outcome is the result of a run of work.
type outcome struct {
	requests int
	again    int // errors after which a client has tried again
	took     time.Duration
	rounds   []time.Duration // each from the first byte sent to the last answer, in order of length
}

// perSecond returns the throughput.
func (o outcome) perSecond() float64 { return float64(o.requests) / o.took.Seconds() }

// quantile returns a quantile of the rounds' durations, the median for 0.5.
func (o outcome) quantile(q float64) time.Duration {
	if len(o.rounds) == 0 {
		return 0
	}
	return o.rounds[min(len(o.rounds)-1, int(q*float64(len(o.rounds))))]
}

// crowd is the clients of one work at one address.
type crowd []*client

// gather connects a number of clients, several at a time; dial makes the i-th.
func gather(clients int, dial func(i int) (*client, error)) (crowd, error) {
	all := make(crowd, clients)
	var group sync.WaitGroup
	faults := make(chan error, clients)
	gate := make(chan struct{}, 64)
	for i := range all {
		group.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			c, err := dial(i)
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

// run has all clients work for a time.
func (all crowd) run(span time.Duration) (outcome, error) {
	var o outcome
	var mu sync.Mutex
	var group sync.WaitGroup
	var fault error
	began := time.Now()
	end := began.Add(span)
	for _, c := range all {
		group.Go(func() {
			before := c.again
			rounds, err := c.work(end)
			mu.Lock()
			defer mu.Unlock()
			o.again += c.again - before
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

// work does rounds until a moment, but at least one: a busy machine may start it too late.
func (c *client) work(end time.Time) (rounds []time.Duration, err error) {
	for now := time.Now(); len(rounds) == 0 || now.Before(end); {
		if err := c.round(); err != nil {
			return rounds, err
		}
		next := time.Now()
		rounds = append(rounds, next.Sub(now))
		now = next
	}
	return rounds, nil
}

// noise returns data that cannot be compressed, the same for equal seeds.
func noise(seed, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // never fails
	return b
}
