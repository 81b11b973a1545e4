package statement

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// bound is a value in wire form.
func bound(value string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(value))), value...)
}

// autoStatement is a write without a lock on a table of text a, int b | clustering int c | columns v, w and the static st.
func autoStatement(t *testing.T, row bool, text string, values ...string) *Statement {
	t.Helper()
	parsed, err := rewrite.Parse([]byte(text))
	require.NoError(t, err, text)
	key := []catalog.Column{{Name: "a", Type: "text"}, {Name: "b", Type: "int"}}
	c := catalog.Column{Name: "c", Type: "int", Clustering: true}
	critical := &catalog.Critical{
		Key: key, Primary: []string{"a", "b", "c"}, Static: []string{"st"}, Settings: catalog.Settings{Unlocked: catalog.Auto},
		Columns: map[string]catalog.Column{"a": key[0], "b": key[1], "c": c, "v": {Name: "v", Type: "int"}, "W": {Name: "W", Type: "list<int>"}, "st": {Name: "st", Type: "int", Static: true}},
	}
	if row {
		critical.Key, critical.Row = append(critical.Key, c), true
	}
	s := &Statement{Parsed: &parsed, Text: []byte(text), Table: &catalog.Table{Keyspace: "ks", Name: "t"}, Critical: critical}
	for range parsed.Children {
		s.Names = append(s.Names, [2]string{"ks", "t"})
	}
	for _, v := range values {
		s.Values = append(s.Values, bound(v))
	}
	return s
}

// one is an int on the wire, and list a list of such.
func one(n int32) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }

func list(all ...int32) string {
	b := one(int32(len(all)))
	for _, n := range all {
		b += string(bound(one(n)))
	}
	return b
}

// A write that names its key by IN is one write for each key, in which all else stands as it did, with the values that it needs.
func TestEach(t *testing.T) {
	for _, c := range []struct {
		row    bool
		text   string
		values []string
		want   []string // the texts, each with its values behind it
	}{
		{false, "UPDATE t SET v = 1 WHERE a IN ('x') AND b = 1 AND c = 2", nil, []string{"UPDATE t SET v = 1 WHERE a = 'x'  AND b = 1 AND c = 2"}},
		{false, "DELETE FROM t WHERE \"a\"IN('x', ?) AND b=?", []string{"p", one(7)}, []string{`DELETE FROM t WHERE "a"= 'x'  AND b=? | ` + one(7), `DELETE FROM t WHERE "a"= ?  AND b=? | p | ` + one(7)}},
		{false, "UPDATE t USING TTL ? SET v = ? WHERE b IN ? AND a IN ('x', 'y') AND c IN (1, 2)", []string{one(9), one(8), list(3, 4)}, []string{
			"UPDATE t USING TTL ? SET v = ? WHERE b = ?  AND a = 'x'  AND c IN (1, 2) | " + one(9) + " | " + one(8) + " | " + one(3),
			"UPDATE t USING TTL ? SET v = ? WHERE b = ?  AND a = 'x'  AND c IN (1, 2) | " + one(9) + " | " + one(8) + " | " + one(4),
			"UPDATE t USING TTL ? SET v = ? WHERE b = ?  AND a = 'y'  AND c IN (1, 2) | " + one(9) + " | " + one(8) + " | " + one(3),
			"UPDATE t USING TTL ? SET v = ? WHERE b = ?  AND a = 'y'  AND c IN (1, 2) | " + one(9) + " | " + one(8) + " | " + one(4),
		}},
		{true, "DELETE FROM t WHERE a = 'x' AND b = 1 AND c IN (5, 6)", nil, []string{"DELETE FROM t WHERE a = 'x' AND b = 1 AND c = 5 ", "DELETE FROM t WHERE a = 'x' AND b = 1 AND c = 6 "}},
		{false, "DELETE FROM t WHERE a IN () AND b = 1", nil, nil},
		{false, "DELETE FROM t WHERE a IN ('x', $$x$$) AND b IN (1, 1)", nil, []string{"DELETE FROM t WHERE a = 'x'  AND b = 1 "}},
		{false, "DELETE FROM t WHERE a = 'x' AND b = 1 AND c IN (2) IF EXISTS", nil, []string{"DELETE FROM t WHERE a = 'x' AND b = 1 AND c = 2  IF EXISTS"}},
		{false, "DELETE FROM t WHERE a = 'x' AND b IN ?", []string{list()}, nil},
		{false, "UPDATE t SET v = 1 WHERE a = 'x' AND b IN ? AND c = 1 IF v = ?", []string{list(4), one(2)}, []string{"UPDATE t SET v = 1 WHERE a = 'x' AND b = ?  AND c = 1 IF v = ? | " + one(4) + " | " + one(2)}},
	} {
		s := autoStatement(t, c.row, c.text, c.values...)
		require.True(t, s.KeysByIn(), c.text)
		all, f := s.Each()
		require.Nil(t, f, c.text)
		var got []string
		for _, one := range all {
			text := string(one.Text)
			for _, v := range one.Values {
				text += " | " + string(v[4:])
			}
			got = append(got, text)
			_, f := one.Key()
			assert.Nil(t, f, text)
			assert.True(t, one.Fixed)
		}
		assert.Equal(t, c.want, got)
	}
}

