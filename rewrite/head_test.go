package rewrite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// headed returns the whole head in one line: verb, names, and for DDL what it
// does to what.
func headed(text []byte, h Head) string {
	name := func(n Name) string {
		if n.Empty() {
			return ""
		}
		return string(n.AppendTo(nil, text))
	}
	s := h.Verb.String()
	if h.AfterSelect {
		s = "SELECT " + s
	}
	if h.Verb == Schema {
		s = []string{"", "CREATE ", "ALTER ", "DROP ", "COMMENT "}[h.Schema.Action] +
			[]string{"other", "keyspace", "table", "view", "index", "trigger", "type", "function", "aggregate"}[h.Schema.Kind]
	}
	for _, part := range []struct{ what, name string }{
		{" ks=", name(h.Keyspace)}, {" t=", name(h.Table)}, {" o=", name(h.Schema.Object)},
	} {
		if part.name != "" {
			s += part.what + part.name
		}
	}
	if !h.Complete {
		s += " ..."
	}
	return s
}

// heads are statements and what their beginning tells.
func heads() [][2]string {
	return [][2]string{
		{"SELECT * FROM t", "SELECT t=t"},
		{"SELECT * FROM ks.t WHERE k = 1", "SELECT ks=ks t=t"},
		{"select a,b from KS.T", "SELECT ks=ks t=t"},
		{`SELECT a FROM "Ks" . "T""x" WHERE k = 1`, `SELECT ks=Ks t=T"x`},
		{"SELECT a FROM ks/* c */./* d */t;", "SELECT ks=ks t=t"},
		{"SELECT a FROM ks -- c\n . // d\r t;", "SELECT ks=ks t=t"},
		{"SELECT JSON * FROM t", "SELECT t=t"},
		{"SELECT DISTINCT k FROM t", "SELECT t=t"},
		{"SELECT CAST(a AS text), f('from', \"from\"), [a], {b: c}, (int)d FROM t", "SELECT t=t"},
		{"SELECT 'a FROM x' FROM t", "SELECT t=t"},
		{"SELECT $$ FROM x $$ FROM t", "SELECT t=t"},
		{"SELECT a /* FROM x */ FROM t", "SELECT t=t"},
		{"SELECT a -- FROM x\n FROM t", "SELECT t=t"},
		{"SELECT f(a FROM b) FROM t", "SELECT t=t"},
		{"SELECT a['from'] FROM t", "SELECT t=t"},
		{"SELECT*FROM t", "SELECT t=t"},
		{"SELECT a FROM lock", "SELECT t=lock"},
		{"SELECT a FROM P1Y", "SELECT t=p1y"},

		{"SELECT lock FROM t", "SELECT t=t"},
		{"SELECT lock, x FROM t", "SELECT t=t"},
		{"SELECT lock AS l FROM t", "SELECT t=t"},
		{"SELECT lock.f FROM t", "SELECT t=t"},
		{"SELECT lock(x) FROM t", "SELECT t=t"},
		{"SELECT lock [1] FROM t", "SELECT t=t"},
		{"SELECT lock + 1 FROM t", "SELECT t=t"},
		{"SELECT unlock FROM lock", "SELECT t=lock"},
		{"SELECT unlock(x) FROM t", "SELECT t=t"},
		{"SELECT list FROM t", "SELECT t=t"},
		{"SELECT list, locks FROM t", "SELECT t=t"},
		{"SELECT list x FROM t", "SELECT t=t"},
		{"SELECT list AS locks FROM t", "SELECT t=t"},
		{`SELECT "lock" FROM t`, "SELECT t=t"},

		{"LOCK t WHERE k = 1", "LOCK t=t"},
		{"Lock ks.t WHERE k = 1", "LOCK ks=ks t=t"},
		{"SELECT LOCK ks.t WHERE k = 1", "SELECT LOCK ks=ks t=t"},
		{"select lock t where k = 1", "SELECT LOCK t=t"},
		{`SELECT LOCK "T" WHERE k = 1`, "SELECT LOCK t=T"},
		{"SELECT LOCK lock WHERE k = 1", "SELECT LOCK t=lock"},
		{"UNLOCK t WHERE k = 1", "UNLOCK t=t"},
		{"SELECT UNLOCK ks.t WHERE k = 1", "SELECT UNLOCK ks=ks t=t"},
		{"LIST LOCKS", "LIST LOCKS"},
		{"LIST LOCKS;", "LIST LOCKS"},
		{"LIST LOCKS ON ks.t", "LIST LOCKS ks=ks t=t"},
		{"SELECT LIST LOCKS ON t", "SELECT LIST LOCKS t=t"},
		{"LIST ROLES", "OTHER"},
		{"LIST ALL PERMISSIONS OF r", "OTHER"},

		{"INSERT INTO t (k) VALUES (1)", "INSERT t=t"},
		{"INSERT INTO ks.t JSON '{}'", "INSERT ks=ks t=t"},
		{"INSERT INTO json JSON '{}'", "INSERT t=json"},
		{"UPDATE t SET a = 1 WHERE k = 1", "UPDATE t=t"},
		{"UPDATE ks.t USING LOCK 5 SET a = 1 WHERE k = 1", "UPDATE ks=ks t=t"},
		{"UPDATE lock SET a = 1 WHERE k = 1", "UPDATE t=lock"},
		{"DELETE FROM t WHERE k = 1", "DELETE t=t"},
		{"DELETE a['from'], b FROM t WHERE k = 1", "DELETE t=t"},
		{`DELETE "from", m["FROM"] FROM ks.t WHERE k = 1`, "DELETE ks=ks t=t"},
		{"BEGIN BATCH INSERT INTO t (k) VALUES (1) APPLY BATCH", "BATCH"},
		{"BEGIN UNLOGGED BATCH APPLY BATCH", "BATCH"},
		{"begin counter batch apply batch", "BATCH"},
		{"BEGIN TRANSACTION SELECT 1", "TRANSACTION"},
		{"TRUNCATE t", "TRUNCATE t=t"},
		{"TRUNCATE TABLE ks.t", "TRUNCATE ks=ks t=t"},
		{"TRUNCATE COLUMNFAMILY t", "TRUNCATE t=t"},
		{"USE ks", "USE ks=ks"},
		{`USE "Ks";`, "USE ks=Ks"},

		{"CREATE TABLE t (k int PRIMARY KEY)", "CREATE table t=t"},
		{"CREATE TABLE IF NOT EXISTS ks.t (k int PRIMARY KEY)", "CREATE table ks=ks t=t"},
		{"CREATE COLUMNFAMILY t (k int PRIMARY KEY)", "CREATE table t=t"},
		{"CREATE KEYSPACE ks WITH replication = {}", "CREATE keyspace ks=ks"},
		{"CREATE SCHEMA IF NOT EXISTS ks WITH replication = {}", "CREATE keyspace ks=ks"},
		{"CREATE INDEX ON t (a)", "CREATE index t=t"},
		{"CREATE INDEX i ON ks.t (a)", "CREATE index ks=ks t=t o=i"},
		{"CREATE CUSTOM INDEX IF NOT EXISTS i ON t (a) USING 'x'", "CREATE index t=t o=i"},
		{"CREATE MATERIALIZED VIEW v AS SELECT a, f('from') FROM ks.t WHERE a IS NOT NULL PRIMARY KEY (a)", "CREATE view ks=ks t=t o=v"},
		{"CREATE MATERIALIZED VIEW IF NOT EXISTS ks.v AS SELECT * FROM t WHERE a IS NOT NULL", "CREATE view ks=ks t=t o=v"},
		{"CREATE TRIGGER x ON ks.t USING 'c'", "CREATE trigger ks=ks t=t o=x"},
		{"CREATE TYPE ks.ty (a int)", "CREATE type ks=ks o=ty"},
		{"CREATE OR REPLACE FUNCTION ks.f (a int) …", "CREATE function ks=ks o=f"},
		{"CREATE AGGREGATE IF NOT EXISTS f (int) SFUNC s STYPE int", "CREATE aggregate o=f"},
		{"CREATE ROLE r", "CREATE other"},
		{"DROP ROLE IF", "DROP other"},
		{"CREATE USER IF NOT EXISTS u", "CREATE other"},
		{"ALTER TABLE ks.t WITH comment = '@critical'", "ALTER table ks=ks t=t"},
		{"ALTER TABLE IF EXISTS t ADD x int", "ALTER table t=t"},
		{"ALTER KEYSPACE ks WITH durable_writes = false", "ALTER keyspace ks=ks"},
		{"ALTER MATERIALIZED VIEW ks.v WITH comment = ''", "ALTER view ks=ks o=v"},
		{"ALTER TYPE ty ADD x int", "ALTER type o=ty"},
		{"ALTER ROLE r WITH LOGIN = true", "ALTER other"},
		{"COMMENT ON TABLE ks.t IS '@critical'", "COMMENT table ks=ks t=t"},
		{"comment on columnfamily T is null", "COMMENT table t=t"},
		{"COMMENT ON COLUMN ks.t.c IS 'x'", "COMMENT other ks=ks t=t"},
		{`COMMENT ON COLUMN "T".c IS 'x'`, "COMMENT other t=T"},
		{"COMMENT ON KEYSPACE ks IS 'x'", "COMMENT other"},
		{"COMMENT ON TYPE ks.ty IS NULL", "COMMENT other"},
		{"COMMENT ON FIELD ks.ty.f IS 'x'", "COMMENT other"},
		{"SECURITY LABEL ON TABLE ks.t IS 'x'", "COMMENT other ks=ks t=t"},
		{"SECURITY LABEL FOR p ON COLUMN t.c IS 'x'", "COMMENT other t=t"},
		{"DROP TABLE t", "DROP table t=t"},
		{"DROP TABLE IF EXISTS ks.t;", "DROP table ks=ks t=t"},
		{"DROP KEYSPACE IF EXISTS ks", "DROP keyspace ks=ks"},
		{"DROP INDEX ks.i", "DROP index ks=ks o=i"},
		{"DROP MATERIALIZED VIEW IF EXISTS ks.v", "DROP view ks=ks o=v"},
		{"DROP TRIGGER x ON t", "DROP trigger t=t o=x"},
		{"DROP FUNCTION ks.f (int)", "DROP function ks=ks o=f"},
		{"GRANT MODIFY ON t TO r", "OTHER"},
		{"REVOKE ALL ON t FROM r", "OTHER"},
		{"DESCRIBE TABLE t", "OTHER"},
		{"DESC TABLES", "OTHER"},
		{"ADD IDENTITY 'x' TO ROLE 'r'", "OTHER"},
	}
}

