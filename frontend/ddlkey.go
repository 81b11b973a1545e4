package frontend

import (
	"slices"
	"strings"

	"music/frontend/catalog"
	"music/rewrite"
)

// createdKey returns the columns of the primary key of which the text of a CREATE TABLE tells, those
// of the partition first. It is nil where it cannot be told: Cassandra reads the text itself.
func createdKey(text []byte) (key []catalog.Column) {
	types := map[string]string{}
	var names []string
	partition := 1
	for _, item := range definitions(text) {
		if len(item) > 2 && isWord(text, item[0], "PRIMARY") && isWord(text, item[1], "KEY") {
			names, partition = keyNames(text, item[2:])
			continue
		}
		end := slices.IndexFunc(item, func(t rewrite.Token) bool { return isWord(text, t, "STATIC") || isWord(text, t, "PRIMARY") })
		name := propertyName(text, item[0])
		if end > 0 && isWord(text, item[end], "PRIMARY") {
			names = []string{name}
		}
		if end < 0 {
			end = len(item)
		}
		for _, t := range item[1:max(1, end)] {
			types[name] += strings.ToLower(string(t.Of(text)))
		}
	}
	for i, name := range names {
		key = append(key, catalog.Column{Name: name, Type: types[name], Clustering: i >= partition})
		if types[name] == "" {
			return nil
		}
	}
	return key
}

// definitions returns what stands between the commas of the first brackets of a text, none of it
// empty.
func definitions(text []byte) (items [][]rewrite.Token) {
	lex, depth := rewrite.NewLexer(text), 0
	var item []rewrite.Token
	for t := lex.Next(); t.Kind != rewrite.TokenEOF && t.Kind != rewrite.TokenInvalid; t = lex.Next() {
		switch t.Kind {
		case '(', '<':
			depth++
		case ')', '>':
			depth--
		}
		switch {
		case depth == 1 && t.Kind == ',', depth == 0 && t.Kind == ')':
			if len(item) > 0 {
				items = append(items, item)
			}
			item = nil
		case depth > 1, depth == 1 && (t.Kind != '(' || len(item) > 0):
			item = append(item, t)
		}
		if depth == 0 && t.Kind == ')' {
			return items
		}
	}
	return nil
}

// keyNames returns the names in the brackets of PRIMARY KEY (…), and how many are of the partition.
func keyNames(text []byte, tokens []rewrite.Token) (names []string, partition int) {
	composite := len(tokens) > 1 && tokens[1].Kind == '('
	partition = 1
	for i, t := range tokens {
		if name := propertyName(text, t); name != "" {
			names = append(names, name)
		}
		if composite && t.Kind == ')' && i < len(tokens)-1 {
			partition = len(names)
		}
	}
	return names, partition
}
