package statement

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"music/frontend/catalog"
	"music/frontend/wire"
	"music/rewrite"
)

// Faults in the text of an INSERT JSON, beside the errors of package json.
var (
	errNoObject = errors.New("it is not an object")
	errTwice    = errors.New("a column is named twice")
	errBehind   = errors.New("text follows the object")
)

// nameMemory is how many bytes a name takes, of the rewrite.MaxMemory that those of a statement may.
const nameMemory = 24

// ReadJSON rewrites INSERT JSON as the equivalent INSERT of columns and values. Columns of the
// primary key get constants, so that the key that is locked is the one that is written; all other
// columns get fromJson(…). It must be called when the values of the request are known, and reports
// whether it has changed the statement.
func (s *Statement) ReadJSON() (bool, *wire.Failure) {
	if !s.has(func(st *rewrite.Statement) bool { return st.JSON }) {
		return false, nil
	}
	var edits []edit
	columns := 0
	for _, part := range s.Parts() {
		if !part.Parsed.JSON || part.Parsed.Verb != rewrite.Insert || part.elsewhere {
			continue
		}
		clause, named, f := part.valuesOfJSON()
		if f != nil {
			return false, f
		}
		if columns += named; columns*nameMemory > rewrite.MaxMemory { // it would be refused for that when all has been made
			return false, wire.Invalid("MUSIC_REFUSED: with the columns of %s for each INSERT JSON, the batch has more names, values and statements than the proxy reads: send several", s.Table)
		}
		edits = append(edits, replace(part.Parsed.JSONClause, clause))
	}
	if len(edits) == 0 {
		return false, nil
	}
	fresh, f := s.rewritten(s.edited(edits))
	if f == nil {
		*s = fresh
		f = s.CheckUnderLock()
	}
	return true, f
}

// valuesOfJSON returns "(columns) VALUES (values)", which means the same as the JSON object, and how many
// columns that names.
func (s *Statement) valuesOfJSON() (clause string, columns int, f *wire.Failure) {
	object, f := s.jsonObject()
	if f != nil {
		return "", 0, f
	}
	var names, values []string
	add := func(name, value string) { names, values = append(names, rewrite.Quote(name)), append(values, value) }
	for _, name := range slices.Sorted(maps.Keys(s.Critical.Columns)) {
		raw, given := object[name]
		switch key := slices.Contains(s.Critical.Primary, name); {
		case given && key:
			literal, ok := literalOfJSON(s.Critical.Columns[name], raw)
			if !ok {
				return "", 0, wire.Invalid("MUSIC_KEY: %s is of type %s, and %.80s is not a constant of that type", name, s.Critical.Columns[name].Type, raw)
			}
			add(name, literal)
		case given && string(raw) != "null":
			add(name, "fromJson("+rewrite.QuoteString(string(raw))+")")
		case given, key, !s.Parsed.Unset:
			add(name, "null")
		}
	}
	return "(" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ") ", len(names), nil
}

// jsonObject returns the values of INSERT JSON by column name. It refuses an object that names a
// column twice, since it is not defined which of the values Cassandra would take.
func (s *Statement) jsonObject() (map[string]json.RawMessage, *wire.Failure) {
	var text []byte
	given := true
	switch t := s.Parsed.JSONText; t.Kind {
	case rewrite.TermMarker:
		text, given = s.Bound(t)
	default:
		written, err := rewrite.String(s.Text, t)
		if err != nil {
			return nil, wire.Invalid("MUSIC_SYNTAX: INSERT JSON takes a string or a bind marker")
		}
		text = []byte(written)
	}
	if !given || string(bytes.TrimSpace(text)) == "null" {
		return nil, wire.Invalid("Got null for INSERT JSON values")
	}
	if !utf8.Valid(text) { // Cassandra would read other characters in its place
		return nil, wire.Invalid("MUSIC_SYNTAX: the text of INSERT JSON on %s is not UTF-8", s.Table)
	}
	object := map[string]json.RawMessage{}
	unknown := unknownColumn("")
	switch err := readObject(text, s.Critical.Columns, object); {
	case errors.As(err, &unknown):
		return nil, wire.Invalid("%v", unknown)
	case err != nil:
		return nil, wire.Invalid("MUSIC_SYNTAX: the text of INSERT JSON on %s is not a JSON object that names each column once: %v", s.Table, err)
	}
	return object, nil
}

// unknownColumn is the error for a name in a JSON object that is no column.
type unknownColumn string

// Error returns what Cassandra says.
func (u unknownColumn) Error() string {
	return "JSON values map contains unrecognized column: " + string(u)
}

// readObject reads a JSON object into a map by column name. It ends at the first name that is no
// column: an object has room for millions of them.
func readObject(text []byte, columns map[string]catalog.Column, into map[string]json.RawMessage) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return errNoObject
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		column := columnOfJSON(name.(string))
		if _, known := columns[column]; !known {
			return unknownColumn(column)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		if _, twice := into[column]; twice {
			return errTwice
		}
		into[column] = raw
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF { //nolint:errorlint // the decoder returns it as it is
		return errBehind
	}
	return nil
}

// columnOfJSON returns the column that a name in a JSON object means: in lower case, unless the
// name has double quotes of its own.
func columnOfJSON(name string) string {
	if len(name) > 1 && name[0] == '"' && name[len(name)-1] == '"' {
		return name[1 : len(name)-1]
	}
	return strings.ToLower(name)
}

// isBare reports whether a JSON string has a value that CQL writes without quotes: a number, a UUID or a blob.
func isBare(text string) bool {
	lexer := rewrite.NewLexer([]byte(text))
	token := lexer.Next()
	if token.Span != (rewrite.Span{End: len(text)}) {
		return false
	}
	switch token.Kind {
	case rewrite.TokenInteger, rewrite.TokenUUID:
		return true
	case rewrite.TokenFloat:
		_, fraction, point := strings.Cut(text, ".")
		return !point || fraction != "" && fraction[0] >= '0' && fraction[0] <= '9'
	case rewrite.TokenBlob:
		return len(text)%2 == 0
	}
	return false
}

// literalOfJSON returns the CQL literal for the JSON value of a key column. Whether it fits the
// column's type is checked when the key is read. ok is false for arrays and objects, and for a
// decimal with a point: Cassandra reads 1.10 as a double, which makes it 1.1. Nor is it for a text with
// half of a character (\ud800), of which each reader makes another one.
func literalOfJSON(c catalog.Column, raw json.RawMessage) (literal string, ok bool) {
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		if strings.ContainsRune(text, utf8.RuneError) && bytes.Contains(bytes.ToLower(raw), []byte(`\ud`)) {
			return "", false
		}
		if isBare(text) && !slices.Contains([]string{"text", "varchar", "ascii", "boolean"}, c.Type) {
			return text, true
		}
		return rewrite.QuoteString(text), true
	}
	ok = raw[0] != '[' && raw[0] != '{' && (c.Type != "decimal" || !bytes.ContainsAny(raw, ".eE"))
	return string(raw), ok
}
