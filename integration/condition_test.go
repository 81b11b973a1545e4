package integration

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// conditionalWrite is one conditional write, on either table.
type conditionalWrite struct {
	before, behind string // the text before and after USING LOCK
	ttl            string // the time to live, if it has one
	values         []any  // all of them behind that place, or none
	insert         bool
}

// on returns the statement on a table, under a reference if there is one.
func (t conditionalWrite) on(table string, ref int64) statement {
	var clauses []string
	if ref > 0 {
		clauses = append(clauses, fmt.Sprintf("LOCK %d", ref))
	}
	if t.ttl != "" {
		clauses = append(clauses, "TTL "+t.ttl)
	}
	using := strings.Join(clauses, " AND ")
	if using != "" {
		using = " USING " + using
	}
	if t.insert {
		return statement{cql: strings.ReplaceAll(t.before+t.behind+using, "TABLE", table), values: t.values}
	}
	return statement{cql: strings.ReplaceAll(t.before+using+t.behind, "TABLE", table), values: t.values}
}

// conditionGenerator makes up conditional writes.
type conditionGenerator struct {
	*rand.Rand
	bound bool
}

// triedColumns returns columns with some literals each, which are often equal and not always
// spelled alike.
func triedColumns() [][]string {
	return [][]string{
		{"a", "1", "2", "-3", "2147483647", "null"},
		{"b", "1", "-9223372036854775808", "9223372036854775807", "null"},
		{"s", "1", "-2", "null"},
		{"y", "0", "-128", "null"},
		{"t", "'x'", "'y'", "''", "'ä'", "null"},
		{"n", "1.0", "1.00", "-0.5", "123456789012345678901234567890.5", "null"},
		{"v", "1", "-300", "123456789012345678901234567890", "null"},
		{"f", "1.5", "NaN", "Infinity", "0.0", "null"},
		{"g", "1.5", "-0.25", "NaN", "null"},
		{"u", "123e4567-e89b-42d3-a456-426614174000", "123e4567-e89b-42d3-a456-426614174001", "null"},
		{"w", "'2020-01-01Z'", "'1960-02-03 04:05:06+0000'", "null"},
		{"o", "true", "false", "null"},
		{"d", "'2020-01-01'", "'1950-12-31'", "null"},
		{"i", "'127.0.0.1'", "'::1'", "'10.0.0.7'", "null"},
		{"l", "0x", "0xff00", "0x01", "null"},
		{"h", "'12:00:00'", "'23:59:59.999999999'", "null"},
		{"m", "{'a': 1}", "{'a': 1, 'b': 2}", "{'b': 0}", "null"},
		{"e", "{1}", "{1, 2}", "{-3, 2}", "null"},
		{"li", "[1]", "[1, 2]", "[2, 1]", "null"},
		{"fl", "[1]", "[]", "[1, -2]", "null"},
		{"fm", "{'a': 1}", "{'a': 1, 'b': 2}", "null"},
		{"tp", "(1, 'x')", "(1, null)", "(2, 'a')", "null"},
		{"ud", "{f: 1, g: 'x'}", "{f: 2}", "{g: 'y'}", "null"},
		{"fu", "{f: 1, g: 'x'}", "{f: 1}", "null"},
		{"du", "1d2h", "30m", "null"},
		{"ve", "[1.5, -1]", "[1.5, 2]", "[0, 0]", "null"},
		{"vt", "['a', '']", "['a', 'b']", "null"},
	}
}

// triedParts returns conditions on parts of columns, and those that only collections have.
func triedParts() []string {
	return []string{
		"m['a'] = 1", "m['a'] != 1", "m['b'] IN (2, null)", "m['a'] >= 1", "m['nosuch'] = null", "fm['a'] = 1", "fm['b'] < 3", "li[0] = 1", "li[1] != 2", "li[1] IN (1, 2)",
		"fl[0] = 1", "fl[7] = null", "ud.f = 1", "ud.g != 'x'", "ud.f IN (1, 2)", "fu.f >= 1", "fu.g = null", "m CONTAINS 1", "m CONTAINS KEY 'b'", "e CONTAINS 2",
		"li CONTAINS 2", "fl CONTAINS 1", "fm CONTAINS KEY 'a'", "fm CONTAINS 2", "m = {}", "e != {}", "fl = []", "st = 1", "st != 1", "su = null", "ms['a'] = 1",
	}
}

