package integration

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// valueRow names the row of the values below.
const valueRow = " WHERE k = 'key' AND c = 1"

// valuesOfConditions returns conditions whose values are functions, sums, casts, or have bind
// markers in them, with the values of those.
func valuesOfConditions() []statement {
	return []statement{
		{cql: "tp = (?, 'x')", values: []any{1}},
		{cql: "tp = (?, ?)", values: []any{1, nil}},
		{cql: "tp > (?, 'a')", values: []any{0}},
		{cql: "ud = {f: ?, g: 'x'}", values: []any{1}},
		{cql: "fu = {f: ?}", values: []any{1}},
		{cql: "fu = {g: ?, f: ?}", values: []any{"x", 1}},
		{cql: "ud.f = ? AND m[?] = ?", values: []any{1, "a", 1}},
		{cql: "tp IN ((?, 'x'), (7, ?))", values: []any{1, "y"}},
		{cql: "ve = [?, 1.5]", values: []any{float32(-1)}},
		{cql: "ve = ?", values: []any{[]float32{-1, 1.5}}},
		{cql: "ve > [-2, 7.0]"},
		{cql: "ve != [-1, 1.5]"},
		{cql: "ve IN ([0, 0], [?, 1.5])", values: []any{float32(-1)}},
		{cql: "vt = ['a', ?]", values: []any{"ä"}},
		{cql: "vt < ['a', 'c']"},
		{cql: "vt = null"},
		{cql: "ve = [1.0]"},
		{cql: "ve = [1.0, null]"},
		{cql: "ve = [1.0, ?]", values: []any{nil}},
		{cql: "m = {'a': ?}", values: []any{1}},
		{cql: "e = {?, 1}", values: []any{2}},
		{cql: "li = [?, 2]", values: []any{1}},
		{cql: "fl IN ([?], [1, ?])", values: []any{5, -2}},
		{cql: "d > toDate(minTimeuuid('2020-01-01Z'))"},
		{cql: "d > toDate(now())"},
		{cql: "w > toTimestamp(minTimeuuid('2019-01-01Z'))"},
		{cql: "u > minTimeuuid('2020-01-01Z')"},
		{cql: "u < maxTimeuuid(?)", values: []any{nil}},
		{cql: "l = intAsBlob(1)"},
		{cql: "l = textAsBlob(?)", values: []any{"x"}},
		{cql: "l != bigintAsBlob((bigint) 5)"},
		{cql: "t = blobAsText(0x78)"},
		{cql: "b = blobAsBigint(?)", values: []any{[]byte{0, 0, 0, 0, 0, 0, 0, 7}}},
		{cql: "a = 1 + 1"},
		{cql: "a = 3 - 1 AND b = 7 * 1"},
		{cql: "a = ? + 1", values: []any{1}},
		{cql: "a = (int) ? + 1", values: []any{1}},
		{cql: "a IN (1 + 1, ?)", values: []any{9}},
		{cql: "a = -(1)"},
		{cql: "a = - ?", values: []any{-2}},
		{cql: "a = (int) ?", values: []any{2}},
		{cql: "a = (bigint) 2"},
		{cql: "m[blobAsText(0x61)] = 2 - 1"},
		{cql: "li[1 - 1] = 1"},
		{cql: "m CONTAINS 1 + 0"},
		{cql: "m CONTAINS KEY blobAsText(0x61)"},
		{cql: "fl = [1, 1 - 3]"},
		{cql: "m = {'a': 2 - 1, 'b': 2}"},
		{cql: "tp = (1 + 0, 'x')"},
		{cql: "e = {1, 1 + 1}"},
		{cql: "w < '2020-01-01Z' + 2d"},
		{cql: "d = '2020-01-01' + 1d"},
		{cql: "n = 1.0 / 2"},
		{cql: "a = abs(-2)"},
		{cql: "f = round(1.5)"},
		{cql: "t = 'x' + ''"},
		{cql: "a = nosuch(1)"},
		{cql: "a = blobAsText(0x78)"},
		{cql: "a = 1 / 0"},
		{cql: "t = system.blobAsText(0x78)"},
		{cql: "t = (text) 'x'"},
		{cql: "u = uuid()"},
		{cql: "u = now()"},
		{cql: "st = 2 - 1"},
		{cql: "a = cluster_name"},
	}
}

