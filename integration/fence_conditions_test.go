package integration

import (
	"fmt"
	"slices"
	"strings"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// heldConditions returns conditions that are true for the row that the battery watches: a write
// that gets past the fence would change it.
func heldConditions() []string {
	return []string{
		"EXISTS", "balance = 100", "balance IN (100, 7)", "balance >= 100 AND balance != 5", "tags CONTAINS 'a'", "tags = {'a', 'b'}", "title = 'old'", "title != 'new' AND balance > 1",
	}
}

// conditionTexts returns writes with a condition, alone and in a batch, that lack the lock or break
// its rules.
func conditionTexts() []spelling {
	const row, end = " WHERE branch = 'zurich' AND id = 'x' IF ", "; APPLY BATCH"
	const other = "DELETE FROM $KS.accounts WHERE branch = 'zurich' AND id = 'y'; "
	const no, never, lost = "MUSIC_UNLOCKED", "MUSIC_REFUSED MUSIC_UNLOCKED", "MUSIC_NOT_HELD MUSIC_LOST"
	var all []spelling
	for _, condition := range heldConditions() {
		update := "UPDATE $KS.accounts SET balance = 666" + row + condition
		all = append(
			all, spelling{"batch IF " + condition, no, "BEGIN BATCH " + other + update + end},
			spelling{"batch of a waiting lock, IF " + condition, lost, "BEGIN BATCH USING LOCK $QUEUED " + other + update + end},
			spelling{"IF under a future lock, " + condition, lost, strings.Replace(update, " SET", " USING LOCK $FUTURE SET", 1)},
			spelling{"IF under another key's lock, " + condition, lost, strings.Replace(strings.Replace(update, " SET", " USING LOCK $HELD SET", 1), "zurich", "geneva", 1)},
			spelling{"two keys, IF " + condition, never, "BEGIN BATCH USING LOCK $HELD DELETE FROM $KS.accounts WHERE branch = 'geneva' AND id = 'x'; " + update + end},
			spelling{"two tables, IF " + condition, never + " INVALID", "BEGIN BATCH USING LOCK $HELD DELETE FROM $KS.vault WHERE branch = 'zurich'; " + update + end},
			spelling{"a plain table, IF " + condition, never + " INVALID", "BEGIN BATCH USING LOCK $HELD " + plainRow + "; " + update + end},
			spelling{"a timestamp, IF " + condition, never + " MUSIC_SYNTAX INVALID", "BEGIN BATCH USING LOCK $HELD AND TIMESTAMP 5 " + update + end},
			spelling{"a child's timestamp, IF " + condition, never + " INVALID", "BEGIN BATCH USING LOCK $HELD " + strings.Replace(update, " SET", " USING TIMESTAMP 5 SET", 1) + end},
			spelling{"a child's lock, IF " + condition, never + " SYNTAX", "BEGIN BATCH " + other + strings.Replace(update, " SET", " USING LOCK $HELD SET", 1) + end},
		)
	}
	under := func(condition string) string {
		return "UPDATE $KS.accounts USING LOCK $HELD SET balance = 666" + row + condition
	}
	return append(
		all, spelling{"a function of the table compared", "MUSIC_REFUSED SYNTAX INVALID", under("balance != token('zurich')")}, spelling{"a column compared", "MUSIC_REFUSED SYNTAX", under("balance = balance")},
		spelling{"a function in an element", "MUSIC_REFUSED INVALID SYNTAX", under("tags[now()] = 'a'")}, spelling{"a column of the key compared", "INVALID", under("id = 'x'")},
		spelling{"no such column", "INVALID", under("nosuch = null")}, spelling{"tuples compared", "MUSIC_REFUSED SYNTAX", under("(balance, title) = (100, 'old')")},
		spelling{"a token compared", "MUSIC_REFUSED SYNTAX", under("token(branch) > 0")}, spelling{"not null", "MUSIC_REFUSED SYNTAX", under("balance IS NOT NULL")},
		spelling{"IN on rows and IF", never + " INVALID", "UPDATE $KS.accounts USING LOCK $HELD SET balance = 666 WHERE branch = 'zurich' AND id IN ('x', 'y') IF balance = 100"},
		spelling{"a range and IF", never + " INVALID", "DELETE FROM $KS.accounts USING LOCK $HELD WHERE branch = 'zurich' AND id > 'a' IF EXISTS"},
		spelling{"a partition and IF", never + " INVALID", "DELETE FROM $KS.accounts USING LOCK $HELD WHERE branch = 'zurich' IF EXISTS"},
		spelling{"JSON and IF", "MUSIC_KEY MUSIC_NOT_HELD", `INSERT INTO $KS.accounts JSON '{"branch": "geneva", "id": "new"}' IF NOT EXISTS USING LOCK $HELD`},
		spelling{"a set's element", "INVALID SYNTAX", under("tags['a'] = 'a'")},
	)
}

// severalTexts returns LOCK and UNLOCK of several keys, and FOR UPDATE, in forms that would acquire
// or release locks that are not the attacker's.
func severalTexts() []spelling {
	const syntax = "MUSIC_SYNTAX SYNTAX"
	keys := "WHERE branch IN ('" + strings.Repeat("k', '", 1000) + "zurich')"
	for i := range 1000 {
		keys = strings.Replace(keys, "'k'", fmt.Sprintf("'k%d'", i), 1)
	}
	return []spelling{
		{"UNLOCK of several keys", syntax, "UNLOCK $KS.accounts WHERE branch IN ('zurich', 'geneva') USING LOCK $HELD"},
		{"UNLOCK of several keys by force", syntax, "UNLOCK $KS.accounts WHERE branch IN ('zurich', 'geneva') FORCE"},
		{"LOCK of several keys under one", syntax, "LOCK $KS.accounts WHERE branch IN ('zurich', 'geneva') USING LOCK $HELD"},
		{"LOCK of no key", "MUSIC_KEY", "LOCK $KS.accounts WHERE branch IN ()"},
		{"LOCK of null", "MUSIC_KEY", "LOCK $KS.accounts WHERE branch IN ('zurich', null)"},
		{"LOCK of too many keys", "MUSIC_REFUSED", "LOCK $KS.accounts " + keys},
		{"LOCK of rows", "MUSIC_KEY MUSIC_SYNTAX", "LOCK $KS.accounts WHERE id IN ('x', 'y')"},
		{"LIMIT of one key", syntax, "LOCK $KS.accounts WHERE branch = 'new' LIMIT 1"},
		{"LIMIT 0", syntax, "LOCK $KS.accounts WHERE branch IN ('new', 'newer') LIMIT 0"},
		{"LOCK of a function", "MUSIC_KEY", "LOCK $KS.accounts WHERE branch IN (textasblob('x'))"},
		{"SELECT UNLOCK of several", syntax, "SELECT UNLOCK $KS.accounts WHERE branch IN ('zurich') USING LOCK $HELD"},
		{"FOR UPDATE of no key", "MUSIC_KEY MUSIC_REFUSED", "SELECT * FROM $KS.accounts FOR UPDATE"},
		{"FOR UPDATE of several keys", "MUSIC_KEY MUSIC_REFUSED", "SELECT * FROM $KS.accounts WHERE branch IN ('zurich', 'new') FOR UPDATE"},
		{"FOR UPDATE of a range of tokens", "MUSIC_KEY MUSIC_REFUSED", "SELECT * FROM $KS.accounts WHERE token(branch) > 0 FOR UPDATE"},
		{"FOR UPDATE under a lock", syntax, "SELECT * FROM $KS.accounts WHERE branch = 'zurich' USING LOCK $HELD FOR UPDATE"},
		{"FOR UPDATE twice", syntax, "SELECT * FROM $KS.accounts WHERE branch = 'new' FOR UPDATE FOR UPDATE"},
		{"a read under a waiting lock", "MUSIC_NOT_HELD", "SELECT * FROM $KS.accounts WHERE branch = 'zurich' USING LOCK $QUEUED"},
		{"a read under another key's lock", "MUSIC_NOT_HELD MUSIC_LOST", "SELECT * FROM $KS.accounts WHERE branch = 'geneva' USING LOCK $HELD"},
		{"UNLOCK of a key that is another's", "MUSIC_NOT_HELD MUSIC_LOST MUSIC_SYNTAX", "UNLOCK $KS.accounts WHERE branch = 'zurich' USING LOCK 0"},
	}
}

// conditionFrames returns BATCH messages with conditions, or with values, that contradict each
// other.
func conditionFrames() []attempt {
	const held = "UPDATE $KS.accounts USING LOCK $HELD SET balance = 666 WHERE branch = 'zurich' AND id = 'x' IF balance = "
	const lost = "MUSIC_NOT_HELD MUSIC_LOST"
	queued := func(cql string) string { return strings.Replace(cql, "$HELD", "$QUEUED", 1) }
	var all []attempt
	for _, x := range []struct {
		name, want string
		children   []string
	}{
		{"IF without a lock", "MUSIC_UNLOCKED MUSIC_REFUSED", []string{strings.Replace(held, " USING LOCK $HELD", "", 1) + "100", heldRow}},
		{"IF under a waiting lock", lost, []string{queued(held) + "100"}},
		{"IF under two locks", "MUSIC_REFUSED " + lost, []string{held + "100", queued(heldRow)}},
		{"IF on two keys", "MUSIC_REFUSED", []string{held + "100", strings.Replace(heldRow, "zurich", "geneva", 1)}},
		{"IF and a plain table", "MUSIC_REFUSED", []string{held + "100", plainRow}},
		{"IF and another critical table", "MUSIC_REFUSED " + lost, []string{held + "100", strings.Replace(heldRow, "accounts", "vault", 1)}},
		{"IF and a read", "MUSIC_REFUSED", []string{held + "100", "SELECT * FROM $KS.accounts WHERE branch = 'zurich' USING LOCK $HELD"}},
		{"IF a function", "MUSIC_REFUSED INVALID", []string{held + "blobasbigint(0x01)"}},
		{"IF a token", "MUSIC_REFUSED", []string{held + "token('zurich')"}},
		{"IF EXISTS and not", "INVALID", []string{
			"DELETE FROM $KS.accounts USING LOCK $HELD WHERE branch = 'zurich' AND id = 'x' IF EXISTS", "INSERT INTO $KS.accounts (branch, id) VALUES ('zurich', 'x') IF NOT EXISTS USING LOCK $HELD",
		}},
	} {
		for _, kind := range []primitive.BatchType{primitive.BatchTypeLogged, primitive.BatchTypeUnlogged} {
			for _, children := range [][]string{x.children, reversed(x.children)} {
				all = append(all, attempt{fmt.Sprintf("BATCH of type %d, %s", kind, x.name), x.want, 0, func(b *attacker) *failure {
					var parts []any
					for _, child := range children {
						parts = append(parts, child)
					}
					return b.batch(kind, parts...)
				}})
			}
		}
	}
	one := func(v *primitive.Value) func(*fenceFixture) []*primitive.Value {
		return func(*fenceFixture) []*primitive.Value { return []*primitive.Value{v} }
	}
	const list = "UPDATE $KS.accounts USING LOCK $HELD SET balance = 666 WHERE branch = 'zurich' AND id = 'x' IF balance IN ?"
	all = append(all, bound("IF a value of a wrong length", "INVALID MUSIC_SYNTAX", held+"?", 0, one(text("x")))...)
	all = append(all, bound("IF unset", "INVALID", held+"?", 4, one(primitive.NewUnsetValue()))...)
	all = append(all, bound("IF in no list", "INVALID MUSIC_SYNTAX", list, 0, one(text("\x00\x00\x00\x09x")))...)
	return append(all, bound("IF in null", "INVALID", list, 0, one(primitive.NewNullValue()))...)
}

// reversed returns the texts in reverse order.
func reversed(texts []string) []string {
	all := slices.Clone(texts)
	slices.Reverse(all)
	return all
}

// forgedPages returns requests for a further page of a FOR UPDATE that never was.
func forgedPages() []attempt {
	var all []attempt
	for i, state := range []string{"", "\x00", "\x00\x00\x00\x00\x00\x00\x00\x07", strings.Repeat("\x7f", 16), strings.Repeat("\x00", 40), "\xff\xff\xff\xff\xff\xff\xff\xff"} {
		all = append(all, attempt{fmt.Sprintf("forged page %d", i), "MUSIC_NOT_HELD MUSIC_LOST MUSIC_SYNTAX INVALID PROTOCOL", 0, func(b *attacker) *failure {
			o := b.options(nil)
			o.PagingState, o.PageSize = []byte(state), 1
			_, f := b.ask(&message.Query{Query: b.fixture.expand("SELECT * FROM $KS.accounts WHERE branch = 'zurich' FOR UPDATE"), Options: o})
			return f
		}})
	}
	return all
}
