package catalog

import (
	"slices"
	"strconv"
	"strings"

	"music/rewrite"
)

// DDL holds the properties in the text of a CREATE or ALTER that the proxy checks.
type DDL struct {
	Comment  string
	Counters bool  // the type of a column is counter
	Grace    int64 // gc_grace_seconds; -1 if it is not given
	Volatile bool  // durable_writes = false
	Checked  bool  // a column has a constraint

	// Transactional says that Cassandra 6 executes writes as transactions: by transactional_mode, or
	// still, by the migration from one.
	Transactional bool
}

// ReadDDL reads the text of a CREATE, an ALTER or a COMMENT ON. It looks for "name = value" and
// "column type" among any three tokens in a row, without parsing the statement.
func ReadDDL(text []byte) DDL {
	d := DDL{Grace: -1}
	head := rewrite.ReadHead(text, true).Schema
	comment := head.Action == rewrite.Comment && head.Kind == rewrite.SchemaTable
	lex := rewrite.NewLexer(text)
	var name, middle rewrite.Token
	for t := lex.Next(); t.Kind != rewrite.TokenEOF && t.Kind != rewrite.TokenInvalid; t = lex.Next() {
		if middle.Kind == '=' {
			d.property(text, name, t)
		}
		if comment && isWord(text, middle, "is") && t.Kind == rewrite.TokenString {
			d.Comment = stringOf(text, t)
		}
		d.Counters = d.Counters || t.Kind == rewrite.TokenIdent && isWord(text, t, "counter") &&
			(middle.Kind == rewrite.TokenIdent || middle.Kind == rewrite.TokenQuoted)
		d.Checked = d.Checked || t.Kind == rewrite.TokenIdent && isWord(text, t, "check")
		name, middle = middle, t
	}
	return d
}

// property stores one property. Cassandra reads every value as text (PropertyDefinitions): '3600'
// is a number and 'No' is false.
func (d *DDL) property(text []byte, name, value rewrite.Token) {
	said := string(value.Of(text))
	if value.Kind == rewrite.TokenString {
		said = stringOf(text, value)
	}
	switch propertyName(text, name) {
	case "comment":
		d.Comment = said
	case "gc_grace_seconds":
		d.Grace, _ = strconv.ParseInt(said, 10, 64) // 0, which is too short, if it is not a number
	case "transactional_mode":
		d.Transactional = d.Transactional || !strings.EqualFold(said, "off")
	case "transactional_migration_from":
		d.Transactional = d.Transactional || !strings.EqualFold(said, "none")
	case "durable_writes":
		d.Volatile = !slices.Contains([]string{"true", "yes", "1"}, strings.ToLower(said))
	}
}

// stringOf returns the value of a token that is a string.
func stringOf(text []byte, t rewrite.Token) string {
	s, _ := rewrite.String(text, rewrite.Term{Kind: rewrite.TermString, Span: t.Span, Marker: -1})
	return s
}

// propertyName returns the name of a property as Cassandra knows it: in lower case unless it is in
// double quotes. It is empty if the token is not a name.
func propertyName(text []byte, t rewrite.Token) string {
	if t.Kind != rewrite.TokenIdent && t.Kind != rewrite.TokenQuoted {
		return ""
	}
	return string(rewrite.Name{Span: t.Span, Quoted: t.Kind == rewrite.TokenQuoted}.AppendTo(nil, text))
}

// isWord reports whether a token is a word, in any case.
func isWord(text []byte, t rewrite.Token, word string) bool {
	return strings.EqualFold(string(t.Of(text)), word)
}

// maxCreate bounds a text in which CreatedKey looks, in bytes: it takes many times as many.
const maxCreate = 64 << 10

// CreatedKey returns the columns of the primary key in the text of a CREATE TABLE, those of the
// partition key first. It returns nil if it cannot make the key out, as in a text longer than
// maxCreate; whether the text is valid is for Cassandra to say.
func CreatedKey(text []byte) (key []Column) {
	if len(text) > maxCreate {
		return nil
	}
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
		var cqlType strings.Builder
		for _, t := range item[1:max(1, end)] {
			cqlType.Write(t.Of(text))
		}
		types[name] = strings.ToLower(cqlType.String())
	}
	for i, name := range names {
		key = append(key, Column{Name: name, Type: types[name], Clustering: i >= partition})
		if types[name] == "" {
			return nil
		}
	}
	return key
}

// definitions returns the comma-separated items within the first parentheses of a text, without
// empty ones.
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

// keyNames returns the names in the parentheses of PRIMARY KEY (…), and how many of them are the
// partition key.
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
