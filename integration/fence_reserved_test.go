package integration

import "fmt"

// reserved returns writes to tables that only proxies write.
func reserved() []spelling {
	const no = "MUSIC_REFUSED"
	all := []spelling{
		{"music.named", "MUSIC_UNLOCKED", "INSERT INTO music.named (name, value) VALUES ('battery', 'stolen')"},
		{"music.named quoted", "MUSIC_UNLOCKED", `UPDATE "music"."named" SET value = 'stolen' WHERE name = 'battery'`},
		{"truncate music.named", no, "TRUNCATE music.named"},
		{"a row of the companion", no, "INSERT INTO $KS.$COMPANION (k1, base, guard) VALUES ('zurich', 1, 1)"},
		{"a cell of the companion", no, "UPDATE $KS.$COMPANION SET base = 1 WHERE k1 = 'zurich'"},
		{"a lock row by IF", no, "UPDATE $KS.$COMPANION SET base = 1 WHERE k1 = 'zurich' IF guard > 0"},
		{"delete a lock row", no, `DELETE FROM "$KS"."$COMPANION" WHERE k1 = 'zurich'`},
		{"truncate the companion", no, "TRUNCATE TABLE $KS.$COMPANION"},
		{"alter the companion", no, "ALTER TABLE $KS.$COMPANION WITH gc_grace_seconds = 0"},
		{"widen the companion", no, "ALTER TABLE $KS.$COMPANION ADD mine int"},
		{"a companion of one's own", no, "CREATE TABLE $KS.music_lock_00 (k1 text PRIMARY KEY)"},
		{"index the companion", no + " MUSIC_SYNTAX", "CREATE INDEX stolen ON $KS.$COMPANION (owner)"},
		{"a view of the companion", no + " INVALID", "CREATE MATERIALIZED VIEW $KS.stolen AS SELECT * FROM $KS.$COMPANION WHERE k1 IS NOT NULL AND base IS NOT NULL PRIMARY KEY (base, k1)"},
		{"settings of a table", no, "UPDATE music.tables SET settings = 'plain' WHERE id = 123e4567-e89b-12d3-a456-426614174000"},
		{"a session", no, "INSERT INTO music.sessions (session, beat) VALUES (123e4567-e89b-12d3-a456-426614174000, 1)"},
		{"a session as JSON", no, `INSERT INTO Music.Sessions JSON '{"session": "123e4567-e89b-12d3-a456-426614174000", "beat": 1}'`},
		{"a session with comments", no, "DELETE /* x */ FROM music/**/./**/sessions WHERE session = 123e4567-e89b-12d3-a456-426614174000"},
		{"truncate tables", no, "TRUNCATE music.tables"},
		{"truncate sessions quoted", no, `truncate "music"."sessions"`},
		{"the secret", no, "SELECT * FROM music.secrets"},
		{"the secret as JSON", no, `SELECT JSON value AS v FROM "music" . Secrets WHERE name = 'references' LIMIT 1 ALLOW FILTERING`},
		{"truncate the secret", no, "TRUNCATE music.secrets"},
		{"references start again", no, "UPDATE music.generations SET last = 0 WHERE keyspace_name = 'x' AND table_name = 'x'"},
		{"alter sessions", no, "ALTER TABLE music.sessions WITH default_time_to_live = 1"},
		{"drop sessions", no, "DROP TABLE IF EXISTS music.sessions"},
		{"drop named", no, "DROP TABLE music.named"},
		{"drop music", no, "DROP KEYSPACE music"},
		{"drop music quoted", no, `DROP KEYSPACE IF EXISTS "music"`},
		{"a table in music", no, "CREATE TABLE music.mine (k int PRIMARY KEY)"},
		{"a type in music", no, "CREATE TYPE music.mine (k int)"},
		{"an index in music", no, "CREATE INDEX mine ON music.named (value)"},
		{"uncomment named", no, "ALTER TABLE music.named WITH comment = ''"},
	}
	return all
}

