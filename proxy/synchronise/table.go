package synchronise

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"music/rewrite"
)

// errNotSynchronisable means that a table can never be synchronised, whatever its data.
var errNotSynchronisable = errors.New("table cannot be synchronised")

// storage says how a column's value is stored.
type storage uint8

// The kinds of storage.
const (
	plainStorage storage = iota // one cell; the others have a cell for each element
	listStorage
	setStorage
	mapStorage
	udtStorage
)

// columnLayout describes a column. Names are quoted.
type columnLayout struct {
	name       string
	typeName   string // as in system_schema
	storage    storage
	fields     []string // for udtStorage
	shape      tupleShape
	descending bool // a clustering column in descending order
}

// tableLayout describes a table. Names are quoted; the columns of the key are in its order.
type tableLayout struct {
	name                  string
	partition, clustering []columnLayout
	static, regular       []columnLayout
	forgotten             int  // values with a TTL from before this second leave no tombstone in a read as of farFuture
	repaired              bool // a read at QUORUM repairs the replicas that answered it
	staticAlone           bool // it has static columns and no regular ones, so that a read of rows reads the static ones
}

// columnDescription is a row of system_schema.columns.
type columnDescription struct {
	name, kind, typeName string
	position             int
	order                string // asc, desc or none
}

// tableDescription is the description of a table in system_schema. types has the fields of the UDTs
// of its columns.
type tableDescription struct {
	keyspace, name string
	flags          []string
	grace          int // gc_grace_seconds
	compaction     map[string]string
	readRepair     string
	columns        []columnDescription
	types          map[string][]string
	masked         bool
}

// lacks returns one of the names that no column of the table has; "" if there is none. nil = no names.
func (d tableDescription) lacks(names iter.Seq[string]) string {
	if names == nil {
		return ""
	}
	for name := range names {
		if !slices.ContainsFunc(d.columns, func(c columnDescription) bool { return c.name == name }) {
			return name
		}
	}
	return ""
}

// newTableLayout returns the layout of a described table, or errNotSynchronisable.
func newTableLayout(d tableDescription) (tableLayout, error) {
	t := tableLayout{name: rewrite.Quote(d.keyspace) + "." + rewrite.Quote(d.name), forgotten: d.forgotten(), repaired: d.readRepair == "BLOCKING"}
	if err := d.refusal(); err != nil {
		return t, fmt.Errorf("%w: %s: %w", errNotSynchronisable, t.name, err)
	}
	columns := slices.SortedFunc(slices.Values(d.columns), func(a, b columnDescription) int {
		return cmp.Or(cmp.Compare(a.position, b.position), strings.Compare(a.name, b.name))
	})
	for _, c := range columns {
		column := d.column(c)
		switch c.kind {
		case "partition_key":
			t.partition = append(t.partition, column)
		case "clustering":
			t.clustering = append(t.clustering, column)
		case "static":
			t.static = append(t.static, column)
		case "regular":
			t.regular = append(t.regular, column)
		default:
			return t, fmt.Errorf("%w: %s: column %s is of kind %s", errNotSynchronisable, t.name, column.name, c.kind)
		}
	}
	t.staticAlone = t.static != nil && t.regular == nil
	return t, nil
}

// refusal returns why the table can never be synchronised, or nil if it can.
func (d tableDescription) refusal() error {
	counter := func(c columnDescription) bool { return c.typeName == "counter" }
	switch {
	case slices.Contains(d.flags, "counter"), slices.ContainsFunc(d.columns, counter):
		return errors.New("counters take no timestamp")
	case !slices.Equal(d.flags, []string{"compound"}):
		return fmt.Errorf("compact storage: flags %v", d.flags)
	case d.masked:
		return errors.New("it has masked columns: a mask would be written back as if it were the value")
	}
	return nil
}

// forgotten returns the second before which a value with a TTL must have been written for a read as
// of farFuture to be harmless. Replicas leave out what has expired by then. But if gc_grace_seconds
// reach back to when it was written, or if it is to be repaired first, they answer with a
// tombstone, which read repair writes over a value that has not expired yet (AbstractCell.purge and
// PurgeFunction in Cassandra's source; seen on 5.0.8 for both).
func (d tableDescription) forgotten() int {
	if d.compaction["only_purge_repaired_tombstones"] == "true" {
		return 0
	}
	return farFuture - d.grace
}