// ReadHead finds the verb, the table and the lock clause of every kind of statement.
func TestReadHead(t *testing.T) {
	for _, test := range heads() {
		text := []byte(test[0])
		require.Equal(t, test[1], headed(text, ReadHead(text, true)), test[0])
	}
}

// TestReadHeadOfSpellings writes each statement in ways that mean the same.
func TestReadHeadOfSpellings(t *testing.T) {
	for _, test := range heads() {
		text, want := []byte(test[0]), test[1]
		lexer := NewLexer(text)
		var parts []string
		for tok := lexer.Next(); tok.Kind != TokenEOF; tok = lexer.Next() {
			parts = append(parts, string(tok.Of(text)))
		}
		for _, glue := range []string{" ", "\n", "\t\r", "/**/", "/* from x.y */", "-- from\n", "// select lock\r", "--'\n", "/*\"*/"} {
			text := []byte(glue + strings.Join(parts, glue) + glue + ";")
			require.Equal(t, want, headed(text, ReadHead(text, true)), "%s", text)
		}
		if !strings.ContainsAny(test[0], `"'$P`) {
			text := []byte(strings.ToUpper(test[0]))
			require.Equal(t, want, headed(text, ReadHead(text, true)), "%s", text)
		}
	}
}

// TestReadHeadOfPrefixes holds that a first part says either what the whole
// does, or that it is too short.
func TestReadHeadOfPrefixes(t *testing.T) {
	for _, test := range heads() {
		text := []byte(test[0] + " AND MORE")
		whole := headed(text, ReadHead(text, true))
		for i := range len(text) {
			h := ReadHead(text[:i], false)
			if h.Complete {
				require.Equal(t, whole, headed(text[:i], h), "%s", text[:i])
			}
		}
		require.True(t, ReadHead(text, false).Complete, test[0])
	}
}