// unreadable returns texts that the proxy or Cassandra, or both, do not understand.
func unreadable() []spelling {
	const row = " WHERE branch = 'zurich' AND id = 'x'"
	var all []spelling
	for _, text := range []string{
		"INSERT INTO $KS.accounts (branch", "UPDATE $KS.accounts SET", "UPDATE $KS.accounts", "DELETE FROM $KS.accounts WHERE branch = 'zurich",
		"/* UPDATE $KS.accounts SET balance = 666" + row, "UPDATE $KS.\"accounts SET balance = 666" + row, "GIBBERISH $KS.accounts", "; UPDATE $KS.accounts SET balance = 666" + row,
		"MERGE INTO $KS.accounts (branch, id) VALUES ('zurich', 'x')", "BEGIN BATCH UPDATE $KS.accounts SET balance = 666" + row,
		"BEGIN TRANSACTION UPDATE $KS.accounts SET balance = 666" + row + "; COMMIT TRANSACTION", "BEGIN BATCH BEGIN BATCH UPDATE $KS.accounts SET balance = 666" + row + " APPLY BATCH APPLY BATCH",
		"UPDATE $KS.accounts SET balance = 666" + row + "; UPDATE $KS.accounts SET balance = 667" + row, "UPDATE $KS.plain SET balance = 666" + row + "; UPDATE $KS.accounts SET balance = 666" + row,
		"SELECT * FROM $KS.plain; TRUNCATE $KS.accounts", "USE $KS; TRUNCATE $KS.accounts", "\uFEFFUPDATE $KS.accounts SET balance = 666" + row,
		"UPDATE\u00a0$KS.accounts SET balance = 666" + row, "UPDATE\x00$KS.accounts SET balance = 666" + row, "\x00UPDATE $KS.accounts SET balance = 666" + row,
		"UPDATE $KS.accounts\x00 SET balance = 666" + row, "UPDATE\f$KS.accounts SET balance = 666" + row, "UPDATE $KS.accounts SET balance = 666" + row + " \x00", "ＵＰＤＡＴＥ $KS.accounts SET balance = 666" + row,
		"UPDATE $KS.accounts SET balance = $$666" + row, "/* /* */ */ UPDATE $KS.accounts SET balance = 666" + row, "(UPDATE $KS.accounts SET balance = 666" + row + ")",
		"EXPLAIN UPDATE $KS.accounts SET balance = 666" + row, "TRUNCATE $KS.accounts, $KS.plain", "INSERT $KS.accounts JSON '{}'", "INSERT INTO $KS.accounts SELECT * FROM $KS.plain",
		"BEGIN BATCH TRUNCATE $KS.accounts APPLY BATCH", "BEGIN BATCH LOCK $KS.accounts WHERE branch = 'zurich' APPLY BATCH", "DELETE FROM accounts IN $KS" + row,
		"DROP TABLE $KS.accounts; DROP TABLE $KS.plain", "\\UPDATE $KS.accounts SET balance = 666" + row, "UPDATE `$KS`.`accounts` SET balance = 666" + row, "UPDATE [$KS].[accounts] SET balance = 666" + row,
		"UPDATE 'accounts' SET balance = 666" + row, "UPDATE $KS.accounts SET balance = 666 /*" + row, "BEGIN UNLOGGED LOGGED BATCH UPDATE $KS.accounts SET balance = 666" + row + " APPLY BATCH",
	} {
		all = append(all, spelling{fmt.Sprintf("%q", text), "MUSIC_SYNTAX MUSIC_UNLOCKED MUSIC_REFUSED MUSIC_KEY SYNTAX", text})
	}
	return all
}