// column returns a random column, and value one of its literals.
func (r conditionGenerator) column() []string { all := triedColumns(); return all[r.IntN(len(all))] }

// value returns a literal of a column, or now and then a function or a sum with the same value.
func (r conditionGenerator) value(column []string) string {
	literal, evaluated := column[1+r.IntN(len(column)-1)], ""
	switch {
	case literal == "null" || r.IntN(5) > 0:
	case column[0] == "a" && literal != "2147483647":
		evaluated = "3 + (" + literal + " - 3)"
	case slices.Contains([]string{"a", "b", "v"}, column[0]) && (len(literal) < 4 || column[0] == "a"):
		evaluated = "abs((" + map[string]string{"a": "int", "b": "bigint", "v": "varint"}[column[0]] + ") " + strings.TrimPrefix(literal, "-") + ")"
	case column[0] == "t":
		evaluated = literal + " + blobAsText(0x)"
	case column[0] == "l":
		evaluated = "intAsBlob(" + fmt.Sprint(r.IntN(3)) + ")"
	case column[0] == "d":
		evaluated = "toDate(minTimeuuid(" + strings.TrimSuffix(literal, "'") + "Z'))"
	case column[0] == "w":
		evaluated = "toTimestamp(maxTimeuuid(" + literal + "))"
	}
	return cmp.Or(evaluated, literal)
}

// condition returns a condition. A comparison with null by < or > is never one of several: whether
// Cassandra evaluates it, and then refuses it, depends on chance.
func (r conditionGenerator) condition() string { return r.conditions(1 + r.IntN(2)) }

// conditions returns n of them.
func (r conditionGenerator) conditions(n int) string {
	var all []string
	for range n {
		column := r.column()
		if r.IntN(4) == 0 {
			all = append(all, triedParts()[r.IntN(len(triedParts()))])
			continue
		}
		switch sign := []string{"=", "!=", "<", "<=", ">", ">=", "IN", "="}[r.IntN(8)]; {
		case sign == "IN":
			all = append(all, fmt.Sprintf("%s IN (%s, %s)", column[0], r.value(column), r.value(column)))
		case strings.ContainsAny(sign, "<>") && (column[0] == "du" || n > 1):
			all = append(all, column[0]+" = "+column[1])
		default:
			all = append(all, column[0]+" "+sign+" "+r.value(column))
		}
	}
	return strings.Join(all, " AND ")
}

// next returns a conditional write on one of a few rows, in some with a time to live that lasts
// longer than the test.
func (r conditionGenerator) next() conditionalWrite {
	w := r.write()
	if (w.insert || strings.HasPrefix(w.before, "UPDATE")) && r.IntN(8) == 0 {
		w.ttl = []string{"0", "90000"}[r.IntN(2)]
	}
	return w
}

