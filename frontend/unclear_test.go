package frontend

import (
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/stretchr/testify/assert"

	"music/frontend/catalog"
)

// What cannot be read is refused where it names a critical table, by words, and it is told which.
func TestUnreadableTextNamesTablesByWords(t *testing.T) {
	const pass = ""
	for text, named := range map[string]string{
		"BEGIN TRANSACTION UPDATE bank.other SET a = 1 WHERE id = 5; COMMIT TRANSACTION":                                                                                           pass,
		"BEGIN TRANSACTION UPDATE shop.co SET a = 1 WHERE id = 5; COMMIT TRANSACTION":                                                                                              pass,
		"BEGIN TRANSACTION UPDATE bank.co SET a = 1 WHERE id = 5; COMMIT TRANSACTION":                                                                                              "bank.co",
		"BEGIN TRANSACTION UPDATE \"bank\" . /* x */ \"co\" SET a = 1 WHERE id = 5; COMMIT TRANSACTION":                                                                            "bank.co",
		"BEGIN TRANSACTION UPDATE BANK.Co SET a = 1 WHERE id = 5; COMMIT TRANSACTION":                                                                                              "bank.co",
		"BEGIN TRANSACTION LET x = (SELECT a FROM bank.co WHERE id = 5); SELECT x; COMMIT TRANSACTION":                                                                             pass,
		"BEGIN TRANSACTION LET x = (SELECT a FROM bank.co WHERE id = 5); UPDATE bank.other SET a = 'bank.co' WHERE id = 5; DELETE a FROM bank.br WHERE id = 5; COMMIT TRANSACTION": "bank.br",
		"BEGIN TRANSACTION LET x = (SELECT a FROM bank.co WHERE id = 5); DELETE bank.co":                                                                                           "bank.co",
		"BEGIN TRANSACTION UPDATE co SET a = 1 WHERE id = 5; COMMIT TRANSACTION":                                                                                                   pass,
		"EXPLAIN LOCK bank.br WHERE id = 5":                                               "bank.br",
		"EXPLAIN LOCK bank.br WHERE co = 5":                                               "bank.br",
		"EXPLAIN LOCK bank.bra WHERE plain = 5":                                           "bank.plain",
		"EXPLAIN LOCK shop.br WHERE id = 5":                                               pass,
		"EXPLAIN bank.planet, bank.coco, bank.br2":                                        pass,
		"EXPLAIN UPDATE bank.\"Mixed\" SET a = 1":                                         "bank.Mixed",
		"EXPLAIN UPDATE bank./**/co SET a = 1":                                            "bank.co",
		"\x01 bank.co":                                                                    "bank.co",
		"BEGIN TRANSACTION UPDATE bank.music_lock_00 SET a = 1 WHERE id = 5":              "music_lock_00",
		"BEGIN TRANSACTION UPDATE \"music\".Tables SET closed = 1; COMMIT TRANSACTION":    "tables is for the proxies only",
		"BEGIN TRANSACTION SELECT value FROM music /* x */ . secrets; COMMIT TRANSACTION": "secrets is for the proxies only",
		"BEGIN TRANSACTION UPDATE bank.tables SET a = 1 WHERE id = 5; COMMIT TRANSACTION": pass,
	} {
		for _, use := range []string{"", "shop", "bank"} {
			r := newRig(t, func(o *Options) { o.Locks = noLocks{} })
			for _, name := range []string{"plain", "br", "co", "Mixed"} {
				r.server.Tables.Set("bank", name, &catalog.Critical{Key: []catalog.Column{{Name: "id", Type: "int"}}})
			}
			client, backend := r.login(dialect{version: v4})
			if use != "" {
				relayed(client, backend, 1, query("USE "+use), &message.SetKeyspaceResult{Keyspace: use})
			}
			unqualified := text == "BEGIN TRANSACTION UPDATE co SET a = 1 WHERE id = 5; COMMIT TRANSACTION"
			expected := named
			if unqualified && use == "bank" {
				expected = "bank.co"
			}
			for _, m := range []message.Message{query(text), &message.Prepare{Query: text}} {
				if expected == pass && (use != "bank" || unqualified || named == pass && !mentions(text)) {
					relayed(client, backend, 1, m, &message.SyntaxError{ErrorMessage: "no"})
					continue
				}
				if expected == pass {
					continue // in keyspace bank a word alone may be a table of it
				}
				client.send(1, m)
				assert.Contains(t, client.failure(1).GetErrorMessage(), expected, "%s in %q", text, use)
			}
			r.stop()
		}
	}
}

// mentions reports whether a text has a word that is the name of a critical table.
func mentions(text string) bool {
	return regexp.MustCompile(`(?i)\b(plain|br|co|mixed)\b`).MatchString(text)
}

// A text that cannot be read is looked through within bounds: the words of a longer one would take many times its size.
func TestLongUnreadableText(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = noLocks{} })
	client, backend := r.login(dialect{version: v4})
	text := "EXPLAIN " + strings.Repeat("a ", 512<<10-8)
	relayed(client, backend, 1, query(text), &message.SyntaxError{ErrorMessage: "no"})
	client.send(1, query(text+"and more, too"))
	assert.Regexp(t, "^MUSIC_SYNTAX: .* in no more than 1048576 bytes", client.failure(1).GetErrorMessage())
}

// A prepared statement whose text is read again with each EXECUTE, of few bytes, has the bound of those that concern a lock. As text it has none.
func TestLongPreparedSchemaChanges(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = noLocks{} })
	client, backend := r.login(dialect{version: v4})
	comment := strings.Repeat("x", DefaultLimits().Statement)
	for _, text := range []string{"CREATE TABLE bank.fresh (id int PRIMARY KEY) WITH comment = '" + comment + "'", "EXPLAIN '" + comment + "'"} {
		relayed(client, backend, 1, query(text), &message.Invalid{ErrorMessage: "no"})
		client.send(1, &message.Prepare{Query: text})
		assert.Regexp(t, `^MUSIC_REFUSED: .*\(max-statement-size\): send it without preparing it$`, client.failure(1).GetErrorMessage(), "it has no values to bind")
	}
}

// A statement that cannot be read is looked through once for a batch, however often that names it.
func TestABatchOfOneUnreadableStatement(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Locks = noLocks{} })
	client, backend := r.login(dialect{version: v4})
	id := r.prepare(client, backend, "EXPLAIN "+strings.Repeat("a ", DefaultLimits().Statement/2-8))
	m := new(message.Batch)
	for range math.MaxUint16 {
		m.Children = append(m.Children, &message.BatchChild{Id: id})
	}
	relayed(client, backend, 1, m, &message.Invalid{ErrorMessage: "no"})
}
