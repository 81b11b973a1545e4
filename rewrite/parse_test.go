package rewrite

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parsed returns the statement of a text that must have one.
func parsed(t *testing.T, text string) Statement {
	t.Helper()
	s, err := Parse([]byte(text))
	require.NoError(t, err, text)
	return s
}

// of returns the bytes of spans.
func of(text string, spans ...Span) []string {
	list := []string{}
	for _, s := range spans {
		list = append(list, text[s.Start:s.End])
	}
	return list
}

// Cut covers the lock clause and the word that joined it to its neighbour, and nothing else.
func TestCutIsOursAndNothingElse(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{"UPDATE t USING LOCK 5 SET a = 1 WHERE k = 1", []string{"USING LOCK 5"}},
		{"UPDATE t USING LOCK 5 AND TTL 3 SET a = 1 WHERE k = 1", []string{"LOCK 5 AND"}},
		{"UPDATE t USING TTL 3 AND LOCK 5 SET a = 1 WHERE k = 1", []string{"AND LOCK 5"}},
		{"UPDATE t USING TTL 3 AND LOCK :a AND TIMESTAMP 4 SET a = 1 WHERE k = 1", []string{"AND LOCK :a"}},
		{"UPDATE t USING LOCK ? AND TTL 3 AND TIMESTAMP 4 SET a = 1 WHERE k = 1", []string{"LOCK ? AND"}},
		{"UPDATE t USING TTL 3 SET a = 1 WHERE k = 1", []string{}},
		{"UPDATE t USING/**/LOCK--\n5/**/SET a = 1 WHERE k = 1", []string{"USING/**/LOCK--\n5"}},
		{"DELETE FROM t USING LOCK : a WHERE k = 1", []string{"USING LOCK : a"}},
		{"INSERT INTO t (k) VALUES (1) USING LOCK 5;", []string{"USING LOCK 5"}},
		{"SELECT * FROM t USING LOCK 5 ;", []string{"USING LOCK 5"}},
		{"SELECT * FROM t FOR UPDATE WAIT 5s ;", []string{"FOR UPDATE WAIT 5s"}},
		{"SELECT * FROM t for /**/ update skip locked lease ? LIMIT 5", []string{"for /**/ update skip locked lease ?"}},
		{"LOCK t WHERE k = 1 USING LOCK 5", []string{}},
		{"UNLOCK t WHERE k = 1 USING LOCK 5", []string{}},
	}
	for _, test := range tests {
		require.Equal(t, test.want, of(test.text, parsed(t, test.text).Cut...), test.text)
	}
}

// The Cut of a batch includes those of its statements.
func TestCutOfABatchHoldsThatOfItsChildren(t *testing.T) {
	const text = "BEGIN BATCH USING LOCK 1 UPDATE t USING LOCK 2 SET a = 1 WHERE k = 1; DELETE FROM t USING TIMESTAMP 4 AND LOCK 3 WHERE k = 1 APPLY BATCH"
	s := parsed(t, text)
	require.Equal(t, []string{"USING LOCK 1", "USING LOCK 2", "AND LOCK 3"}, of(text, s.Cut...))
	require.Equal(t, []string{"USING LOCK 2"}, of(text, s.Children[0].Cut...))
	require.Equal(t, []string{"AND LOCK 3"}, of(text, s.Children[1].Cut...))
	require.Equal(t, []string{"4"}, of(text, s.Children[1].Timestamp.Span))
	require.Equal(t, []string{"1", "2", "3"}, of(text, s.Lock.Span, s.Children[0].Lock.Span, s.Children[1].Lock.Span))
}

// Markers are numbered through the whole text, as Cassandra numbers them.
func TestMarkersAreCountedInTheWholeText(t *testing.T) {
	const text = "BEGIN BATCH USING LOCK ? INSERT INTO t (k, c) VALUES (f(?), ?) UPDATE t USING TTL ? SET m[?] = {?: ?} WHERE k = :key IF a = ? APPLY BATCH"
	s := parsed(t, text)
	require.Equal(t, 9, s.Markers)
	require.Equal(t, 0, s.Lock.Marker)
	require.Equal(t, 2, s.Children[0].Where[1].Value.Marker)
	require.Equal(t, 3, s.Children[1].TTL.Marker)
	require.Equal(t, 7, s.Children[1].Where[0].Value.Marker)
	require.Equal(t, []int{2, 6}, []int{s.Children[0].Markers, s.Children[1].Markers})
}