// write returns a conditional write without a time to live.
func (r conditionGenerator) write() conditionalWrite {
	row := fmt.Sprintf(" WHERE k = 'key' AND c = %d", r.IntN(3))
	column := r.column()
	switch r.IntN(18) {
	case 17:
		return r.keyTrial()
	case 15, 16:
		return conditionalWrite{before: "UPDATE TABLE", behind: " SET " + r.additions() + row + []string{" IF EXISTS", " IF a != 77 AND " + r.conditions(2)}[r.IntN(2)]}
	case 0, 1:
		other := r.column()
		if other[0] == column[0] {
			return conditionalWrite{before: "INSERT INTO TABLE (c, k) VALUES (" + fmt.Sprint(r.IntN(3)) + ", 'key') IF NOT EXISTS", insert: true}
		}
		return conditionalWrite{before: fmt.Sprintf("INSERT INTO TABLE (k, c, %s, %s) VALUES ('key', %d, %s, %s) IF NOT EXISTS", column[0], other[0], r.IntN(3), r.value(column), r.value(other)), insert: true}
	case 2:
		return conditionalWrite{before: "DELETE FROM TABLE", behind: row + " IF EXISTS"}
	case 3:
		return conditionalWrite{before: "DELETE " + column[0] + " FROM TABLE", behind: row + " IF " + r.condition()}
	case 4:
		return conditionalWrite{before: "UPDATE TABLE", behind: " SET " + column[0] + " = " + r.value(column) + row + " IF EXISTS"}
	case 5:
		return r.boundTrial()
	case 6:
		static := fmt.Sprintf(" WHERE k = 'key' IF st %s %d", []string{"=", "!=", "<"}[r.IntN(3)], r.IntN(3))
		if r.IntN(3) == 0 {
			return conditionalWrite{before: "DELETE st FROM TABLE", behind: static}
		}
		return conditionalWrite{before: "UPDATE TABLE", behind: fmt.Sprintf(" SET st = %d", r.IntN(3)) + strings.Replace(static, "= 0", "= null", 1)}
	case 7:
		return r.staticTrial()
	case 8, 9, 10:
		return r.batch()
	}
	return conditionalWrite{before: "UPDATE TABLE", behind: " SET " + column[0] + " = " + r.value(column) + row + " IF " + r.condition()}
}

// keyTrial returns a write whose key is evaluated or given by IN.
func (r conditionGenerator) keyTrial() conditionalWrite {
	row := " WHERE k = " + []string{"'key'", "(text) 'key'", "'key' + ''", "blobAsText(textAsBlob('key'))"}[r.IntN(4)] + []string{" AND c = 1", " AND c = 3 - 2", " AND c = abs(-2)"}[r.IntN(3)]
	if r.IntN(3) == 0 {
		row = fmt.Sprintf(" WHERE k IN ('key') AND c IN (%d)", r.IntN(3))
	}
	if r.IntN(4) == 0 {
		return conditionalWrite{before: "DELETE a FROM TABLE", behind: row + " IF " + r.condition()}
	}
	return conditionalWrite{before: "UPDATE TABLE", behind: " SET a = 1 + 1, tp = (1, 'x')" + row + " IF " + []string{"EXISTS", r.condition()}[r.IntN(2)]}
}

// additions add to some columns, each once.
func (r conditionGenerator) additions() string {
	all := []string{
		"a = a + 1", "a += 2147483647", "b = b + -7", "b = b -9223372036854775807", "s += 32767", "y = y + 100", "t += 'z'", "n = n + 0.25", "n += -1", "v += 123456789012345678901234567890",
		"v = v + -5", "f = f + 0.5", "g += 0.1", "li = li + [3]", "m += {'c': 3}", "o = true",
	}
	var some []string
	for _, i := range r.Perm(len(all))[:1+r.IntN(3)] {
		if !strings.Contains(strings.Join(some, ", "), all[i][:2]) {
			some = append(some, all[i])
		}
	}
	return strings.Join(some, ", ")
}

