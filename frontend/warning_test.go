package frontend

import (
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/frame"
	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// leasedLocks hold reference 7, with so much left of its lease.
type leasedLocks struct {
	Locks
	left time.Duration
}

func (l leasedLocks) Begin(k musiccore.Key, ref musiccore.LockRef, kind musiccore.Kind, _ func(musiccore.Answer)) (musiccore.Answer, bool) {
	return musiccore.Answer{Ticket: musiccore.Ticket{Key: k, Ref: ref, Stamp: 1000, Kind: kind, Left: l.left, Lease: 30 * time.Second}}, true
}

func (leasedLocks) End(musiccore.Ticket, musiccore.Outcome) (musiccore.Verdict, func() musiccore.Verdict) {
	return musiccore.VerdictTell, nil
}

// An operation in the last fifth of its lease is warned, beside whatever Cassandra warns of; one before that is not.
func TestOperationLateInItsLeaseIsWarned(t *testing.T) {
	const late = "MUSIC: lock_ref 7 on bank.accounts had 5.9s of its 30s lease left when this came: renew it earlier (LOCK bank.accounts WHERE … USING LOCK 7)"
	everyDialect(t, func(t *testing.T, d dialect) {
		for left, want := range map[time.Duration][]string{5900 * time.Millisecond: {late}, 6 * time.Second: nil, 30 * time.Second: nil} {
			r := newRig(t, func(o *Options) { o.Locks = leasedLocks{left: left} })
			r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
			client, backend := r.login(d)
			ask := func(dress func(f *frame.Frame)) *frame.Frame {
				client.send(1, query("SELECT a FROM bank.accounts WHERE id = 'x' USING LOCK 7"))
				backend.answer(1)
				backend.send(1, rows([]byte("value")), dress)
				got := client.next()
				assert.Equal(t, "value", string(got.Body.Message.(*message.RowsResult).Data[0][0]))
				return got
			}
			plain := ask(func(*frame.Frame) {})
			if d.version < v4 {
				assert.Empty(t, plain.Body.Warnings)
				continue
			}
			assert.Equal(t, want, plain.Body.Warnings)
			trace := &primitive.UUID{7}
			dressed := ask(func(f *frame.Frame) {
				f.SetWarnings([]string{"Cassandra's own", "and another"})
				f.Header.Flags = f.Header.Flags.Add(primitive.HeaderFlagTracing)
				f.Body.TracingId = trace
			})
			assert.Equal(t, append([]string{"Cassandra's own", "and another"}, want...), dressed.Body.Warnings)
			assert.Equal(t, trace, dressed.Body.TracingId)
		}
	})
}