// column returns the layout of a described column.
func (d tableDescription) column(c columnDescription) columnLayout {
	column := columnLayout{name: rewrite.Quote(c.name), typeName: c.typeName, shape: shapeOf(c.typeName), descending: c.order == "desc"}
	if name, ok := udtName(c.typeName); ok && d.types[name] != nil {
		column.storage = udtStorage
		for _, field := range d.types[name] {
			column.fields = append(column.fields, rewrite.Quote(field))
		}
		return column
	}
	column.storage = collectionStorage(c.typeName)
	return column
}

// collectionStorage returns how a collection is stored; plainStorage if it is frozen or not a
// collection.
func collectionStorage(typeName string) storage {
	kind, elements, _ := strings.Cut(typeName, "<")
	if elements == "" {
		return plainStorage
	}
	return map[string]storage{"list": listStorage, "set": setStorage, "map": mapStorage}[kind]
}

// MultiCell reports whether a column of this type outside the key has a stamp and a TTL for each of
// its elements or fields.
func MultiCell(typeName string) bool {
	_, udt := udtName(typeName)
	return udt || collectionStorage(typeName) != plainStorage
}

// udtName returns the name of the UDT that a type may be; ok is false if it is another type, or
// frozen.
func udtName(typeName string) (string, bool) {
	if quoted, ok := strings.CutPrefix(typeName, `"`); ok {
		return strings.ReplaceAll(strings.TrimSuffix(quoted, `"`), `""`, `"`), true
	}
	native := []string{
		"ascii", "bigint", "blob", "boolean", "counter", "date", "decimal", "double", "duration", "float", "inet", "int",
		"smallint", "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varchar", "varint",
	}
	return typeName, !strings.ContainsAny(typeName, "<'") && !slices.Contains(native, typeName)
}

// multiCell reports whether each element of the column has its own stamp and TTL.
func (c columnLayout) multiCell() bool { return c.storage >= listStorage }

// columns returns the columns outside the key, in the order of selection.
func (t tableLayout) columns() []columnLayout { return slices.Concat(t.static, t.regular) }

// withoutStatic returns the table as if it had no static columns, which are read and written only
// once.
func (t tableLayout) withoutStatic() tableLayout {
	t.static = nil
	return t
}

// rowAlone returns the table as if each row were a partition: the key is the whole primary key, and
// there are no static columns.
func (t tableLayout) rowAlone() tableLayout {
	t.partition, t.clustering, t.static = slices.Concat(t.partition, t.clustering), nil, nil
	return t
}

// selection returns the SELECT of a partition's rows: the clustering columns, then for every other
// column its value, its TTL and its stamp.
func (t tableLayout) selection(pk []cqlTerm, rows clause) statement {
	var what []string
	for _, c := range t.clustering {
		what = append(what, c.selector())
	}
	for _, c := range t.columns() {
		stamp := "WRITETIME"
		if c.multiCell() {
			stamp = "MAXWRITETIME"
		}
		what = append(what, c.selector(), "TTL("+c.name+")", stamp+"("+c.name+")")
	}
	if len(what) == 0 {
		what = []string{"[" + t.partition[0].name + "]"}
	}
	return statement{
		text:   "SELECT " + strings.Join(what, ", ") + " FROM " + t.name + " WHERE " + equations(t.partition, pk, " AND ") + rows.text,
		values: append(valuesOf(pk), rows.values...),
	}
}

// selector returns the selector of the column. A tuple is selected as the only element of a list,
// since the driver splits a bare one, and then null cannot be distinguished from a tuple of nulls.
func (c columnLayout) selector() string {
	if c.shape != nil {
		return "[" + c.name + "]"
	}
	return c.name
}

// key returns a routing key as terms, one for each column of the partition key.
func (t tableLayout) key(pk string) ([]cqlTerm, error) {
	values, ok := rewrite.SplitRoutingKey(pk, len(t.partition))
	if !ok {
		return nil, fmt.Errorf("%w: routing key of %d bytes for %d columns", errMalformed, len(pk), len(t.partition))
	}
	terms := make([]cqlTerm, len(values))
	for i, v := range values {
		shape := t.partition[i].shape
		var err error
		if terms[i], err = shape.term(RawValue(v)); err == nil && shape != nil && v == "" {
			err = fmt.Errorf("%w: an empty tuple in a partition key", errMalformed)
		}
		if err != nil {
			return nil, err
		}
	}
	return terms, nil
}