// staticTrial returns a write of static columns, with a row or alone.
func (r conditionGenerator) staticTrial() conditionalWrite {
	row := fmt.Sprintf(" WHERE k = 'key' AND c = %d", r.IntN(5))
	return []conditionalWrite{
		{before: fmt.Sprintf("INSERT INTO TABLE (k, c, a, st) VALUES ('key', %d, 1, %d) IF NOT EXISTS", r.IntN(5), r.IntN(3)), insert: true},
		{before: fmt.Sprintf("INSERT INTO TABLE (k, su) VALUES ('key', %d) IF NOT EXISTS", r.IntN(3)), insert: true},
		{before: "UPDATE TABLE", behind: " SET st = 1, a = 2" + row + " IF EXISTS"},
		{before: "UPDATE TABLE", behind: " SET st = 2, a = 3" + row + " IF su = 1"},
		{before: "UPDATE TABLE", behind: " SET a = 3" + row + " IF st = 1 AND a != 7"},
		{before: "UPDATE TABLE", behind: " SET su = 1 WHERE k = 'key' IF EXISTS"},
		{before: "UPDATE TABLE", behind: " SET su = su + 1, st += 2 WHERE k = 'key' IF su != 7"},
		{before: "UPDATE TABLE", behind: " SET st = st + 3, a = a + 1" + row + " IF EXISTS"},
		{before: "UPDATE TABLE", behind: " SET st = st + 3, a = 5" + row + " IF a != 4"},
		{before: "UPDATE TABLE", behind: " SET ms = {'a': 1} WHERE k = 'key' IF ms['a'] = null"},
		{before: "DELETE st, su FROM TABLE", behind: " WHERE k = 'key' IF st != 2"},
	}[r.IntN(11)]
}

// batch returns a batch of several statements, at least one of them with a condition. It may delete
// what it writes.
func (r conditionGenerator) batch() conditionalWrite {
	var all []string
	for i := range 1 + r.IntN(4) {
		all = append(all, r.child(i == 0))
	}
	return conditionalWrite{before: "BEGIN BATCH", behind: " " + strings.Join(all, "; ") + "; APPLY BATCH"}
}

// child returns a statement of a batch.
func (r conditionGenerator) child(conditional bool) string {
	row := fmt.Sprintf(" WHERE k = 'key' AND c = %d", r.IntN(3))
	column := r.column()
	set := "UPDATE TABLE SET " + column[0] + " = " + r.value(column) + row
	switch n := r.IntN(9); {
	case n == 0:
		return "UPDATE TABLE SET " + r.additions() + row + " IF a != 77 AND " + r.conditions(2)
	case n < 3:
		return set + " IF " + r.conditions(2)
	case n == 3:
		return fmt.Sprintf("INSERT INTO TABLE (k, c, a) VALUES ('key', %d, 1) IF NOT EXISTS", r.IntN(3))
	case n == 4:
		return set + " IF EXISTS"
	case n == 5:
		return fmt.Sprintf("UPDATE TABLE SET st = %d WHERE k = 'key' IF st != %d", r.IntN(3), r.IntN(3))
	case conditional:
		return fmt.Sprintf("DELETE FROM TABLE WHERE k = 'key' AND c = %d IF EXISTS", r.IntN(5))
	case n == 6:
		return r.deletion()
	}
	return set
}

// deletion returns a deletion of a row, of several rows, of a column, or of the whole partition
// except the row that must stay.
func (r conditionGenerator) deletion() string {
	switch r.IntN(4) {
	case 0:
		return fmt.Sprintf("DELETE FROM TABLE WHERE k = 'key' AND c >= %d AND c < 5", r.IntN(5))
	case 1:
		return "DELETE FROM TABLE WHERE k = 'key'; INSERT INTO TABLE (k, c) VALUES ('key', -1)"
	case 2:
		return fmt.Sprintf("DELETE a, m, li FROM TABLE WHERE k = 'key' AND c = %d", r.IntN(3))
	}
	return fmt.Sprintf("DELETE FROM TABLE WHERE k = 'key' AND c = %d", r.IntN(5))
}

