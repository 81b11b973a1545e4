package proxy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/musiccore"
)

// One operation under a lock, begun and ended without Cassandra: at the proxy that has the
// reference, and at another one on the same machine, which borrows the stamp and gives it back.
func BenchmarkOperation(b *testing.B) {
	c := newCluster()
	owner, other := startStation(b, c), startStation(b, c)
	k := keyOf("x")
	ref := owner.held(k)
	for name, s := range map[string]*station{"here": owner, "there": other} {
		s.put(k, ref)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			told := make(chan musiccore.Answer, 1)
			done := func(a musiccore.Answer) { told <- a }
			for b.Loop() {
				a, ok := s.Begin(k, ref, musiccore.Put, done)
				if !ok {
					a = <-told
				}
				v, wait := s.End(a.Ticket, musiccore.OutcomeAcked)
				if wait != nil {
					v = wait()
				}
				if v != musiccore.VerdictTell {
					require.Fail(b, "not told", "%v %v", a.Err, v)
				}
			}
		})
	}
}

// Where the reference is here, nothing of the way to other proxies is paid for.
func TestOperationHereAllocatesNothing(t *testing.T) {
	s := startStation(t, newCluster())
	k := keyOf("x")
	ref := s.held(k)
	s.put(k, ref)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		a, ok := s.Begin(k, ref, musiccore.Put, nil)
		v, wait := s.End(a.Ticket, musiccore.OutcomeAcked)
		if !ok || wait != nil || v != musiccore.VerdictTell {
			assert.Fail(t, "not at once")
		}
	}))
}
