package frontend

import (
	"cmp"
	"slices"
	"strings"

	"music/frontend/catalog"
	"music/frontend/wire"
)

// readUnclear is for text that the proxy cannot read, as a transaction of Cassandra 6. Cassandra will hardly read it either; but what names
// a critical table, or one of the proxies', does not get there.
func (c *conn) readUnclear(text []byte, keyspaceOfRequest string) reading {
	if c.server.Tables == nil {
		return reading{meaning: meaningUnclear}
	}
	words := wordsOf(text)
	if at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, catalog.CompanionPrefix) }); at >= 0 {
		return reading{meaning: meaningRefused, failure: wire.Invalid("MUSIC_REFUSED: %s is for the proxies only", words[at])}
	}
	used := keyspaceOfRequest
	if set := c.keyspace.Load(); used == "" && set != nil {
		used = *set
	}
	named, first := (*catalog.Table)(nil), naming{}
	c.server.Tables.Critical(func(t *catalog.Table, _ *catalog.Critical) {
		n, ok := namedIn(words, t, used)
		if ok && (named == nil || cmp.Or(cmp.Compare(n.way, first.way), cmp.Compare(n.at, first.at), strings.Compare(t.String(), named.String())) < 0) {
			named, first = t, n
		}
	})
	if named == nil {
		return reading{meaning: meaningUnclear}
	}
	return reading{meaning: meaningRefused, failure: wire.Invalid("MUSIC_SYNTAX: the statement cannot be read, and it names %s, which is critical", named)}
}

// wordsOf are the words of a text in lower case: names of keyspaces and tables have letters, digits and underscores of ASCII alone.
func wordsOf(text []byte) []string {
	return strings.FieldsFunc(strings.ToLower(string(text)), func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}

// naming is how a text names a table, the surest way first, and at which word.
type naming struct{ way, at int }

// namedIn reports whether words may name a table, and how: its name is one of them, and its keyspace is another or the one that is used.
// Comments may stand anywhere between the two.
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