// boundTrial returns a write with bound values.
func (r conditionGenerator) boundTrial() conditionalWrite {
	if !r.bound {
		return r.write()
	}
	c := r.IntN(3)
	return []conditionalWrite{
		{before: "INSERT INTO TABLE (k, c, a, t) VALUES (?, ?, ?, ?) IF NOT EXISTS", values: []any{"key", c, 1, "x"}, insert: true},
		{before: "UPDATE TABLE", behind: " SET a = ?, t = ? WHERE k = ? AND c = ? IF a = ? AND t != ?", values: []any{2, "y", "key", c, 1, "z"}},
		{before: "UPDATE TABLE", behind: " SET b = ? WHERE c = ? AND k = ? IF a IN ? AND a > ?", values: []any{int64(1), c, "key", []int{1, 2}, 0}},
		{before: "UPDATE TABLE", behind: " SET a = a + ?, t += ?, b = ? WHERE c = ? AND k = ? IF a IN ?", values: []any{7, "w", int64(3), c, "key", []int{1, 2, 8}}},
		{before: "UPDATE TABLE", behind: " SET b = ? WHERE c = ? AND k = ? IF t IN (?, ?)", values: []any{int64(7), c, "key", "x", "y"}},
		{before: "DELETE FROM TABLE", behind: " WHERE k = ? AND c = ? IF a >= ?", values: []any{"key", c, 2}},
		{before: "UPDATE TABLE", behind: " SET b = ? WHERE c = ? AND k = ? IF m[?] = ? AND e = ?", values: []any{int64(7), c, "key", "a", 1, []int{2, 1}}},
		{before: "UPDATE TABLE", behind: " SET m = ? WHERE c = ? AND k = ? IF li[?] IN ? AND fl = ?", values: []any{map[string]int{"b": 2, "a": 1}, c, "key", 0, []int{1, 2}, []int{1}}},
		{before: "UPDATE TABLE", behind: " SET e = ? WHERE c = ? AND k = ? IF m = ? AND ud.f != ?", values: []any{[]int{1}, c, "key", map[string]int{"b": 2, "a": 1}, 1}},
		{before: "BEGIN BATCH", behind: " UPDATE TABLE SET a = ? WHERE k = ? AND c = ? IF t = ?; DELETE a FROM TABLE WHERE k = ? AND c = ?; UPDATE TABLE SET st = ? WHERE k = ?; APPLY BATCH", values: []any{1, "key", c, "x", "key", 2, 1, "key"}},
		{before: "BEGIN BATCH", behind: " INSERT INTO TABLE (k, c, a) VALUES (?, ?, ?) IF NOT EXISTS; UPDATE TABLE SET b = ? WHERE k = ? AND c = ? IF e CONTAINS ?; APPLY BATCH", values: []any{"key", c, 3, int64(1), "key", c + 1, 2}},
		{before: "UPDATE TABLE", behind: " SET tp = (?, ?), ud = {f: ?}, ve = [?, ?] WHERE k = ? AND c = ? IF tp != (?, 'x') AND ud != {g: ?, f: 2}", values: []any{1, "x", 2, float32(1.5), float32(2), "key", c, r.IntN(3), "y"}},
		{before: "INSERT INTO TABLE (k, c, tp, fu) VALUES (?, ?, (?, 'a'), {f: ?, g: 'x'}) IF NOT EXISTS", values: []any{"key", c, 2, 1}, insert: true},
		{before: "UPDATE TABLE", behind: " SET a = a + ((int) ? - 1) WHERE k = blobAsText(?) AND c = (int) ? IF ve IN ([?, 2], [1.5, ?], null)", values: []any{3, []byte("key"), c, float32(1.5), float32(-1)}},
	}[r.IntN(14)]
}

