package integration

import (
	"fmt"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// spelling is a text that would write. It is sent as QUERY, prepared and executed, and in a batch
// if possible.
type spelling struct {
	name, want, text string
}

// ways returns the attempts to send it.
func (s spelling) ways() []attempt {
	all := []attempt{
		{s.name + ", QUERY", s.want, 0, func(b *attacker) *failure { return b.query(s.text) }},
		{s.name + ", EXECUTE", s.want, 0, func(b *attacker) *failure { return b.execute(s.text) }},
	}
	verb := strings.ToLower(strings.TrimSpace(s.text))
	if !strings.HasPrefix(verb, "insert") && !strings.HasPrefix(verb, "update") && !strings.HasPrefix(verb, "delete") {
		return all
	}
	const harmless = "INSERT INTO $KS.plain (branch, id, balance) VALUES ('zurich', 'x', 666)"
	want := s.want + " MUSIC_REFUSED" // of the batch: it must stay in one table, …
	return append(all, attempt{s.name + ", BATCH", want, 0, func(b *attacker) *failure {
		return b.batch(primitive.BatchTypeUnlogged, s.text)
	}}, attempt{s.name + ", BATCH behind another table", want, 0, func(b *attacker) *failure {
		return b.batch(primitive.BatchTypeLogged, harmless, s.text)
	}})
}

// plainWrites returns the writes that CQL has, in their usual form.
func plainWrites() []spelling {
	const row = " WHERE branch = 'zurich' AND id = 'x'"
	const no = "MUSIC_UNLOCKED"
	return []spelling{
		{"insert", no, "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'x', 666)"},
		{"insert a new partition", no, "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('nowhere', 'x', 666)"},
		{"insert the key alone", no, "INSERT INTO $KS.accounts (branch, id) VALUES ('zurich', 'new')"},
		{"insert JSON", no, `INSERT INTO $KS.accounts JSON '{"branch": "zurich", "id": "x", "balance": 666}'`},
		{"insert JSON unset", no, `INSERT INTO $KS.accounts JSON '{"branch": "zurich", "id": "x", "balance": 666}' DEFAULT UNSET`},
		{"insert a static column", no, "INSERT INTO $KS.accounts (branch, title) VALUES ('zurich', 'stolen')"},
		{"insert if not exists", no, "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'new', 666) IF NOT EXISTS"},
		{"insert with TTL", no, "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'x', 666) USING TTL 5"},
		{"insert in the future", no, "INSERT INTO $KS.accounts (branch, id, balance) VALUES ('zurich', 'x', 666) USING TIMESTAMP 9223372036854775807"},
		{"insert in the past", no, "INSERT INTO $KS.accounts (branch, id, tags) VALUES ('zurich', 'x', {'old'}) USING TIMESTAMP 1 AND TTL 500"},
		{"update", no, "UPDATE $KS.accounts SET balance = 666" + row},
		{"update a set", no, "UPDATE $KS.accounts SET tags = tags + {'stolen'}" + row},
		{"update a static column", no, "UPDATE $KS.accounts SET title = 'stolen' WHERE branch = 'zurich'"},
		{"update in the future", no, "UPDATE $KS.accounts USING TIMESTAMP 9223372036854775807 SET balance = 666" + row},
		{"update with TTL", no, "UPDATE $KS.accounts USING TTL 5 AND TIMESTAMP 9223372036854775807 SET balance = 666" + row},
		{"update if exists", no, "UPDATE $KS.accounts SET balance = 666" + row + " IF EXISTS"},
		{"update if equal", no, "UPDATE $KS.accounts SET balance = 666" + row + " IF balance = 100"},
		{"update many", no, "UPDATE $KS.accounts SET balance = 666 WHERE branch IN ('zurich', 'geneva') AND id IN ('x', 'y')"},
		{"delete a row", no, "DELETE FROM $KS.accounts" + row},
		{"delete a column", no, "DELETE balance FROM $KS.accounts" + row},
		{"delete an element", no, "DELETE tags['a'] FROM $KS.accounts" + row},
		{"delete a range", no, "DELETE FROM $KS.accounts WHERE branch = 'zurich' AND id > 'a'"},
		{"delete a partition", no, "DELETE FROM $KS.accounts WHERE branch = 'zurich'"},
		{"delete partitions", no, "DELETE FROM $KS.accounts WHERE branch IN ('zurich', 'geneva')"},
		{"delete in the future", no, "DELETE FROM $KS.accounts USING TIMESTAMP 9223372036854775807" + row},
		{"delete if exists", no, "DELETE FROM $KS.accounts" + row + " IF EXISTS"},
		{"delete if equal", no, "DELETE FROM $KS.accounts" + row + " IF balance = 100"},
		{"truncate", "MUSIC_REFUSED", "TRUNCATE $KS.accounts"},
		{"truncate table", "MUSIC_REFUSED", "TRUNCATE TABLE $KS.accounts;"},
	}
}

// spellings returns "update accounts" in every form that CQL has for it.
func spellings() []spelling {
	const rest = " SET balance = 666 WHERE branch = 'zurich' AND id = 'x'"
	const no = "MUSIC_UNLOCKED"
	all := []spelling{
		{"upper case", no, "UPDATE $KS.ACCOUNTS SET BALANCE = 666 WHERE BRANCH = 'zurich' AND ID = 'x'"},
		{"lower case", no, "update $KS.accounts set balance = 666 where branch = 'zurich' and id = 'x'"},
		{"mixed case", no, "uPdAtE $KS.aCCouNts sEt balance = 666 wHeRe branch = 'zurich' aNd id = 'x'"},
		{"no blanks", no, "INSERT INTO $KS.accounts(branch,id,balance)VALUES('zurich','x',666)"},
		{"dollars", no, "UPDATE $KS.accounts SET balance = 666 WHERE branch = $$zurich$$ AND id = $$x$$"},
		{"a quote in a literal", no, "UPDATE $KS.accounts SET balance = 666, tags = {'it''s'} WHERE branch = 'zurich' AND id = 'x'"},
		{"markers of comments in literals", no, "UPDATE $KS.accounts SET tags = {'--', '/*', '//', '*/'} WHERE branch = 'zurich' AND id = 'x'"},
		{"lock in a literal", no, "UPDATE $KS.accounts SET tags = {'USING LOCK $HELD'} WHERE branch = 'zurich' AND id = 'x'"},
		{"lock in a comment", no, "UPDATE $KS.accounts /* USING LOCK $HELD */ SET balance = 666 WHERE branch = 'zurich' AND id = 'x'"},
		{"lock behind the end", no + " SYNTAX", "UPDATE $KS.accounts" + rest + "; -- USING LOCK $HELD"},
	}
	for _, table := range []string{
		`"$KS".accounts`, `$KS."accounts"`, `"$KS"."accounts"`, `$KS."Accounts"`, `$KS.vault`, "$KS . accounts", "$KS\t.\n\"accounts\"",
		"$KS/* . plain */./**/accounts", "$KS.-- plain\naccounts", "$KS.// plain\r\naccounts", `$KS."Accounts"/**/`,
	} {
		all = append(all, spelling{fmt.Sprintf("table %q", table), no, "UPDATE " + table + rest})
	}
	for _, before := range []string{
		" \t\r\n", "/* SELECT */ ", "-- SELECT * FROM plain\n", "// SELECT\n", "/**//**/", "/* ' */", "/* \" */", "-- '\n", "-- $$\n", "/*/ */", "/* -- */", "--\n--\n//\r",
	} {
		all = append(all, spelling{fmt.Sprintf("behind %q", before), no, before + "UPDATE $KS.accounts" + rest})
	}
	for _, after := range []string{";", ";;;", " ; ;\n", " -- x", " // x", " /* x */", ";/* x */;", "\n\n", " -- ;\n;"} {
		// Cassandra requires a line end after such a comment, and says so when the text is
		// prepared.
		all = append(all, spelling{fmt.Sprintf("before %q", after), no + " SYNTAX", "UPDATE $KS.accounts" + rest + after})
	}
	for _, blank := range []string{"\t", "\n", "\r\n", "/**/", " /* ' */ ", "--\n", "//x\n", "   "} {
		text := strings.ReplaceAll("UPDATE $KS.accounts"+rest, " ", blank)
		all = append(all, spelling{fmt.Sprintf("%q for blanks", blank), no, text})
	}
	return all
}

// batchTexts returns batches as one text.
func batchTexts() []spelling {
	const plain = " INSERT INTO $KS.plain (branch, id, balance) VALUES ('zurich', 'x', 666);"
	const first = " UPDATE $KS.accounts SET balance = 666 WHERE branch = 'zurich' AND id = 'x';"
	const second = " DELETE FROM $KS.accounts WHERE branch = 'zurich' AND id = 'y';"
	const own = " UPDATE $KS.accounts USING LOCK $HELD SET balance = 666 WHERE branch = 'zurich' AND id = 'x';"
	const no, never = "MUSIC_UNLOCKED", "MUSIC_REFUSED MUSIC_UNLOCKED"
	const end = " APPLY BATCH"
	const locked = "BEGIN BATCH USING LOCK $HELD"
	return []spelling{
		{"logged batch", no, "BEGIN BATCH" + first + second + end},
		{"unlogged batch", no, "BEGIN UNLOGGED BATCH" + first + end},
		{"counter batch", no + " INVALID", "BEGIN COUNTER BATCH" + first + end},
		{"critical last", no, "BEGIN BATCH" + strings.Repeat(plain, 20) + second + end},
		{"critical first", no, "BEGIN UNLOGGED BATCH" + first + plain + end + ";"},
		{"two critical tables", no, `BEGIN BATCH DELETE FROM $KS."Accounts" WHERE branch = 'zurich' APPLY BATCH`},
		{"batch without semicolons", no, "begin batch" + strings.ReplaceAll(plain+first, ";", " ") + "apply batch"},
		{"batch with comments", no, "BEGIN /* x */ BATCH -- y\n" + plain + "/* ; APPLY BATCH */" + first + "//z\n" + end},
		{"batch in the past", no, "BEGIN BATCH USING TIMESTAMP 5" + plain + second + end},
		{"batch with IF", no, "BEGIN BATCH UPDATE $KS.accounts SET balance = 666 WHERE branch = 'zurich' AND id = 'x' IF EXISTS;" + second + end},
		{"companion in a batch", "MUSIC_REFUSED", "BEGIN BATCH" + plain + " DELETE FROM $KS.$COMPANION WHERE k1 = 'zurich';" + end},
		{"sessions in a batch", "MUSIC_REFUSED", "BEGIN BATCH" + plain + " DELETE FROM music.sessions WHERE session = 123e4567-e89b-12d3-a456-426614174000;" + end},
		{"lock on a child only", never + " SYNTAX", "BEGIN BATCH" + own + end},
		{"lock on one child of two", never + " SYNTAX", "BEGIN BATCH" + own + second + end},
		{"lock on batch and child", never, locked + own + end},
		{"two keys", never, locked + first + " DELETE FROM $KS.accounts WHERE branch = 'geneva' AND id = 'y';" + end},
		{"two tables", never, locked + first + " DELETE FROM $KS.vault WHERE branch = 'zurich' AND id = 'y';" + end},
		{"another quoted table", never, locked + first + ` DELETE FROM $KS."Accounts" WHERE branch = 'zurich' AND id = 'y';` + end},
		{"a plain table under a lock", never, locked + first + plain + end},
		{"a plain table first under a lock", never, locked + plain + first + end},
		{"batch timestamp under a lock", never + " MUSIC_SYNTAX", "BEGIN BATCH USING LOCK $HELD AND TIMESTAMP 5" + first + end},
		{"batch timestamp before a lock", never + " MUSIC_SYNTAX", "BEGIN BATCH USING TIMESTAMP 5 AND LOCK $HELD" + first + end},
		{"child timestamp under a lock", never, locked + " DELETE FROM $KS.accounts USING TIMESTAMP 5 WHERE branch = 'zurich' AND id = 'y';" + end},
		{"two locks on a batch", "MUSIC_SYNTAX", "BEGIN BATCH USING LOCK $HELD AND LOCK $HELD" + first + end},
		{"batch of a waiting lock", "MUSIC_NOT_HELD", "BEGIN BATCH USING LOCK $QUEUED" + first + end},
		{"batch of another key's lock", "MUSIC_NOT_HELD MUSIC_LOST", "BEGIN BATCH USING LOCK $FUTURE" + first + end},
		{"counter batch under a lock", "INVALID", "BEGIN COUNTER BATCH USING LOCK $HELD" + first + end},
		{"JSON under a lock", "MUSIC_KEY MUSIC_NOT_HELD", locked + ` INSERT INTO $KS.accounts JSON '{"branch": "geneva", "id": "x", "balance": 666}';` + end},
		{"empty batch under a lock", "INVALID SYNTAX", locked + end},
	}
}
