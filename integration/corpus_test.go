package integration

import (
	"strings"
	"time"
)

// uuid and span are values for which each driver has a type of its own.
type (
	uuid [16]byte
	span struct {
		months, days int32
		nanoseconds  int64
	}
)

// cqlType is one CQL type with a literal and, where Go has one for it, a value to bind.
type cqlType struct {
	cql, literal string
	bound        any
}

// cqlTypes returns all types that a column may have.
func cqlTypes() []cqlType {
	id := uuid{0x5b, 0x64, 0x78, 0x70, 0x5c, 0x5b, 0x11, 0xef, 0x9d, 0x6e, 0x02, 0x42, 0xac, 0x12, 0x00, 0x02}
	const idText = "5b647870-5c5b-11ef-9d6e-0242ac120002"
	moment := time.Date(2024, 2, 29, 12, 34, 56, 789e6, time.UTC)
	return []cqlType{
		{"ascii", "'plain'", "bound"},
		{"bigint", "-9223372036854775808", int64(1) << 62},
		{"blob", "0x00ff", []byte{0, 1, 2, 0xff}},
		{"boolean", "true", false},
		{"date", "'2024-02-29'", moment.Truncate(24 * time.Hour)},
		{"decimal", "-123456789012345678901234567890.123456789", nil},
		{"double", "1.7976931348623157E308", -0.1},
		{"duration", "1y2mo3d4h5m6s7ms", span{1, -0, 3_000_000_000}},
		{"float", "3.4E38", float32(-0.5)},
		{"inet", "'2001:db8::1'", "192.0.2.1"},
		{"int", "-2147483648", 2147483647},
		{"smallint", "-32768", int16(32767)},
		{"text", "'Zürich ''quoted'' \U0001F512'", "gebunden \x00 Ü"},
		{"time", "'23:59:59.999999999'", 12 * time.Hour},
		{"timestamp", "'2024-02-29T12:34:56.789Z'", moment},
		{"timeuuid", idText, id},
		{"tinyint", "-128", int8(127)},
		{"uuid", idText, id},
		{"varchar", "$$dollar 'quoted'$$", ""},
		{"varint", "-99999999999999999999999999", 42},
		{"list<int>", "[3, 1, 2]", []int{1, 1, 2}},
		{"set<text>", "{'b', 'a'}", []string{"x", "y"}},
		{"map<text, bigint>", "{'a': 1, 'b': 2}", map[string]int64{"c": 3}},
		{"frozen<list<frozen<set<int>>>>", "[{1, 2}, {}]", [][]int{{3}, {1, 2}}},
		{"tuple<int, text, boolean>", "(1, null, false)", nil},
		{"frozen<address>", "{street: 'Rämistrasse', number: 101}", map[string]any{"street": "Seefeld", "number": 1}},
		{"address", "{street: null, number: 7}", map[string]any{"street": "Seefeld", "number": 1}},
		{"map<int, frozen<map<text, frozen<tuple<int, int>>>>>", "{1: {'a': (1, 2)}}", nil},
	}
}

// columnOf returns the name of the i-th type's column.
func columnOf(i int) string { return "c" + string(rune('a'+i/10)) + string(rune('0'+i%10)) }

// typeStatements returns statements that write and read one column of every type, by literal and
// bound.
func typeStatements() []statement {
	columns, names, literals := []string{"k text PRIMARY KEY"}, []string{"k"}, []string{"'literal'"}
	var bound []statement
	for i, k := range cqlTypes() {
		column := columnOf(i)
		columns = append(columns, column+" "+k.cql)
		names, literals = append(names, column), append(literals, k.literal)
		if k.bound != nil {
			bound = append(bound, statement{
				name: "bind " + k.cql, cql: "UPDATE kinds SET " + column + " = ? WHERE k = ?", values: []any{k.bound, "bound"},
			})
		}
		if strings.Contains(k.cql, "tuple") || strings.Contains(k.cql, "address") {
			continue // the Go drivers cannot bind a null of these
		}
		bound = append(bound, statement{name: "bind null " + k.cql, cql: "UPDATE kinds SET " + column + " = ? WHERE k = ?", values: []any{nil, "null"}})
	}
	all := []statement{
		{name: "type", cql: "CREATE TYPE address (street text, number int)"},
		{name: "table of all types", cql: "CREATE TABLE kinds (" + strings.Join(columns, ", ") + ")"},
		{name: "insert all types", cql: "INSERT INTO kinds (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(literals, ", ") + ")"},
	}
	all = append(all, bound...)
	return append(all,
		statement{name: "null row", cql: "INSERT INTO kinds (k) VALUES ('null')"},
		statement{name: "select all types", cql: "SELECT * FROM kinds WHERE k = 'literal'"},
		statement{name: "select bound types", cql: "SELECT * FROM kinds WHERE k = 'bound'"},
		statement{name: "select nulls", cql: "SELECT * FROM kinds WHERE k = 'null'"},
		statement{name: "select prepared", cql: "SELECT * FROM kinds WHERE k = ?", values: []any{"literal"}},
		statement{name: "select JSON", cql: "SELECT JSON * FROM kinds WHERE k = 'literal'"},
		statement{name: "functions", cql: "SELECT toJson(" + columnOf(0) + "), count(*), cast(" + columnOf(10) + " AS text) FROM kinds WHERE k = 'literal'"},
	)
}

