package frontend

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"

	"music/frontend/wire"
)

// Fate is what became of a request, for the metrics.
type Fate uint8

// The fates of a request.
const (
	FateForwarded Fate = iota // as the bytes received, or with an answer that the proxy translates
	FateAnswered              // by the proxy alone
	FateRefused               // with an error of the proxy's own
	FateFenced                // sent under a lock
	fateCount
)

// String returns the fate's label in the metrics.
func (f Fate) String() string {
	return [...]string{"forwarded", "answered", "refused", "fenced"}[f]
}

// OpcodeName returns the name of an opcode in the words of the protocol.
func OpcodeName(opcode primitive.OpCode) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(opcode.String(), "OpCode "), " [") // of "OpCode AUTH RESPONSE [0x0F]"
	return strings.ReplaceAll(name, " ", "_")
}

// statShards is over how many shards the counters are spread, so that connections do not contend
// for the same memory.
const statShards = 8

// maxRequestOpcode is the highest opcode of a request (AUTH_RESPONSE).
const maxRequestOpcode = primitive.OpCodeAuthResponse

// statShard is one share of the counters.
type statShard struct {
	requests [maxRequestOpcode + 1][fateCount]atomic.Uint64
	_        [64]byte
}

// Stats counts what the clients' connections do. Reading it blocks no connection.
type Stats struct {
	shards   [statShards]statShard
	failures [wordCount]atomic.Uint64
	Accepted atomic.Uint64 // connections ever accepted
	Open     atomic.Int64  // connections now
	Lost     atomic.Uint64 // connections ended because Cassandra was lost or not there
	Rejected atomic.Uint64 // connections ended for not keeping to the protocol or to the limits

	// Latency is called for one sampled request in many, with the time that it spent in the proxy
	// and the time that Cassandra took. It is called by the connections' own goroutines and must
	// not block.
	Latency func(proxy, backend time.Duration)
}

// Requests calls f with every counter that is not zero.
func (s *Stats) Requests(f func(opcode primitive.OpCode, fate Fate, n uint64)) {
	for op := range maxRequestOpcode + 1 {
		for fate := range fateCount {
			var n uint64
			for i := range s.shards {
				n += s.shards[i].requests[op][fate].Load()
			}
			if n > 0 {
				f(op, fate, n)
			}
		}
	}
}

// count counts a request of a connection.
func (s *Stats) count(c *conn, opcode primitive.OpCode, fate Fate) {
	if opcode <= maxRequestOpcode {
		s.shards[c.id%statShards].requests[opcode][fate].Add(1)
	}
}

// wordCount is how many words there are.
const wordCount = 11

// words returns the first words of the errors that the proxy tells clients (docs/runbook.md); other
// is an error without one, in the words of Cassandra.
func words() [wordCount]string {
	return [...]string{
		"other", "MUSIC_UNLOCKED", "MUSIC_NOT_HELD", "MUSIC_LOST", "MUSIC_REFUSED", "MUSIC_KEY", "MUSIC_SYNTAX", "MUSIC_UNAVAILABLE",
		"MUSIC_UNCERTAIN", "MUSIC_BACKEND", "MUSIC_INTERNAL",
	}
}

// countFailure counts an error that a client is told.
func (s *Stats) countFailure(f *wire.Failure) {
	all := words()
	word, _, _ := strings.Cut(f.Text, ":")
	s.failures[max(0, slices.Index(all[:], word))].Add(1)
}

// Failures calls f with how many errors clients were told, by their first word.
func (s *Stats) Failures(f func(word string, n uint64)) {
	for i, word := range words() {
		f(word, s.failures[i].Load())
	}
}

// sampleEvery is how many requests of a connection go by between two whose latency is measured.
const sampleEvery = 64

// sample measures one request of a connection at a time. The client's direction begins it, the
// backend's ends it.
type sample struct {
	stream     atomic.Int32 // the request measured, or none
	read, sent atomic.Int64 // ns after start; sent is 0 until the request is on its way
	start      time.Time
	skip       int
	unsent     bool
	arrived    int64 // 0 until the answer is there; the backend direction's
}

const noStream = -1

// now returns the ns since the connection began.
func (s *sample) now() int64 { return int64(time.Since(s.start)) }

// begin measures the request if it is time to, and none is being measured.
func (s *sample) begin(stream int16) {
	if s.skip > 0 {
		s.skip--
		return
	}
	if s.stream.Load() != noStream {
		return
	}
	s.skip, s.unsent = sampleEvery, true
	s.read.Store(s.now())
	s.sent.Store(0)
	s.stream.Store(int32(stream))
}

// flushed notes that the request is on its way.
func (s *sample) flushed() {
	if s.unsent {
		s.unsent = false
		s.sent.Store(s.now())
	}
}

// answered notes when the answer to the measured request has arrived.
func (s *sample) answered(stream int16) {
	if s.stream.Load() == int32(stream) && stream >= 0 {
		s.arrived = s.now()
	}
}

// tell passes the sample to stats and makes room for the next.
func (s *sample) tell(stats *Stats) {
	read, sent, arrived := s.read.Load(), s.sent.Load(), s.arrived
	s.arrived = 0
	s.stream.Store(noStream)
	if sent < read {
		sent = read
	}
	if stats.Latency != nil && arrived >= sent {
		stats.Latency(time.Duration(sent-read+s.now()-arrived), time.Duration(arrived-sent))
	}
}
