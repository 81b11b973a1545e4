package frontend

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/classify"
	"music/frontend/traffic"
	"music/musiccore"
	"music/rewrite"
)

// atOnceLocks answer at once, as the core does of a key that it keeps.
type atOnceLocks struct{ acceptingLocks }

func (atOnceLocks) Lock(musiccore.Key, musiccore.Request, func(musiccore.Answer)) (musiccore.Answer, func()) {
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 17, State: musiccore.StateHeld}}, nil
}

func (atOnceLocks) Unlock(_ musiccore.Key, r musiccore.LockRef, _ musiccore.Client, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: r, State: musiccore.StateReleased}}, true
}

// lockAtOnce is a connection whose core answers at once, and its prepared LOCK and UNLOCK, as a
// client sends them on streams 2 and 3.
func lockAtOnce(t tester, d dialect, keep bool) (m *memoryConn, lock, unlock []byte) {
	t.Helper()
	m = newMemoryConn(t, d, keep)
	m.server.Locks, m.server.References = atOnceLocks{}, NewReferences([]byte("secret"))
	ref := bigint(m.server.References.Show([16]byte{}, musiccore.Key{PK: "a key"}, 17))
	lock = m.preparedVerb(t, d, 2, "LOCK bank.locked WHERE k = ?", []byte("a key"))
	return m, lock, m.preparedVerb(t, d, 3, "UNLOCK bank.locked WHERE k = ? USING LOCK ?", []byte("a key"), ref)
}

// A write that has a section of its own costs little more memory than one under a lock.
func TestWriteAloneAllocatesLittle(t *testing.T) {
	if raceDetector {
		t.Skip("allocations mean nothing under the race detector")
	}
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			m, _, _ := lockAtOnce(t, d, false)
			write := m.preparedVerb(t, d, 2, "UPDATE bank.locked SET v = 1 WHERE k = ?", []byte("a key"))
			done := requestBytes(t, d, d.envelope(t, 2, &message.VoidResult{}))
			var err error
			n := testing.AllocsPerRun(1000, func() {
				if err == nil {
					err = errors.Join(m.feed(m.up, write), m.feed(m.down, done))
				}
			})
			require.NoError(t, err)
			require.Zero(t, m.server.Stats.Rejected.Load())
			require.EqualValues(t, 1001, fenced(m), "each was sent under a lock")
			require.LessOrEqual(t, n, 4.0)
		})
	}
}

// fenced returns how many requests a connection has sent under a lock.
func fenced(m *memoryConn) (n uint64) {
	m.server.Stats.Requests(func(_ primitive.OpCode, fate traffic.Fate, times uint64) {
		if fate == traffic.Fenced {
			n += times
		}
	})
	return n
}

// preparedVerb returns the EXECUTE of a LOCK, an UNLOCK or a write without a lock on bank.locked.
func (m *memoryConn) preparedVerb(t tester, d dialect, stream int16, text string, values ...[]byte) []byte {
	t.Helper()
	table := m.server.Tables.Of("bank", "locked")
	m.server.Tables.Set("bank", "locked", &catalog.Critical{Key: []catalog.Column{{Name: "k", Type: "text"}}, Primary: []string{"k"}, Settings: catalog.Settings{Unlocked: catalog.Auto}})
	statement, err := rewrite.Parse([]byte(text))
	require.NoError(t, err)
	p := &preparedLockStatement{id: preparedID(idOf(text)), text: []byte(text), statement: &statement, table: table, backendID: idOf("cut")}
	m.server.prepared.add(p.id, &preparedStatement{kind: classify.Critical, lock: p}, nil)
	execute := &message.Execute{QueryId: p.id[:], ResultMetadataId: p.id[:], Options: &message.QueryOptions{Consistency: primitive.ConsistencyLevelQuorum}}
	for _, value := range values {
		execute.Options.PositionalValues = append(execute.Options.PositionalValues, primitive.NewValue(value))
	}
	return requestBytes(t, d, d.envelope(t, stream, execute))
}

// LOCK and UNLOCK that the core answers at once cost little memory.
func TestLockAtOnceAllocatesLittle(t *testing.T) {
	if raceDetector {
		t.Skip("allocations mean nothing under the race detector")
	}
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			m, lock, unlock := lockAtOnce(t, d, false)
			for what, request := range map[string][]byte{"LOCK": lock, "UNLOCK": unlock} {
				var err error
				n := testing.AllocsPerRun(1000, func() {
					if err == nil {
						err = m.feed(m.up, request)
					}
				})
				require.NoError(t, err)
				require.Zero(t, m.server.Stats.Rejected.Load())
				require.LessOrEqual(t, n, 4.0, what)
			}
		})
	}
}

// BenchmarkLockAtOnce measures a LOCK that the core answers at once.
func BenchmarkLockAtOnce(b *testing.B) {
	m, lock, _ := lockAtOnce(b, d4(), false)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.feed(m.up, lock); err != nil {
			require.NoError(b, err)
		}
	}
}

// Answers that are there at once go to the client together, in the order of their requests, and
// before what is forwarded meanwhile is written: a node that does not read holds none of them up.
func TestAnswersAtOnceGoTogether(t *testing.T) {
	for name, d := range dialects() {
		t.Run(name, func(t *testing.T) {
			m, lock, unlock := lockAtOnce(t, d, true)
			exec, _, _ := typical(t, d, m)
			m.backend.onWrite = func() { assert.Equal(t, 1, m.client.writes, "what is told waits for no node") }
			require.NoError(t, m.feed(m.up, slices.Concat(lock, exec, unlock)))
			assert.Equal(t, 1, m.client.writes)
			assert.Equal(t, exec, m.backend.got)
			assert.Equal(t, []int16{2, 3}, answeredStreams(t, d, m.client.got))
		})
	}
}

// What was granted is told before the connection ends for what its client did next.
func TestAnswersAtOnceAreToldBeforeTheEnd(t *testing.T) {
	m, lock, _ := lockAtOnce(t, d4(), true)
	bad := bytes.Clone(lock)
	bad[0] = 0x83 // a response
	var v *violation
	require.ErrorAs(t, m.feed(m.up, slices.Concat(lock, bad)), &v)
	assert.Equal(t, []int16{2}, answeredStreams(t, d4(), m.client.got))
}

// answeredStreams returns the streams of what a client has got.
func answeredStreams(t tester, d dialect, got []byte) (streams []int16) {
	t.Helper()
	for in := bytes.NewReader(got); in.Len() > 0; {
		read := io.Reader(in)
		if d.version >= v5 {
			s, err := d.segments().DecodeSegment(in)
			require.NoError(t, err)
			read = bytes.NewReader(s.Payload.UncompressedData)
		}
		f, err := d.codec().DecodeFrame(read)
		require.NoError(t, err)
		require.Equal(t, primitive.OpCodeResult, f.Header.OpCode)
		streams = append(streams, f.Header.StreamId)
	}
	return streams
}