// In the beginning of a longer text, the last name may be cut off: ReadHead is complete only when
// something follows it.
func TestReadHeadDoesNotTrustTheEnd(t *testing.T) {
	for _, text := range []string{
		"", "S", "SELECT", "SELECT ", "SELECT a", "SELECT a FROM", "SELECT a FROM t", "SELECT a FROM t ",
		"SELECT a FROM ks.", "SELECT a FROM ks.t", "SELECT a FROM t/", "SELECT a FROM t/* c", "SELECT a FROM t -- c",
		"SELECT a FROM t W", "SELECT lock", "SELECT lock ", "SELECT lock t", "SELECT lock f", "SELECT LIST", "SELECT LIST LOCKS",
		"LIST", "LIST ", "LIST LOCKS", "LIST LOCKS ", "LIST LOCKS ON", "LIST LOCKS ON t",
		"UPDATE acc", "UPDATE ks.acc", `UPDATE "acc`, `UPDATE "acc"`, "USE k", "BEGIN", "BEGIN BATCH",
		"DROP TABLE IF", "DROP TABLE t", "CREATE MATERIALIZED VIEW v AS SELECT a", "CREATE INDEX i ON",
	} {
		require.False(t, ReadHead([]byte(text), false).Complete, text)
	}
	for _, text := range []string{
		"SELECT a FROM t WHERE k", "SELECT a FROM ks.t ", "SELECT a FROM t;;", "SELECT lock ks.t ", "LIST LOCKS ;;", "LIST R ",
		"UPDATE ks.t\n", "USE k ", "BEGIN BATCH ", "INSERT INTO ks.t(", "DROP ROLE x",
	} {
		require.True(t, ReadHead([]byte(text), false).Complete, text)
	}
}

