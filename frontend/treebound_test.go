package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
)

// A read without a lock on a critical table, and a batch on others, are forwarded whatever their number of parts; what is carried out under a
// lock has a bound.
func TestStatementsOfManyParts(t *testing.T) {
	r, _ := patientRig(t, false)
	client, backend := r.login(dialect{version: v4})
	values := strings.Repeat("1,", 1<<19) + "1)"
	read := "SELECT v FROM bank.accounts WHERE id = 'x' AND c IN (" + values
	batch := "BEGIN BATCH " + strings.Repeat("DELETE FROM bank.plain WHERE id = 1;", 1<<15)
	for _, text := range []string{read, batch + "APPLY BATCH"} {
		relayed(client, backend, 1, query(text), &message.VoidResult{})
	}
	for _, text := range []string{
		read + " USING LOCK 5", read + " FOR UPDATE", "DELETE FROM bank.accounts USING LOCK 5 WHERE id = 'x' AND c IN (" + values,
		batch + "DELETE FROM bank.accounts USING LOCK 5 WHERE id = 'x' APPLY BATCH",
	} {
		client.send(1, query(text))
		assert.Regexp(t, "^MUSIC_REFUSED: the statement has more names, values and statements than the proxy reads", client.failure(1).GetErrorMessage())
	}
}

// Of a prepared batch all tables are known, however many statements it has: it is refused once one of them is critical.
func TestAPreparedBatchOfManyPartsIsOfItsTables(t *testing.T) {
	r, _ := patientRig(t, false)
	client, backend := r.login(dialect{version: v4})
	text := "BEGIN BATCH " + strings.Repeat("DELETE FROM bank.plain WHERE id = 1;", 1<<15) + "DELETE FROM bank.last WHERE id = 1 APPLY BATCH"
	id := r.prepare(client, backend, text)
	relayed(client, backend, 1, execute(id, nil), &message.VoidResult{})
	p := r.server.prepared.shared(preparedID(id)).get()
	require.NotNil(t, p)
	assert.Len(t, p.tables, 2)
	r.server.Tables.Set("bank", "last", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "int"}}, Primary: []string{"id"}})
	client.send(1, execute(id, nil))
	assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_UNLOCKED")
}

// What the statements of a BATCH message take, once they are read, has a bound.
func TestABatchMessageOfManyParts(t *testing.T) {
	r, _ := patientRig(t, false)
	client, _ := r.login(dialect{version: v4})
	var b message.Batch
	for range 20_000 {
		b.Children = append(b.Children, &message.BatchChild{Query: "DELETE FROM bank.accounts USING LOCK 5 WHERE id='x'"})
	}
	client.send(1, &b)
	assert.Regexp(t, "^MUSIC_REFUSED: the statements of the batch would take more than", client.failure(1).GetErrorMessage())
}