// If one client is alone, its conditional writes are answered, and change its rows, as Cassandra's
// own lightweight transactions: under a lock and with a section for each, and with every driver
// that shows answers whole.
func TestConditionsUnderALockAnswerLikeLightweightTransactions(t *testing.T) {
	for n, d := range []driver{withGocql2(3, ""), withGocql2(4, "+lz4"), withGocql2(5, ""), withPython(), withCqlsh(), withGocql2(4, ""), withPython()} {
		auto := n > 4
		t.Run(fmt.Sprintf("%s, auto %v", d.name, auto), func(t *testing.T) {
			s := newTableFixtureFor(t, d)
			comment, tries := "@critical(lease=10m)", 250
			if auto {
				comment, tries = "@critical(unlocked=auto)", 100
			}
			s.makeTwins(comment)
			direct := d.open(t, needEnvironment(t).direct(), s.keyspace)
			ref := int64(0)
			if !auto {
				ref = s.grant(s.works(s.client, "LOCK "+s.keyspace+".locked WHERE k = 'key' LEASE 10m"), "HELD")
			}
			// A row with a marker shows in whatever is asked of the partition; one without may not, which CQL cannot tell.
			require.NoError(t, direct.run(statement{cql: "INSERT INTO " + s.keyspace + ".twin (k, c) VALUES ('key', -1)"}).err())
			require.NoError(t, s.client.run(conditionalWrite{before: "INSERT INTO TABLE (k, c) VALUES ('key', -1)", insert: true}.on(s.keyspace+".locked", ref)).err())
			r := conditionGenerator{rand.New(rand.NewPCG(7, uint64(n))), d.bound}
			applied := 0
			for i := range tries {
				x := r.next()
				want := direct.run(x.on(s.keyspace+".twin", 0))
				got := s.client.run(x.on(s.keyspace+".locked", ref))
				want.warnings, got.warnings = nil, nil
				require.Equal(t, want.String(), strings.ReplaceAll(got.String(), "locked", "twin"), "%d: %v", i, x.on("twin", 0))
				if told(got, "[applied]") == "true" {
					applied++
				}
				if i%50 == 49 {
					read := "SELECT * FROM " + s.keyspace + ".%s WHERE k = 'key'"
					assert.Equal(t, direct.run(statement{cql: fmt.Sprintf(read, "twin")}).rows, s.client.run(statement{cql: fmt.Sprintf(read, "locked")}).rows, "%d", i)
				}
			}
			assert.True(t, applied > tries/6 && applied < tries*5/6, "%d of %d were applied: both outcomes have been seen", applied, tries)
		})
	}
}

// Rows of a batch are found, and returned, by keys of several columns in any order and spelling.
func TestConditionsOnRowsOfLongKeys(t *testing.T) {
	s := newTableFixture(t, "section_long", "@critical")
	const columns = " (z text, b int, y decimal, a timestamp, v int, PRIMARY KEY ((z, b), y, a)) WITH CLUSTERING ORDER BY (y DESC, a ASC)"
	s.works(s.client, "CREATE TABLE "+s.keyspace+".locked"+columns+" AND comment = '@critical'")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".twin"+columns)
	ref := s.grant(s.works(s.client, "LOCK "+s.keyspace+".locked WHERE b = 1 AND z = 'k'"), "HELD")
	row := func(y, a string) string { return " WHERE z = 'k' AND a = " + a + " AND b = 1 AND y = " + y }
	first, second, third := row("1.0", "'2020-01-01 00:00:00+0000'"), row("1.00", "'2021-01-01T00:00:00Z'"), row("-2", "0")
	for i, batch := range []string{
		"UPDATE TABLE SET v = 1" + first + "; UPDATE TABLE SET v = 2" + second + " IF v = null; UPDATE TABLE SET v = 3" + third + " IF v != 7",
		"UPDATE TABLE SET v = 9" + third + " IF v = 3; UPDATE TABLE SET v = 9" + first + " IF v = 1; UPDATE TABLE SET v = 9" + second + " IF v = 5",
		"DELETE FROM TABLE" + third + " IF EXISTS; UPDATE TABLE SET v = 9" + row("1", "1577836800000") + " IF v = 1",
		"INSERT INTO TABLE (z, b, y, a) VALUES ('k', 1, 1.000, '2020-01-01T00:00:00.000Z') IF NOT EXISTS; UPDATE TABLE SET v = 9" + second + " IF v = 2",
	} {
		want := s.do(s.client, strings.ReplaceAll("BEGIN BATCH "+batch+"; APPLY BATCH", "TABLE", s.keyspace+".twin"))
		got := s.do(s.client, strings.ReplaceAll(fmt.Sprintf("BEGIN BATCH USING LOCK %d %s; APPLY BATCH", ref, batch), "TABLE", s.keyspace+".locked"))
		require.NoError(t, got.err())
		assert.Equal(t, want.String(), got.String(), "%d", i)
		assert.Equal(t, []string{"true", "false", "true", "false"}[i], got.rows[0][0])
	}
	read := "SELECT * FROM " + s.keyspace + "."
	assert.Equal(t, s.do(s.client, read+"twin").rows, s.do(s.client, read+"locked").rows)
}