// ReadHead knows nothing of a text that is not CQL, and is not complete where the text ends too
// early.
func TestReadHeadOfNoCQL(t *testing.T) {
	for _, text := range []string{
		"FOO", "'SELECT'", `"SELECT" a FROM t`, ";", "(SELECT a FROM t)", "INSERT t", "INSERT INTO 5", "UPDATE 'a' SET",
		"SELECT a FROM 5", "SELECT a FROM ks.5", "TRUNCATE ;", "USE 5", "BEGIN WORK", "DROP 5", "CREATE OR TABLE t", "COMMENT TABLE t", "COMMENT ON t IS 'x'", "SECURITY ON TABLE t", "COMMENT ON COLUMN c IS 'x'",
		"CREATE MATERIALIZED TABLE t", "DROP TABLE IF t", "CREATE INDEX i t", "CREATE TRIGGER ON t USING 'x'",
		"CREATE MATERIALIZED VIEW v SELECT a FROM t", "LOCK ; t", "SELECT a FROM /* t",
	} {
		h := ReadHead([]byte(text), true)
		require.Equal(t, Head{Complete: true}, h, text)
	}
	for _, text := range []string{"", " ", "-- c", "SELECT", "SELECT 1", "UPDATE", "DELETE a", "LOCK", "DROP TABLE", "SELECT (a FROM t"} {
		require.False(t, ReadHead([]byte(text), true).Complete, text)
	}
}

// ReadHead runs for every QUERY, so it does not allocate.
func TestReadHeadAllocatesNothing(t *testing.T) {
	for _, test := range heads() {
		text := []byte(test[0])
		require.Zero(t, testing.AllocsPerRun(10, func() { ReadHead(text, true) }), test[0])
	}
}

// Each verb has the name that errors and metrics show.
func TestVerbString(t *testing.T) {
	seen := map[string]bool{}
	for v := Unknown; v <= Other; v++ {
		require.False(t, seen[v.String()], v.String())
		seen[v.String()] = true
	}
	require.Equal(t, "UNKNOWN", fmt.Sprint(Verb(200)))
}

// Parse and ReadHead agree on the verb and the table of every statement.
func TestParseAgreesWithReadHead(t *testing.T) {
	for _, test := range heads() {
		text := []byte(test[0])
		s, err := Parse(text)
		if err != nil {
			continue // the table has beginnings, not whole statements
		}
		h := ReadHead(text, true)
		require.Equal(t, []any{h.Verb, h.AfterSelect, h.Keyspace, h.Table}, []any{s.Verb, s.AfterSelect, s.Keyspace, s.Table}, test[0])
	}
}
