package frontend

import (
	"fmt"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
	"music/musiccore"
)

// A table that was made since the schema was read last may be critical: what writes or locks it waits until the schema has been read.
func TestWritesOnTablesThatWereNotRead(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		var r *rig
		readings, found := 0, func() {}
		known := [][2]string{{"bank", "known"}}
		r = newRig(t, func(o *Options) {
			o.Locks = noLocks{}
			o.CatchUp = func([2]string) { readings++; found() }
		})
		client, backend := r.login(d)
		const text = "DELETE FROM bank.fresh WHERE id = 'x'"
		id := r.prepare(client, backend, text)
		read := func(names ...[2]string) { r.server.Tables.Read(append(names, known...)) }
		for name, m := range map[string]message.Message{
			"QUERY": query(text), "EXECUTE": execute(id, nil), "batch": query("BEGIN BATCH INSERT INTO bank.known (id) VALUES ('x'); " + text + " APPLY BATCH"),
			"BATCH": &message.Batch{Children: []*message.BatchChild{{Query: text}}}, "BATCH of id": &message.Batch{Children: []*message.BatchChild{{Id: id}}},
			"large": query(text + fmt.Sprintf("/*%x*/", noise(50_000))),
		} {
			again := func(what func()) {
				r.server.Tables.Set("bank", "fresh", nil)
				read()
				readings, found = 0, what
			}
			again(func() {
				r.server.Tables.Set("bank", "fresh", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
				read([2]string{"bank", "fresh"})
			})
			client.send(1, m)
			fencedOff(client, 1)

			again(func() { read([2]string{"bank", "fresh"}) })
			relayed(client, backend, 1, m, &message.VoidResult{})
			once := readings
			relayed(client, backend, 1, m, &message.VoidResult{})
			assert.Equal(t, once, readings, "%s: the schema is read once", name)
			assert.LessOrEqual(t, readings, 2, name) // for the first part of a large request, and for the whole

			again(func() {})
			for _, there := range []bool{false, true} {
				client.send(1, m)
				assert.Equal(t, `SELECT * FROM "bank"."fresh"`, backend.answer(1).(*message.Prepare).Query, name)
				if !there {
					backend.send(1, &message.Invalid{ErrorMessage: "table fresh does not exist"})
					assert.Equal(t, "table fresh does not exist", client.failure(1).GetErrorMessage(), name)
					continue
				}
				backend.send(1, preparedAs(idOf("select")))
				f := client.failure(1)
				assert.Equal(t, primitive.ErrorCodeOverloaded, f.GetErrorCode())
				assert.Contains(t, f.GetErrorMessage(), "MUSIC_UNAVAILABLE: bank.fresh has just been created", name)
			}
		}
		backend.silent()
	})
}

// A transaction that was prepared is read again with each EXECUTE, and waits for the schema like one that was not.
func TestAPreparedTransactionOnATableThatWasNotRead(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		fresh := [2]string{"bank", "fresh"}
		var r *rig
		r = newRig(t, func(o *Options) {
			o.Locks = noLocks{}
			o.CatchUp = func([2]string) {
				r.server.Tables.Set("bank", "fresh", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
				r.server.Tables.Read([][2]string{fresh})
			}
		})
		r.server.Tables.Read([][2]string{fresh})
		client, backend := r.login(d)
		const text = "BEGIN TRANSACTION DELETE FROM bank.fresh WHERE id = 'x'; COMMIT TRANSACTION"
		id := r.prepare(client, backend, text)
		relayed(client, backend, 1, execute(id, nil), &message.VoidResult{})
		for _, m := range []message.Message{query(text), execute(id, nil)} {
			r.server.Tables.Set("bank", "fresh", nil)
			r.server.Tables.Read(nil) // it was dropped
			client.send(1, m)
			assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_REFUSED: bank.fresh is critical")
		}
		backend.silent()
	})
}

// What does not write, and what is known, does not wait; LOCK of what is not known does.
func TestWhatWaitsForTheSchema(t *testing.T) {
	readings := 0
	r := newRig(t, func(o *Options) { o.CatchUp = func([2]string) { readings++ } })
	r.server.Tables.Read([][2]string{{"bank", "known"}})
	client, backend := r.login(dialect{version: v4})
	for text, want := range map[string]int{
		"SELECT * FROM bank.fresh": 0, "INSERT INTO bank.known (id) VALUES ('x')": 0, "CREATE TABLE bank.fresh (id text PRIMARY KEY)": 0, "TRUNCATE bank.fresh": 1,
		"LOCK bank.fresh WHERE id = 'x'": 1, "UPDATE bank.fresh USING LOCK 3 SET n = 1 WHERE id = 'x'": 1, "INSERT INTO bank.music_lock_1 (k) VALUES (1)": 0,
		"DELETE FROM fresh IN bank WHERE id = 'x'": 0, // without any keyspace there is no such table
	} {
		readings = 0
		client.send(1, query(text))
		if text != "INSERT INTO bank.music_lock_1 (k) VALUES (1)" {
			backend.answer(1)
			backend.send(1, &message.Invalid{ErrorMessage: "no"})
		}
		client.failure(1)
		assert.Equal(t, want, readings, text)
	}
}

