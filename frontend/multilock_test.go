package frontend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/musiccore"
)

// unrenewedLocks grant each LOCK, but renew none: they give err or, without one, no answer.
type unrenewedLocks struct {
	*grantingLocks
	err     error
	renewed chan struct{}
}

// Lock implements Locker.
func (u unrenewedLocks) Lock(k musiccore.Key, q musiccore.Request, _ func(musiccore.Answer)) (musiccore.Answer, func()) {
	switch {
	case q.Ref == 0:
		return musiccore.Answer{Grant: musiccore.Grant{Applied: true, Ref: musiccore.LockRef(k.PK[0]), State: musiccore.StateHeld}}, nil
	case u.err != nil:
		return musiccore.Answer{Err: u.err}, nil
	}
	u.renewed <- struct{}{}
	return musiccore.Answer{}, func() {}
}

// A lock of several whose lease cannot be renewed at last, or whose client goes meanwhile, is given back as the others are.
func TestALockThatIsNotRenewedIsGivenBack(t *testing.T) {
	for _, err := range []error{musiccore.ErrUnavailable, nil} {
		core := unrenewedLocks{newGrantingLocks(), err, make(chan struct{}, 2)}
		r := newRig(t, func(o *Options) { o.Locks = core })
		r.createAccounts()
		client, _ := r.login(d4())
		client.send(1, query("LOCK bank.accounts WHERE id IN ('x', 'y')"))
		if err == nil {
			taken(t, core.renewed)
			_ = client.Close()
		} else {
			assert.IsType(t, &message.RowsResult{}, client.answer(1))
		}
		assert.ElementsMatch(t, []musiccore.LockRef{'x', 'y'}, []musiccore.LockRef{taken(t, core.unlocked), taken(t, core.unlocked)})
	}
}

// The keys of a LOCK on several are counted while it waits.
func TestTheKeysOfALockThatWaitsAreCounted(t *testing.T) {
	r, core := holdingRig(t)
	r.server.MaxWait = patience
	core.holds = true
	client, _ := r.login(dialect{version: v4})
	q := query("LOCK bank.accounts WHERE id IN (" + strings.Repeat("?,", 31) + "?)")
	for i := range 32 {
		q.Options.PositionalValues = append(q.Options.PositionalValues, primitive.NewValue([]byte(strings.Repeat(string(rune('A'+i)), large/32))))
	}
	client.send(1, q)
	give := taken(t, core.held)
	r.holds(large, "it waits")
	give()
	give = taken(t, core.held)
	_ = client.Close()
	give()
	r.holds(0, "the client is gone")
}

// For a client that is gone no more locks are asked for.
func TestNoMoreKeysAreAskedForAClientThatIsGone(t *testing.T) {
	r, core := patientRig(t, true)
	r.server.MaxWait = patience
	var keys []string
	for i := range 2 * freeAtOnce {
		keys = append(keys, fmt.Sprintf("'%d'", i))
	}
	client, _ := r.login(d4())
	client.send(1, query("LOCK bank.accounts WHERE id IN ("+strings.Join(keys, ", ")+") SKIP LOCKED"))
	for range freeAtOnce {
		taken(t, core.asked)
	}
	_ = client.Close()
	r.end()
	assert.Empty(t, core.asked)
}
