package classify

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/rewrite"
)

// tables returns a schema with bank.accounts, which is critical, and bank.plain.
func tables() *catalog.Tables {
	t := catalog.NewTables()
	t.Read([][2]string{{"bank", "accounts"}, {"bank", "plain"}})
	t.Set("bank", "accounts", &catalog.Critical{ID: [16]byte{1}, Marked: true, Key: []catalog.Column{{Name: "id", Type: "text"}}})
	return t
}

// A statement is classified by its verb and the table that it names, in the keyspace of the request or its own.
func TestClassify(t *testing.T) {
	for _, tc := range []struct {
		text, keyspace string
		want           Kind
		name           string
	}{
		{"SELECT a FROM bank.plain", "", Plain, "bank.plain"},
		{"SELECT a FROM accounts", "bank", Critical, "bank.accounts"},
		{"SELECT a FROM accounts", "shop", Plain, "shop.accounts"},
		{"SELECT a FROM \"bank\".accounts", "shop", Critical, "bank.accounts"},
		{"SELECT * FROM system.local", "bank", Local, "system.local"},
		{"SELECT * FROM peers_v2", "system", Peers, "system.peers_v2"},
		{"USE bank", "", Use, ""},
		{"UPDATE plain SET a = 1", "bank", Writes, "bank.plain"},
		{"UPDATE accounts SET a = 1", "bank", Critical, "bank.accounts"},
		{"ALTER TABLE bank.accounts ADD a int", "", Schema, "bank.accounts"},
		{"DROP TABLE bank.music_lock_01000000000000000000000000000000", "", Refused, "bank.music_lock_01000000000000000000000000000000"},
		{"LOCK bank.accounts WHERE id = 'x'", "", Critical, "bank.accounts"},
		{"LIST LOCKS", "bank", Critical, ""},
		{"BEGIN BATCH INSERT INTO plain (a) VALUES (1) APPLY BATCH", "bank", Writes, "bank.plain"},
		{"BEGIN BATCH INSERT INTO plain (a) VALUES (1) INSERT INTO accounts (a) VALUES (1) APPLY BATCH", "bank", Critical, "bank.accounts"},
		{"SELECT * FROM music.secrets", "", Refused, "music.secrets"},
		{"INSERT INTO music.tables (a) VALUES (1)", "", Refused, "music.tables"},
		{"GRANT SELECT ON bank.accounts TO app", "", Plain, ""},
		{"BEGIN TRANSACTION UPDATE bank.plain SET a = 1; COMMIT TRANSACTION", "", Unclear, ""},
		{"BEGIN TRANSACTION UPDATE bank.accounts SET a = 1; COMMIT TRANSACTION", "", Refused, ""},
	} {
		c, r := Classifier{Tables: tables()}, Result{}
		require.True(t, c.Classify(&r, []byte(tc.text), true, tc.keyspace), tc.text)
		assert.Equal(t, tc.want, r.Kind, tc.text)
		assert.Equal(t, tc.name, r.Name.String(), tc.text)
		assert.Equal(t, tc.want == Refused, r.Failure != nil, tc.text)
	}
}

// The error for a text that cannot be read names the critical table in it.
func TestRefusalOfAnUnclearText(t *testing.T) {
	c, r := Classifier{Tables: tables()}, Result{}
	require.True(t, c.Classify(&r, []byte("EXPLAIN UPDATE accounts SET a = 1"), true, "bank"))
	require.NotNil(t, r.Failure)
	assert.Equal(t, "MUSIC_SYNTAX: the proxy cannot parse this statement, which names bank.accounts, a critical table: correct it; nothing was done", r.Failure.Text)
}

// If locks are off every statement is forwarded, but for those that the proxy has to notice for other reasons.
func TestClassifyWithoutLocks(t *testing.T) {
	for text, want := range map[string]Kind{
		"LOCK bank.accounts WHERE id = 'x'":                    Plain,
		"UPDATE bank.accounts SET a = 1":                       Writes,
		"INSERT INTO music.tables (a) VALUES (1)":              Writes,
		"SELECT * FROM system.local":                           Local,
		"USE bank":                                             Use,
		"BEGIN BATCH INSERT INTO a (a) VALUES (1) APPLY BATCH": Plain,
		"BEGIN TRANSACTION; COMMIT TRANSACTION":                Unclear,
	} {
		var c Classifier
		var r Result
		require.True(t, c.Classify(&r, []byte(text), true, ""), text)
		assert.Equal(t, want, r.Kind, text)
		assert.Nil(t, r.Table, text)
	}
}

