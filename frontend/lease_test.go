package frontend

import (
	"testing"
	"time"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// capturingLocks show what LOCK asks for.
type capturingLocks struct {
	Locks
	asked chan musiccore.Request
}

func (a capturingLocks) Lock(_ musiccore.Key, q musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	a.asked <- q
	return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: 3, State: musiccore.StateHeld}}, nil
}

// A LEASE that is not given is left to the core; one of nothing is refused, written or bound.
func TestTheLeaseOfALock(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		core := capturingLocks{asked: make(chan musiccore.Request, 9)}
		r := newRig(t, func(o *Options) { o.Locks = core })
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, MaxLease: time.Minute})
		client, backend := r.login(d)
		for text, want := range map[string]time.Duration{
			"LOCK bank.accounts WHERE id = 'x'": 0, "LOCK bank.accounts WHERE id = 'x' USING LOCK 3": 0,
			"LOCK bank.accounts WHERE id = 'x' LEASE 1s": time.Second, "LOCK bank.accounts WHERE id = 'x' USING LOCK 3 LEASE 2s": 2 * time.Second,
			"LOCK bank.accounts WHERE id = 'x' LEASE 1h": time.Minute,
		} {
			client.send(5, query(text))
			client.answer(5)
			q := <-core.asked
			assert.Equal(t, want, q.Lease, text)
		}
		for _, text := range []string{
			"LOCK bank.accounts WHERE id = 'x' LEASE 0s", "LOCK bank.accounts WHERE id = 'x' USING LOCK 3 LEASE 0ms",
			"SELECT n FROM bank.accounts WHERE id = 'x' FOR UPDATE LEASE 0s",
		} {
			client.send(5, query(text))
			f := client.failure(5)
			assert.Equal(t, primitive.ErrorCodeInvalid, f.GetErrorCode(), text)
			assert.Contains(t, f.GetErrorMessage(), "MUSIC_SYNTAX: LEASE", text)
		}
		zero := query("LOCK bank.accounts WHERE id = 'x' LEASE ?")
		zero.Options.PositionalValues = []*primitive.Value{primitive.NewValue(make([]byte, 8))}
		client.send(5, zero)
		assert.Contains(t, client.failure(5).GetErrorMessage(), "MUSIC_SYNTAX: LEASE")
		assert.Empty(t, core.asked)
		backend.silent()
	})
}
