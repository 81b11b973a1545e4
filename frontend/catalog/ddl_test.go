package catalog

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The key of a table that is about to be made is read from its text, or not at all.
func TestKeyOfACreateTable(t *testing.T) {
	of := func(name, typ string, clustering bool) Column {
		return Column{Name: name, Type: typ, Clustering: clustering}
	}
	for text, want := range map[string][]Column{
		"CREATE TABLE a.b (k int PRIMARY KEY, v map<text, int>)":                                                     {of("k", "int", false)},
		"create table if not exists b (k Frozen<List<int>> primary key) with comment = 'x (a, b)'":                   {of("k", "frozen<list<int>>", false)},
		`CREATE TABLE b (v int STATIC, "K" TEXT, c decimal, PRIMARY KEY ("K", c)) WITH CLUSTERING ORDER BY (c DESC)`: {of("K", "text", false), of("c", "decimal", true)},
		"CREATE TABLE b (PRIMARY KEY ((x, y), z, w), x int, y tuple<int, text>, z int, w frozen<map<int, int>>)": {
			of("x", "int", false), of("y", "tuple<int,text>", false), of("z", "int", true), of("w", "frozen<map<int,int>>", true),
		},
		"CREATE TABLE b (k vector<float, 3>, PRIMARY KEY ((k)))": {of("k", "vector<float,3>", false)},
		"CREATE TABLE b (k int, PRIMARY KEY (k, c))":             nil,
		"CREATE TABLE b LIKE c":                                  nil,
		"CREATE TABLE b (k int PRIMARY KEY":                      nil,
		"CREATE TABLE b ()":                                      nil,
		"CREATE TABLE b (,)":                                     nil,
		"ALTER TABLE b ADD (x int, y int)":                       nil,
	} {
		assert.Equal(t, want, CreatedKey([]byte(text)), text)
	}
}

// A word CHECK stands before each constraint, and nowhere else but in quotes.
func TestChecksOfATable(t *testing.T) {
	for text, want := range map[string]bool{
		"CREATE TABLE a.b (k int PRIMARY KEY, v int CHECK v > 10)":                        true,
		"CREATE TABLE a.b (k int PRIMARY KEY, v text check NOT NULL AND LENGTH() < 5)":    true,
		"ALTER TABLE a.b ALTER v CHECK v > 10":                                            true,
		`CREATE TABLE a.b (k int PRIMARY KEY, "check" int) WITH comment = 'CHECK v > 10'`: false,
		"CREATE TABLE a.b (k int PRIMARY KEY, checked int)":                               false,
	} {
		assert.Equal(t, want, ReadDDL([]byte(text)).Checked, text)
	}
}

// The text of a schema change takes a bounded multiple of its bytes, whatever a client has written in it, and an error of a comment is
// read by people.
func TestTheCostOfADDLIsBounded(t *testing.T) {
	const n = 100_000
	for name, read := range map[string]func(){
		"a long type":   func() { CreatedKey([]byte("CREATE TABLE t (k " + strings.Repeat("x ", n/8) + ", PRIMARY KEY (k))")) },
		"a name again":  func() { CreatedKey([]byte("CREATE TABLE t (" + strings.Repeat("k x,", n/16) + "PRIMARY KEY (k))")) },
		"a long text":   func() { CreatedKey([]byte("CREATE TABLE t (k " + strings.Repeat("(", n) + ")")) },
		"settings":      func() { readFaulty(t, "@critical("+strings.Repeat("a,", n)+")") },
		"no settings":   func() { readFaulty(t, "@critical("+strings.Repeat(",", 2*n)+")x") },
		"long settings": func() { readFaulty(t, "@critical("+strings.Repeat("\xff", 2*n)+")") },
		"marks":         func() { readFaulty(t, strings.Repeat("@critical ", n/5)) },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read()
		runtime.ReadMemStats(&after)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(25*2*n), name)
	}
}

// readFaulty reads a comment whose settings cannot be read.
func readFaulty(t *testing.T, comment string) {
	t.Helper()
	_, marked, err := ReadSettings(comment)
	assert.True(t, marked)
	if assert.Error(t, err) {
		assert.Less(t, len(err.Error()), 4000)
	}
}
