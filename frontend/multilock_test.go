package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
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
