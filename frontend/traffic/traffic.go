// Package traffic counts what clients' connections do, and measures a few of their requests.
package traffic

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
	Forwarded Fate = iota // sent as the bytes received, or with an answer that the proxy translates
	Answered              // answered by the proxy alone
	Refused               // answered with an error of the proxy's own
	Fenced                // sent under a lock
	fateCount
)

// String returns the fate's label in the metrics.
func (f Fate) String() string {
	return [...]string{"forwarded", "answered", "refused", "fenced"}[f]
}

// OpcodeName returns the name of an opcode as the protocol's specification has it.
func OpcodeName(opcode primitive.OpCode) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(opcode.String(), "OpCode "), " [") // of "OpCode AUTH RESPONSE [0x0F]"
	return strings.ReplaceAll(name, " ", "_")
}

// shardCount is the number of shards over which the counters are spread, so that connections do not
// contend for the same memory.
const shardCount = 8

// maxRequestOpcode is the highest opcode of a request (AUTH_RESPONSE).
const maxRequestOpcode = primitive.OpCodeAuthResponse

// shard holds the counters of a part of the connections.
type shard struct {
	requests [maxRequestOpcode + 1][fateCount]atomic.Uint64
	_        [64]byte
}

// Stats counts what the clients' connections do. Reading it blocks no connection.
type Stats struct {
	shards   [shardCount]shard
	failures [wordCount]atomic.Uint64
	Accepted atomic.Uint64 // connections ever accepted
	Open     atomic.Int64  // connections now
	Lost     atomic.Uint64 // connections ended because Cassandra was lost or could not be reached
	Rejected atomic.Uint64 // connections ended because the client violated the protocol or a limit

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

// Count counts a request. connection is the number of its connection.
func (s *Stats) Count(connection uint64, opcode primitive.OpCode, fate Fate) {
	if opcode <= maxRequestOpcode {
		s.shards[connection%shardCount].requests[opcode][fate].Add(1)
	}
}

// wordCount is the length of words.
const wordCount = 11

// words returns the prefixes of the errors that the proxy sends to clients (docs/runbook.md).
// "other" stands for errors without one, whose text is Cassandra's.
func words() [wordCount]string {
	return [...]string{
		"other", "MUSIC_UNLOCKED", "MUSIC_NOT_HELD", "MUSIC_LOST", "MUSIC_REFUSED", "MUSIC_KEY", "MUSIC_SYNTAX", "MUSIC_UNAVAILABLE",
		"MUSIC_UNCERTAIN", "MUSIC_BACKEND", "MUSIC_INTERNAL",
	}
}

// CountFailure counts an error that is sent to a client.
func (s *Stats) CountFailure(f *wire.Failure) {
	all := words()
	word, _, _ := strings.Cut(f.Text, ":")
	s.failures[max(0, slices.Index(all[:], word))].Add(1)
}

// Failures calls f with the number of errors sent to clients, by their prefix.
func (s *Stats) Failures(f func(word string, n uint64)) {
	for i, word := range words() {
		f(word, s.failures[i].Load())
	}
}
