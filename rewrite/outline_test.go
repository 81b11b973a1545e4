package rewrite

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// FuzzOutline: it accepts what Parse accepts, and tells of it what Parse tells.
func FuzzOutline(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(text)
		var got, want [][2]Name
		o, fault := Outline(text, func(keyspace, table Name) { got = append(got, [2]Name{keyspace, table}) })
		var syntax *SyntaxError
		if errors.As(err, &syntax) && syntax.TooLarge {
			return
		}
		require.Equal(t, err, fault)
		if err != nil {
			return
		}
		for _, c := range s.Children {
			want = append(want, [2]Name{c.Keyspace, c.Table})
		}
		require.Equal(t, want, got)
		require.Equal(t, []any{s.Verb, s.Keyspace, s.Table, s.Using, s.ForUpdate, s.Conditional, s.Markers}, []any{o.Verb, o.Keyspace, o.Table, o.Using, o.ForUpdate, o.Conditional, o.Markers})
		require.Zero(t, o.Memory)
		require.Empty(t, o.Children)
		require.Empty(t, o.Where)
	})
}

// many are texts of about a size with as many parts as it has room for.
func many(size int) map[string]string {
	repeated := func(before, part, after string) string {
		return before + strings.Repeat(part, size/len(part)) + after
	}
	n := size / 4
	return map[string]string{
		"statements": repeated("BEGIN BATCH ", "DELETE FROM t WHERE k=1;", "APPLY BATCH"),
		"values":     repeated("SELECT a FROM t WHERE k IN (", "1,", "1)"),
		"markers":    repeated("DELETE FROM t WHERE k IN (", "?,", "?)"),
		"names":      repeated("DELETE FROM t WHERE k IN (", ":a,", "?)"),
		"relations":  repeated("DELETE FROM t WHERE ", "a=1 AND ", "a=1"),
		"conditions": repeated("DELETE FROM t WHERE k=1 IF ", "a=1 AND ", "a=1"),
		"columns":    "INSERT INTO t (" + strings.Repeat("a,", n) + "a) VALUES (" + strings.Repeat("1,", n) + "1)",
		"assigned":   repeated("UPDATE t SET ", "a=?,", "a=? WHERE k=1"),
		"additions":  repeated("UPDATE t SET ", "a+=1,", "a+=1 WHERE k=1"),
		"selectors":  repeated("SELECT ", "a,", "a FROM t"),
		"one batch":  repeated("BEGIN BATCH DELETE FROM t WHERE k IN (", "1,", "1) APPLY BATCH"),
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

// What Parse keeps of a statement has a bound, and Outline keeps nothing of what a text may have any number of.
func TestTheMemoryOfAStatementIsBounded(t *testing.T) {
	for name, text := range many(2 << 20) {
		t.Run(name, func(t *testing.T) {
			var err error
			n := allocated(func() { _, err = Parse([]byte(text)) })
			var syntax *SyntaxError
			require.ErrorAs(t, err, &syntax)
			assert.True(t, syntax.TooLarge)
			assert.Less(t, n, uint64(len(text)+8*MaxMemory), "with what grows on the way")
			n = allocated(func() { _, err = Outline([]byte(text), nil) })
			require.NoError(t, err)
			assert.Less(t, n, uint64(len(text)+64<<10))
		})
	}
	for name, text := range many(64 << 10) {
		if name == "relations" || name == "conditions" || name == "columns" {
			text = many(32 << 10)[name]
		}
		s, err := Parse([]byte(text))
		require.NoError(t, err, name)
		assert.Less(t, s.Memory, MaxMemory)
	}
	long := "INSERT INTO t (k, v) VALUES (1, '" + strings.Repeat("v", 8<<20) + "')"
	_, err := Parse([]byte(long))
	require.NoError(t, err, "the length of a value does not count")
}
