package proxy

import (
	"fmt"
	"slices"

	"music/musiccore"
)

// synchRow is one row of a selection.
type synchRow struct {
	clustering      []synchTerm
	static, regular []synchCell
	permanent       bool // its marker is known to have no TTL
}

// synchCell is what a row has in one column.
type synchCell struct {
	term  synchTerm
	ttl   int32 // of the value as a whole, 0: none
	parts []synchPart
	stamp musiccore.Stamp // the highest in it; 0 for null

	listed int // elements of a list
}

// synchPart is what a column has under one TTL, where it has more than one: of a UDT a value or nil for each field, of a
// collection one collection.
type synchPart struct {
	ttl    int32
	values []rawBytes
}

// synchElement is one cell of a column that is not frozen.
type synchElement struct {
	ttl   int32
	field int // of a UDT
	value rawBytes
}

// row reads what the selection answered.
func (t synchTable) row(values []rawBytes) (synchRow, error) {
	var r synchRow
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

// staticOnly reports that the partition has static columns and no row.
func (r synchRow) staticOnly() bool {
	return slices.ContainsFunc(r.clustering, synchTerm.null)
}

// listed counts the elements of the row's lists.
func (r synchRow) listed() int {
	n := 0
	for _, c := range r.regular {
		n += c.listed
	}
	return n
}

// highest is the highest stamp in the rows, 0 if there is none.
func highest(rows []synchRow) musiccore.Stamp {
	var top musiccore.Stamp
	for _, r := range rows {
		for _, c := range slices.Concat(r.static, r.regular) {
			top = max(top, c.stamp)
		}
	}
	return top
}

// term is what writes a value that was read by selector.
func (c synchColumn) term(value rawBytes) (synchTerm, error) {
	if c.shape == nil || value == nil {
		return c.shape.term(value)
	}
	tuple, _, err := value[min(4, len(value)):].take()
	if err != nil {
		return synchTerm{}, err
	}
	return c.shape.term(tuple)
}

// cell reads one column of a row.
func (c synchColumn) cell(value, ttl, stamp rawBytes) (synchCell, error) {
	term, err := c.term(value)
	if err != nil {
		return synchCell{}, err
	}
	at, some, err := stamp.int64()
	if err == nil && !term.null() && !some {
		err = fmt.Errorf("%w: it has no stamp", errMalformed)
	}
	cell := synchCell{term: term, stamp: musiccore.Stamp(at)}
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

// elements are the cells of a column that is not frozen.
func (c synchColumn) elements(value, ttl rawBytes) ([]synchElement, error) {
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
	var all []synchElement
	for i, v := range values {
		if v != nil {
			all = append(all, synchElement{ttl: ttls[i], field: i, value: v})
		}
	}
	return all, nil
}

// split takes the value apart, as TTL() counts: a UDT has all its fields, those that are null or were not yet of the type
// when it was written as nil.
func (c synchColumn) split(value rawBytes) ([]rawBytes, error) {
	switch c.storage {
	case udtStorage:
		values, err := value.values()
		if err == nil && len(values) > len(c.fields) {
			err = fmt.Errorf("%w: %d fields of %d", errMalformed, len(values), len(c.fields))
		}
		if err != nil {
			return nil, err
		}
		return append(values, make([]rawBytes, len(c.fields)-len(values))...), nil
	case mapStorage:
		return value.elements(2)
	}
	return value.elements(1)
}

// share puts elements of one TTL together. The order of a list's elements is kept: only neighbours share.
func (c synchColumn) share(elements []synchElement) []synchPart {
	var shared [][]synchElement
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
	parts := make([]synchPart, len(shared))
	for i, s := range shared {
		parts[i] = synchPart{ttl: s[0].ttl, values: c.assemble(s)}
	}
	return parts
}

// assemble are the values that write elements again.
func (c synchColumn) assemble(elements []synchElement) []rawBytes {
	if c.storage == udtStorage {
		values := make([]rawBytes, len(c.fields))
		for _, e := range elements {
			values[e.field] = e.value
		}
		return values
	}
	values := make([]rawBytes, len(elements))
	for i, e := range elements {
		values[i] = e.value
	}
	return []rawBytes{collect(values)}
}
