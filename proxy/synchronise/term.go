package synchronise

import (
	"cmp"
	"fmt"
	"strings"
)

// cqlTerm is a value in a statement: its text, and the values of the markers in it. Null has no
// text.
type cqlTerm struct {
	text   string
	values []RawValue
}

// null reports whether the term is null.
func (t cqlTerm) null() bool { return t.text == "" }

// valuesOf returns the values of all terms, in order.
func valuesOf(terms []cqlTerm) []RawValue {
	var all []RawValue
	for _, t := range terms {
		all = append(all, t.values...)
	}
	return all
}

// equations returns `a = ?` for each column, joined by separator.
func equations(columns []columnLayout, terms []cqlTerm, separator string) string {
	all := make([]string, len(columns))
	for i, c := range columns {
		all[i] = c.name + " = " + terms[i].text
	}
	return strings.Join(all, separator)
}

// tupleShape is the structure of a type, as far as it matters for markers: the elements of a tuple,
// nil for every other type. The driver cannot bind a tuple to one marker (it counts one for each
// element, then looks for their types and panics), so a tuple is written out, as in `(?, null, (?,
// ?))`.
type tupleShape []tupleShape

// shapeOf returns the shape of a type in system_schema.
func shapeOf(typeName string) tupleShape {
	inner, frozen := strings.CutPrefix(typeName, "frozen<")
	if frozen {
		typeName = strings.TrimSuffix(inner, ">")
	}
	inner, ok := strings.CutPrefix(typeName, "tuple<")
	if !ok {
		return nil
	}
	shape := tupleShape{}
	for _, element := range splitTypes(strings.TrimSuffix(inner, ">")) {
		shape = append(shape, shapeOf(element))
	}
	return shape
}

// splitTypes splits a list of types at the commas that are neither in brackets nor in quotes.
func splitTypes(list string) []string {
	var all []string
	depth, quoted, from := 0, false, 0
	for i, r := range list {
		switch {
		case r == '"' || r == '\'':
			quoted = !quoted
		case quoted:
		case r == '<':
			depth++
		case r == '>':
			depth--
		case r == ',' && depth == 0:
			all = append(all, strings.TrimSpace(list[from:i]))
			from = i + 1
		}
	}
	return append(all, strings.TrimSpace(list[from:]))
}

// term returns the term that writes a value. A tuple may have fewer elements than its type, and
// keeps its number of elements. Only a tuple without elements, for which there is no text, becomes
// one of a null.
func (s tupleShape) term(value RawValue) (cqlTerm, error) {
	switch {
	case value == nil:
		return cqlTerm{}, nil
	case s == nil:
		return cqlTerm{text: "?", values: []RawValue{value}}, nil
	}
	elements, err := value.values()
	if err == nil && len(elements) > len(s) {
		err = fmt.Errorf("%w: %d elements in a tuple of %d", errMalformed, len(elements), len(s))
	}
	texts := make([]string, max(1, len(elements)))
	texts[0] = "null"
	var all cqlTerm
	for i := 0; i < len(elements) && err == nil; i++ {
		var t cqlTerm
		t, err = s[i].term(elements[i])
		texts[i] = cmp.Or(t.text, "null")
		all.values = append(all.values, t.values...)
	}
	all.text = "(" + strings.Join(texts, ", ") + ")"
	return all, err
}
