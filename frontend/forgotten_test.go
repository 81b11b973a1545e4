package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
)

// A driver looks for the id that it knows when it has to prepare a statement of its batch again, not for Cassandra's.
func TestABatchWhoseStatementIsForgotten(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		client, backend := rowsRig(t, d)
		var ids [][]byte
		for i, text := range []string{"UPDATE bank.accounts USING LOCK ? SET v = 1 WHERE id = 'x' AND c = 1", "DELETE FROM bank.accounts USING LOCK ? WHERE id = 'x' AND c = 2"} {
			client.send(1, &message.Prepare{Query: text})
			backend.answer(1)
			backend.send(1, preparedAs(idOf(strings.Repeat("x", i))))
			ids = append(ids, client.answer(1).(*message.PreparedResult).PreparedQueryId)
		}
		nine := []*primitive.Value{primitive.NewValue(bigint(9))}
		for i, id := range ids {
			client.send(1, &message.Batch{Children: []*message.BatchChild{{Id: ids[0], Values: nine}, {Id: ids[1], Values: nine}, {Query: "UPDATE bank.accounts USING LOCK 9 SET v = 1 WHERE id = 'x' AND c = 1"}}})
			backend.answer(1)
			backend.send(1, &message.Unprepared{ErrorMessage: "what?", Id: idOf(strings.Repeat("x", i))})
			assert.Equal(t, id, client.failure(1).(*message.Unprepared).Id)
		}
	})
}
