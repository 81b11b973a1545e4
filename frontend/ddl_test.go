package frontend

import (
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
)

// What the text of a schema change shows is refused with it, whichever way it comes, and before Cassandra sees it.
func TestSchemaChangesThatCriticalTablesCannotBear(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t, func(o *Options) {
			o.CriticalByName = func(keyspace, table string) bool { return keyspace == "bank" && table == "Notes" }
		})
		r.server.Tables.Set("a", "locked", &catalog.Critical{ID: [16]byte{0xab}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Marked: true, Made: true})
		r.server.Tables.Set("b", "leaving", &catalog.Critical{ID: [16]byte{0xcd}, Key: []catalog.Column{{Name: "id", Type: "text"}}, Made: true})
		client, backend := r.login(d)
		for text, why := range map[string]string{
			"CREATE TABLE a.b (k int PRIMARY KEY, n counter) WITH comment = '@critical'":                          "counters",
			`CREATE TABLE a.b (k int PRIMARY KEY, "N" COUNTER) WITH gc_grace_seconds = 1 AND comment='@critical'`: "counters",
			"CREATE TABLE bank.\"Notes\" (k int PRIMARY KEY, n counter)":                                          "counters",
			"ALTER TABLE a.b WITH comment = '@critical' AND gc_grace_seconds = 3600":                              "gc_grace_seconds",
			"CREATE TABLE a.b (k int PRIMARY KEY) WITH transactional_mode = 'full' AND comment = '@critical'":     "transactional_mode",
			"ALTER TABLE a.locked WITH Transactional_Mode = 'mixed_reads'":                                        "transactional_mode",
			"ALTER TABLE a.locked WITH transactional_migration_from = 'full'":                                     "transactional_mode",
			"ALTER TABLE a.locked WITH gc_grace_seconds = 3600":                                                   "gc_grace_seconds",
			"ALTER TABLE a.locked WITH gc_grace_seconds = 0":                                                      "gc_grace_seconds",
			"ALTER TABLE a.locked WITH comment = '@critical(key=row)'":                                            "key and scope cannot change",
			"ALTER TABLE a.b WITH COMMENT = $$@critical(strict=maybe)$$":                                          "strict is false or true",
			"CREATE MATERIALIZED VIEW a.v AS SELECT * FROM a.locked WHERE id IS NOT NULL PRIMARY KEY (id)":        "a.locked is critical: a materialised view",
			"CREATE MATERIALIZED VIEW a.Music_Lock_ab AS SELECT * FROM a.b WHERE k IS NOT NULL PRIMARY KEY (k)":   "is that of a table of locks",
			"DROP TABLE a.music_lock_ab000000000000000000000000000000":                                            "take @critical out of its comment first, or its pattern out of the setting critical",
			"drop table if exists \"a\".music_lock_AB000000000000000000000000000000":                              "has the locks of a.locked",
			"CREATE TABLE a.b (k int PRIMARY KEY) WITH comment = '@critical unlocked=auto'":                       "write the settings in parentheses right after",
			"ALTER TABLE a.b WITH comment = '@critical: balances'":                                                "write the settings in parentheses right after",
			"ALTER TABLE a.b WITH comment = '@critical (unlocked=sometimes)'":                                     "unlocked is reject, auto or allow",
			"ALTER KEYSPACE a WITH durable_writes = false":                                                        "a.locked is critical: durable_writes",
			`ALTER KEYSPACE a WITH "durable_writes" = 'No'`:                                                       "a.locked is critical: durable_writes",
			"ALTER KEYSPACE a WITH DURABLE_WRITES = 0":                                                            "a.locked is critical: durable_writes",
			"ALTER KEYSPACE a WITH durable_writes = $$FALSE$$":                                                    "a.locked is critical: durable_writes",
			`ALTER TABLE a.b WITH "comment" = '@critical(strict=maybe)'`:                                          "strict is false or true",
			"ALTER TABLE a.b WITH comment /* so */ = -- and so\n'it''s @critical(strict=maybe)'":                  "strict is false or true",
			"ALTER TABLE a.locked WITH gc_grace_seconds = '3600'":                                                 "gc_grace_seconds",
			`ALTER TABLE a.locked WITH "gc_grace_seconds" = $$3600$$`:                                             "gc_grace_seconds",
			"ALTER TABLE a.locked WITH gc_grace_seconds = '+60'":                                                  "gc_grace_seconds",
			`CREATE TABLE a.b (k int PRIMARY KEY, n counter) WITH "comment" = $$@critical$$`:                      "counters",
			"COMMENT ON TABLE a.b IS '@critical(strict=maybe)'":                                                   "strict is false or true",
			"COMMENT ON COLUMNFAMILY a.locked IS $$@critical(key=row)$$":                                          "key and scope cannot change",
			"COMMENT ON TABLE a.music_lock_ab000000000000000000000000000000 IS 'x'":                               "is for the proxies only",
			"SECURITY LABEL ON COLUMN music.sessions.id IS 'x'":                                                   "is for the proxies only",
			"ALTER TABLE a.b WITH comment = '@critical(key=column)' /*" + strings.Repeat("x", 70_000) + "*/":      "key is partition or row",
		} {
			for stream, m := range []message.Message{query(text), &message.Prepare{Query: text}} {
				client.send(int16(stream), m)
				got := client.failure(int16(stream)).GetErrorMessage()
				assert.True(t, strings.HasPrefix(got, "MUSIC_REFUSED: ") && strings.Contains(got, why), "%.80s: %s", text, got)
			}
		}
		backend.silent()
		for _, text := range []string{
			"CREATE TABLE a.b (counter int PRIMARY KEY, n int) WITH comment = '@critical'",
			"CREATE TABLE a.b (k int PRIMARY KEY, n counter) WITH comment = 'plain'",
			"CREATE TABLE bank.Notes (k int PRIMARY KEY, n counter)",
			"CREATE TABLE a.b (k int PRIMARY KEY) WITH comment = '@critical' AND gc_grace_seconds = 864000",
			"CREATE TABLE a.b (k text PRIMARY KEY, v text) -- comment = '@critical(key=row)'",
			"ALTER TABLE a.b WITH gc_grace_seconds = 0", "ALTER TABLE a.b WITH transactional_mode = 'full'", "ALTER TABLE a.locked WITH transactional_mode = 'OFF'",
			"CREATE MATERIALIZED VIEW a.v AS SELECT * FROM a.b WHERE id IS NOT NULL PRIMARY KEY (id)",
			"DROP MATERIALIZED VIEW a.locked",
			"DROP TABLE b.music_lock_cd000000000000000000000000000000",
			"DROP TABLE c.music_lock_ab000000000000000000000000000000",
			"ALTER KEYSPACE bank WITH durable_writes = false",
			"ALTER KEYSPACE a WITH durable_writes = 'Yes'", `ALTER KEYSPACE a WITH "Durable_writes" = false`, `ALTER TABLE a.b WITH "Comment" = '@critical(strict=maybe)'`,
			"COMMENT ON TABLE a.b IS 'x'", "COMMENT ON TABLE a.locked IS NULL", "COMMENT ON COLUMN a.b.k IS '@critical(strict=maybe)'",
			"COMMENT ON COLUMN a.locked.id IS 'x'", "SECURITY LABEL FOR p ON TABLE a.locked IS 'x'", "COMMENT ON KEYSPACE a IS 'x'",
			"ALTER TABLE a.locked WITH gc_grace_seconds = '864000'", `ALTER TABLE a.locked WITH "GC_grace_seconds" = 1`,
		} {
			relayed(client, backend, 1, query(text), &message.VoidResult{})
			r.prepare(client, backend, text)
		}
	})
}