// Markers in parts that Parse skips are counted, too.
func TestMarkersAfterSkippedParts(t *testing.T) {
	for text, marker := range map[string]int{
		"SELECT f(?), {?: :x}, [?] FROM t WHERE k = ?":                 4,
		"SELECT a FROM t WHERE (a, b) > (?, ?) AND c LIKE ? AND k = ?": 3,
		"SELECT a FROM t WHERE a IN (?, (?, ?), f(?)) AND k = ?":       4,
		"DELETE m[?], l[:x] FROM t WHERE k = ?":                        2,
		"UPDATE t SET a = ? + ?, b = (int)?, c = -? WHERE k = ?":       4,
		"UPDATE t SET a = '?' /* ? */ , \"?\" = $$?$$ WHERE k = ? --?": 0,
	} {
		s := parsed(t, text)
		last := s.Where[len(s.Where)-1].Value
		require.Equal(t, marker, last.Marker, text)
		require.Equal(t, marker+1, s.Markers, text)
	}
}

// Semicolons may end a statement, and only end it.
func TestSemicolons(t *testing.T) {
	for _, end := range []string{"", ";", ";;", " ; ; ", "/**/;--\n;"} {
		for _, text := range []string{"LOCK t WHERE k = 1", "LIST LOCKS", "UPDATE t SET a = 1 WHERE k = 1", "BEGIN BATCH APPLY BATCH", "SELECT a FROM t"} {
			parsed(t, text+end)
		}
	}
	for _, text := range []string{"; SELECT a FROM t", "SELECT a FROM t; SELECT b FROM t", "LIST LOCKS; x", "LOCK; t WHERE k = 1"} {
		_, err := Parse([]byte(text))
		require.Error(t, err, text)
	}
}

// TestTruncatedStatements holds that no statement of the proxy's own is taken for whole
// when its end is missing, and that Parse survives every end.
func TestTruncatedStatements(t *testing.T) {
	const text = `BEGIN BATCH USING LOCK ? AND TTL 5 INSERT INTO ks.t (k, "C") VALUES ({'a': ?}, -1) IF NOT EXISTS; UPDATE t SET a = (1, [2]) WHERE k IN (1, 'b') IF c = 2 APPLY BATCH`
	parsed(t, text)
	for i := range len(text) {
		_, err := Parse([]byte(text[:i]))
		require.Error(t, err, text[:i])
	}
}

// A syntax error names the place in the text.
func TestSyntaxError(t *testing.T) {
	_, err := Parse([]byte("LOCK t WHERE k = 1 WAIT 5"))
	var syntax *SyntaxError
	require.True(t, errors.As(err, &syntax))
	require.Equal(t, Span{24, 25}, syntax.Span)
	require.Equal(t, syntax.Message+" (at byte 24)", err.Error())
}

// A syntax error quotes a long token in part.
func TestSyntaxErrorQuotesNoNovels(t *testing.T) {
	_, err := Parse([]byte("LOCK t WHERE k = 1 WAIT '" + strings.Repeat("x", 1000) + "'"))
	require.Less(t, len(err.Error()), 200)
}

// TestLargeTexts holds that depth and length cost no stack and no square of time.
func TestLargeTexts(t *testing.T) {
	const n = 300_000
	for name, text := range map[string]string{
		"open brackets":   "UPDATE t SET a = " + strings.Repeat("(", n),
		"casts":           "LOCK t WHERE k = " + strings.Repeat("(int)", n) + "5",
		"minus":           "LOCK t WHERE k = " + strings.Repeat("- ", n) + "5",
		"nested":          "LOCK t WHERE k = " + strings.Repeat("{(", n) + strings.Repeat(")}", n),
		"colons":          "LOCK t WHERE k = {" + strings.Repeat(":a ", n) + "}",
		"relations":       "LOCK t WHERE k = 1" + strings.Repeat(" AND k = 1", n),
		"rests":           "LOCK t WHERE k = 1" + strings.Repeat(" AND k LIKE 1", n),
		"list":            "LOCK t WHERE k IN (1" + strings.Repeat(", 1", n) + ")",
		"selectors":       "SELECT a" + strings.Repeat(", a AS a", n) + " FROM t",
		"comments":        strings.Repeat("/**/", n) + "SELECT a FROM t",
		"semicolons":      "SELECT a FROM t" + strings.Repeat(";", n),
		"children":        "BEGIN BATCH" + strings.Repeat(" DELETE FROM t WHERE k = 1", n/10) + " APPLY BATCH",
		"quotes":          "SELECT a FROM t WHERE k = '" + strings.Repeat("''", n) + "'",
		"durations":       "SELECT a FROM t WHERE k = " + strings.Repeat("1s", n),
		"almost comments": "SELECT a FROM t WHERE k = 1 " + strings.Repeat("/ *", n),
	} {
		start := time.Now()
		_, _ = Parse([]byte(text))
		ReadHead([]byte(text), false)
		require.Less(t, time.Since(start), 2*time.Minute, name)
	}
}