// plainStatements returns ordinary CQL on small tables, in an order that makes sense.
func plainStatements() []statement {
	return []statement{
		{name: "create", cql: "CREATE TABLE t (k int, c int, v text, s text static, l list<int>, m map<text, int>, PRIMARY KEY (k, c)) WITH comment = 'not critical'"},
		{name: "create again", cql: "CREATE TABLE t (k int PRIMARY KEY)", fails: true},
		{name: "create if not exists", cql: "CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)"},
		{name: "index", cql: "CREATE INDEX t_v ON t (v)"},
		{name: "alter", cql: "ALTER TABLE t ADD w bigint"},
		{name: "counters", cql: "CREATE TABLE n (k int PRIMARY KEY, n counter)"},
		{name: "odd names", cql: `CREATE TABLE "Lock" ("select" int PRIMARY KEY, lock text, unlock text, wait int)`},

		{name: "insert", cql: "INSERT INTO t (k, c, v, s) VALUES (1, 1, 'a', 'static') USING TIMESTAMP 1000"},
		{name: "insert bound", cql: "INSERT INTO t (k, c, v, w) VALUES (?, ?, ?, ?)", values: []any{1, 2, "b", int64(5)}},
		{name: "insert with frame timestamp", cql: "INSERT INTO t (k, c, v) VALUES (1, 3, 'c')", stamp: 2000},
		{name: "insert JSON", cql: `INSERT INTO t JSON '{"k": 2, "c": 1, "v": "json", "m": {"x": 1}}'`},
		{name: "unset", cql: "INSERT INTO t (k, c, v) VALUES (?, ?, ?) USING TIMESTAMP 3000", values: []any{1, 1, unset{}}, least: 4},
		{name: "null", cql: "INSERT INTO t (k, c, v) VALUES (?, ?, ?)", values: []any{3, 1, nil}},
		{name: "named", cql: "INSERT INTO t (k, c, v) VALUES (:key, :row, :text)", values: []any{named{"row", 1}, named{"key", 4}, named{"text", "n"}}},
		{name: "update", cql: "UPDATE t USING TIMESTAMP 4000 SET v = 'a2', l = [1, 2], m = {'a': 1} WHERE k = 1 AND c = 1"},
		{name: "append", cql: "UPDATE t USING TIMESTAMP 5000 SET l = l + [3], m['b'] = 2 WHERE k = 1 AND c = 1"},
		{name: "TTL", cql: "INSERT INTO t (k, c, v) VALUES (5, 1, 'ttl') USING TTL 86400 AND TIMESTAMP 10"},
		{name: "words of ours", cql: `INSERT INTO "Lock" ("select", lock, unlock, wait) VALUES (1, 'LOCK x WHERE', 'USING LOCK 3', 5)`},
		{name: "comments", cql: "/* LOCK */ SELECT -- USING LOCK\n lock, wait FROM \"Lock\" // end\n WHERE \"select\" = 1;"},

		{name: "select", cql: "SELECT * FROM t WHERE k = 1"},
		{name: "select bound", cql: "SELECT v, w FROM t WHERE k = ? AND c IN ?", values: []any{1, []int{1, 2}}},
		{name: "writetime", cql: "SELECT c, v, writetime(v), ttl(v) FROM t WHERE k = 1 AND c = 1"},
		{name: "order and limit", cql: "SELECT c FROM t WHERE k = 1 ORDER BY c DESC LIMIT 2"},
		{name: "index lookup", cql: "SELECT k FROM t WHERE v = 'b'"},
		{name: "filtering", cql: "SELECT k FROM t WHERE w = 5 ALLOW FILTERING"},
		{name: "token", cql: "SELECT token(k), k FROM t WHERE token(k) > 0"},
		{name: "aggregate", cql: "SELECT count(*), max(c), min(v) AS low FROM t GROUP BY k"},
		{name: "distinct", cql: "SELECT DISTINCT k, s FROM t"},
		{name: "no rows", cql: "SELECT * FROM t WHERE k = 99"},
		{name: "serial read", cql: "SELECT v FROM t WHERE k = 1 AND c = 1", level: "SERIAL"},
		{name: "all", cql: "SELECT v FROM t WHERE k = 1 AND c = 1", level: "ALL"},

		{name: "LWT insert", cql: "INSERT INTO t (k, c, v) VALUES (6, 1, 'lwt') IF NOT EXISTS"},
		{name: "LWT refused", cql: "INSERT INTO t (k, c, v) VALUES (6, 1, 'again') IF NOT EXISTS"},
		{name: "LWT update", cql: "UPDATE t SET v = ? WHERE k = ? AND c = ? IF v = ?", values: []any{"lwt2", 6, 1, "lwt"}},
		{name: "LWT update refused", cql: "UPDATE t SET v = ? WHERE k = ? AND c = ? IF v = ?", values: []any{"lwt3", 6, 1, "lwt"}},
		{name: "LWT delete", cql: "DELETE FROM t WHERE k = 6 AND c = 1 IF EXISTS"},

		{name: "count up", cql: "UPDATE n SET n = n + 5 WHERE k = 1"},
		{name: "count down bound", cql: "UPDATE n SET n = n - ? WHERE k = ?", values: []any{int64(2), 1}},
		{name: "counted", cql: "SELECT n FROM n WHERE k = 1"},
		{name: "batch text", cql: "BEGIN BATCH INSERT INTO t (k, c, v) VALUES (7, 1, 'x'); UPDATE t SET v = 'y' WHERE k = 7 AND c = 2; APPLY BATCH"},
		{name: "delete", cql: "DELETE v FROM t USING TIMESTAMP 6000 WHERE k = 1 AND c = 1"},
		{name: "delete range", cql: "DELETE FROM t WHERE k = ? AND c > ?", values: []any{7, 1}},
		{name: "after deletes", cql: "SELECT k, c, v, s FROM t WHERE k IN (1, 7)"},
		{name: "truncate", cql: "TRUNCATE n"},
		{name: "truncated", cql: "SELECT * FROM n"},
	}
}