// What IN cannot name is refused: several keys under one lock or with IF, what is no key, and too many.
func TestEachIsRefused(t *testing.T) {
	many, quoted := "0", "'0'"
	for i := 1; i < 40; i++ {
		many, quoted = many+fmt.Sprintf(", %d", i), quoted+fmt.Sprintf(", '%d'", i)
	}
	for text, says := range map[string]string{
		"UPDATE t USING LOCK 5 SET v = 1 WHERE a IN ('x', 'y') AND b = 1 AND c = 2":          "MUSIC_KEY: the statement names 2 keys by IN",
		"UPDATE t USING LOCK 5 SET v = 1 WHERE a IN () AND b = 1 AND c = 2":                  "MUSIC_KEY: the statement names 0 keys by IN",
		"BEGIN BATCH USING LOCK 5 DELETE FROM t WHERE a IN ('x', 'y') AND b = 1 APPLY BATCH": "MUSIC_KEY: the statement names 2 keys by IN",
		"UPDATE t SET v = 1 WHERE a IN ('x', 'y') AND b = 1 AND c = 2 IF v = 1":              "IN on the partition key is not supported with conditional updates",
		"DELETE FROM t WHERE a IN ('x', 'y') AND b = 1 AND c = 2 IF EXISTS":                  "IN on the partition key is not supported with conditional deletions",
		"UPDATE t SET v = 1 WHERE a IN ('x', 'x') AND b = 1 AND c IN (2) IF v = 1":           "IN on the partition key is not supported with conditional updates",
		"UPDATE t SET v = 1 WHERE a IN ('x') AND b = 1 AND c IN (2, 3) IF v = 1":             "IN on the clustering key columns is not supported with conditional updates",
		"UPDATE t SET v = 1 WHERE a IN ('x') AND b = 1 AND c > 2 IF v = 1":                   "MUSIC_REFUSED",
		"DELETE FROM t WHERE a IN (" + quoted + ") AND b IN (" + many + ")":                  "MUSIC_REFUSED: one statement writes 1000 keys",
	} {
		_, f := autoStatement(t, false, text).Each()
		require.NotNil(t, f, text)
		assert.Contains(t, f.Text, says, text)
	}
	for _, values := range []string{"x", one(1), one(1) + "\xff\xff\xff\xff", one(-1)} {
		_, f := autoStatement(t, false, "DELETE FROM t WHERE a = 'x' AND b IN ?", values).Each()
		require.NotNil(t, f, "%x", values)
		assert.Contains(t, f.Text, "MUSIC_KEY")
	}
	for _, text := range []string{"UPDATE t SET v = 1 WHERE a = 'x' AND b = 1 AND c IN (1, 2)", "SELECT * FROM t WHERE a IN ('x') USING LOCK 5", "LOCK t WHERE a IN ('x')"} {
		assert.False(t, autoStatement(t, false, text).KeysByIn(), text)
	}
}

