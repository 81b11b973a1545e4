package classify

import (
	"cmp"
	"slices"
	"strings"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// maxUnclear bounds a text that cannot be parsed, in bytes: its words take ten times as many.
const maxUnclear = 1 << 20

// readUnclear classifies a text that the proxy cannot parse. It is refused if a word in it may name a
// table of the proxies or a critical table, or if it is too long to look for that. A transaction of Cassandra 6 is refused only if it writes
// a critical table.
func (c *Classifier) readUnclear(text []byte, keyspace string) Result {
	if c.Tables == nil {
		return Result{Kind: Unclear}
	}
	if len(text) > maxUnclear {
		return Result{Kind: Refused, Failure: wire.Invalid("MUSIC_SYNTAX: the proxy cannot parse this statement, and looks for the names of critical tables in no more than %d bytes: correct or shorten it; nothing was done", maxUnclear)}
	}
	words := wordsOf(text)
	music := keyspace == "music" || slices.Contains(words, "music")
	for _, word := range words {
		if strings.HasPrefix(word, catalog.CompanionPrefix) || music && ofProxies(word) {
			return Result{Kind: Refused, Failure: forProxiesOnly(word)}
		}
	}
	if written, ok := rewrite.TransactionWrites(text); ok {
		return c.readTransaction(written, keyspace)
	}
	named, first := (*catalog.Table)(nil), naming{}
	c.Tables.Critical(func(t *catalog.Table, _ *catalog.Critical) {
		n, ok := namedIn(words, t, keyspace)
		if ok && (named == nil || cmp.Or(cmp.Compare(n.way, first.way), cmp.Compare(n.at, first.at), strings.Compare(t.String(), named.String())) < 0) {
			named, first = t, n
		}
	})
	if named == nil {
		return Result{Kind: Unclear}
	}
	return Result{Kind: Refused, Failure: wire.Invalid("MUSIC_SYNTAX: the proxy cannot parse this statement, which names %s, a critical table: correct it; nothing was done", named)}
}

// readTransaction classifies a transaction by the tables that it writes. What it writes has
// timestamps of the transaction, which no lock can give.
func (c *Classifier) readTransaction(written [][2]string, keyspace string) Result {
	r := Result{Kind: Unclear}
	for _, name := range written {
		key := TableKey(catalog.Key(cmp.Or(name[0], keyspace), name[1]))
		r.Unlisted = cmp.Or(c.unlisted(key), r.Unlisted)
		r.Unqualified = r.Unqualified || name[0] == ""
		t := c.lookup(key)
		if t != nil && t.Critical() != nil {
			return Result{Kind: Refused, Failure: wire.Invalid("MUSIC_REFUSED: %s is critical, and a transaction writes with timestamps of its own, which no lock gives: nothing was done: write it USING LOCK, in a batch with IF if need be, or move what the transaction writes to a table that is not critical", t)}
		}
	}
	return r
}

// ofProxies reports whether a table of keyspace music with this name is for the proxies only.
func ofProxies(name string) bool {
	switch name {
	case "tables", "proxies", "sessions", "generations", "secrets":
		return true
	}
	return false
}

// wordsOf returns the words of a text in lower case. Words consist of ASCII letters, digits and
// underscores, as do the names of keyspaces and tables.
func wordsOf(text []byte) []string {
	return strings.FieldsFunc(strings.ToLower(string(text)), func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}

// naming tells how a text names a table: way is 0 for keyspace and name in a row, 1 for any other,
// and at is the index of the word.
type naming struct{ way, at int }

// namedIn reports whether words may name a table, and how. Its name must be one of them, and its
// keyspace another or the one in use: comments may stand between the two.
func namedIn(words []string, t *catalog.Table, used string) (n naming, ok bool) {
	keyspace, name := strings.ToLower(t.Keyspace), strings.ToLower(t.Name)
	for i := 1; i < len(words); i++ {
		if words[i-1] == keyspace && words[i] == name {
			return naming{0, i}, true
		}
	}
	n = naming{1, slices.Index(words, name)}
	return n, n.at >= 0 && (used == t.Keyspace || slices.Contains(words, keyspace))
}