// batchStatements returns BATCH messages of each kind.
func batchStatements() []statement {
	insert := func(k, c int, v string) statement {
		return statement{cql: "INSERT INTO t (k, c, v) VALUES (?, ?, ?)", values: []any{k, c, v}}
	}
	return []statement{
		{name: "logged batch", batch: logged, parts: []statement{insert(10, 1, "a"), {cql: "INSERT INTO t (k, c, v) VALUES (11, 1, 'text')"}, insert(12, 1, "b")}},
		{name: "unlogged batch", batch: unlogged, stamp: 7000, parts: []statement{insert(10, 2, "c"), insert(10, 3, "d")}},
		{name: "batched", cql: "SELECT k, c, v FROM t WHERE k IN (10, 11, 12)"},
		{name: "batch timestamp", cql: "SELECT writetime(v) FROM t WHERE k = 10 AND c = 2"},
		{name: "counter batch", batch: counters, parts: []statement{
			{cql: "UPDATE n SET n = n + ? WHERE k = ?", values: []any{int64(1), 20}}, {cql: "UPDATE n SET n = n + 7 WHERE k = 21"},
		}},
		{name: "counted in batch", cql: "SELECT k, n FROM n WHERE k IN (20, 21)"},
		{name: "mixed batch", batch: logged, parts: []statement{insert(13, 1, "a"), {cql: "UPDATE n SET n = n + 7 WHERE k = 21"}}, fails: true},
		{name: "batch with a bad child", batch: logged, parts: []statement{insert(13, 1, "a"), {cql: "INSERT INTO nosuch (k) VALUES (1)"}}, fails: true},
		{name: "nothing of it", cql: "SELECT * FROM t WHERE k = 13"},
		{name: "large batch", batch: unlogged, parts: []statement{insert(14, 1, strings.Repeat("x", 6000)), insert(15, 1, "y"), insert(16, 1, "z")}},
		{name: "warned in text", cql: "BEGIN UNLOGGED BATCH INSERT INTO t (k, c, v) VALUES (17, 1, '" + strings.Repeat("x", 6000) + "'); INSERT INTO t (k, c, v) VALUES (18, 1, 'y'); APPLY BATCH", least: 4},
	}
}