// INSERT JSON is the INSERT that says the same: its key as constants, each other value as Cassandra reads it from JSON, and null, or
// nothing, where none is given.
func TestReadJSON(t *testing.T) {
	for _, c := range []struct {
		text   string
		values []string
		want   string
	}{
		{`INSERT INTO t JSON '{"a": "it''s", "b": 7, "c": "8", "v": "x''y", "\"W\"": [1, 2], "ST": null}'`, nil, `INSERT INTO t ("W", "a", "b", "c", "st", "v") VALUES (fromJson('[1, 2]'), 'it''s', 7, 8, null, fromJson('"x''y"')) `},
		{`INSERT INTO t JSON '{"a":"x","b":1,"c":2}' DEFAULT UNSET IF NOT EXISTS`, nil, `INSERT INTO t ("a", "b", "c") VALUES ('x', 1, 2)  IF NOT EXISTS`},
		{`INSERT INTO t JSON '{"a":"x","b":1,"c":2}' DEFAULT NULL`, nil, `INSERT INTO t ("W", "a", "b", "c", "st", "v") VALUES (null, 'x', 1, 2, null, null) `},
		{"INSERT INTO t JSON ? DEFAULT UNSET USING TTL ?", []string{`{"A": "é", "B": 1, "v": 1.5, "c": 2}`, one(60)}, "INSERT INTO t (\"a\", \"b\", \"c\", \"v\") VALUES ('é', 1, 2, fromJson('1.5'))  USING TTL ? | " + one(60)},
		{
			"BEGIN BATCH USING LOCK ? INSERT INTO t JSON ? DEFAULT UNSET; UPDATE t SET v = ? WHERE a = 'x' AND b = 1 AND c = 3 APPLY BATCH",
			[]string{one(5), `{"a":"x","b":1,"c":2}`, one(6)},
			"BEGIN BATCH USING LOCK ? INSERT INTO t (\"a\", \"b\", \"c\") VALUES ('x', 1, 2) ; UPDATE t SET v = ? WHERE a = 'x' AND b = 1 AND c = 3 APPLY BATCH | " + one(5) + " | " + one(6),
		},
		{`INSERT INTO t JSON '{"a":"x","b":1}' DEFAULT UNSET`, nil, `INSERT INTO t ("a", "b", "c") VALUES ('x', 1, null) `}, // which Cassandra refuses
	} {
		s := autoStatement(t, false, c.text, c.values...)
		written, f := s.ReadJSON()
		require.Nil(t, f, "%s: %v", c.text, f)
		require.True(t, written)
		got := string(s.Text)
		for _, v := range s.Values {
			got += " | " + string(v[4:])
		}
		assert.Equal(t, c.want, got)
		_, f = s.Key()
		assert.Nil(t, f, c.text)
	}
	s := autoStatement(t, false, "INSERT INTO t (a, b, c) VALUES ('x', 1, 2)")
	written, f := s.ReadJSON()
	assert.True(t, !written && f == nil)
}

// What is read in more ways than one, or is no value of the key, is refused.
func TestReadJSONIsRefused(t *testing.T) {
	for object, says := range map[string]string{
		`{"a":"x","b":1,"c":2,"a":"y"}`:    "MUSIC_SYNTAX",
		`{"a":"x","b":1,"c":2,"A":"y"}`:    "MUSIC_SYNTAX",
		`{"a":"x","b":1,"c":2} {}`:         "MUSIC_SYNTAX",
		`{"a":"x","b":1,"c":2`:             "MUSIC_SYNTAX",
		`{"a":"x","b":1,"c":2,}`:           "MUSIC_SYNTAX",
		`[1]`:                              "MUSIC_SYNTAX",
		``:                                 "MUSIC_SYNTAX",
		`null`:                             "Got null for INSERT JSON values",
		`{"a":"x","b":1,"c":2,"nosuch":1}`: "JSON values map contains unrecognized column: nosuch",
		`{"a":"x","b":1,"c":2,"w":1}`:      "JSON values map contains unrecognized column: w",
		`{"b":1,"c":2}`:                    "MUSIC_KEY",
		`{"a":5,"b":1,"c":2}`:              "MUSIC_KEY",
		`{"a":null,"b":1,"c":2}`:           "MUSIC_KEY",
		`{"a":["x"],"b":1,"c":2}`:          "MUSIC_KEY",
		`{"a":"","b":1.0,"c":2}`:           "MUSIC_KEY",
		`{"a":"x","b":"1, 2) USING TTL 5 --","c":2}`:   "MUSIC_KEY",
		`{"a":"x","b":true,"c":2}`:                     "MUSIC_KEY",
		"{\"a\":\"x\xff\",\"b\":1,\"c\":2}":            "MUSIC_SYNTAX", // no text, which Cassandra would read as another one
		"{\"a\":\"x\",\"b\":1,\"c\":2,\"v\":\"\xff\"}": "MUSIC_SYNTAX",
		`{"a":"\ud800","b":1,"c":2}`:                   "MUSIC_KEY", // half a character
	} {
		s := autoStatement(t, false, "INSERT INTO t JSON ?", object)
		_, f := s.ReadJSON()
		if f == nil {
			_, f = s.Key()
		}
		require.NotNil(t, f, object)
		assert.Contains(t, f.Text, says, object)
	}
	s := autoStatement(t, false, "INSERT INTO t JSON ?", "")
	s.Values[0] = []byte{0xff, 0xff, 0xff, 0xff}
	_, f := s.ReadJSON()
	require.NotNil(t, f)
	assert.Equal(t, "Got null for INSERT JSON values", f.Text)
}