// badReferences returns literal references that are not valid, and clauses that are not allowed.
func badReferences() []spelling {
	const no, syntax, lost = "MUSIC_NOT_HELD", "MUSIC_SYNTAX MUSIC_REFUSED", "MUSIC_LOST MUSIC_NOT_HELD"
	update := func(using, where string) string {
		return "UPDATE $KS.accounts USING " + using + " SET balance = 666 WHERE " + where
	}
	const zurich, both = "branch = 'zurich' AND id = 'x'", " AND id = 'x'"
	all := []spelling{
		{"reference of another key", lost, update("LOCK $OTHER", zurich)},
		{"released reference", lost, update("LOCK $RELEASED", "branch = 'basel'"+both)},
		{"expired reference", lost, update("LOCK $EXPIRED", "branch = 'chur'"+both)},
		{"this reference on another key", lost, update("LOCK $QUEUED", "branch = 'geneva'"+both)},
		{"this reference on another table", no, "DELETE FROM $KS.vault USING LOCK $HELD WHERE branch = 'zurich'"},
		{"this reference on a quoted table", no, `INSERT INTO $KS."Accounts" (branch, id, balance) VALUES ('zurich', 'x', 666) USING LOCK $HELD`},
		{"this reference on music.named", no, "UPDATE music.named USING LOCK $HELD SET value = 'stolen' WHERE name = 'battery'"},
		{"insert of a waiting reference", no, "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'x', 666) USING LOCK $QUEUED"},
		{"delete of a waiting reference", no, "DELETE FROM $KS.accounts USING LOCK $QUEUED WHERE " + zurich},
		{"lock and timestamp", syntax, update("LOCK $HELD AND TIMESTAMP 5", zurich)},
		{"timestamp and lock", syntax, update("TIMESTAMP 5 AND LOCK $HELD", zurich)},
		{"lock twice", syntax, update("LOCK $HELD AND LOCK $HELD", zurich)},
		{"using lock twice", syntax, update("LOCK $HELD USING LOCK $HELD", zurich)},
		{"good lock, then bad", syntax, update("LOCK $HELD AND LOCK $QUEUED", zurich)},
		{"queued and if", "MUSIC_NOT_HELD", update("LOCK $QUEUED", zurich+" IF EXISTS")},
		{"queued and if equal", "MUSIC_NOT_HELD", update("LOCK $QUEUED", zurich+" IF balance = 100")},
		{"queued and if not exists", "MUSIC_NOT_HELD", "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'new', 666) IF NOT EXISTS USING LOCK $QUEUED"},
		{"if not exists behind the lock", "MUSIC_NOT_HELD", "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'new', 666) USING LOCK $QUEUED IF NOT EXISTS"},
		{"delete if under a queued lock", "MUSIC_NOT_HELD", "DELETE FROM $KS.accounts USING LOCK $QUEUED WHERE " + zurich + " IF EXISTS"},
		{"JSON with a lock", "MUSIC_KEY MUSIC_NOT_HELD", `INSERT INTO $KS.accounts JSON '{"branch": "geneva", "id": "x", "balance": 666}' USING LOCK $HELD`},
		{"truncate with a lock", syntax + " SYNTAX", "TRUNCATE $KS.accounts USING LOCK $HELD"},
		{"lock on a plain table", "MUSIC_REFUSED SYNTAX", "UPDATE $KS.plain USING LOCK $HELD SET balance = 666 WHERE " + zurich},
	}
	for _, ref := range []string{"0", "-1", "-$HELD", "$FUTURE", "$QUEUED", "9223372036854775807"} {
		all = append(all, spelling{"reference " + ref, no + " MUSIC_SYNTAX", update("LOCK "+ref, zurich)})
	}
	for _, ref := range []string{"'$HELD'", "null", "1.0", "1e0", "0x01", "true", "", "lock", "9223372036854775808", "99999999999999999999", "[1]", "(1)", "(bigint)1", "1 + 0", "$$1$$", "NaN", "UNSET"} {
		all = append(all, spelling{fmt.Sprintf("reference %q", ref), syntax + " MUSIC_NOT_HELD", update("LOCK "+ref, zurich)})
	}
	for _, where := range []string{
		"branch IN ('zurich', 'geneva')" + both, "token(branch) > 0", "id = 'x'", "branch > 'a'" + both, "branch = null" + both,
		"branch = blob_as_text(0x7a)" + both, "branch = (ascii)'geneva'" + both, "branch = fromJson('\"zurich\"')" + both, "branch = 'zurich' AND branch = 'geneva'" + both, "branch = 5" + both, "(branch, id) = ('zurich', 'x')",
	} {
		all = append(all, spelling{"where " + where, "MUSIC_KEY MUSIC_SYNTAX MUSIC_REFUSED MUSIC_NOT_HELD INVALID SYNTAX", update("LOCK $HELD", where)})
	}
	return all
}
