package synchronise

import (
	"fmt"
	"slices"

	"music/musiccore"
)

// dataRow is one row of a selection.
type dataRow struct {
	clustering      []cqlTerm
	static, regular []dataCell
	marker          markerLife
}

// dataCell is the value of a row in one column.
type dataCell struct {
	term  cqlTerm
	ttl   int32           // of the whole value; 0 = none
	parts []ttlPart       // if the elements have several TTLs; else nil
	stamp musiccore.Stamp // the highest in it; 0 for null

	listed int // the number of elements of a list
}

// ttlPart is the part of a column's value with one TTL, if it has several: for a UDT a value or nil
// for each field, for a collection one collection.
type ttlPart struct {
	ttl    int32
	values []RawValue
}

// element is one cell of a column that is not frozen.
type element struct {
	ttl   int32
	field int // index of the field of a UDT
	value RawValue
}

// row decodes a row of a selection.
func (t tableLayout) row(values []RawValue) (dataRow, error) {
	var r dataRow
	for i, c := range t.clustering {
		term, err := c.term(values[i])
		if err != nil {
			return r, fmt.Errorf("column %s: %w", c.name, err)
		}
		r.clustering = append(r.clustering, term)
	}
	values = values[len(t.clustering):]
	for i, c := range t.columns() {
		cell, err := c.cell(values[3*i], values[3*i+1], values[3*i+2])
		if err != nil {
			return r, fmt.Errorf("column %s: %w", c.name, err)
		}
		if i < len(t.static) {
			r.static = append(r.static, cell)
		} else {
			r.regular = append(r.regular, cell)
		}
	}
	return r, nil
}

// staticOnly reports whether this is not a row, but the static columns of a partition without rows.
func (r dataRow) staticOnly() bool {
	return slices.ContainsFunc(r.clustering, cqlTerm.null)
}

// listed returns the number of elements of the row's lists.
func (r dataRow) listed() int {
	n := 0
	for _, c := range r.regular {
		n += c.listed
	}
	return n
}

// highest returns the highest stamp in the rows, 0 if there is none.
func highest(rows []dataRow) musiccore.Stamp {
	var top musiccore.Stamp
	for _, r := range rows {
		for _, c := range slices.Concat(r.static, r.regular) {
			top = max(top, c.stamp)
		}
	}
	return top
}

// term returns the term that writes a value back that was read by selector.
func (c columnLayout) term(value RawValue) (cqlTerm, error) {
	if c.shape == nil || value == nil {
		return c.shape.term(value)
	}
	tuple, _, err := value[min(4, len(value)):].take()
	if err != nil {
		return cqlTerm{}, err
	}
	return c.shape.term(tuple)
}

// cell decodes one column of a row.
func (c columnLayout) cell(value, ttl, stamp RawValue) (dataCell, error) {
	term, err := c.term(value)
	if err != nil {
		return dataCell{}, err
	}
	at, some, err := stamp.int64()
	if err == nil && !term.null() && !some {
		err = fmt.Errorf("%w: it has no stamp", errMalformed)
	}
	cell := dataCell{term: term, stamp: musiccore.Stamp(at)}
	if err != nil || term.null() {
		return cell, err
	}
	if !c.multiCell() {
		cell.ttl, err = ttl.int32()
		return cell, err
	}
	elements, err := c.elements(value, ttl)
	if err != nil {
		return cell, err
	}
	cell.parts = c.share(elements)
	if c.storage == listStorage {
		cell.listed = len(elements)
	}
	if len(cell.parts) == 1 {
		cell.ttl, cell.parts = cell.parts[0].ttl, nil
	}
	return cell, nil
}

// elements returns the cells of a column that is not frozen.
func (c columnLayout) elements(value, ttl RawValue) ([]element, error) {
	values, err := c.split(value)
	if err != nil {
		return nil, err
	}
	ttls, err := ttl.ttls()
	if err != nil {
		return nil, err
	}
	if len(ttls) != len(values) {
		return nil, fmt.Errorf("%w: %d TTLs of %d elements", errMalformed, len(ttls), len(values))
	}
	var all []element
	for i, v := range values {
		if v != nil {
			all = append(all, element{ttl: ttls[i], field: i, value: v})
		}
	}
	return all, nil
}

// split returns the elements of a value, one for each TTL that TTL() returns. A UDT has all its
// fields; those that are null, or were added to the type after the value was written, are nil.
func (c columnLayout) split(value RawValue) ([]RawValue, error) {
	switch c.storage {
	case udtStorage:
		values, err := value.values()
		if err == nil && len(values) > len(c.fields) {
			err = fmt.Errorf("%w: %d fields of %d", errMalformed, len(values), len(c.fields))
		}
		if err != nil {
			return nil, err
		}
		return append(values, make([]RawValue, len(c.fields)-len(values))...), nil
	case mapStorage:
		return value.elements(2)
	}
	return value.elements(1)
}

// share groups elements by TTL. The elements of a list must keep their order, so only neighbours
// are grouped.
func (c columnLayout) share(elements []element) []ttlPart {
	var shared [][]element
	place := map[int32]int{}
	for i, e := range elements {
		at, known := place[e.ttl]
		if !known || c.storage == listStorage && elements[i-1].ttl != e.ttl {
			at = len(shared)
			place[e.ttl] = at
			shared = append(shared, nil)
		}
		shared[at] = append(shared[at], e)
	}
	parts := make([]ttlPart, len(shared))
	for i, s := range shared {
		parts[i] = ttlPart{ttl: s[0].ttl, values: c.assemble(s)}
	}
	return parts
}

// assemble returns the values that write elements back.
func (c columnLayout) assemble(elements []element) []RawValue {
	if c.storage == udtStorage {
		values := make([]RawValue, len(c.fields))
		for _, e := range elements {
			values[e.field] = e.value
		}
		return values
	}
	values := make([]RawValue, len(elements))
	for i, e := range elements {
		values[i] = e.value
	}
	return []RawValue{collect(values)}
}