// An object with many names that are no columns takes no more memory than one.
func TestUnknownColumnsOfJSON(t *testing.T) {
	object := `{"a": "x"`
	for i := range 10_000 {
		object += fmt.Sprintf(`, "z%d": 1`, i)
	}
	object += "}"
	s := autoStatement(t, false, "INSERT INTO t JSON ?", object)
	n := allocated(func() {
		_, f := s.ReadJSON()
		require.NotNil(t, f)
		assert.Equal(t, "JSON values map contains unrecognized column: z0", f.Text)
	})
	assert.Less(t, n, uint64(4*len(object)))
}

// Of a batch of INSERT JSON no more text is made than the proxy reads, however many columns its table has.
func TestManyInsertsOfJSON(t *testing.T) {
	s := autoStatement(t, false, "BEGIN BATCH "+strings.Repeat(`INSERT INTO t JSON '{"a": "x", "b": 1, "c": 1}'; `, 5000)+"APPLY BATCH")
	for i := range 1000 {
		name := fmt.Sprintf("column_%d", i)
		s.Critical.Columns[name] = catalog.Column{Name: name, Type: "int"}
	}
	n := allocated(func() {
		_, f := s.ReadJSON()
		require.NotNil(t, f)
		assert.Contains(t, f.Text, "more names, values and statements than the proxy reads")
	})
	assert.Less(t, n, uint64(20*rewrite.MaxMemory))
}