// The first part of a text is classified as the whole is, or not at all.
func TestClassifyByTheFirstPart(t *testing.T) {
	for _, text := range []string{"UPDATE bank.accounts SET a = 1", "SELECT a FROM bank.plain WHERE id = 'x'", "INSERT INTO bank.new (a) VALUES (1)"} {
		c, whole := Classifier{Tables: tables()}, Result{}
		require.True(t, c.Classify(&whole, []byte(text), true, ""))
		told := 0
		for n := range len(text) {
			var part Result
			if c.Classify(&part, []byte(text[:n]), false, "") {
				told++
				assert.Equal(t, whole.Kind, part.Kind, text[:n])
				assert.Equal(t, whole.Unlisted, part.Unlisted, text[:n])
			}
		}
		assert.Positive(t, told, text)
	}
	for _, text := range []string{"BEGIN BATCH INSERT INTO bank.plain (a) VALUES (1) APPLY BATCH", "BEGIN TRANSACTION UPDATE bank.plain SET a = 1; COMMIT TRANSACTION"} {
		for n := range len(text) {
			c, part := Classifier{Tables: tables()}, Result{}
			assert.False(t, c.Classify(&part, []byte(text[:n]), false, ""), text[:n])
		}
	}
}

// A table that the schema as last read does not have is named.
func TestUnlistedTables(t *testing.T) {
	c, r := Classifier{Tables: tables()}, Result{}
	require.True(t, c.Classify(&r, []byte("INSERT INTO bank.new (a) VALUES (1)"), true, ""))
	assert.Equal(t, &[2]string{"bank", "new"}, r.Unlisted)
	assert.Equal(t, rewrite.Insert, r.Verb)
}

// A batch's text takes no memory by its number of statements, unless one is on a critical table: then it has a bound, with a name.
func TestLongBatches(t *testing.T) {
	child := "INSERT INTO bank.plain (a) VALUES (1);"
	begin, many := "BEGIN BATCH ", strings.Repeat(child, 1<<20/len(child))
	for text, want := range map[string]Kind{
		begin + many + "APPLY BATCH": Writes,
		begin + "DELETE FROM bank.plain WHERE id IN (" + strings.Repeat("1,", 1<<19) + "1) APPLY BATCH":                                Writes,
		begin + many + "DELETE FROM bank.accounts WHERE id = 'x' APPLY BATCH":                                                          Refused,
		begin + "DELETE FROM bank.accounts WHERE id = 'x' " + many + "APPLY BATCH":                                                     Refused,
		begin + many + "DELETE FROM music.tables WHERE id = 'x' APPLY BATCH":                                                           Refused,
		begin + many + "what bank.accounts is APPLY BATCH":                                                                             Refused,
		begin + "INSERT INTO bank.plain (a) VALUES ('" + many + "') DELETE FROM bank.accounts USING LOCK 5 WHERE id = 'x' APPLY BATCH": Critical,
	} {
		c, r := Classifier{Tables: tables()}, Result{}
		var before, after runtime.MemStats
		raw := []byte(text)
		runtime.ReadMemStats(&before)
		require.True(t, c.Classify(&r, raw, true, ""))
		runtime.ReadMemStats(&after)
		assert.Equal(t, want, r.Kind, text[len(text)-60:])
		if want == Writes {
			assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<10))
			require.False(t, c.Classify(new(Result), raw[:len(raw)/2], false, ""))
		}
		if r.Failure != nil && strings.Contains(text, "DELETE FROM bank.accounts") {
			assert.Regexp(t, "^MUSIC_REFUSED: the statement has more names, values and statements than the proxy reads", r.Failure.Text)
		}
	}
}

// To look for the tables of the proxies in a text that cannot be parsed takes a time that grows with the text, not with the square of it: this
// one took half a minute of a processor.
func TestALongUnclearText(t *testing.T) {
	c, r := Classifier{Tables: tables()}, Result{}
	began := time.Now()
	require.True(t, c.Classify(&r, []byte("EXPLAIN "+strings.Repeat("tables ", maxUnclear/7-2)), true, "bank"))
	assert.Equal(t, Unclear, r.Kind)
	assert.Less(t, time.Since(began), 5*time.Second)
	for text, want := range map[string]Kind{"EXPLAIN tables music": Refused, "EXPLAIN music.tables": Refused, "EXPLAIN tables": Unclear} {
		r = Result{}
		require.True(t, c.Classify(&r, []byte(text), true, "bank"), text)
		assert.Equal(t, want, r.Kind, text)
	}
}
