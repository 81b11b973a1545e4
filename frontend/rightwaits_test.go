package frontend

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
)

// A statement about which Cassandra is asked first takes one place among those that wait, not two: where one may wait, it may.
func TestAStatementWhoseRightIsAskedTakesOnePlace(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		r := rightsRig(t, newGrantingLocks(), func(o *Options) { o.Limits().Waits = 1 })
		client, backend := r.loginAs(d, "anna")
		client.send(1, query("LOCK bank.accounts WHERE id = 'x'"))
		backend.answer(1)
		backend.send(1, &message.VoidResult{}) // she may
		assert.IsType(t, &message.RowsResult{}, client.answer(1))
		for _, m := range []message.Message{query("UPDATE bank.auto SET balance = 1 WHERE id = 'x'"), asBatch(query("UPDATE bank.auto SET balance = 1 WHERE id = 'x'"))} {
			client, backend := r.loginAs(d, "anna")
			client.send(1, m)
			backend.answer(1)
			backend.send(1, &message.VoidResult{})
			backend.answer(1)
			backend.send(1, &message.VoidResult{})
			assert.IsType(t, &message.VoidResult{}, client.answer(1))
		}
	})
}