// The constant of a value of JSON is one of its column's type, or none that the key can be read from.
func TestLiteralsOfJSON(t *testing.T) {
	for _, c := range [][3]string{
		{"text", `"0x00"`, "'0x00'"},
		{"blob", `"0x00fF"`, "0x00fF"},
		{"blob", `"0x0"`, "'0x0'"},
		{"bigint", "-5", "-5"},
		{"bigint", `"-5"`, "-5"},
		{"bigint", `"+5"`, "'+5'"},
		{"uuid", `"123e4567-e89b-42d3-a456-426614174000"`, "123e4567-e89b-42d3-a456-426614174000"},
		{"boolean", "true", "true"},
		{"boolean", `"true"`, "'true'"},
		{"decimal", "1.10", ""},
		{"decimal", `"1.10"`, "1.10"},
		{"decimal", "110", "110"},
		{"double", "1.5e3", "1.5e3"},
		{"timestamp", `"2020-01-01 00:00:00Z"`, "'2020-01-01 00:00:00Z'"},
		{"timestamp", "5", "5"},
		{"inet", `"::1"`, "'::1'"},
		{"text", `"a\u0027b\n"`, "'a''b\n'"},
		{"text", "null", "null"},
		{"text", "{}", ""},
	} {
		literal, ok := literalOfJSON(catalog.Column{Type: c[0]}, []byte(c[1]))
		assert.Equal(t, c[2] != "", ok, "%v", c)
		if ok {
			assert.Equal(t, c[2], literal, "%v", c)
		}
	}
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A write with IN of several keys takes no memory by its number of keys: under a lock it is refused
// before anything is made of it, and in sections of their own the statements share what they have in
// common, within a bound.
func TestEachIsBounded(t *testing.T) {
	keys := make([]int32, 100)
	for i := range keys {
		keys[i] = int32(i)
	}
	large, bounded, small := strings.Repeat("v", 257<<10), strings.Repeat("v", 10<<10), strings.Repeat("v", 9<<10)
	for _, c := range []struct{ text, value, says string }{
		{"UPDATE t USING LOCK 1 SET v = ? WHERE a = 'x' AND b IN ? AND c = 1", large, "MUSIC_KEY: the statement names 100 keys"},
		{"UPDATE t SET v = ? WHERE a = 'x' AND b IN ? AND c = 1 IF EXISTS", large, "IN on the partition key"},
		{"UPDATE t SET v = ? WHERE a = 'x' AND b IN ? AND c = 1", large, "MUSIC_REFUSED: with one statement for each key"},
		{"UPDATE t SET v = ? WHERE a = 'x' AND b IN ? AND c = 1", bounded + bounded, "MUSIC_REFUSED: with one statement for each key"},
		{"UPDATE t SET v = ? WHERE a = 'x' AND b IN ? AND c = 1", small, ""},
	} {
		s := autoStatement(t, false, c.text, c.value, list(keys...))
		var all []Statement
		says := ""
		n := allocated(func() {
			var f *wire.Failure
			if all, f = s.Each(); f != nil {
				says = f.Text
			}
		})
		assert.Less(t, n, uint64(300<<10), c.text)
		assert.Contains(t, says, c.says)
		if c.says != "" {
			continue
		}
		require.Empty(t, says)
		require.Len(t, all, len(keys))
		assert.Same(t, &all[0].Values[0][0], &all[99].Values[0][0])
		assert.Same(t, all[0].Parsed, all[99].Parsed)
	}
}

// Of a list with more values than keys may be named no more is read than shows that.
func TestLongListsAreNotRead(t *testing.T) {
	const n = 200_000
	long := binary.BigEndian.AppendUint32(nil, n)
	for i := range uint32(n) {
		long = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(long, 4), i)
	}
	for _, text := range []string{"DELETE FROM t WHERE a = 'x' AND b IN ?", "LOCK t WHERE a = 'x' AND b IN ?"} {
		s := autoStatement(t, false, text, string(long))
		var f *wire.Failure
		n := allocated(func() {
			if _, f = s.Keys(); s.IsWrite() {
				_, f = s.Each()
			}
		})
		require.NotNil(t, f)
		assert.Contains(t, f.Text, "MUSIC_REFUSED")
		assert.Less(t, n, uint64(1<<20), text)
	}
}

// A bound list that is not read to its end is refused, also where what is read of it has few keys: the rest would not be written.
func TestLongListsOfFewKeysAreRefused(t *testing.T) {
	numbers := make([]int32, MaxKeys+1)
	numbers = append(numbers, 7)
	for _, text := range []string{"DELETE FROM t WHERE a = 'x' AND b IN ?", "DELETE FROM t USING LOCK 5 WHERE a = 'x' AND b IN ?", "LOCK t WHERE a = 'x' AND b IN ?"} {
		s := autoStatement(t, false, text, list(numbers...))
		_, f := s.Keys()
		if s.IsWrite() {
			_, f = s.Each()
		}
		if assert.NotNil(t, f, text) {
			assert.Contains(t, f.Text, "MUSIC_REFUSED", text)
		}
	}
}

// The keys of one LOCK have a bound together: where IN stands at two columns they take more than their text by their number.
func TestTheKeysOfOneLockAreBounded(t *testing.T) {
	listOf := func(n, size int) string {
		b := binary.BigEndian.AppendUint32(nil, uint32(n))
		for i := range n {
			b = append(b, bound(strings.Repeat(string(rune('a'+i)), size))...)
		}
		return string(b)
	}
	numbers := make([]int32, 60)
	for i := range numbers {
		numbers[i] = int32(i)
	}
	for size, refused := range map[int]bool{60 << 10: true, 4 << 10: false} {
		s := autoStatement(t, false, "LOCK t WHERE a IN ? AND b IN ?", listOf(16, size), list(numbers...))
		var f *wire.Failure
		n := allocated(func() { _, f = s.Keys() })
		if require.Equal(t, refused, f != nil); refused {
			assert.Contains(t, f.Text, "MUSIC_REFUSED: the keys of one LOCK can have at most")
		}
		assert.Less(t, n, uint64(4*MaxKeyBytes))
	}
}
