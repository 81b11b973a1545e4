package traffic

import (
	"sync/atomic"
	"time"
)

// SampleEvery is how many requests of a connection go by between two whose latency is measured.
const SampleEvery = 64

// Sample measures one request of a connection at a time. The client's direction begins it, the
// backend's ends it.
type Sample struct {
	stream     atomic.Int32 // the request measured, or none
	read, sent atomic.Int64 // ns after start; sent is 0 until the request is on its way
	start      time.Time
	skip       int
	unsent     bool
	arrived    int64 // 0 until the answer is there; the backend direction's
}

// none is the stream of no request.
const none = -1

// Start makes the sample ready to be used, at the beginning of the connection.
func (s *Sample) Start() {
	s.start = time.Now()
	s.stream.Store(none)
}

// now returns the ns since the connection began.
func (s *Sample) now() int64 { return int64(time.Since(s.start)) }

// Begin measures the request if it is time to, and none is being measured.
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

// Flushed notes that the request is on its way.
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

// Tell passes a sample whose answer has arrived to stats and makes room for the next.
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