// valuesOfWrites returns writes with such values in all other places, on the key and row of valueRow
// or on a new one.
func valuesOfWrites() []statement {
	return []statement{
		{cql: "UPDATE TABLE SET m = {'a': 1, 'b': 1 + 1}, e = {1, 2}, li = [1, 2], fl = [1, -2], a = (int) ? + 1" + valueRow, values: []any{1}},
		{cql: "UPDATE TABLE SET tp = (?, 'x'), ud = {f: ?, g: ?}, fu = {f: ?}, ve = [?, 1.5], vt = ['a', ?]" + valueRow, values: []any{1, 1, "x", 1, float32(-1), "ä"}},
		{cql: "UPDATE TABLE SET m[?] = ?, li[?] = ?, ud.f = ?" + valueRow, values: []any{"c", 3, 0, 1, 1}},
		{cql: "DELETE m[?] FROM TABLE" + valueRow, values: []any{"c"}},
		{cql: "UPDATE TABLE SET b = (bigint) ? + 6, t = blobAsText(0x78), d = toDate(minTimeuuid('2020-01-02Z')), w = toTimestamp(minTimeuuid('2020-01-01Z')), l = intAsBlob(1), n = 1.0 / 2, f = 2 * 1.0, u = minTimeuuid('2020-01-02Z'), st = 1" + valueRow, values: []any{int64(1)}},
		{cql: "UPDATE TABLE SET e = {?}" + valueRow, values: []any{1}},
		{cql: "INSERT INTO TABLE (k, c, tp, ud, ve) VALUES (?, ?, (?, ?), {f: ?}, [?, ?])", values: []any{"key", 2, 5, "y", 4, float32(1), float32(2)}},
		{cql: "UPDATE TABLE SET a = 7 WHERE k = blobAsText(0x6b6579) AND c = 1 + 2"},
		{cql: "UPDATE TABLE SET a = 8 WHERE k = blobAsText(?) AND c = 4 IF a = null", values: []any{[]byte("key")}},
		{cql: "UPDATE TABLE SET a = 9 WHERE k = ? AND c = abs(-4) IF a = 8", values: []any{"key"}},
		{cql: "INSERT INTO TABLE (k, c, a) VALUES (blobAsText(0x6b6579), 2 + 3, ?) IF NOT EXISTS", values: []any{3}},
		{cql: "INSERT INTO TABLE (k, c, a) VALUES (blobAsText(0x6b6579), 2 + 3, ?) IF NOT EXISTS", values: []any{3}},
		{cql: "UPDATE TABLE SET a = 10 WHERE k IN (blobAsText(0x6b6579), ?) AND c = 6", values: []any{"other"}},
		{cql: "DELETE t FROM TABLE WHERE k = (text) ? AND c = 3", values: []any{"key"}},
		{cql: "UPDATE TABLE SET a = a + (1 + 1), b = b + abs((bigint) -3), t = t + blobAsText(0x79)" + valueRow + " IF a = 2"},
		{cql: "UPDATE TABLE SET a = a + ?, t = t + blobAsText(0x79), n += 1.0 / 4" + valueRow + " IF a = 2 * 2", values: []any{1}},
		{cql: "BEGIN BATCH UPDATE TABLE SET tp = (?, 'z')" + valueRow + " IF a = (int) ? + 1; INSERT INTO TABLE (k, c, ud) VALUES (blobAsText(0x6b6579), 7, {f: ?}); DELETE FROM TABLE WHERE k = ? AND c = 2 + 1 IF EXISTS; APPLY BATCH", values: []any{2, 4, 3, "key"}},
		{cql: "BEGIN BATCH UPDATE TABLE SET a = 1 WHERE k = blobAsText(0x61) AND c = 1; UPDATE TABLE SET a = 2, tp = (?, 'y') WHERE k = ? AND c = 1; APPLY BATCH", values: []any{5, "b"}},
		{cql: "UPDATE TABLE SET a = 1 WHERE k = nosuch(1) AND c = 1"},
		{cql: "UPDATE TABLE SET a = 1 WHERE k = blobAsText(null) AND c = 1"},
	}
}

// A value that is a function, a sum or a cast, or has bind markers in it, means in a write on a
// critical table what it means in any other, in whatever place it stands.
func TestValuesInWritesMeanWhatCassandraMeans(t *testing.T) {
	for _, d := range []driver{withGocql2(4, ""), withGocql2(5, "")} {
		t.Run(d.name, func(t *testing.T) {
			s := newTableFixtureFor(t, d)
			s.makeTwins("@critical(unlocked=auto)")
			direct := d.open(t, needEnvironment(t).direct(), s.keyspace)
			on := func(w statement, table string) statement {
				return statement{cql: strings.ReplaceAll(w.cql, "TABLE", s.keyspace+"."+table), values: w.values}
			}
			same := func(w statement) outcome {
				want, got := patient(direct, on(w, "twin")), patient(s.client, on(w, "locked"))
				want.warnings, got.warnings = nil, nil
				if want.failure != nil && got.failure != nil {
					assert.Equal(t, want.failure.code, got.failure.code, "%v: %v %v", w, want, got)
					return got
				}
				assert.Equal(t, want.String(), strings.ReplaceAll(got.String(), "locked", "twin"), "%v", w)
				return got
			}
			seen := map[string]int{}
			try := func(all []statement) {
				for _, w := range all {
					o := same(w)
					if o.failure != nil {
						t.Logf("%v: %v", w, o)
					}
					seen[told(o, "[applied]")]++
				}
			}
			writes := valuesOfWrites()
			try(writes[:5])
			for _, condition := range valuesOfConditions() {
				condition.cql = "UPDATE TABLE SET y = 1" + valueRow + " IF " + condition.cql
				try([]statement{condition})
			}
			try(writes[5:])
			same(statement{cql: "SELECT * FROM TABLE"})
			require.Greater(t, seen["true"], 20)
			require.Greater(t, seen["false"], 10)
		})
	}
}
