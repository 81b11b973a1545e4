package frontend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
)

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
