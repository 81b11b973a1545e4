package frontend

import (
	"encoding/hex"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
)

// A clause of ours on a table that is not critical is told as LOCK is, in whatever request it comes: Cassandra looks at it first, and only
// where it cannot read it.
func TestClausesOfOursOnAnOrdinaryTable(t *testing.T) {
	var behind atomic.Bool
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) {
			o.Locks = noLocks{}
			o.SchemaIsCurrent = func() bool { return !behind.Load() }
		})
		client, backend := r.login(d)
		syntax := &message.SyntaxError{ErrorMessage: "line 1:18 no viable alternative at input 'LOCK' (UPDATE ks.t USING [LOCK]...)"}
		const says = "MUSIC_REFUSED: bank.t is not critical: make it so with ALTER TABLE bank.t WITH comment = '@critical'"
		for text, ours := range map[string]bool{
			"UPDATE bank.t USING LOCK 5 SET a = 1 WHERE id = 5":                                             true,
			"update bank.t using\n\tlock ? set a = 1 where id = 5":                                          true,
			"UPDATE bank.t USING TTL 5 AND LOCK 5 SET a = 1 WHERE id = 5":                                   true,
			"INSERT INTO bank.t (id, a) VALUES (5, '" + hex.EncodeToString(noise(2500)) + "') USING LOCK 5": true,
			"DELETE FROM bank.t USING LOCK 5 WHERE id = 5":                                                  true,
			"BEGIN BATCH USING LOCK 5 DELETE FROM bank.t WHERE id = 5; APPLY BATCH":                         true,
			"SELECT a FROM bank.t WHERE id = 5 USING LOCK 5":                                                true,
			"SELECT a FROM bank.t WHERE id = 5 FOR UPDATE NOWAIT":                                           true,
			"UPDATE bank.t USING LOCKS 5 SET a = 1 WHERE id = 5":                                            false,
			"UPDATE bank.t SET lock = 5 WHERE id = 5 AND":                                                   false,
			"SELECT a FROM bank.t WHERE id = 5 FOR":                                                         false,
		} {
			requests := []message.Message{query(text), &message.Prepare{Query: text}}
			if strings.HasPrefix(text, "UPDATE") || strings.HasPrefix(text, "INSERT") {
				requests = append(requests, &message.Batch{Children: []*message.BatchChild{{Query: text}}})
			}
			for _, m := range requests {
				client.send(1, m)
				backend.answer(1)
				backend.send(1, syntax)
				got := client.failure(1)
				if ours {
					assert.Equal(t, says, got.GetErrorMessage(), "%.60s", text)
					assert.Equal(t, primitive.ErrorCodeInvalid, got.GetErrorCode())
				} else {
					assert.Equal(t, syntax.ErrorMessage, got.GetErrorMessage(), text)
				}
				for _, other := range []message.Message{&message.Unauthorized{ErrorMessage: "no"}, &message.VoidResult{}} {
					assert.IsType(t, other, relayed(client, backend, 1, query(text), other), text)
				}
			}
			if !ours {
				continue
			}
			behind.Store(true)
			assert.Contains(t, relayed(client, backend, 1, query(text), syntax).(message.Error).GetErrorMessage(), "MUSIC_UNAVAILABLE: the schema has just changed")
			behind.Store(false)
		}
	})
}

// LOCK of a table that is not critical, or not yet: what holds for a moment is never told as if it held for ever.
func TestATableThatIsBecomingCritical(t *testing.T) {
	var behind atomic.Bool
	r := newRig(t, func(o *Options) {
		o.Locks = noLocks{}
		o.SchemaIsCurrent = func() bool { return !behind.Load() }
	})
	client, backend := r.login(dialect{version: v4})
	lock := query("LOCK bank.accounts WHERE id = 'x'")
	assert.Contains(t, relayed(client, backend, 1, lock, preparedAs(idOf("x"))).(message.Error).GetErrorMessage(), "MUSIC_REFUSED: bank.accounts is not critical")
	behind.Store(true)
	assert.Contains(t, relayed(client, backend, 1, lock, preparedAs(idOf("x"))).(message.Error).GetErrorMessage(), "MUSIC_UNAVAILABLE: the schema has just changed")
	for passing, says := range map[bool]string{true: "MUSIC_UNAVAILABLE: bank.accounts: wait", false: "MUSIC_REFUSED: bank.accounts cannot be locked: wait"} {
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Refused: "wait", Passing: passing})
		for _, text := range []string{"LOCK bank.accounts WHERE id = 'x'", "UPDATE bank.accounts USING LOCK 5 SET a = 1 WHERE id = 'x'", "SELECT a FROM bank.accounts WHERE id = 'x' FOR UPDATE"} {
			client.send(1, query(text))
			assert.Contains(t, client.failure(1).GetErrorMessage(), says, text)
		}
	}
}

// Whatever bytes a client sends, what it is told is text.
func TestErrorsAreText(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = noLocks{} })
	r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Primary: []string{"id"}})
	client, _ := r.login(dialect{version: v4})
	for _, text := range []string{
		"LOCK bank.accounts WHERE id = '\xff\xfe'", "LOCK bank.accounts WHERE id = \xff", "LOCK bank.accounts WHERE \"\xff\" = 'x' AND id = 'x'",
		"LOCK bank.accounts WHERE id = '\xc3" + strings.Repeat("\xff", 80_000) + "'", "UPDATE bank.accounts USING LOCK '\xff' SET a = 1 WHERE id = 'x'",
		"EXPLAIN \xff bank.accounts", "UNLOCK bank.accounts WHERE id = 'x' FORCE REASON '\xff'", "LOCK bank.accounts WHERE id = 'x' AS '\xff'",
		"CREATE TABLE bank.x (id int PRIMARY KEY) WITH comment = '@critical(\xff=5)'", "INSERT INTO bank.music_lock_\xff (a) VALUES (1)", "INSERT INTO music.\"t\xff\" (a) VALUES (1)",
	} {
		client.send(1, query(text))
		got := client.failure(1).GetErrorMessage()
		assert.True(t, utf8.ValidString(got), "%.60q: %.200q", text, got)
		assert.Contains(t, got, "MUSIC_", text)
	}
	client.send(1, &message.Query{Query: "SELECT LOCK bank.accounts WHERE id = 'x' AS ?", Options: &message.QueryOptions{PositionalValues: []*primitive.Value{primitive.NewValue([]byte("\xff"))}}})
	assert.Contains(t, client.failure(1).GetErrorMessage(), "MUSIC_SYNTAX: AS is not a text")
}

// A request that is refused once the schema has been asked for is owed an answer until then: its stream is in use, and who loses the
// connection to Cassandra meanwhile is told.
func TestARefusalThatAsksForTheSchemaIsOwed(t *testing.T) {
	for _, lost := range []bool{false, true} {
		asked, tell := make(chan struct{}), make(chan struct{})
		r := newRig(t, func(o *Options) {
			o.SchemaIsCurrent = func() bool { asked <- struct{}{}; <-tell; return true }
		})
		client, backend := r.login(dialect{version: v4})
		client.send(1, query("LOCK bank.plain WHERE id = 'x'"))
		backend.answer(1)
		backend.send(1, preparedAs(idOf("plain")))
		<-asked
		want := "MUSIC_BACKEND: connection to Cassandra lost"
		if lost {
			_ = backend.Close()
		} else {
			client.send(1, query("SELECT a FROM b.c"))
			want = "Stream id 1 is in use"
		}
		assert.Contains(t, client.failure(1).GetErrorMessage(), want)
		close(tell)
	}
}