// A statement on a table that the schema does not have is prepared by Cassandra as ever: nothing is
// written by that, and each EXECUTE is decided about by itself.
func TestPrepareOnATableThatWasNotRead(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		readings := 0
		r := newRig(t, func(o *Options) { o.CatchUp = func([2]string) { readings++ } })
		r.server.Tables.Read([][2]string{{"bank", "known"}})
		client, backend := r.login(d)
		r.prepare(client, backend, "INSERT INTO bank.fresh (id) VALUES ('x')")
		assert.Equal(t, 1, readings, "it may be critical since")
	})
}

// While the schema is read for one connection, others go on; and no other request of this one overtakes.
func TestAWriteThatWaitsForTheSchemaKeepsItsPlace(t *testing.T) {
	bothFramings(t, func(t *testing.T, d dialect) {
		reading := make(chan struct{})
		var r *rig
		r = newRig(t, func(o *Options) {
			o.CatchUp = func([2]string) { <-reading; r.server.Tables.Read([][2]string{{"bank", "fresh"}}) }
		})
		r.server.Tables.Read(nil)
		client, backend := r.login(d)
		other, second := r.login(d)
		client.send(1, query("INSERT INTO bank.fresh (id) VALUES ('x')"))
		client.send(2, query("SELECT * FROM bank.fresh"))
		relayed(other, second, 1, query("SELECT 1"), rows(nil))
		backend.silent()
		close(reading)
		for stream := range int16(2) {
			backend.answer(stream + 1)
			backend.send(stream+1, rows(nil))
			client.answer(stream + 1)
		}
	})
}

// A batch in sections writes no table that the schema does not have: another client may just be creating it as a critical one, which takes
// no plain write from any proxy.
func TestABatchInSectionsOnATableThatWasNotRead(t *testing.T) {
	l := newSectionLocks()
	r := newRig(t, func(o *Options) { o.Locks, o.CatchUp = l, func([2]string) {} })
	r.policy(catalog.Auto)
	r.server.Tables.Read([][2]string{{"bank", "accounts"}})
	client, backend := r.login(dialect{version: v4})
	const known, fresh = "DELETE FROM bank.accounts WHERE id = 'x'", "DELETE FROM bank.fresh WHERE id = 'x'"
	id := r.prepare(client, backend, fresh)
	for name, m := range map[string]message.Message{
		"text":  query("BEGIN BATCH " + known + "; " + fresh + " APPLY BATCH"),
		"BATCH": &message.Batch{Children: []*message.BatchChild{{Query: known}, {Query: fresh}}}, "BATCH of id": &message.Batch{Children: []*message.BatchChild{{Id: id}, {Query: known}}},
	} {
		client.send(1, m)
		asked, ok := backend.answer(1).(*message.Prepare)
		if assert.True(t, ok, "%s: it is sent", name) {
			assert.Equal(t, `SELECT * FROM "bank"."fresh"`, asked.Query, name)
		}
		backend.send(1, &message.Invalid{ErrorMessage: "table fresh does not exist"})
		client.failure(1)
	}
	assert.Empty(t, l.locked)
	backend.silent()
}

// droppingLocks has a table dropped before it gives a lock.
type droppingLocks struct {
	*sectionLocks
	drop func()
}

// Lock implements Locks.
func (l *droppingLocks) Lock(k musiccore.Key, q musiccore.Request, done func(musiccore.Answer)) (musiccore.Answer, func()) {
	l.drop()
	return l.sectionLocks.Lock(k, q, done)
}

// What has waited, for a lock or for its table, is not sent on a table that was dropped meanwhile, and may come back as a critical one.
func TestWhatWaitsIsNotSentOnADroppedTable(t *testing.T) {
	l := &droppingLocks{sectionLocks: newSectionLocks()}
	r := newRig(t, func(o *Options) { o.Locks, o.CatchUp, o.MaxWait = l, func([2]string) {}, patience })
	accounts := [2]string{"bank", "accounts"}
	r.policy(catalog.Auto)
	r.server.Tables.Read([][2]string{accounts, {"bank", "plain"}})
	client, backend := r.login(dialect{version: v4})
	l.drop = func() { r.server.Tables.Read([][2]string{accounts}) }
	client.send(1, query("BEGIN BATCH "+lonely+"; DELETE FROM bank.plain WHERE id = 'x' APPLY BATCH"))
	assert.Equal(t, primitive.ErrorCodeOverloaded, client.failure(1).GetErrorCode())

	r.becoming(catalog.Auto)
	client.send(1, query(lonely))
	r.waiting(client, backend, 1)
	r.server.Tables.Read(nil)
	r.server.Tables.Set("bank", "accounts", nil)
	assert.Equal(t, primitive.ErrorCodeOverloaded, client.failure(1).GetErrorCode())
	backend.silent()
}