// errorStatements returns statements that Cassandra refuses, each in another way.
func errorStatements() []statement {
	all := []statement{
		{name: "syntax", cql: "SELEC * FROM t"},
		{name: "syntax in the middle", cql: "SELECT * FORM t"},
		{name: "invalid column", cql: "SELECT nosuch FROM t"},
		{name: "no such table", cql: "SELECT * FROM nosuch"},
		{name: "no such keyspace", cql: "SELECT * FROM nosuch.t"},
		{name: "no such table, prepared", cql: "SELECT * FROM nosuch WHERE k = ?", values: []any{1}},
		{name: "already exists", cql: "CREATE TYPE address (street text)"},
		{name: "missing key", cql: "INSERT INTO t (k, v) VALUES (1, 'a')"},
		{name: "filtering needed", cql: "SELECT * FROM t WHERE w = 6"},
		{name: "wrong type", cql: "INSERT INTO t (k, c) VALUES ('text', 1)"},
		{name: "custom timestamp in LWT", cql: "UPDATE t USING TIMESTAMP 1 SET v = 'a' WHERE k = 1 AND c = 1 IF EXISTS"},
		{name: "level of a write", cql: "INSERT INTO t (k, c) VALUES (1, 1)", level: "SERIAL"},
		{name: "nobody's DDL", cql: "DROP TABLE nosuch"},
		{name: "unavailable", cql: "SELECT * FROM lonely.t", level: "ALL"},
		{name: "unknown verb", cql: "CAMPAIGN t WHERE k = 1"},
		{name: "empty", cql: ""},
		{name: "too large a value for a key", cql: "INSERT INTO kinds (k) VALUES (?)", values: []any{strings.Repeat("k", 70000)}},
	}
	for i := range all {
		all[i].fails = true
	}
	return all
}

// pagingStatements returns statements that read many rows in pages of several sizes.
func pagingStatements() []statement {
	var all []statement
	all = append(all, statement{name: "many", cql: "CREATE TABLE many (k int, c int, v text, PRIMARY KEY (k, c))"})
	for i := range 25 {
		all = append(all, statement{name: "fill", cql: "INSERT INTO many (k, c, v) VALUES (?, ?, ?)", values: []any{i % 2, i, strings.Repeat("v", i)}})
	}
	for _, page := range []int{1, 7, 25, 100} {
		all = append(all,
			statement{name: "pages", cql: "SELECT * FROM many", page: page},
			statement{name: "pages prepared", cql: "SELECT c FROM many WHERE k = ?", values: []any{1}, page: page},
			statement{name: "pages with limit", cql: "SELECT c FROM many WHERE k = 0 LIMIT 9", page: page},
		)
	}
	return append(all,
		statement{name: "large rows", cql: "INSERT INTO many (k, c, v) VALUES (?, ?, ?)", values: []any{9, 1, strings.Repeat("large ", 100_000)}},
		statement{name: "large answer", cql: "SELECT k, c, v FROM many WHERE k = 9"},
		statement{name: "traced", cql: "SELECT c FROM many WHERE k = 0 LIMIT 1", trace: true},
		statement{name: "traced and bound", cql: "SELECT c FROM many WHERE k = ? LIMIT 1", values: []any{0}, trace: true},
		statement{name: "payload", cql: "SELECT c FROM many WHERE k = 0 LIMIT 1", payload: map[string][]byte{"key": []byte("value")}, least: 4},
		statement{name: "payload and bound", cql: "SELECT c FROM many WHERE k = ? LIMIT 1", values: []any{0}, payload: map[string][]byte{"key": nil}, least: 4},
	)
}
