package classify

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"music/frontend/catalog"
	"music/rewrite"
)

// keep has a classifier keep a text of keyspace ks, if it may, as a connection does after a decision to forward it.
func keep(t *testing.T, c *Classifier, text string) {
	t.Helper()
	var r Result
	require.True(t, c.Classify(&r, []byte(text), true, "ks"))
	require.Nil(t, r.Unlisted)
	c.Keep(&r, []byte(text), "ks")
}

// A text that was forwarded is known again, until something changes that this depended on.
func TestForwardsWhatIsKept(t *testing.T) {
	const read, write = "SELECT v FROM t WHERE k = 1", "UPDATE t SET v = 1 WHERE k = 1"
	changes := map[string]func(*catalog.Tables){
		"its table becomes critical":           func(all *catalog.Tables) { all.Set("ks", "t", new(catalog.Critical)) },
		"its table is no longer in the schema": func(all *catalog.Tables) { all.Read([][2]string{{"ks", "other"}}) },
	}
	for what, change := range changes {
		for _, prepared := range []bool{false, true} {
			all := catalog.NewTables()
			all.Read([][2]string{{"ks", "t"}, {"ks", "other"}})
			if prepared {
				all.Of("ks", "t")
			}
			c := &Classifier{Tables: all}
			for _, text := range []string{read, write} {
				assert.False(t, c.Forwards([]byte(text), "ks"))
				keep(t, c, text)
				assert.True(t, c.Forwards([]byte(text), "ks"))
				assert.False(t, c.Forwards([]byte(text), "other"), "another table")
				assert.False(t, c.Forwards([]byte(strings.Replace(text, "1", "2", 1)), "ks"), "another text")
			}
			change(all)
			for _, text := range []string{read, write} {
				assert.False(t, c.Forwards([]byte(text), "ks"), "%s: %s", text, what)
			}
		}
	}
}

// Only short statements on one ordinary table are kept, and no more than keptTexts of them.
func TestKeepsLittle(t *testing.T) {
	all := catalog.NewTables()
	all.Set("ks", "critical", new(catalog.Critical))
	c := &Classifier{Tables: all}
	for _, text := range []string{
		"SELECT v FROM critical", "UPDATE critical SET v = 1 WHERE k = 1", "USE ks", "SELECT * FROM system.local", "DROP TABLE t",
		"BEGIN BATCH UPDATE t SET v = 1 WHERE k = 1; UPDATE u SET v = 1 WHERE k = 1; APPLY BATCH", "DELETE FROM music.sessions", "TRUNCATE t",
		"SELECT v FROM t WHERE k = '" + strings.Repeat("x", keptLength) + "'",
	} {
		keep(t, c, text)
		assert.False(t, c.Forwards([]byte(text), "ks"), text)
	}
	own := strings.Repeat("k", keptLength) // the keyspace of a request of protocol 5
	c.Keep(&Result{Verb: rewrite.Select, Name: catalog.Key("ks", "t")}, []byte("SELECT v FROM ks.t"), own)
	assert.False(t, c.Forwards([]byte("SELECT v FROM ks.t"), own))
	known := 0
	for range 2 {
		for i := range 3 * keptTexts {
			text := "SELECT v FROM t" + strings.Repeat(" ", i)
			if keep(t, c, text); c.Forwards([]byte(text), "ks") {
				known++
			}
		}
	}
	assert.Equal(t, 6*keptTexts, known, "each is known while it is the last")
}

// A long name, which no table has, is not kept: an idle connection would hold it.
func TestKeepsNoLongName(t *testing.T) {
	c := &Classifier{Tables: tables()}
	long := strings.Repeat("x", 1<<20)
	for _, text := range []string{"UPDATE bank." + long + " SET v = 1 WHERE k = 1", "LOCK " + long + ".t WHERE k = 1", "SELECT v FROM bank.plain"} {
		var r Result
		require.True(t, c.Classify(&r, []byte(text), true, ""))
		assert.Equal(t, strings.Contains(text, long), len(r.Name) > len(long))
		assert.LessOrEqual(t, cap(c.name), keptLength)
	}
}

// A schema that is read between the decision and Keep counts, too.
func TestKeepsByTheSchemaOfNow(t *testing.T) {
	all := tables()
	c, r := &Classifier{Tables: all}, Result{}
	text := []byte("UPDATE bank.plain SET v = 1 WHERE k = 1")
	require.True(t, c.Classify(&r, text, true, ""))
	all.Read(nil)
	c.Keep(&r, text, "")
	assert.False(t, c.Forwards(text, ""))
}

// Without locks nothing is critical.
func TestKeepsWithoutLocks(t *testing.T) {
	c := new(Classifier)
	keep(t, c, "SELECT v FROM t")
	assert.True(t, c.Forwards([]byte("SELECT v FROM t"), "ks"))
}
