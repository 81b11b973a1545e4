package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// remake publishes another table with the name bank.accounts, and a table with another name.
func (r *rig) remake(id byte, numbers string) {
	for _, name := range []string{"accounts", "limits"} {
		r.server.Tables.Set("bank", name, &catalog.Critical{
			ID: [16]byte{id}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}, Settings: catalog.Settings{Unlocked: catalog.Auto},
			Columns: map[string]catalog.Column{
				"id": {Name: "id", Type: "text"}, "balance": {Name: "balance", Type: numbers}, "n": {Name: "n", Type: numbers},
			},
		})
	}
}

// A statement that was prepared for a table is not executed on another one of the same name, made after a DROP: its client has bound values of
// the former columns. Cassandra has forgotten it; the proxy, which sends texts in its place, says so as well.
func TestAPreparedStatementOfATableThatWasDropped(t *testing.T) {
	four := []byte{0, 0, 0, 5} // an int, and a text as well
	for text, values := range map[string][][]byte{
		conditionalUpdate: {four, []byte("x"), four},
		conditionalInsert: {[]byte("x"), four},
		"UPDATE bank.accounts USING TTL 5 SET n = ? WHERE id IN ('x', ?)":                                                                              {four, []byte("y")},
		"INSERT INTO bank.accounts (id, n) VALUES (uuid(), ?)":                                                                                         {four},
		"BEGIN BATCH UPDATE bank.accounts SET n = ? WHERE id = ?; UPDATE bank.limits SET n = ? WHERE id = ? APPLY BATCH":                               {four, []byte("x"), four, []byte("x")},
		"BEGIN BATCH USING LOCK ? UPDATE bank.accounts SET n = ? WHERE id = ? IF n = ?; UPDATE bank.accounts SET balance = ? WHERE id = ? APPLY BATCH": {bigint(9), four, []byte("x"), four, four, []byte("x")},
		"UPDATE bank.accounts USING LOCK ? SET n = ? WHERE id = ? IF balance = ?":                                                                      {bigint(9), four, []byte("x"), four},
		"SELECT n FROM bank.accounts WHERE id = ? USING LOCK ?":                                                                                        {four, bigint(9)},
	} {
		r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
		r.remake(1, "int")
		client, backend := r.login(dialect{version: v4})
		client.send(1, &message.Prepare{Query: text})
		backend.answer(1)
		backend.send(1, preparedAs(idOf(text)))
		prepared := client.answer(1).(*message.PreparedResult)
		var bound []*primitive.Value
		for _, v := range values {
			bound = append(bound, primitive.NewValue(v))
		}
		r.remake(2, "text")
		client.send(1, &message.Execute{QueryId: prepared.PreparedQueryId, Options: &message.QueryOptions{PositionalValues: bound}})
		f := client.failure(1)
		require.Equal(t, primitive.ErrorCodeUnprepared, f.GetErrorCode(), "%s: %s", text, f.GetErrorMessage())
		assert.Equal(t, prepared.PreparedQueryId, f.(*message.Unprepared).Id, text)
		client.send(1, &message.Batch{Children: []*message.BatchChild{{Id: prepared.PreparedQueryId, Values: bound}}})
		assert.Equal(t, primitive.ErrorCodeUnprepared, client.failure(1).GetErrorCode(), text)

		client.send(1, &message.Prepare{Query: text})
		backend.answer(1)
		backend.send(1, preparedAs(idOf(text)))
		again := client.answer(1).(*message.PreparedResult)
		assert.Equal(t, prepared.PreparedQueryId, again.PreparedQueryId, text)
		client.send(1, &message.Execute{QueryId: again.PreparedQueryId, Options: &message.QueryOptions{PositionalValues: bound}})
		backend.answer(1)
	}
}

// A name that a client makes up is not kept for the PREPARE of a batch that has it: Cassandra may know no such table.
func TestTheTablesOfABatchThatIsNotPrepared(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	r.remake(1, "int")
	client, backend := r.login(dialect{version: v4})
	got := relayed(client, backend, 1, &message.Prepare{Query: "BEGIN BATCH DELETE FROM bank.accounts WHERE id = ?; DELETE FROM bank.nosuch WHERE id = ? APPLY BATCH"}, &message.Invalid{ErrorMessage: "table nosuch does not exist"})
	assert.IsType(t, &message.Invalid{}, got)
	assert.Nil(t, r.server.Tables.Find([]byte("bank\x00nosuch")))
}

// Nor is one that has waited for its table when that is dropped, and another one made.
func TestAPreparedStatementThatWaitsForATableThatIsDropped(t *testing.T) {
	four := primitive.NewValue([]byte{0, 0, 0, 5}) // an int, and a text as well
	for _, text := range []string{
		conditionalUpdate, "UPDATE bank.accounts SET n = ? WHERE id = ? AND balance = ?",
		"INSERT INTO bank.accounts (id, n) VALUES ((text) 'x', ?)", // of which the proxy makes a constant, as of uuid() in a uuid
	} {
		for _, batch := range []bool{false, true} {
			r := newRig(t, func(o *Options) { o.Locks, o.MaxWait = newGrantingLocks(), patience })
			r.remake(1, "int")
			client, backend := r.login(dialect{version: v4})
			id := r.prepare(client, backend, text)
			now := *r.server.Tables.Of("bank", "accounts").Critical()
			now.Refused, now.Passing = "its settings change", true
			r.server.Tables.Set("bank", "accounts", &now)
			bound := []*primitive.Value{four, primitive.NewValue([]byte("x")), four}[:strings.Count(text, "?")]
			if batch {
				client.send(1, &message.Batch{Children: []*message.BatchChild{{Id: id, Values: bound}}})
			} else {
				client.send(1, &message.Execute{QueryId: id, Options: &message.QueryOptions{PositionalValues: bound}})
			}
			backend.silent()
			r.remake(2, "text")
			f := client.failure(1)
			require.Equal(t, primitive.ErrorCodeUnprepared, f.GetErrorCode(), "%s: %s", text, f.GetErrorMessage())
			assert.Equal(t, id, f.(*message.Unprepared).Id, text)
		}
	}
}

// Nor is a BATCH text that has waited for what Cassandra was asked first, and of which the statements are read by
// themselves then.
func TestAPreparedBatchTextWhoseTableIsMadeAnewMeanwhile(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = newGrantingLocks() })
	r.remake(1, "int")
	client, backend := r.loginAs(dialect{version: v4}, "alice")
	id := r.prepare(client, backend, "BEGIN BATCH UPDATE bank.accounts SET n = ? WHERE id = ?; UPDATE bank.accounts SET n = ? WHERE id = ? APPLY BATCH")
	four := primitive.NewValue([]byte{0, 0, 0, 5})
	bound := []*primitive.Value{four, primitive.NewValue([]byte("x")), four, primitive.NewValue([]byte("y"))}
	client.send(1, &message.Execute{QueryId: id, Options: &message.QueryOptions{PositionalValues: bound}})
	assert.Contains(t, backend.answer(1).(*message.Query).Query, "IN ()", "a right is asked for")
	r.remake(2, "text")
	backend.send(1, &message.VoidResult{})
	f := client.failure(1)
	require.Equal(t, primitive.ErrorCodeUnprepared, f.GetErrorCode(), f.GetErrorMessage())
	assert.Equal(t, id, f.(*message.Unprepared).Id)
}
