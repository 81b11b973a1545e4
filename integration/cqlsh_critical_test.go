package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pages types a line whose answer has several pages, and asks for each next page as a person does.
// It returns what was printed, and how often it asked.
func (s *shell) pages(line string) (said string, turned int) {
	s.t.Helper()
	s.enter(line)
	eventually(s.t, programTimeout, "all pages", func() error {
		said = strings.ReplaceAll(s.heard(), "\r", "")
		switch {
		case strings.Count(said, "---MORE---") > turned:
			turned++
			if _, err := s.terminal.WriteString("\n"); err != nil {
				return err
			}
		case strings.Contains(said, " rows)") && promptPattern().MatchString(said):
			return nil
		}
		return errorf("%q", said)
	})
	return said, turned
}

// A person at a terminal can read a critical table, and gets an explanation for what is refused.
func TestCqlshOnACriticalTable(t *testing.T) {
	s := newTableFixture(t, "shell_critical", "@critical(lease=5m)")
	proxied, direct := openShell(t, s.address, s.keyspace), openShell(t, needEnvironment(t).direct(), s.keyspace)
	for _, line := range []string{"DESCRIBE TABLE accounts;", "DESCRIBE KEYSPACE shell_critical;", "DESCRIBE TABLES;", "DESCRIBE KEYSPACES;", "DESCRIBE TABLE " + s.companion() + ";"} {
		assert.Equal(t, direct.ask(line), proxied.ask(line), line)
	}
	assert.Contains(t, proxied.ask("DESCRIBE TABLE accounts;"), "comment = '@critical(lease=5m)'")
	for line, want := range map[string]string{
		"INSERT INTO accounts (branch, id, balance) VALUES ('b', 'x', 1);": `InvalidRequest: Error from server: code=2200 [Invalid query] message="MUSIC_UNLOCKED: shell_critical.accounts is critical: take a lock`,
		"TRUNCATE accounts;":                        `message="MUSIC_REFUSED: shell_critical.accounts is critical: TRUNCATE`,
		"LOCK accounts;":                            `message="MUSIC_SYNTAX: `,
		"LOCK accounts WHERE id = 'x';":             `message="MUSIC_KEY: `,
		"UNLOCK accounts WHERE branch = 'b';":       `message="MUSIC_SYNTAX: `,
		"LOCK accounts WHERE branch = 'b' WAIT 5x;": `message="MUSIC_SYNTAX: `,
	} {
		assert.Contains(t, proxied.ask(line), want, line)
	}
	ref := s.grant(proxied.run(statement{cql: "LOCK accounts WHERE branch = 'b'"}), "HELD")
	s.traced(proxied, ref)
	s.paged(proxied, ref)
	s.copied(proxied)
}

// traced: statements that Cassandra executes are traced; those that the proxy answers by itself are
// answered, without a trace.
func (s *tableFixture) traced(sh *shell, ref int64) {
	assert.Contains(s.t, sh.ask("TRACING ON"), "TRACING set to ON")
	assert.Contains(s.t, sh.ask(fmt.Sprintf("LOCK accounts WHERE branch = 'b' USING LOCK %d;", ref)), "HELD")
	for _, line := range []string{
		"UPDATE accounts USING LOCK REF SET balance = 1 WHERE branch = 'b' AND id = 'x';", "SELECT * FROM accounts WHERE branch = 'b' USING LOCK REF;",
		"UPDATE accounts USING LOCK REF SET balance = 2 WHERE branch = 'b' AND id = 'x' IF balance = 1;",
		"UPDATE accounts USING LOCK REF SET balance = 2 WHERE branch = 'b' AND id = 'x' IF balance = 1;",
		"BEGIN BATCH USING LOCK REF UPDATE accounts SET balance = 3 WHERE branch = 'b' AND id = 'x' IF balance = 2; APPLY BATCH;",
	} {
		said := sh.ask(strings.Replace(line, "REF", strconv.FormatInt(ref, 10), 1))
		assert.Contains(s.t, said, "Tracing session: ", line)
		assert.NotContains(s.t, said, "rror", line)
	}
	assert.Contains(s.t, sh.ask("TRACING OFF"), "TRACING set to OFF")
}

// paged: further pages are read under the lock, by a read and by FOR UPDATE.
func (s *tableFixture) paged(sh *shell, held int64) {
	var other int64
	for branch, rows := range map[string]int{"b": 25, "c": 25} {
		ref := held
		if branch == "c" {
			other = s.grant(sh.run(statement{cql: "LOCK accounts WHERE branch = 'c'"}), "HELD")
			ref = other
		}
		var batch strings.Builder
		for i := range rows {
			fmt.Fprintf(&batch, "UPDATE accounts SET balance = %d WHERE branch = '%s' AND id = 'id%02d'; ", i, branch, i)
		}
		assert.Empty(s.t, strings.TrimSpace(sh.ask(fmt.Sprintf("BEGIN BATCH USING LOCK %d %s APPLY BATCH;", ref, batch.String()))))
	}
	s.grant(sh.run(statement{cql: fmt.Sprintf("UNLOCK accounts WHERE branch = 'c' USING LOCK %d", other)}), "RELEASED")
	assert.Contains(s.t, sh.ask("PAGING 10"), "Page size: 10")
	said, turned := sh.pages(fmt.Sprintf("SELECT id FROM accounts WHERE branch = 'b' USING LOCK %d;", held))
	assert.Equal(s.t, 2, turned)
	assert.Contains(s.t, said, "(26 rows)")
	said, turned = sh.pages("SELECT id FROM accounts WHERE branch = 'c' FOR UPDATE;")
	assert.Equal(s.t, 2, turned)
	assert.Contains(s.t, said, "(25 rows)")
	assert.Equal(s.t, 25, strings.Count(said, "HELD"))
	sh.ask("PAGING OFF")
}

// copied: COPY reads a critical table as any other; it has no lock to write one, and each row is
// refused with an explanation.
func (s *tableFixture) copied(sh *shell) {
	file := filepath.Join(s.t.TempDir(), "accounts.csv")
	said := sh.ask("COPY accounts (branch, id, balance) TO '" + file + "' WITH NUMPROCESSES = 1;")
	assert.Contains(s.t, said, "51 rows exported to 1 files", said)
	text, err := os.ReadFile(file)
	require.NoError(s.t, err)
	assert.Equal(s.t, 51, strings.Count(string(text), "\n"))

	assert.Empty(s.t, strings.TrimSpace(sh.ask("CREATE TABLE plain (branch text, id text, balance bigint, PRIMARY KEY (branch, id));")))
	said = sh.ask("COPY plain (branch, id, balance) FROM '" + file + "' WITH NUMPROCESSES = 1;")
	assert.Contains(s.t, said, "51 rows imported from 1 files", said)
	assert.Equal(s.t, "51", sh.run(statement{cql: "SELECT count(*) FROM plain"}).rows[0][0])

	before := s.contents()
	stolen := filepath.Join(s.t.TempDir(), "stolen.csv")
	require.NoError(s.t, os.WriteFile(stolen, []byte(strings.ReplaceAll(string(text), ",id", ",new")), 0o600))
	said = sh.ask("COPY accounts (branch, id, balance) FROM '" + stolen + "' WITH NUMPROCESSES = 1 AND MAXATTEMPTS = 1 AND ERRFILE = '" + stolen + ".err';")
	assert.Contains(s.t, said, "MUSIC_UNLOCKED: shell_critical.accounts is critical", said)
	assert.NotContains(s.t, said, "Traceback", said)
	assert.Equal(s.t, before, s.contents(), "nothing of it has been written")
}