// Conditional writes of one holder are executed one after another: of many with the same condition,
// one is applied.
func TestConditionsOfOneHolderDoNotOvertake(t *testing.T) {
	s := newTableFixture(t, "section_turns", "@critical(lease=5m)")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 5m"), "HELD")
	s.works(s.client, fmt.Sprintf("INSERT INTO ACCOUNTS (branch, id, balance) VALUES ('b', 'x', 0) USING LOCK %d", ref))
	const writers, rounds = 8, 10
	for round := range rounds {
		var all taskGroup
		applied := make(chan bool, writers)
		for range writers {
			all.Go(func() error {
				o, err := s.must(s.client, "UPDATE ACCOUNTS USING LOCK %d SET balance = %d WHERE branch = 'b' AND id = 'x' IF balance = %d", ref, round+1, round)
				if err == nil && o.rows[0][0] == "true" {
					applied <- true
				}
				return err
			})
		}
		require.NoError(t, all.Wait())
		assert.Len(t, applied, 1)
	}
	s.inWindow("b", "x", ref, rounds)
}

// Conditions that the proxy does not evaluate are refused, and nothing is written; a lock that is
// not held does not permit a conditional write either.
func TestConditionsThatAreNotServed(t *testing.T) {
	s := newTableFixture(t, "section_conditions", "@critical(lease=5m)")
	s.works(s.client, "CREATE TYPE pair (f int, g text)")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".rich (k text, c int, v int, m map<text, int>, l list<int>, u pair, ve vector<date, 1>, st int static, PRIMARY KEY (k, c)) WITH comment = '@critical'")
	ref := s.grant(s.works(s.client, "LOCK ACCOUNTS WHERE branch = 'b' LEASE 5m"), "HELD")
	rich := s.grant(s.works(s.client, "LOCK "+s.keyspace+".rich WHERE k = 'b'"), "HELD")
	for cql, prefix := range map[string]string{
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF m['a'] = token('x')":                                                               "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF v = 1 AND (v) = (1)":                                                               "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF ve = ['2020-01-01']":                                                               "MUSIC_REFUSED",
		"DELETE FROM RICH USING LOCK %d WHERE k = 'b' IF EXISTS":                                                                                           "MUSIC_REFUSED",
		"BEGIN BATCH USING LOCK %d UPDATE RICH SET v = 1 WHERE k = 'b' AND c = 1 IF v = null; DELETE FROM RICH WHERE k = 'b' AND (c) = (2) APPLY BATCH":    "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c IN (1, 2) IF v = 1":                                                                       "IN on the clustering key columns is not supported with conditional updates",
		"UPDATE RICH USING LOCK %d SET v = v + 1, v += 1 WHERE k = 'b' AND c = 1 IF v = null":                                                              "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = v + 1 WHERE k = 'b' AND c = 1 IF st = null":                                                                     "MUSIC_REFUSED",
		"UPDATE RICH USING LOCK %d SET v = v + 1 WHERE k = 'b' AND c = 1":                                                                                  "Invalid operation (v = v + 1)",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF nosuch = 1":                                                                        "Undefined column name nosuch",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF v = 'text'":                                                                        "Invalid STRING constant",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF v < null":                                                                          "Invalid comparison with null for operator",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF m > {}":                                                                            "Invalid comparison with an empty MAP for operator",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF l[-1] = 1":                                                                         "Invalid negative list index -1",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF m[null] = 1":                                                                       "Invalid null value for map element access",
		"UPDATE RICH USING LOCK %d SET v = 1 WHERE k = 'b' AND c = 1 IF u.nosuch = 1":                                                                      "Unknown field nosuch for column u",
		"BEGIN BATCH USING LOCK %d UPDATE RICH SET v = 1 WHERE k = 'b' AND c IN (1, 2); DELETE FROM RICH WHERE k = 'b' AND c = 3 IF EXISTS; APPLY BATCH":   "IN on the clustering key columns is not supported with conditional updates",
		"BEGIN BATCH USING LOCK %d INSERT INTO RICH (k, c) VALUES ('b', 3) IF NOT EXISTS; DELETE FROM RICH WHERE k = 'b' AND c = 3 IF EXISTS; APPLY BATCH": "Cannot mix IF EXISTS and IF NOT EXISTS conditions for the same row",
	} {
		o := s.do(s.client, fmt.Sprintf(strings.ReplaceAll(cql, "RICH", s.keyspace+".rich"), rich))
		require.NotNil(t, o.failure, cql)
		assert.True(t, strings.HasPrefix(o.failure.text, prefix) && o.failure.code == 0x2200, "%s: %v", cql, o)
	}
	s.refused(s.client, "MUSIC_NOT_HELD", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'b' AND id = 'x' IF balance = null", ref+1))
	s.refused(s.client, "MUSIC_UNLOCKED", "UPDATE ACCOUNTS SET balance = 1 WHERE branch = 'b' AND id = 'x' IF balance = null")
	s.works(s.client, fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 1 WHERE branch = 'b' AND id = 'x' IF balance = null", ref))
	s.inWindow("b", "x", ref, 1)
	s.works(s.client, fmt.Sprintf("UNLOCK ACCOUNTS WHERE branch = 'b' USING LOCK %d", ref))
	s.refused(s.client, "MUSIC_LOST", fmt.Sprintf("UPDATE ACCOUNTS USING LOCK %d SET balance = 2 WHERE branch = 'b' AND id = 'x' IF balance = 1", ref))
}

// A table without clustering columns has its row deleted with the partition: what a batch with IF writes beside that is there, as with
// Cassandra.
func TestABatchDeletesAPartitionAndWritesIt(t *testing.T) {
	s := newTableFixture(t, "section_rewritten", "@critical(unlocked=auto)")
	const columns = " (k text PRIMARY KEY, a int, b int)"
	s.works(s.client, "CREATE TABLE "+s.keyspace+".locked"+columns+" WITH comment = '@critical(unlocked=auto)'")
	s.works(s.client, "CREATE TABLE "+s.keyspace+".twin"+columns)
	for i, batch := range []string{
		"INSERT INTO TABLE (k, a, b) VALUES ('k', 1, 1) IF NOT EXISTS",
		"DELETE FROM TABLE WHERE k = 'k'; UPDATE TABLE SET a = 2 WHERE k = 'k' IF b = 1",
		"DELETE FROM TABLE WHERE k = 'k' IF EXISTS; INSERT INTO TABLE (k, b) VALUES ('k', 7)",
		"DELETE FROM TABLE WHERE k = 'k'; UPDATE TABLE SET a = 2 WHERE k = 'k' IF b = 1",
		"DELETE b FROM TABLE WHERE k = 'k' IF b = 7; UPDATE TABLE SET b = 3 WHERE k = 'k'",
	} {
		var shown [2]string
		for j, table := range []string{"locked", "twin"} {
			o := s.do(s.client, strings.ReplaceAll("BEGIN BATCH "+batch+"; APPLY BATCH", "TABLE", s.keyspace+"."+table))
			require.NoError(t, o.err(), batch)
			shown[j] = strings.ReplaceAll(o.String(), "locked", "twin") + fmt.Sprint(s.do(s.client, "SELECT * FROM "+s.keyspace+"."+table).rows)
		}
		assert.Equal(t, shown[1], shown[0], "%d: %s", i, batch)
	}
}