// What was prepared is read again when it is executed: a schema change that was harmless then, and a text that the proxy cannot read,
// which named no critical table.
func TestWhatIsReadAgainWhenExecuted(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		ids := map[string][]byte{}
		for _, text := range []string{
			"ALTER TABLE bank.accounts WITH gc_grace_seconds = 3600", "ALTER TABLE bank.accounts WITH comment = '@critical(key=row)'",
			"CREATE MATERIALIZED VIEW bank.v AS SELECT * FROM bank.accounts WHERE id IS NOT NULL PRIMARY KEY (id)",
			"ALTER KEYSPACE bank WITH durable_writes = false", "MERGE INTO bank.accounts (id) VALUES ('x')",
		} {
			ids[text] = r.prepare(client, backend, text)
			relayed(client, backend, 1, execute(ids[text], nil), &message.VoidResult{})
		}
		r.server.Tables.Set("bank", "accounts", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}, Made: true})
		for text, id := range ids {
			client.send(1, execute(id, nil))
			assert.Regexp(t, "^MUSIC_(REFUSED|SYNTAX): ", client.failure(1).GetErrorMessage(), text)
			client.send(1, &message.Batch{Children: []*message.BatchChild{{Id: id}}})
			if strings.HasPrefix(text, "MERGE") {
				assert.Regexp(t, "^MUSIC_SYNTAX: ", client.failure(1).GetErrorMessage(), text)
			} else {
				backend.answer(1) // Cassandra takes no schema change in a batch
				backend.send(1, &message.Invalid{ErrorMessage: "no"})
				client.failure(1)
			}
		}
	})
}

