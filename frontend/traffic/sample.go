package traffic

import (
	"sync/atomic"
	"time"
)

// SampleEvery is the number of requests of a connection between two whose latency is measured.
const SampleEvery = 64

// Sample measures the latency of one request of a connection at a time. The goroutine that reads
// from the client calls Begin and Flushed, the one that reads from Cassandra calls Answered and
// Tell.
type Sample struct {
	stream     atomic.Int32 // the stream of the measured request, or none
	read, sent atomic.Int64 // ns after start; sent is 0 until the request has been written
	start      time.Time
	skip       int
	unsent     bool
	arrived    int64 // ns after start; 0 until the answer has arrived
}

// none is the value of Sample.stream while no request is measured.
const none = -1

// Start must be called before any other method, when the connection begins.
func (s *Sample) Start() {
	s.start = time.Now()
	s.stream.Store(none)
}

// now returns the ns since the connection began.
func (s *Sample) now() int64 { return int64(time.Since(s.start)) }

// Begin measures the request that has just been read if it is due, and no other is being measured.
func (s *Sample) Begin(stream int16) {
	if s.skip > 0 {
		s.skip--
		return
	}
	if s.stream.Load() != none {
		return
	}
	s.skip, s.unsent = SampleEvery, true
	s.read.Store(s.now())
	s.sent.Store(0)
	s.stream.Store(int32(stream))
}

// Flushed notes that the request has been written to Cassandra.
func (s *Sample) Flushed() {
	if s.unsent {
		s.unsent = false
		s.sent.Store(s.now())
	}
}

// Answered notes when the answer to the measured request has arrived.
func (s *Sample) Answered(stream int16) {
	if s.stream.Load() == int32(stream) && stream >= 0 {
		s.arrived = s.now()
	}
}

// Tell passes the sample to stats.Latency if its answer has arrived, and makes room for the next.
// It must be called when the answer has been written to the client.
func (s *Sample) Tell(stats *Stats) {
	if s.arrived == 0 {
		return
	}
	read, sent, arrived := s.read.Load(), s.sent.Load(), s.arrived
	s.arrived = 0
	s.stream.Store(none)
	if sent < read {
		sent = read
	}
	if stats.Latency != nil && arrived >= sent {
		stats.Latency(time.Duration(sent-read+s.now()-arrived), time.Duration(arrived-sent))
	}
}
