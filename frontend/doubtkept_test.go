package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
)

// What Cassandra is asked whether it takes, before a client hears that its condition does not hold, is counted until the answer.
func TestWhatIsInDoubtIsCounted(t *testing.T) {
	for _, goes := range []bool{false, true} {
		r, _ := holdingRig(t)
		client, backend := r.login(dialect{version: v4})
		client.send(1, query("UPDATE bank.accounts USING LOCK 1 SET balance = '"+strings.Repeat("x", large)+"' WHERE id = 'x' IF balance = 5"))
		backend.answer(1)
		backend.send(1, balances(bigint(6)))
		assert.IsType(t, &message.Prepare{}, backend.answer(1))
		r.holds(large, "while Cassandra is asked")
		if goes {
			_ = client.Close()
			backend.ended()
		} else {
			backend.send(1, preparedAs(idOf("x")))
			client.answer(1)
		}
		r.holds(0, "it is answered")
	}
}