// Cassandra says whether there is a table that nobody knows to be critical; LOCK itself never gets there.
func TestLockOfATableThatIsNotCritical(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		r := newRig(t)
		client, backend := r.login(d)
		for _, m := range []message.Message{
			query("LOCK Bank.\"Ac\" WHERE id = 'x'"), query("SELECT UNLOCK bank.\"Ac\" WHERE id = 'x' USING LOCK 1"),
			&message.Prepare{Query: "LOCK bank.\"Ac\" WHERE id = ?"},
		} {
			client.send(1, m)
			assert.Equal(t, `SELECT * FROM "bank"."Ac"`, backend.answer(1).(*message.Prepare).Query)
			backend.send(1, &message.Invalid{ErrorMessage: "table Ac does not exist"})
			assert.Equal(t, "table Ac does not exist", client.failure(1).GetErrorMessage())

			client.send(1, m)
			backend.answer(1)
			backend.send(1, preparedAs(idOf("x")))
			assert.Equal(t, "MUSIC_REFUSED: bank.Ac is not critical: make it so with ALTER TABLE bank.Ac WITH comment = '@critical'", client.failure(1).GetErrorMessage())
		}
		client.send(1, query("LOCK t WHERE id = 'x'"))
		assert.Equal(t, `SELECT * FROM "t"`, backend.answer(1).(*message.Prepare).Query)
		backend.send(1, &message.Invalid{ErrorMessage: "No keyspace has been specified."})
		client.failure(1)
	})
}

// Whether a table can be locked is looked up before a schema change that makes it critical goes on, in whatever way that comes; nothing
// else on the connection waits for that.
func TestATableThatCannotBeLockedIsNotMadeCritical(t *testing.T) {
	everyDialect(t, func(t *testing.T, d dialect) {
		asked, answers := make(chan CriticalChange, 1), make(chan string, 1)
		r := newRig(t, func(o *Options) {
			o.CriticalByName = func(keyspace, table string) bool { return table == "named" }
			o.Hindrance = func(change CriticalChange) string {
				asked <- change
				return <-answers
			}
		})
		client, backend := r.login(d)
		for text, want := range map[string]CriticalChange{
			"ALTER TABLE a.b WITH comment = '@critical auto'":                               {"a", "b", catalog.Settings{Unlocked: catalog.Auto}, -1, nil},
			"ALTER TABLE a.b WITH gc_grace_seconds = 86400 AND comment = '@critical(row)'":  {"a", "b", catalog.Settings{Row: true}, 86400, nil},
			"CREATE TABLE a.c (k text PRIMARY KEY) WITH comment = '@critical'":              {"a", "c", catalog.Settings{}, -1, []catalog.Column{{Name: "k", Type: "text"}}},
			"CREATE TABLE a.named (k text, c int, PRIMARY KEY (k, c))":                      {"a", "named", catalog.Settings{}, -1, []catalog.Column{{Name: "k", Type: "text"}, {Name: "c", Type: "int", Clustering: true}}},
			"ALTER TABLE a.named WITH comment = 'of orders' AND default_time_to_live = 600": {"a", "named", catalog.Settings{}, -1, nil},
			"COMMENT ON TABLE a.b IS '@critical auto'":                                      {"a", "b", catalog.Settings{Unlocked: catalog.Auto}, -1, nil},
		} {
			id := r.prepare(client, backend, text)
			for _, m := range []message.Message{query(text), execute(id, nil)} {
				client.send(1, m)
				assert.Equal(t, want, <-asked)
				relayed(client, backend, 2, query("SELECT a FROM b.c"), rows(nil))
				answers <- "a view is on it"
				assert.Equal(t, "MUSIC_REFUSED: a."+want.Name+" cannot be critical: a view is on it", client.failure(1).GetErrorMessage())

				client.send(1, m)
				<-asked
				answers <- ""
				assert.IsType(t, m, backend.answer(1))
				backend.send(1, &message.VoidResult{})
				client.answer(1)
			}
		}
		r.server.Tables.Set("a", "b", &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "text"}}})
		for _, text := range []string{
			"ALTER TABLE a.b WITH comment = '@critical auto'", "ALTER TABLE a.other WITH comment = 'plain'", "CREATE TABLE a.c (k int PRIMARY KEY)", "DROP TABLE a.named",
			"CREATE KEYSPACE a WITH comment = '@critical'",
		} {
			relayed(client, backend, 1, query(text), &message.VoidResult{})
		}
	})
}