// A Statement stays valid when the buffer of its text is reused.
func TestParseKeepsNothingOfTheText(t *testing.T) {
	text := []byte(`SELECT "A", b FROM "T" WHERE k = 'x' AND c IN (1, 2)`)
	s, err := Parse(text)
	require.NoError(t, err)
	before := fmt.Sprint(s)
	for i := range text {
		text[i] = 'z'
	}
	require.Equal(t, before, fmt.Sprint(s))
}

// No byte at any place makes Parse panic.
func TestParseOfEveryByte(t *testing.T) {
	for _, start := range []string{"", "SELECT ", "LOCK t WHERE k = ", "UPDATE t SET a = 1 WHERE k = {1", "BEGIN BATCH "} {
		for c := range 256 {
			for _, end := range []string{"", " FROM t", "1", "}"} {
				_, _ = Parse(append([]byte(start), append([]byte{byte(c)}, end...)...))
			}
		}
	}
}

func ExampleParse() {
	text := []byte("UPDATE bank.accounts USING LOCK 42 AND TTL 60 SET balance = ? WHERE branch = 'zurich'")
	s, err := Parse(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	ref, _ := Int(text, s.Lock)
	key, _ := Encode("text", text, s.Where[0].Value)
	fmt.Println(s.Verb, "under lock", ref)
	fmt.Printf("key column %s = %q\n", s.Where[0].Column.AppendTo(nil, text), RoutingKey([][]byte{key}))
	fmt.Printf("%s\n", Apply(nil, text, s.Cut))
	// Output:
	// UPDATE under lock 42
	// key column branch = "zurich"
	// UPDATE bank.accounts USING  TTL 60 SET balance = ? WHERE branch = 'zurich'
}

func ExampleReadHead() {
	text := []byte(`DELETE m['from'] FROM "Bank" . accounts WHERE k = 1`)
	h := ReadHead(text, true)
	fmt.Printf("%s %s %s\n", h.Verb, h.Keyspace.AppendTo(nil, text), h.Table.AppendTo(nil, text))
	// Output: DELETE Bank accounts
}

func ExampleLexer() {
	text := []byte("WAIT 5s -- not long")
	lexer := NewLexer(text)
	for t := lexer.Next(); t.Kind != TokenEOF; t = lexer.Next() {
		fmt.Println(t.Kind == TokenDuration, string(bytes.ToLower(t.Of(text))))
	}
	// Output:
	// false wait
	// true 5s
}

// Where USING stands, or may, is where a clause can be put in its place.
func TestTheUsingClauseHasAPlace(t *testing.T) {
	for text, want := range map[string]string{
		"UPDATE ks.t SET a = 1 WHERE k = 1":                                 "UPDATE ks.t| SET a = 1 WHERE k = 1",
		"UPDATE t USING LOCK ? AND TTL 3 SET a = 1 WHERE k = 1":             "UPDATE t | SET a = 1 WHERE k = 1",
		"DELETE FROM t/**/WHERE k = 1":                                      "DELETE FROM t|/**/WHERE k = 1",
		"DELETE a FROM t USING TIMESTAMP 3 WHERE k = 1":                     "DELETE a FROM t | WHERE k = 1",
		"INSERT INTO t (k) VALUES (1) ;":                                    "INSERT INTO t (k) VALUES (1)| ;",
		"INSERT INTO t (k) VALUES (1) IF NOT EXISTS USING TTL 4 -- so":      "INSERT INTO t (k) VALUES (1) IF NOT EXISTS | -- so",
		"INSERT INTO t JSON ? DEFAULT UNSET":                                "INSERT INTO t JSON ? DEFAULT UNSET|",
		"BEGIN UNLOGGED BATCH DELETE FROM t WHERE k = 1 APPLY BATCH":        "BEGIN UNLOGGED BATCH| DELETE FROM t WHERE k = 1 APPLY BATCH",
		"BEGIN BATCH USING TIMESTAMP 4 DELETE FROM t WHERE k=1 APPLY BATCH": "BEGIN BATCH | DELETE FROM t WHERE k=1 APPLY BATCH",
	} {
		at := parsed(t, text).UsingClause
		require.Equal(t, want, text[:at.Start]+"|"+text[at.End:])
	}
	const batch = "BEGIN BATCH INSERT INTO t (k) VALUES (1) UPDATE t SET a = 1 WHERE k = 1; APPLY BATCH"
	for i, want := range []string{"BEGIN BATCH INSERT INTO t (k) VALUES (1)", "BEGIN BATCH INSERT INTO t (k) VALUES (1) UPDATE t"} {
		require.Equal(t, want, batch[:parsed(t, batch).Children[i].UsingClause.Start])
	}
}
